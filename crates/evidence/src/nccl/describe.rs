//! What the lines of a log mean, for people who read one.
//!
//! One row for each family that [`super::parse`] understands: a real line, the
//! releases that print it, and its meaning. `plumb explain 'LINE'` shows it,
//! and a test checks that the parser still understands every example.

use super::{Message, parse};
use crate::plugin::PLUGINS;

/// A family of lines.
#[derive(Debug, Clone, Copy)]
pub struct LineKind {
    /// A real line.
    pub example: &'static str,
    /// Which releases print it.
    pub since: &'static str,
    /// What it says, and what it does not say.
    pub meaning: &'static str,
}

/// The family a message belongs to; `None` rather than one that only looks alike.
pub fn describe(message: &[u8]) -> Option<&'static LineKind> {
    let found = parse(message);
    if found == Message::Unknown {
        return None;
    }
    kinds().find(|it| same(&parse(it.example.as_bytes()), it.example, &found, message))
}

/// Whether two messages say the same thing of different ranks, devices and times.
fn same(kind: &Message<'_>, example: &str, found: &Message<'_>, message: &[u8]) -> bool {
    let text = String::from_utf8_lossy(message);
    match (kind, found) {
        (Message::Nvls(a), Message::Nvls(b)) => a == b,
        (Message::HcaGpuDirect { enabled: a, .. }, Message::HcaGpuDirect { enabled: b, .. })
        | (Message::GpuDirectByDistance { enabled: a }, Message::GpuDirectByDistance { enabled: b }) => {
            a == b
        }
        (Message::Link(a), Message::Link(b)) => {
            let family = |via: &[u8]| super::transport(&String::from_utf8_lossy(via)).map(|it| it.family());
            family(a.via).is_some() && family(a.via) == family(b.via)
        }
        (Message::Plugin(a), Message::Plugin(b)) => {
            std::mem::discriminant(a) == std::mem::discriminant(b) && words(example, 1) == words(&text, 1)
        }
        (Message::Comm(_), Message::Comm(_)) => true,
        // The plugin's lines and the routine ones differ in their words alone.
        (Message::PluginLine { .. }, Message::PluginLine { .. }) => words(example, 4) == words(&text, 4),
        (Message::Routine, Message::Routine) => words(example, 2) == words(&text, 2),
        (Message::Connected(a), Message::Connected(b)) => a == b,
        (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}

/// All families, those of plugins last.
pub fn kinds() -> impl Iterator<Item = &'static LineKind> {
    KINDS.iter().chain(PLUGINS.iter().flat_map(|it| it.lines))
}

/// The first words, numbers aside.
fn words(text: &str, n: usize) -> Vec<String> {
    let letters = |it: &str| it.chars().filter(|it| !it.is_ascii_digit()).collect();
    text.split_whitespace().take(n).map(letters).collect()
}

static KINDS: &[LineKind] = &[
    LineKind {
        example: "NCCL version 2.27.3+cuda12.9",
        since: "all; by every process since 2.22, by rank 0 before",
        meaning: "The NCCL library that was actually loaded and the CUDA release it was built with. It can differ from the one pip or the image lists.",
    },
    LineKind {
        example: "cudaDriverVersion 13000",
        since: "2.13 and later",
        meaning: "The CUDA level of the driver: 1000 x major + 10 x minor, so 13000 is CUDA 13.0.",
    },
    LineKind {
        example: "NCCL_PROTO set by environment to simple",
        since: "all",
        meaning: "NCCL read this variable from the environment. It does not prove that the user set it: network plugins such as aws-ofi-nccl put variables there before NCCL reads them (they say so with `Adding X=Y to environment`).",
    },
    LineKind {
        example: "Comm config Blocking set to 1",
        since: "2.17 and later",
        meaning: "The program requested a setting other than the default when it created the communicator.",
    },
    LineKind {
        example: "Bootstrap: Using eth0:10.0.5.28<0>",
        since: "all; written `Bootstrap : Using` up to 2.23",
        meaning: "The interface over which the ranks find each other. It carries setup messages only and says nothing about the network that carries data.",
    },
    LineKind {
        example: "Bootstrap timings total 0.829298 (create 0.000114, send 0.000270, recv 0.816621, ring 0.011037, delay 0.000001)",
        since: "2.23 and later",
        meaning: "Seconds spent finding the other ranks. A long `recv` is time spent waiting for ranks that arrived later, a long `ring` the wait for the last one: the rank with the shortest times is the late one.",
    },
    LineKind {
        example: "NET/Plugin: Plugin name set by env to libnccl-net.so",
        since: "2.21 to 2.27",
        meaning: "NCCL_NET_PLUGIN names the network plugin to load.",
    },
    LineKind {
        example: "NET/Plugin: Failed to find ncclCollNetPlugin_v10 symbol.",
        since: "up to 2.27",
        meaning: "Harmless. The plugin offers no in-network reduction in this version of the interface; NCCL then tries older versions.",
    },
    LineKind {
        example: "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        since: "2.21 and later",
        meaning: "No network plugin was loaded, and NCCL uses its own InfiniBand or socket transport. Normal without a plugin; on an EFA instance it means TCP.",
    },
    LineKind {
        example: "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
        since: "up to 2.20",
        meaning: "No network plugin was loaded, and NCCL uses its own InfiniBand or socket transport. Normal without a plugin; on an EFA instance it means TCP.",
    },
    LineKind {
        example: "NET/Plugin: Loaded net plugin Libfabric (v10)",
        since: "all",
        meaning: "The plugin's library was opened and offers this network. This line does not show that NCCL uses it; `Using network` and the `via NET/` lines do.",
    },
    LineKind {
        example: "Successfully loaded external plugin libnccl-net.so",
        since: "2.27; `external network plugin` from 2.28",
        meaning: "The plugin's library was opened. Whether it can be used is decided later.",
    },
    LineKind {
        example: "Initialized NET plugin Libfabric",
        since: "2.27 and later",
        meaning: "The plugin found its devices and can be used.",
    },
    LineKind {
        example: "Assigned NET plugin Libfabric to comm",
        since: "2.27 and later",
        meaning: "This communicator will use this network between nodes.",
    },
    LineKind {
        example: "Using network Libfabric",
        since: "all",
        meaning: "The network this communicator uses between nodes: IB (InfiniBand or RoCE), Socket (TCP), Libfabric or AWS Libfabric (EFA through aws-ofi-nccl), or another plugin's name.",
    },
    LineKind {
        example: "NET/IB : No device found.",
        since: "all",
        meaning: "NCCL's own InfiniBand code found no usable adapter. Normal on machines without InfiniBand or RoCE, and on EFA instances, whose adapters it never uses.",
    },
    LineKind {
        example: "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.10<0>",
        since: "2.12 and later",
        meaning: "The InfiniBand or RoCE ports that will be used. [RO] means relaxed ordering; OOB is the interface of the setup messages.",
    },
    LineKind {
        example: "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
        since: "2.13 and later, subsystem NET",
        meaning: "The adapter cannot read GPU memory itself (no nvidia_peermem and no DMA-BUF), so data is copied through host memory.",
    },
    LineKind {
        example: "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
        since: "2.13 and later, subsystem NET",
        meaning: "The adapter can read and write GPU memory itself. /GDRDMA on a channel line shows that the connection does so.",
    },
    LineKind {
        example: "GPU Direct RDMA Enabled for GPU 0 / HCA 0 (distance 4 <= 5), read 0 mode Default",
        since: "subsystem GRAPH or NET; up to 2.29",
        meaning: "GPU and adapter are near enough for GPUDirect.",
    },
    LineKind {
        example: "GPU Direct RDMA Disabled for GPU 0 / HCA 1 (distance 8 > 5), read 0 mode Default",
        since: "subsystem GRAPH or NET; up to 2.29",
        meaning: "GPU and adapter are too far apart for GPUDirect: the distance (a path type) is above NCCL_NET_GDR_LEVEL, by default PXB, i.e. below one PCIe switch. Often normal for all but the nearest adapter.",
    },
    LineKind {
        example: "NET/Socket : Using [0]eth0:10.0.0.1<0>",
        since: "all",
        meaning: "The interfaces that carry data over TCP, if the network is Socket.",
    },
    LineKind {
        example: "DMA-BUF is available on GPU device 0",
        since: "2.13 and later",
        meaning: "The driver can export GPU memory as DMA-BUF. It says nothing about the network adapter.",
    },
    LineKind {
        example: "ncclCommInitRankConfig comm 0x559d9a6ce460 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 3e000 commId 0x81dca7568efe26d7 - Init START",
        since: "2.18.3 and later; COMPLETE in all",
        meaning: "A rank begins (or ends) the setup of a communicator. commId is the same on all ranks of it; a rank with START and no COMPLETE is stuck or failed.",
    },
    LineKind {
        example: "comm 0x559d9a6ce460 rank 3 nRanks 16 nNodes 4 localRanks 4 localRank 3 MNNVL 0",
        since: "2.20 and later",
        meaning: "How NCCL counts the job. A node is a host name: pods with different host names are different nodes even on one machine.",
    },
    LineKind {
        example: "RAS client listening socket at ::1<28028>",
        since: "2.24 and later",
        meaning: "NCCL RAS listens at this address while the job runs. To query the job: `echo verbose status | nc localhost 28028`.",
    },
    LineKind {
        example: "Setting affinity for GPU 2 to 0-47",
        since: "all",
        meaning: "NCCL's helper threads are bound to the CPUs near the GPU.",
    },
    LineKind {
        example: "NVLS multicast support is not available on dev 2 (NVLS_NCHANNELS 0)",
        since: "2.18 and later",
        meaning: "No NVLink SHARP. Normal on everything before Hopper and without NVSwitch.",
    },
    LineKind {
        example: "NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)",
        since: "2.18 and later",
        meaning: "NVLink SHARP: the NVSwitch can reduce and copy for all GPUs of the node. Hopper and later.",
    },
    LineKind {
        example: "Channel 00/02 :  0  1  2  3",
        since: "all, by rank 0",
        meaning: "The ring of channel 0 of 2: each rank sends to the one after it. Long lists are cut by NCCL.",
    },
    LineKind {
        example: "Trees [0] 1/8/-1->0->-1 [1] 1/-1/-1->0->4",
        since: "all, by every rank",
        meaning: "For each channel: children->rank->parent, -1 for none.",
    },
    LineKind {
        example: "Channel 00/0 : 3[3] -> 4[0] [send] via NET/Libfabric/0/GDRDMA",
        since: "2.12 and later",
        meaning: "Rank 3 reaches rank 4 over network device 0; the brackets hold NVML indices (bus ids before 2.18.3), not local ranks. /GDRDMA: the adapter reads GPU memory itself; without it data is copied through host memory. (p) after the device: PXN through rank p. /Shared: buffers shared by send/recv.",
    },
    LineKind {
        example: "Channel 00 : 2[2] -> 3[3] via SHM/direct/direct",
        since: "2.13 to 2.30.4; SHM/direct from 2.30.7",
        meaning: "Both ranks are on one host and exchange data through host memory. `direct` means GPU kernels access it; `CE` that copy engines do.",
    },
    LineKind {
        example: "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
        since: "2.18 and later",
        meaning: "GPU to GPU directly, over NVLink or PCIe (the line does not say which). /read is chosen exactly when the path is NVLink and both GPUs are A100 (sm80): there it proves NVLink. It is not a fault.",
    },
    LineKind {
        example: "Connected all rings, use ring PXN 0 GDR 0",
        since: "2.24 and later with the summary",
        meaning: "GDR is 1 only if every network connection of every rank has GPUDirect. GDR 0 beside /GDRDMA lines means that another rank does not use GPUDirect; GDR 1 on one node says nothing.",
    },
    LineKind {
        example: "Connected all trees",
        since: "all",
        meaning: "The tree connections are open. Since 2.22 NCCL opens connections at the first collective that needs them.",
    },
    LineKind {
        example: "2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 1 p2p channels per peer",
        since: "all, in shorter forms before 2.20",
        meaning: "How many channels the communicator uses. All ranks must agree on the first number.",
    },
    LineKind {
        example: "plumb: data in host memory, no GPU",
        since: "plumb bench --log",
        meaning: "Not an NCCL line: the host engine of plumb bench wrote this log, so nothing in it is about GPUs.",
    },
    LineKind {
        example: "plumb: all_reduce by doubling to 65536 bytes, ring",
        since: "plumb bench --log",
        meaning: "Not an NCCL line: the algorithms that the host engine of plumb bench uses for a collective, by size. It timed them in this job.",
    },
    LineKind {
        example: "Enabled NCCL Func/Proto/Algo Matrix:",
        since: "2.24 and later, when NCCL_ALGO or NCCL_PROTO is set",
        meaning: "What the environment allows, not what the hardware supports.",
    },
    LineKind {
        example: "Init timings - ncclCommSplit: rank 1 nranks 16 total 24.41 (kernels 0.00, alloc 0.00, bootstrap 0.00, allgathers 0.01, topo 0.01, graphs 0.00, connections 0.00, rest 24.38)",
        since: "2.22 and later",
        meaning: "Seconds. For a split, `rest` contains the wait until the last rank calls it: a long one means late ranks, not a slow network.",
    },
    LineKind {
        example: "PROFILER/Plugin: Could not find: libnccl-profiler.so.",
        since: "2.23 and later",
        meaning: "Harmless: no profiler plugin is installed.",
    },
    LineKind {
        example: "TUNER/Plugin: Failed to find ncclTunerPlugin_v4 symbol.",
        since: "2.21 and later",
        meaning: "Harmless: the tuner offers another version of the interface.",
    },
    LineKind {
        example: "TUNER/Plugin: Using tuner plugin nccl_ofi_tuner",
        since: "2.21 to 2.27; `Using N (v5)` from 2.28",
        meaning: "A tuner plugin chooses algorithm and protocol by message size.",
    },
    LineKind {
        example: "[Proxy Service] Device 0 CPU core 45",
        since: "2.23 and later",
        meaning: "A helper thread and the core it runs on.",
    },
    LineKind {
        example: "[Service thread] Connection closed by localRank 0",
        since: "all",
        meaning: "Normal when a process ends; during training, a local rank went away.",
    },
    LineKind {
        example: "threadThresholds 8/8/64 | 128/8/64 | 512 | 512",
        since: "all",
        meaning: "Sizes at which NCCL uses more threads; harmless.",
    },
    LineKind {
        example: "P2P Chunksize set to 131072",
        since: "2.16 and later",
        meaning: "The piece size of send and receive.",
    },
    LineKind {
        example: "Check P2P Type isAllDirectP2p 0 directMode 0",
        since: "2.27 and later (isAllCudaP2p added in 2.28.7)",
        meaning: "Whether all local GPUs reach each other by P2P.",
    },
    LineKind {
        example: "misc/socket.cc:49 -> 6",
        since: "all",
        meaning: "An error that NCCL passes up to the caller: 1 CUDA, 2 system, 3 internal, 4 invalid argument, 5 invalid usage, 6 remote (a peer died or the network failed), 8 timeout (2.30.7). The cause is the warning before the first of these lines.",
    },
];

#[cfg(test)]
mod tests {
    use super::{Message, describe, kinds, parse};

    #[test]
    fn every_example_is_understood() {
        for kind in kinds() {
            assert_ne!(parse(kind.example.as_bytes()), Message::Unknown, "{}", kind.example);
            let found = describe(kind.example.as_bytes()).map(|it| it.example);
            assert_eq!(found, Some(kind.example));
        }
    }
}
