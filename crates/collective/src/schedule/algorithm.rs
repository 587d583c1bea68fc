//! Collectives and algorithms.

use std::fmt;
use std::str::FromStr;

use crate::data::expected;

/// An algorithm for collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// Every rank exchanges with two neighbours: fewest bytes per link.
    Ring,
    /// Two binary trees that share the data, or one from the root.
    Tree,
    /// Recursive doubling: partners at distances 1, 2, 4 and so on exchange all their data. Fewest steps.
    Doubling,
    /// Recursive halving (Rabenseifner): partners exchange half of their data, then half of that, and send the results
    /// back. Few bytes in few steps.
    Halving,
    /// Every pair of ranks exchanges directly.
    Linear,
    /// Every rank reads all data from the shared memory of the others.
    OneShot,
    /// Every rank reduces its share from the memory of all ranks into the memory of all ranks.
    TwoShot,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 7] =
        [Self::Ring, Self::Tree, Self::Doubling, Self::Halving, Self::Linear, Self::OneShot, Self::TwoShot];

    /// The name in options and logs: `ring`, `tree`, `doubling`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::Doubling => "doubling",
            Self::Halving => "halving",
            Self::Linear => "linear",
            Self::OneShot => "oneshot",
            Self::TwoShot => "twoshot",
        }
    }

    pub(crate) fn supports(self, kind: Kind) -> bool {
        use Kind::{AllGather, AllReduce, Barrier, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
        match self {
            Self::Ring => matches!(kind, AllReduce | AllGather | ReduceScatter | Broadcast | Reduce),
            Self::Tree => matches!(kind, AllReduce | Broadcast | Reduce | Gather | Scatter),
            Self::Doubling => matches!(kind, AllReduce | AllGather | Barrier),
            Self::Halving => matches!(kind, AllReduce | ReduceScatter),
            Self::Linear | Self::OneShot | Self::TwoShot => kind != Barrier,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|it| it.name() == text)
            .ok_or_else(|| format!("`{text}` is not an algorithm; {}", expected(&Self::ALL.map(Self::name))))
    }
}

/// A collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    AllToAll,
    Gather,
    Scatter,
    SendReceive {
        /// The rank that this rank sends to.
        to: usize,
        /// The rank that this rank receives from.
        from: usize,
    },
    Barrier,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
        }
        let error = "rings".parse::<Algorithm>().expect_err("no such name");
        assert!(error.contains("`rings` is not an algorithm; expected one of ring, tree"), "{error}");
    }
}
