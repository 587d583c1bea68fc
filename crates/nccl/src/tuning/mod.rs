//! NCCL's time model: latency and bandwidth of every collective by every algorithm and protocol, and what it chooses by them.
//!
//! ```text
//! Graphs, Tuned, Settings -> model, allowed, threads -> Tuning       the table that rank 0 prints
//! Tuning, collective, bytes      -> choice, chunk           -> Choice       algorithm, protocol, channels, threads, chunk and time
//! ```
//!
//! The model ranks: its times are far from what is measured. All of it follows `src/graph/tuning.cc` and `src/enqueue.cc`; a gate
//! by release names the function. Arithmetic is in single precision where NCCL's is, so that every printed cell is equal.

mod allowed;
mod choice;
mod chunk;
mod constants;
mod list;
mod model;
mod table;
mod threads;

use fabric::collective::Collective;
use fabric::machine::Maker;
use fabric::{PathType, Version};

use crate::{Algorithm, Pattern, TopoGraph};

pub(crate) use chunk::{STEPS, buffer};

pub use choice::{Choice, Span};
pub use list::BadList;
pub use table::{Cell, Tuning};

/// A protocol, in NCCL's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Low latency: 4 bytes of data with 4 bytes of flag.
    Ll,
    /// 120 bytes of data with 8 bytes of flag.
    Ll128,
    /// Large chunks with separate synchronisation.
    Simple,
}

/// The collectives that NCCL tunes, in its order.
pub const TUNED: [Collective; 5] = [
    Collective::Broadcast,
    Collective::Reduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::AllReduce,
];

/// The algorithms of a release: PAT since 2.23.
pub fn algorithms(version: Version) -> &'static [Algorithm] {
    if version >= Version::new(2, 23, 0) { &Algorithm::ALL } else { &Algorithm::ALL[..6] }
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ll, Self::Ll128, Self::Simple];

    /// The name in NCCL's tables and in `NCCL_PROTO`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ll => "LL",
            Self::Ll128 => "LL128",
            Self::Simple => "Simple",
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

impl Algorithm {
    fn index(self) -> usize {
        self as usize
    }
}

/// The name of a collective in NCCL's tables and before the colon in `NCCL_ALGO`.
pub fn function_name(collective: Collective) -> &'static str {
    match collective {
        Collective::Broadcast => "Broadcast",
        Collective::Reduce => "Reduce",
        Collective::AllGather => "AllGather",
        Collective::ReduceScatter => "ReduceScatter",
        Collective::AllReduce => "AllReduce",
        Collective::AllToAll => "AlltoAll",
        Collective::Gather => "Gather",
        Collective::Scatter => "Scatter",
        Collective::SendRecv => "SendRecv",
    }
}

/// What the model takes from a graph: the values that ranks exchange (`graphInfo` in `initTransportsRank`) and the latency of the NIC.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GraphInfo {
    /// The shape; of trees the one with the largest number of any rank since 2.26, before that the rank's own.
    pub pattern: Option<Pattern>,
    /// Channels that the search found, before NCCL doubles them.
    pub channels: u32,
    /// GB/s of a channel inside a node.
    pub bw_intra: f32,
    /// GB/s of a channel between nodes.
    pub bw_inter: f32,
    /// The farthest path between its GPUs.
    pub type_intra: PathType,
    /// The farthest path to its NICs.
    pub type_inter: PathType,
    /// Whether all channels go through the GPUs in one order.
    pub same_channels: bool,
    /// Microseconds, as the network plugin declares them.
    pub latency_inter: f32,
}

impl GraphInfo {
    /// What NCCL fills in where it does not search, because there is no in-network reduction or no multicast.
    pub const NONE: Self = Self {
        pattern: None,
        channels: 0,
        bw_intra: 0.0,
        bw_inter: 0.0,
        type_intra: PathType::Loc,
        type_inter: PathType::Loc,
        same_channels: false,
        latency_inter: 0.0,
    };

    /// Of a graph that all ranks agree on.
    pub fn new(graph: &TopoGraph) -> Self {
        Self {
            pattern: Some(graph.pattern),
            channels: u32::try_from(graph.channels.len()).unwrap_or(u32::MAX),
            bw_intra: graph.bw_intra,
            bw_inter: graph.bw_inter,
            type_intra: graph.type_intra,
            type_inter: graph.type_inter,
            same_channels: graph.same_channels,
            latency_inter: graph.latency_inter,
        }
    }
}

/// The graphs of a communicator, joined over its ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GraphInfos {
    /// The ring's.
    pub ring: GraphInfo,
    /// The tree's, which PAT uses too.
    pub tree: GraphInfo,
    /// `CollNetDirect`'s.
    pub collnet_direct: GraphInfo,
    /// `CollNetChain`'s.
    pub collnet_chain: GraphInfo,
    /// That of NVLS and `NVLSTree`.
    pub nvls: GraphInfo,
}

impl GraphInfos {
    /// The graph an algorithm runs on.
    pub fn of(&self, algorithm: Algorithm) -> &GraphInfo {
        match algorithm {
            Algorithm::Tree | Algorithm::Pat => &self.tree,
            Algorithm::Ring => &self.ring,
            Algorithm::CollNetDirect => &self.collnet_direct,
            Algorithm::CollNetChain => &self.collnet_chain,
            Algorithm::Nvls | Algorithm::NvlsTree => &self.nvls,
        }
    }
}

/// What the model needs to know of a communicator besides its graphs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuned {
    /// Ranks.
    pub ranks: u32,
    /// Nodes, as NCCL counts them.
    pub nodes: u32,
    /// The most ranks of a node.
    pub local_ranks: u32,
    /// The smallest compute capability, `90` for 9.0.
    pub min_compute: u32,
    /// The largest compute capability.
    pub max_compute: u32,
    /// The CPU of the first rank's machine.
    pub cpu: Maker,
    /// Nodes have CPUs of different vendors.
    pub mixed_cpus: bool,
    /// GPUs are connected by `NVSwitch`.
    pub switches: bool,
    /// It spans trays of one NVLink domain.
    pub mnnvl: bool,
    /// All channels, `nChannels`: those of the graphs, doubled and bounded, and in some releases as many as NVLS has.
    pub channels: u32,
    /// Those without what NVLS adds, `collChannels`. 2.20 and 2.21 use only these for other algorithms.
    pub coll_channels: u32,
    /// Channels of NVLS, 0 without multicast.
    pub nvls_channels: u32,
    /// In-network reduction, if the network has it and `NCCL_COLLNET_ENABLE` is set.
    pub collnet: Option<CollNet>,
}

/// In-network reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollNet {
    /// GPUs of a node that reach the network directly.
    pub heads: u32,
    /// The network plugin has all-gather and reduce-scatter, too.
    pub gathers: bool,
}

impl Tuned {
    /// A CPU of a vendor that NCCL knows only with the instruction set of x86.
    fn is_x86(&self) -> bool {
        matches!(self.cpu, Maker::Intel | Maker::Amd | Maker::Zhaoxin)
    }

    /// Ranks per node.
    fn ppn(&self) -> f32 {
        #[expect(clippy::cast_precision_loss, reason = "as NCCL computes it; ranks are far below 2^24")]
        let (ranks, nodes) = (self.ranks as f32, self.nodes.max(1) as f32);
        ranks / nodes
    }
}

/// The floor of the logarithm, as `log2i` of `src/include`; 0 for 0.
fn log2(number: u64) -> u32 {
    number.checked_ilog2().unwrap_or(0)
}
