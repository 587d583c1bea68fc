//! Messages of NCCL itself, from 2.4 to 2.30.
//!
//! [`parse`] is called for every line of what may be a very long log, so it
//! checks the first byte, then a prefix, and borrows what it finds. What
//! it does not know is [`Message::Unknown`], and is tried against the
//! [signals](crate::signals) afterwards.

mod channel;
mod comm;
mod describe;
mod network;
mod timings;

pub use channel::{Direction, LinkLine, RingLine, TreeNode, Trees, transport};
pub use comm::{CommLine, Layout, Phase};
pub use describe::{LineKind, describe, kinds};
pub use network::{Hca, Interface, LinkLayer, PluginEvent, PluginRole};
pub use timings::{BootstrapTimings, InitTimings};

use crate::facts::RingSummary;
use crate::plugin::{self, Plugin};
use crate::scan::{after, number, text};

/// One message, understood.
#[derive(Debug, Clone, PartialEq)]
pub enum Message<'a> {
    /// `Channel 00/0 : 3[3] -> 4[0] [send] via NET/Libfabric/0`
    Link(LinkLine<'a>),
    /// `Channel 00/02 : 0 1 2 3`
    Ring(RingLine),
    /// `Trees [0] 1/8/-1->0->-1 [1] 1/-1/-1->0->4`
    Trees(Trees),
    /// `... comm 0x1 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 3e000 commId 0x2 - Init START`
    Comm(CommLine),
    /// `comm 0x1 rank 3 nRanks 16 nNodes 4 localRanks 4 localRank 3 MNNVL 0`
    Layout(Layout),
    /// `2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 1 p2p channels per peer`
    ChannelCounts(ChannelCounts),
    /// `Connected all rings, use ring PXN 0 GDR 0`
    RingsConnected {
        /// The PXN and GDR flags, printed since 2.24.
        summary: Option<RingSummary>,
    },
    /// `Connected all trees`, `Connected binomial trees`, `Connected NVLS tree`, ...
    Connected(&'a [u8]),
    /// `Using network Libfabric`
    Network(&'a [u8]),
    /// `NCCL version 2.27.3+cuda12.9`
    Version(&'a [u8]),
    /// `cudaDriverVersion 13000`
    CudaDriver(u32),
    /// `NCCL_PROTO set by environment to simple`
    Environment {
        /// The variable.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// `Comm config Blocking set to 1`
    CommConfig(&'a [u8]),
    /// `Bootstrap: Using eth0:10.0.5.28<0>`
    Bootstrap(Vec<Interface>),
    /// `NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:10.0.1.1<0>`
    Sockets(Vec<Interface>),
    /// `NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>`
    Hcas(Vec<Hca>),
    /// `NET/IB : No device found.`
    NoIbDevice,
    /// `NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'`
    HcaGpuDirect {
        /// Whether it is enabled.
        enabled: bool,
        /// The adapter.
        hca: &'a [u8],
    },
    /// `GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 8 > 5), read 0`
    GpuDirectByDistance {
        /// Whether it is enabled.
        enabled: bool,
    },
    /// Loading of a plugin: net, tuner, profiler.
    Plugin(PluginEvent),
    /// `NET/OFI ...`: printed by a plugin, which reads it.
    PluginLine {
        /// The plugin.
        plugin: &'static Plugin,
        /// The message without the plugin's prefix.
        text: &'a [u8],
    },
    /// `Bootstrap timings total 0.829298 (create ..., send ..., recv ..., ring ..., delay ...)`
    BootstrapTimings(BootstrapTimings),
    /// `Init timings - ncclCommSplit: rank 1 nranks 16 total 24.41 (kernels ..., rest 24.38)`
    InitTimings(InitTimings),
    /// `NVLS multicast support is not available on dev 2 (NVLS_NCHANNELS 0)`
    Nvls(bool),
    /// `DMA-BUF is available on GPU device 0`
    DmaBuf,
    /// `RAS client listening socket at ::1<28028>`
    Ras(&'a [u8]),
    /// `TUNER/Plugin: Using tuner plugin nccl_ofi_tuner`
    Tuner(&'a [u8]),
    /// `misc/socket.cc:49 -> 6 [Async thread]`
    Propagated {
        /// `ncclResult_t`.
        code: u32,
    },
    /// `NCCL_TOPO_FILE set by environment to ...` is an environment line; this is `Loading topology file ...`.
    TopologyFile(&'a [u8]),
    /// `plumb: data in host memory, no GPU`: a log of plumb's own engine, not of NCCL.
    HostMemory,
    /// `plumb: all_reduce by oneshot to 512 bytes, ...`: how that engine runs a collective.
    Choice(&'a [u8]),
    /// Known, and without a fact that is kept.
    Routine,
    /// Not known here.
    Unknown,
}

impl Message<'_> {
    /// Whether nothing but NCCL prints such a line, so that it is known without `NCCL INFO` before it.
    pub(crate) fn is_unmistakable(&self) -> bool {
        matches!(
            self,
            Self::Link(_)
                | Self::Ring(_)
                | Self::Trees(_)
                | Self::Comm(_)
                | Self::Layout(_)
                | Self::ChannelCounts(_)
                | Self::RingsConnected { .. }
                | Self::Connected(_)
                | Self::Network(_)
                | Self::Environment { .. }
                | Self::Bootstrap(_)
                | Self::Sockets(_)
                | Self::Hcas(_)
                | Self::NoIbDevice
                | Self::HcaGpuDirect { .. }
                | Self::GpuDirectByDistance { .. }
                | Self::Plugin(_)
                | Self::PluginLine { .. }
                | Self::BootstrapTimings(_)
                | Self::InitTimings(_)
                | Self::Nvls(_)
                | Self::DmaBuf
        )
    }
}

/// What messages begin with that are known by little more.
static BEGINNINGS: &[&str] = &[
    "NCCL INFO ",
    "Channel ",
    "Connected all ",
    "Using network ",
    "Bootstrap : Using ",
    "NET/IB : Using ",
    "NET/IB : No device found",
    "NET/Socket : Using ",
    "NET/Plugin",
    "NET/OFI ",
    "ncclCommInitRank comm ",
    "comm 0x",
    "GPU Direct RDMA ",
    "NVLS multicast support is ",
];

/// The message whose first letters are missing in `line`, if it is one that nothing but NCCL prints.
pub(crate) fn completed(line: &[u8]) -> Option<Vec<u8>> {
    for beginning in BEGINNINGS {
        let beginning = beginning.as_bytes();
        // At least half of it is left.
        let left =
            (1..=beginning.len() / 2).find(|&it| beginning.get(it..).is_some_and(|it| line.starts_with(it)));
        let Some(whole) = left.and_then(|it| beginning.get(..it)).map(|missing| [missing, line].concat())
        else {
            continue;
        };
        let message = whole.strip_prefix(b"NCCL INFO ").unwrap_or(&whole);
        if parse(message).is_unmistakable() {
            return Some(message.to_vec());
        }
    }
    None
}

/// How many channels a communicator uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChannelCounts {
    /// For collectives.
    pub coll: u32,
    /// For reductions in the network.
    pub collnet: Option<u32>,
    /// For NVLink SHARP.
    pub nvls: Option<u32>,
    /// For send and receive.
    pub p2p: Option<u32>,
    /// For send and receive with one peer.
    pub p2p_per_peer: Option<u32>,
}

/// Reads one message.
pub fn parse(message: &[u8]) -> Message<'_> {
    let Some(&first) = message.first() else { return Message::Routine };
    let found = match first {
        b'C' => channel::parse(message).or_else(|| other_c(message)),
        b'R' => channel::parse(message)
            .or_else(|| after(message, "RAS client listening socket at ").map(Message::Ras))
            .or_else(|| {
                starts(message, &["Reduce: ", "ReduceScatter: ", "ReduceScatter |", "Recv: opCount"])
            }),
        b'T' => channel::trees(message)
            .or_else(|| network::plugin(message))
            .or_else(|| starts(message, &["Tree ", "TOPO/NET"])),
        b'c' => comm::parse(message).or_else(|| {
            let rest = after(message, "cudaDriverVersion ")?;
            Some(Message::CudaDriver(number(rest)?.0))
        }),
        b'n' | b'[' => comm::parse(message).or_else(|| {
            starts(
                message,
                &[
                    "[Proxy Service] Device ",
                    "[Proxy Service UDS] Device ",
                    "[Proxy Progress] Device ",
                    "[Service thread] Connection closed by localRank",
                    "ncclTopoPopulateNics",
                    "ncclMaxSharedMem",
                    "ncclTopoGetCpuAffinity",
                    "ncclP2pSchedule",
                ],
            )
        }),
        b'N' => n(message),
        b'0'..=b'9' => channel_counts(message).or_else(|| search_channel(message)),
        b'U' => after(message, "Using network ")
            .map(Message::Network)
            .or_else(|| starts(message, &["Using non-device net plugin", "Using internal"])),
        b'B' => network::bootstrap(message).or_else(|| starts(message, &["Broadcast: "])),
        b'I' => after(message, "Init timings")
            .and_then(timings::init)
            .map(Message::InitTimings)
            .or_else(|| starts(message, &["Initialized NET plugin", "Init timings"])),
        b'D' => after(message, "DMA-BUF is available on GPU device").map(|_| Message::DmaBuf),
        b'p' if message.starts_with(b"plumb: data in host memory") => Some(Message::HostMemory),
        b'p' => after(message, "plumb: ").map(Message::Choice),
        b'P' => starts(message, &["P2P Chunksize set to", "Pattern ", "P2P plugin", "Plugin Path"])
            .or_else(|| network::plugin(message)),
        b'S' => network::plugin(message)
            .or_else(|| starts(message, &["Setting affinity for GPU", "Send: opCount", "Scatter: opCount"])),
        b'G' => gpu_direct(message).or_else(|| starts(message, &["GPU/"])),
        b'A' => {
            starts(message, &["Assigned NET plugin", "AllReduce: ", "AllGather: ", "AlltoAll: ", "Algorithm"])
        }
        b'L' => after(message, "Loading topology file ")
            .map(Message::TopologyFile)
            .or_else(|| starts(message, &["Loading unnamed topology", "Launch mode "])),
        b't' => starts(message, &["threadThresholds "]).or_else(|| propagated(message)),
        b'E' => starts(
            message,
            &[
                "Enabled NCCL Func/Proto/Algo Matrix",
                "ENV/Plugin: Could not find: ",
                "ENV/Plugin: Closing env",
            ],
        ),
        b' ' | b'+' | b'=' | b'-' => topology(message),
        _ => None,
    };
    found.or_else(|| propagated(message)).unwrap_or(Message::Unknown)
}

fn starts<'a>(message: &[u8], prefixes: &[&str]) -> Option<Message<'a>> {
    // The third byte differs more often than the first, and comparing one byte is fast.
    let third = message.get(2);
    let may_be = |it: &[u8]| it.len() < 3 || it.get(2) == third;
    let found = prefixes.iter().map(|it| it.as_bytes()).any(|it| may_be(it) && message.starts_with(it));
    found.then_some(Message::Routine)
}

fn other_c(message: &[u8]) -> Option<Message<'_>> {
    if let Some(rest) = after(message, "Connected all rings") {
        let summary = after(rest, ", use ring PXN ").and_then(number).and_then(|(pxn, rest)| {
            let (gpudirect, _) = number(after(rest, " GDR ")?)?;
            Some(RingSummary { pxn: pxn != 0, gpudirect: gpudirect != 0 })
        });
        return Some(Message::RingsConnected { summary });
    }
    if message.starts_with(b"Connected to proxy") {
        return Some(Message::Routine);
    }
    if let Some(rest) = after(message, "Connected ") {
        return Some(Message::Connected(rest));
    }
    if let Some(rest) = after(message, "Comm config ") {
        return Some(Message::CommConfig(rest));
    }
    starts(
        message,
        &["CC Off", "CC On", "Check P2P Type", "CPU/", "Could not find real path of", "Connection to proxy"],
    )
}

fn n(message: &[u8]) -> Option<Message<'_>> {
    if let Some(rest) = after(message, "NCCL version ") {
        return Some(Message::Version(rest));
    }
    if let Some(found) = environment(message) {
        return Some(found);
    }
    if let Some(rest) = after(message, "NVLS multicast support is ") {
        return Some(Message::Nvls(!rest.starts_with(b"not")));
    }
    network::parse(message)
        .or_else(|| plugin::printed_by(message).map(|(plugin, text)| Message::PluginLine { plugin, text }))
        .or_else(|| {
            let path = after(message, "NET/").and_then(number).is_some();
            path.then_some(Message::Routine)
        })
        .or_else(|| starts(message, &["NET/Socket: Using ", "NCCL_SOCKET_IFNAME set to", "New proxy "]))
}

/// `NCCL_BUFFSIZE set by environment to 8388608.`: numbers end with a dot, texts do not.
fn environment(message: &[u8]) -> Option<Message<'_>> {
    let length = message
        .iter()
        .take_while(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || **it == b'_')
        .count();
    let (name, rest) = message.split_at_checked(length)?;
    let value = after(rest, " set by environment to ").or_else(|| after(rest, " set to "))?;
    let value = match value.strip_suffix(b".") {
        Some(number) if number.iter().all(|it| it.is_ascii_digit() || *it == b'-') => number,
        _ => value,
    };
    Some(Message::Environment { name, value: value.trim_ascii() })
}

fn gpu_direct<'a>(message: &[u8]) -> Option<Message<'a>> {
    let rest = after(message, "GPU Direct RDMA ")?;
    Some(Message::GpuDirectByDistance { enabled: rest.starts_with(b"Enabled") })
}

/// `2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 1 p2p channels per peer`
fn channel_counts<'a>(message: &[u8]) -> Option<Message<'a>> {
    let (coll, rest) = number(message)?;
    let mut rest = after(rest, " coll channels")?;
    let mut counts = ChannelCounts { coll, ..ChannelCounts::default() };
    while let Some(more) = after(rest, ", ") {
        let Some((value, unit)) = number(more) else { break };
        if let Some(left) = after(unit, " p2p channels per peer") {
            counts.p2p_per_peer = Some(value);
            rest = left;
        } else if let Some(left) = after(unit, " p2p channels") {
            counts.p2p = Some(value);
            rest = left;
        } else if let Some(left) = after(unit, " nvls channels") {
            counts.nvls = Some(value);
            rest = left;
        } else if let Some(left) = after(unit, " collnet channels") {
            counts.collnet = Some(value);
            rest = left;
        } else {
            break;
        }
    }
    Some(Message::ChannelCounts(counts))
}

/// `transport/net.cc:1137 -> 6`, `group.cc:75 -> 1 [Async thread]`
fn propagated<'a>(message: &[u8]) -> Option<Message<'a>> {
    // The file comes first, and has no blanks: most other messages end the search here.
    let colon = memchr::memchr(b':', message.get(..message.len().min(80))?)?;
    if memchr::memchr2(b' ', b'/', message.get(..colon)?) == Some(0)
        || memchr::memchr(b' ', message.get(..colon)?).is_some()
    {
        return None;
    }
    let arrow = memchr::memmem::find(message.get(..message.len().min(160))?, b" -> ")?;
    let location = message.get(..arrow)?;
    // 2.30.7 adds the function: `FILE:LINE (FUNC) -> CODE`.
    let (_, rest) = number(location.get(colon + 1..)?)?;
    if !(rest.is_empty() || rest.starts_with(b" (")) {
        return None;
    }
    let (code, _) = number(message.get(arrow + 4..)?)?;
    Some(Message::Propagated { code })
}

/// Lines of the GRAPH and TUNING subsystems that begin with a blank or a rule.
fn topology<'a>(message: &[u8]) -> Option<Message<'a>> {
    let inner = message.trim_ascii_start();
    let graph = starts(
        inner,
        &[
            "+ PCI[",
            "+ NVL[",
            "+ NET[",
            "+ LOC[",
            "+ SYS[",
            "+ C2C[",
            "+ NVS",
            "+ GPU",
            "=== System",
            "====",
            "---",
            "Algorithm",
            "Protocol",
            "Max NThreads",
            "AllReduce |",
            "AllGather |",
            "Broadcast |",
            "Reduce |",
            "ReduceScatter |",
            "CPU/",
            "GPU/",
            "NET/",
            "NIC/",
            "PCI/",
            "NVS/",
            "+ LOC",
            "+ DEV",
            "DEV/",
        ],
    );
    graph.or_else(|| search_channel(inner)).or_else(|| inner.is_empty().then_some(Message::Routine))
}

/// ` 0 : NET/0-0 GPU/0-38000 ...`: a channel of the search.
fn search_channel<'a>(message: &[u8]) -> Option<Message<'a>> {
    let (_, rest) = number(message)?;
    rest.starts_with(b" :").then_some(Message::Routine)
}

/// Text of a message field.
pub(crate) fn owned(bytes: &[u8]) -> Box<str> {
    text(bytes)
}

#[cfg(test)]
mod tests {
    use super::{ChannelCounts, Message, completed, parse};
    use crate::facts::RingSummary;

    #[test]
    fn first_letters_are_completed() {
        let link = "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM";
        for cut in
            ["nnel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "CL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"]
        {
            assert_eq!(completed(cut.as_bytes()).as_deref(), Some(link.as_bytes()), "{cut}");
        }
        for line in ["el 00/0 : 0[0]", "nel of distribution", "INFO Starting", "work Socket"] {
            assert_eq!(completed(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn channel_counts_of_every_age() {
        let want = |coll, collnet, nvls, p2p, p2p_per_peer| {
            Message::ChannelCounts(ChannelCounts { coll, collnet, nvls, p2p, p2p_per_peer })
        };
        for (line, message) in [
            (
                "2 coll channels, 2 p2p channels, 1 p2p channels per peer",
                want(2, None, None, Some(2), Some(1)),
            ),
            (
                "8 coll channels, 0 nvls channels, 8 p2p channels, 8 p2p channels per peer",
                want(8, None, Some(0), Some(8), Some(8)),
            ),
            (
                "2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 1 p2p channels per peer",
                want(2, Some(2), Some(0), Some(2), Some(1)),
            ),
        ] {
            assert_eq!(parse(line.as_bytes()), message, "{line}");
        }
    }

    #[test]
    fn environment_values() {
        for (line, name, value) in [
            ("NCCL_BUFFSIZE set by environment to 8388608.", "NCCL_BUFFSIZE", "8388608"),
            ("NCCL_PROTO set by environment to simple", "NCCL_PROTO", "simple"),
            ("NCCL_TOPO_FILE set by environment to /a/b.xml", "NCCL_TOPO_FILE", "/a/b.xml"),
            ("NCCL_SOCKET_IFNAME set by environment to ^docker0,lo", "NCCL_SOCKET_IFNAME", "^docker0,lo"),
        ] {
            assert_eq!(
                parse(line.as_bytes()),
                Message::Environment { name: name.as_bytes(), value: value.as_bytes() }
            );
        }
    }

    #[test]
    fn error_propagation() {
        for line in ["transport/net.cc:1137 -> 6", "group.cc:75 -> 6 [Async thread]", "a.cc:1 (f) -> 6"] {
            assert_eq!(parse(line.as_bytes()), Message::Propagated { code: 6 }, "{line}");
        }
        assert_eq!(parse(b"Channel x : 1 -> 6"), Message::Unknown);
    }

    #[test]
    fn rings_connected() {
        assert_eq!(parse(b"Connected all rings"), Message::RingsConnected { summary: None });
        assert_eq!(
            parse(b"Connected all rings, use ring PXN 0 GDR 1"),
            Message::RingsConnected { summary: Some(RingSummary { pxn: false, gpudirect: true }) }
        );
    }

    #[test]
    fn never_panics_on_cut_messages() {
        for line in [
            "Channel 00/0 : 3[3] -> 4[0] [send] via NET/Libfabric/0/GDRDMA(PCI)/Shared",
            "ncclCommSplit comm 0x559d9ac13de0 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 3e000 parent 0x5 splitCount 1 color 1 key 3- Init START",
            "Trees [0] 1/8/-1->0->-1 [1] 1/-1/-1->0->4",
            "Init timings - ncclCommSplit: rank 1 nranks 16 total 24.41 (kernels 0.00, alloc 0.00, rest 24.38)",
            "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.10<0>",
        ] {
            for cut in 0..=line.len() {
                let _ = parse(&line.as_bytes()[..cut]);
            }
        }
    }
}
