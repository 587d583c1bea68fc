//! One launch of a validation, what it answers, and what a validation is for.

use fabric::units::GigabytesPerSecond;

use crate::fleet::{Host, Pair};
use crate::nics::NicSample;

/// One launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The collective inside each machine, all machines at the same time.
    Local(Vec<Host>),
    /// Two machines: does it run at all?
    Smoke(Pair),
    /// One collective over the first 4, 8, 16, ... machines, on the way to all.
    Scale(Vec<Host>),
    /// One collective over all these machines.
    All(Vec<Host>),
    /// Pairs that run at the same time.
    Pairs(Vec<Pair>),
    /// Every NIC of both machines of each pair by itself, then the pair with all of them. Pairs that share a machine are measured one
    /// after the other.
    Nics(Vec<Pair>),
    /// All machines again without those that are accused.
    Without(Vec<Host>),
}

/// What a launch measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What was reached.
    pub rates: Rates,
    /// The share of segments that each machine of each measurement sent again, of [`Step::Nics`] of each pair with all its NICs; none
    /// where that is not known.
    pub resent: Vec<Vec<Option<f64>>>,
}

impl From<Rates> for Answer {
    fn from(rates: Rates) -> Self {
        Self { rates, resent: Vec::new() }
    }
}

impl Answer {
    /// The largest share that a machine sent again.
    pub fn most_resent(&self) -> Option<f64> {
        self.resent.iter().flatten().flatten().copied().max_by(f64::total_cmp)
    }
}

/// What was reached, in the order of a [`Step`]; none where it failed or did not end.
#[derive(Debug, Clone, PartialEq)]
pub enum Rates {
    /// Of [`Step::Local`] and [`Step::Pairs`].
    Each(Vec<Option<f64>>),
    /// Of [`Step::Smoke`], [`Step::Scale`], [`Step::All`] and [`Step::Without`].
    One(Option<f64>),
    /// Of [`Step::Nics`].
    Nics {
        /// Each NIC of each pair.
        each: Vec<NicSample>,
        /// Each pair with all its NICs.
        pairs: Vec<Option<f64>>,
    },
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All machines together reach what is normal.
    Go,
    /// They do not, and the findings say which to take out.
    NoGo,
    /// They do not, or that was not measured, and no part explains it.
    Inconclusive,
}

/// What should be reached at least; without it, machines are compared with each other alone.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Expected {
    /// Inside a machine.
    pub local: Option<GigabytesPerSecond>,
    /// By all machines together. Without it a round of pairs says what is normal, and all must come near to that.
    pub all: Option<GigabytesPerSecond>,
}

/// Which measurements a validation makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a kind of measurement")]
pub struct Scope {
    /// 4, 8, 16, ... machines before all: a launch that hangs is met where it is small.
    pub scale: bool,
    /// Every pair of machines once: a slow link of a large fleet shows in no other measurement.
    pub links: bool,
    /// Machines have several NICs, which can be measured one by one.
    pub nics: bool,
    /// Those of all machines are, once.
    pub every_nic: bool,
    /// Machines by themselves are compared with each other; otherwise only those that fail are named.
    pub compare_local: bool,
}

impl Default for Scope {
    fn default() -> Self {
        Self { scale: false, links: false, nics: true, every_nic: true, compare_local: true }
    }
}
