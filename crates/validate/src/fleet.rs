//! The machines, and what was measured between them.

use fabric::units::GigabytesPerSecond;

/// A machine, by its place in [`Fleet::names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(pub usize);

/// Two machines that were measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    low: Host,
    high: Host,
}

impl Pair {
    /// The order does not matter.
    pub fn new(one: Host, other: Host) -> Self {
        Self { low: one.min(other), high: one.max(other) }
    }

    /// Both machines, the one that is named first in the fleet first.
    pub const fn hosts(self) -> [Host; 2] {
        [self.low, self.high]
    }

    /// Whether this machine is one of the two.
    pub fn has(self, host: Host) -> bool {
        self.low == host || self.high == host
    }

    /// The partner of one of the two.
    pub fn other(self, host: Host) -> Host {
        if self.low == host { self.high } else { self.low }
    }
}

/// The machines of a validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    names: Vec<String>,
    groups: Option<Vec<usize>>,
}

impl Fleet {
    /// Machines whose place in the network is not known.
    pub const fn new(names: Vec<String>) -> Self {
        Self { names, groups: None }
    }

    /// The switch (leaf, block, rack) of each machine, as a number; ignored unless there is one for each.
    #[must_use]
    pub fn with_groups(mut self, groups: Vec<usize>) -> Self {
        self.groups = (groups.len() == self.names.len()).then_some(groups);
        self
    }

    /// Names in the order they were given.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The name of a machine.
    pub fn name(&self, host: Host) -> &str {
        self.names.get(host.0).map_or("?", String::as_str)
    }

    /// All machines.
    pub fn hosts(&self) -> impl Iterator<Item = Host> + use<> {
        (0..self.names.len()).map(Host)
    }

    /// How many machines.
    pub const fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The switch of a machine.
    pub fn group(&self, host: Host) -> Option<usize> {
        self.groups.as_ref().and_then(|it| it.get(host.0)).copied()
    }
}

/// One measurement of a pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The round in which it was made.
    pub round: usize,
    /// The machines.
    pub pair: Pair,
    /// What they reached; none if it failed or did not end.
    pub rate: Option<GigabytesPerSecond>,
    /// The share of segments that each of [`Pair::hosts`] sent again; none where that is not known.
    pub resent: Option<[f64; 2]>,
}
