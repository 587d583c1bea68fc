//! Rounds of pairs until everything slow is explained.

use crate::fleet::{Fleet, Pair, Sample};
use crate::judge::{Judgement, judge};
use crate::rounds;

/// When a search gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Rounds at most.
    pub rounds: usize,
    /// The order in which machines meet.
    pub seed: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { rounds: 16, seed: 1 }
    }
}

/// A search under way.
#[derive(Debug, Clone)]
pub struct Search {
    fleet: Fleet,
    limits: Limits,
    samples: Vec<Sample>,
    round: usize,
}

impl Search {
    /// Before the first round.
    pub const fn new(fleet: Fleet, limits: Limits) -> Self {
        Self { fleet, limits, samples: Vec::new(), round: 0 }
    }

    /// The machines.
    pub const fn fleet(&self) -> &Fleet {
        &self.fleet
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
        judge(&self.fleet, &self.samples)
    }

    /// The pairs to measure together now; none when all is explained, or when more rounds would not help.
    pub fn next(&self) -> Option<Vec<Pair>> {
        if self.round >= self.limits.rounds || self.fleet.len() < 2 {
            return None;
        }
        let judgement = self.judgement();
        let begun = self.round > 0;
        let explained = begun && judgement.open.is_empty() && !judgement.findings.is_empty();
        // Nothing slow among pairs: some more partners, in case it is a link, before that is believed.
        let nothing = judgement.open.is_empty() && self.round >= rounds::FULL;
        if explained || nothing {
            return None;
        }
        let pairs = rounds::next(&self.fleet, &self.samples, &judgement, self.round, self.limits.seed);
        (!pairs.is_empty()).then_some(pairs)
    }

    /// The results of the pairs that [`Self::next`] named; a pair without a result counts as failed.
    pub fn record(&mut self, pairs: &[Pair], mut result: impl FnMut(Pair) -> Option<f64>) {
        for pair in pairs {
            let rate = result(*pair).filter(|it| it.is_finite() && *it > 0.0);
            self.samples.push(Sample {
                round: self.round,
                pair: *pair,
                rate: rate.map(fabric::units::GigabytesPerSecond),
            });
        }
        self.round += 1;
    }
}
