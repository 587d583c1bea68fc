//! Rounds of pairs until everything slow is explained.

use std::collections::BTreeSet;

use crate::fleet::{Fleet, Host, Pair, Sample};
use crate::judge::{Judgement, Question, judge};
use crate::rounds;

/// When a search gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Rounds at most.
    pub rounds: usize,
    /// Rounds at most while all together are slow and nothing explains it: every pair is measured then, where these are enough.
    pub unexplained: usize,
    /// The order in which machines meet.
    pub seed: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { rounds: 20, unexplained: 120, seed: 1 }
    }
}

/// Measurements that tell how often pairs are slow by chance.
const COUNTED: usize = 150;

/// The share of measurements of healthy machines that is slow by scatter, from which on pairs are not asked about for ever.
const OFTEN: f64 = 0.1;

/// A search under way.
#[derive(Debug, Clone)]
pub struct Search {
    fleet: Fleet,
    limits: Limits,
    out: BTreeSet<Host>,
    samples: Vec<Sample>,
    round: usize,
    judgement: Judgement,
}

impl Search {
    /// Before the first round.
    pub fn new(fleet: Fleet, limits: Limits) -> Self {
        let judgement = judge(&fleet, &[]);
        Self { fleet, limits, out: BTreeSet::new(), samples: Vec::new(), round: 0, judgement }
    }

    /// Machines that take no part: another stage has named them.
    pub fn leave_out(&mut self, hosts: impl IntoIterator<Item = Host>) {
        self.out = hosts.into_iter().collect();
        self.judge();
    }

    /// The machines.
    pub const fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// When it gives up.
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Gives up later.
    pub const fn allow(&mut self, rounds: usize) {
        self.limits.rounds = rounds;
    }

    /// Everything measured.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Rounds that ran.
    pub const fn rounds(&self) -> usize {
        self.round
    }

    /// What the measurements so far say.
    pub fn judgement(&self) -> Judgement {
        self.judgement.clone()
    }

    fn judge(&mut self) {
        self.judgement = judge(&self.fleet, &self.samples);
        let out = &self.out;
        self.judgement.open.retain(|it| match it {
            Question::Host(host) => !out.contains(host),
            Question::Pair(_) => true,
        });
    }

    /// The pairs to measure together now; none when every machine is cleared or accused, or when more rounds would not help.
    pub fn next(&self) -> Option<Vec<Pair>> {
        // Once a machine is named, a launch without it tells whether a link is slow as well.
        let named = !self.judgement.findings.is_empty();
        let question = |it: &Question| matches!(it, Question::Host(_)) || !named;
        let asked = self.judgement.open.iter().any(question);
        let full = self.round < rounds::FULL;
        let done = self.round > 0 && !asked && (named || !full);
        // Groups explain what is slow between them. Where healthy machines are slow by scatter, more rounds do not tell what is open inside.
        let every = self.fleet.len() - 1 + self.fleet.len() % 2;
        let scatter = self.judgement.reference.map_or(0.0, |it| it.slow_by_scatter());
        let explained =
            self.judgement.split.is_some() && scatter > OFTEN && self.round >= every + rounds::FULL;
        if done || explained { None } else { self.pairs(full, self.limits.rounds) }
    }

    /// More pairs although every machine is cleared or accused: something else is slow.
    pub fn more(&self) -> Option<Vec<Pair>> {
        // Everybody meets everybody, and what that shows is asked again. Where pairs are slow by chance, more of them tell nothing.
        let every = self.fleet.len() + self.limits.rounds;
        let more = if self.judgement.transient > 0 { 0 } else { every.min(self.limits.unexplained) };
        self.pairs(true, more.max(self.limits.rounds))
    }

    fn pairs(&self, full: bool, rounds: usize) -> Option<Vec<Pair>> {
        if self.round >= rounds || self.fleet.len() < self.out.len() + 2 {
            return None;
        }
        // In a small fleet everybody is measured again, which costs no launch: how often pairs are slow by chance must be known.
        let full = full || self.samples.len() < COUNTED;
        let seed = self.limits.seed ^ (self.round as u64).wrapping_mul(0x9e37_79b9);
        let part: Vec<Host> = self.fleet.hosts().filter(|it| !self.out.contains(it)).collect();
        let pairs = rounds::next(&self.fleet, part, &self.samples, &self.judgement, full, seed);
        (!pairs.is_empty()).then_some(pairs)
    }

    /// The results of the pairs that [`Self::next`] named; a pair without a result counts as failed.
    ///
    /// `resent`: the shares of segments that the two machines sent again, where they are known.
    pub fn record(
        &mut self,
        pairs: &[Pair],
        mut result: impl FnMut(Pair) -> Option<f64>,
        mut resent: impl FnMut(Pair) -> Option<[f64; 2]>,
    ) {
        for pair in pairs {
            let rate = result(*pair).filter(|it| it.is_finite() && *it > 0.0);
            self.samples.push(Sample {
                round: self.round,
                pair: *pair,
                rate: rate.map(fabric::units::GigabytesPerSecond),
                resent: resent(*pair).filter(|it| it.iter().all(|it| it.is_finite() && *it >= 0.0)),
            });
        }
        self.round += 1;
        self.judge();
    }

    /// What a pair reached in a launch of its own.
    pub fn also(&mut self, pair: Pair, rate: Option<f64>) {
        let rate = rate.filter(|it| it.is_finite() && *it > 0.0).map(fabric::units::GigabytesPerSecond);
        self.samples.push(Sample { round: self.round, pair, rate, resent: None });
        self.judge();
    }
}
