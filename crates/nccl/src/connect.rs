//! Rings and trees over all ranks.

/// The channels of a communicator; NCCL's `ncclTopoPreset` and `ncclTopoPostset` (`src/graph/connect.cc`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connected {
    /// The rings that differ.
    pub rings: Vec<Ring>,
    /// The trees that differ: twice as many as rings.
    pub trees: Vec<Tree>,
    /// Of each channel its ring and its tree.
    pub channels: Vec<ConnectedChannel>,
    /// `NN coll channels`.
    pub coll_channels: usize,
    /// `NN nvls channels`.
    pub nvls_channels: usize,
    /// The ranks that pull from the `NVSwitch`es, head by head: one of each node.
    pub nvls_heads: Vec<Vec<u32>>,
}

/// A channel, by what it uses. Channels that NCCL copies share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectedChannel {
    /// An index into [`Connected::rings`].
    pub ring: usize,
    /// An index into [`Connected::trees`].
    pub tree: usize,
}

/// A ring over all ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ring {
    /// The rank before each rank.
    pub prev: Vec<u32>,
    /// The rank after each rank.
    pub next: Vec<u32>,
}

/// A tree over all ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// The links of each rank.
    pub ranks: Vec<TreeLinks>,
}

/// The place of a rank in a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TreeLinks {
    /// The parent.
    pub up: Option<u32>,
    /// The children.
    pub down: [Option<u32>; 3],
}
