//! Logs that arrive in small letters, as some collectors store them.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};
use messages::values::{self, Table};

/// What NCCL and its plugins print with capital letters and [`crate::nccl`] compares letter by letter. Signals do not
/// depend on it: their templates match in any case.
static PHRASES: &[&str] = &[
    " NCCL INFO ",
    " NCCL WARN ",
    "NCCL version ",
    "Adding NCCL_",
    "AllReduce",
    "Assigned NET plugin",
    "AWS Libfabric",
    "Bootstrap :",
    "Bootstrap : Using",
    "Bootstrap:",
    "Bootstrap: Using",
    "Bootstrap timings",
    "busId",
    "Channel ",
    "COLLNET/",
    "Comm config ",
    "commHash",
    "commId",
    "Connected all rings",
    "Connected all trees",
    "CollNet",
    "Could not find:",
    "Could not find real path of",
    "cudaDev",
    "cudaDriverVersion",
    "Cuda failure",
    "CUDA Dev ",
    "CUMEM",
    "Disabled for GPU",
    "Disabled for HCA",
    "DMA-BUF is available on GPU device",
    "Enabled for GPU",
    "Enabled for HCA",
    "Failed to find ncclCollNetPlugin",
    "Failed to find ncclNetPlugin",
    "Failed to initialize NET plugin",
    "GDR ",
    "GDRDMA",
    "GPU Direct RDMA",
    "/ HCA ",
    "IBext",
    "Init COMPLETE",
    "Init START",
    "Init timings",
    "Initialized NET plugin",
    "Initializing aws-ofi-nccl ",
    "IP Interfaces",
    "Libfabric",
    "Loaded coll plugin",
    "Loaded net plugin",
    "Loading topology file ",
    "localRank ",
    "localRanks ",
    "MNNVL",
    "NCCL RDMA Plugin",
    "NET : Using interface",
    "NET/",
    "NET/FasTrak",
    "NET/IB",
    "NET/IB : No device found",
    "NET/IB : Using",
    "NET/OFI",
    "NET/OFI Selected Provider",
    "NET/OFI Selected provider",
    "NET/Plugin",
    "NET/Socket",
    "NET/Socket : Using",
    "nNodes ",
    "No plugin found",
    "nvmlDev",
    "NVLS multicast support is",
    "OOB ",
    "P2P Chunksize set to",
    "P2P plugin",
    "P2P/",
    "P2P/CUMEM",
    "P2P/IPC",
    "P2P/direct",
    "Plugin Path",
    "Plugin name set by env to",
    "PXN ",
    "RAS client listening socket at ",
    "Ring ",
    "/RoCE",
    "/IB ",
    "Setting affinity for GPU",
    "SHM/",
    "Successfully loaded external",
    "Support for DMA-BUF registrations",
    "Trees ",
    "TUNER/Plugin",
    "PROFILER/Plugin",
    "Using internal",
    "Using network ",
    "Using network IB",
    "Using network IBext",
    "Using network Socket",
    "Using network AWS Libfabric",
    "Using network Libfabric",
    "Using tuner plugin",
    "/Shared",
];

/// The phrases, and the texts of system errors, which rules compare as they are printed.
fn phrases() -> &'static [&'static str] {
    static ALL: OnceLock<Vec<&'static str>> = OnceLock::new();
    ALL.get_or_init(|| {
        let errors = values::of_table(Table::Errno).flat_map(values::Value::printed);
        PHRASES.iter().copied().chain(errors.filter(|it| !it.is_empty())).collect()
    })
}

fn search() -> Option<&'static AhoCorasick> {
    static SEARCH: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let build = || {
        let small = phrases().iter().map(|it| it.to_ascii_lowercase());
        AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(small).ok()
    };
    SEARCH.get_or_init(build).as_ref()
}

/// The line with the capital letters of the phrases that NCCL prints.
pub(crate) fn restore(line: &[u8]) -> Vec<u8> {
    let mut out = line.to_vec();
    let Some(search) = search() else { return out };
    if line.starts_with(b"nccl info ") || line.starts_with(b"nccl warn ") {
        capital(&mut out, 0, 9);
    }
    for hit in search.find_iter(line) {
        if let (Some(phrase), Some(to)) = (phrases().get(hit.pattern().as_usize()), out.get_mut(hit.range()))
        {
            to.copy_from_slice(phrase.as_bytes());
        }
    }
    if memchr::memmem::find(line, b" nnodes ").is_some()
        && let Some(at) = memchr::memmem::find(line, b" nranks ")
    {
        capital(&mut out, at + 2, 1);
    }
    // Anchors and variables may overlap other phrases.
    for anchor in [&b" nccl info "[..], b" nccl warn "] {
        for at in memchr::memmem::find_iter(line, anchor) {
            capital(&mut out, at, anchor.len());
        }
    }
    for at in memchr::memmem::find_iter(line, b"nccl_") {
        let rest = line.get(at..).unwrap_or_default();
        let length = rest.iter().take_while(|it| it.is_ascii_alphanumeric() || **it == b'_').count();
        let after = rest.get(length..).unwrap_or_default();
        if after.starts_with(b" set by ") || after.starts_with(b" set to ") || after.starts_with(b"=") {
            capital(&mut out, at, length);
        }
    }
    out
}

fn capital(out: &mut [u8], at: usize, length: usize) {
    if let Some(part) = out.get_mut(at..at + length) {
        part.make_ascii_uppercase();
    }
}

#[cfg(test)]
mod tests {
    use super::{restore, search};

    #[test]
    fn capitals_come_back() {
        assert!(search().is_some());
        for line in [
            "node-a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/AWS Libfabric/0/GDRDMA",
            "node-a:1:2 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0",
            "node-a:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 4 cudaDev 0 busId 10 - Init COMPLETE",
            "node-a:1:2 [0] NCCL INFO comm 0x1 rank 3 nRanks 16 nNodes 4 localRanks 4 localRank 3 MNNVL 0",
            "node-a:1:2 [0] NCCL INFO Using network IB",
            "node-a:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",
            "node-a:1:2 [0] misc/x.cc:1 NCCL WARN connect to x failed : No route to host",
        ] {
            let small = line.to_ascii_lowercase();
            assert_eq!(String::from_utf8_lossy(&restore(small.as_bytes())), line);
        }
    }
}
