//! The algorithms NCCL knows, and the shapes it searches channels in.

use std::fmt;

/// An algorithm of a collective, in NCCL's order (`src/include/nccl_common.h`, `NCCL_ALGO_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// Double binary trees over nodes, chains inside them.
    Tree,
    /// A ring over all ranks.
    Ring,
    /// Reduction in the network, each head rank with its part.
    CollNetDirect,
    /// Reduction in the network at the end of a chain inside the node.
    CollNetChain,
    /// Reduction in the `NVSwitch`es.
    Nvls,
    /// Reduction in the `NVSwitch`es, trees over nodes.
    NvlsTree,
    /// Parallel aggregated trees, one GPU in each node. Since 2.23.
    Pat,
}

impl Algorithm {
    /// All, in NCCL's order.
    pub const ALL: [Self; 7] = [
        Self::Tree,
        Self::Ring,
        Self::CollNetDirect,
        Self::CollNetChain,
        Self::Nvls,
        Self::NvlsTree,
        Self::Pat,
    ];

    /// The name in NCCL's log and in `NCCL_ALGO`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tree => "Tree",
            Self::Ring => "Ring",
            Self::CollNetDirect => "CollNetDirect",
            Self::CollNetChain => "CollNetChain",
            Self::Nvls => "NVLS",
            Self::NvlsTree => "NVLSTree",
            Self::Pat => "PAT",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The shape of a channel inside a node.
///
/// The numbers are the same in every release since 2.18 (`src/include/graph.h`, `NCCL_TOPO_PATTERN_*`); `CollNetDirect`
/// came with 2.22.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// A chain whose first two GPUs share the traffic of the NIC.
    BalancedTree,
    /// A chain: the first GPU talks to the parent, the second to the children.
    SplitTree,
    /// A chain: the first GPU talks to parent and children.
    Tree,
    /// A ring, or a chain from NIC to NIC.
    Ring,
    /// The GPUs that pull from the `NVSwitch`es.
    Nvls,
    /// The GPUs that talk to a network that reduces, each connected to all others.
    CollNetDirect,
}

impl Pattern {
    /// All, by their number.
    pub const ALL: [Self; 6] =
        [Self::BalancedTree, Self::SplitTree, Self::Tree, Self::Ring, Self::Nvls, Self::CollNetDirect];

    /// NCCL's number, as in `Pattern 4, crossNic 0, ...`.
    pub fn number(self) -> u8 {
        match self {
            Self::BalancedTree => 1,
            Self::SplitTree => 2,
            Self::Tree => 3,
            Self::Ring => 4,
            Self::Nvls => 5,
            Self::CollNetDirect => 6,
        }
    }

    /// Whether it is one of the three trees.
    pub fn is_tree(self) -> bool {
        matches!(self, Self::BalancedTree | Self::SplitTree | Self::Tree)
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn patterns_count_from_one() {
        assert!((1..).zip(Pattern::ALL).all(|(number, pattern)| pattern.number() == number));
    }
}
