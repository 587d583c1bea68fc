//! What the search found for a node: `Pattern 4, crossNic 0, nChannels 8, bw 48.0/48.0, type NVL/PIX, sameChannels 0` and
//! its channels.

use std::fmt;

use crate::{PathType, Pattern};

/// The channels the search found for one algorithm on one node; NCCL's `ncclTopoGraph`.
#[derive(Debug, Clone, PartialEq)]
pub struct TopoGraph {
    /// The shape.
    pub pattern: Pattern,
    /// Whether a channel may leave by another NIC than it came in: 0 no, 1 yes, 2 in pairs of channels.
    pub cross_nic: u8,
    /// The channels, before they are duplicated for the kernels.
    pub channels: Vec<SearchedChannel>,
    /// What each channel has inside the node, in GB/s.
    pub bw_intra: f32,
    /// What each channel has between nodes, in GB/s.
    pub bw_inter: f32,
    /// The farthest path between GPUs that a channel uses.
    pub type_intra: PathType,
    /// The farthest path between GPU and NIC that a channel uses.
    pub type_inter: PathType,
    /// Whether all channels have the same order of GPUs.
    pub same_channels: bool,
    /// The latency of the network as the NIC of the last channel declares it, in microseconds.
    pub latency_inter: f32,
    /// How many links all channels use together.
    pub hops: i32,
}

/// A channel of a [`TopoGraph`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SearchedChannel {
    /// The GPUs in their order, by their positions in the machine.
    pub intra: Vec<usize>,
    /// The NICs it comes in and leaves by, by their positions in the machine; `None` if all ranks are on this node.
    pub inter: Option<[usize; 2]>,
}

/// The graphs of one node. A graph without channels was not found, or not searched for.
#[derive(Debug, Clone, PartialEq)]
pub struct Graphs {
    /// `NCCL_ALGO_RING`.
    pub ring: TopoGraph,
    /// `NCCL_ALGO_TREE`.
    pub tree: TopoGraph,
    /// `NCCL_ALGO_COLLNET_CHAIN`.
    pub collnet_chain: TopoGraph,
    /// `NCCL_ALGO_COLLNET_DIRECT`.
    pub collnet_direct: TopoGraph,
    /// `NCCL_ALGO_NVLS`, of the NVLS tree too.
    pub nvls: TopoGraph,
}

impl TopoGraph {
    /// A graph that was not searched for: all zero, as NCCL has it.
    pub fn none(pattern: Pattern) -> Self {
        Self {
            pattern,
            cross_nic: 0,
            channels: Vec::new(),
            bw_intra: 0.0,
            bw_inter: 0.0,
            type_intra: PathType::Loc,
            type_inter: PathType::Loc,
            same_channels: false,
            latency_inter: 0.0,
            hops: 0,
        }
    }
}

impl fmt::Display for TopoGraph {
    /// As NCCL's log has it (`src/graph/search.cc`, `ncclTopoPrintGraph`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Pattern {}, crossNic {}, nChannels {}, bw {:.6}/{:.6}, type {}/{}, sameChannels {}",
            self.pattern.number(),
            self.cross_nic,
            self.channels.len(),
            self.bw_intra,
            self.bw_inter,
            self.type_intra,
            self.type_inter,
            u8::from(self.same_channels)
        )
    }
}
