//! The names of the collectives and of the ways to do them.

use std::fmt;
use std::str::FromStr;

/// A way to do a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// Every rank talks to two neighbours; each byte crosses each link as seldom as possible.
    Ring,
    /// Two binary trees that share the work, or one from the root.
    Tree,
    /// Partners at distances 1, 2, 4 and so on exchange all they have: fewest steps.
    Doubling,
    /// Partners exchange half of what they have, then half of that, and then give the results back: fewest bytes in few steps.
    Halving,
    /// Every pair of ranks talks directly.
    Linear,
    /// Every rank reads everything from the memory of the others, at once.
    OneShot,
    /// Every rank reduces its part from the memory of the others into the memory of all.
    TwoShot,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Ring, Self::Tree, Self::Doubling, Self::Halving, Self::Linear, Self::OneShot, Self::TwoShot];

    /// Its name: `ring`, `tree`, `doubling`.
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

    /// Whether it can do this collective.
    pub(crate) fn serves(self, kind: Kind) -> bool {
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
        Self::ALL.into_iter().find(|it| it.name() == text).ok_or_else(|| {
            format!("`{text}` is no algorithm; there are {}", Self::ALL.map(Self::name).join(", "))
        })
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
        /// Who gets what this rank sends.
        to: usize,
        /// Whose this rank receives.
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
        assert!(error.contains("`rings` is no algorithm; there are ring, tree"), "{error}");
    }
}
