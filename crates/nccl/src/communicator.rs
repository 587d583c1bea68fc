//! What all ranks of a communicator decide together.

use crate::{Connected, Graphs, Pattern};

/// The decisions of a communicator: NCCL's `initTransportsRank` (`src/init.cc`), as far as `src/graph` goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Communicator {
    /// `nRanks`.
    pub n_ranks: usize,
    /// `nNodes`.
    pub n_nodes: usize,
    /// The fewest ranks of a node.
    pub min_local_ranks: usize,
    /// The most ranks of a node.
    pub max_local_ranks: usize,
    /// The lowest compute capability of all GPUs, `90` for 9.0.
    pub min_compute: u32,
    /// The highest compute capability of all GPUs.
    pub max_compute: u32,
    /// Whether NVLS can be used: `nvlsSupport`.
    pub nvls: bool,
    /// Whether the network reduces: `collNetSupport`.
    pub collnet: bool,
    /// The graphs of the nodes that differ.
    pub nodes: Vec<Graphs>,
    /// Which of them each node has, by its number.
    pub graphs_of_node: Vec<usize>,
    /// The node of each rank.
    pub node_of_rank: Vec<u32>,
    /// What all ranks have in common: the fewest channels, the lowest bandwidths, the farthest types. The tuning goes by
    /// it, with [`Graphs::ring`] and [`Graphs::tree`] cut to equally many channels.
    pub agreed: Graphs,
    /// The tree pattern with the largest number of any rank.
    pub max_tree_pattern: Pattern,
    /// Rings, trees and counts.
    pub connected: Connected,
}
