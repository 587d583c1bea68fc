//! Measurements as votes: for a machine, against it, or neither.

use std::collections::{BTreeMap, BTreeSet};

use crate::chance::{Counted, as_f64};
use crate::fleet::{Host, Pair};
use crate::reference::Reference;

/// A measurement that no accusation explains.
#[derive(Clone, Copy)]
pub(super) struct Vote {
    pub(super) pair: Pair,
    pub(super) slow: bool,
    pub(super) normal: bool,
    /// Of what is normal; none if it failed.
    pub(super) share: Option<f64>,
}

/// All of them, with whom each machine was normal.
pub(super) struct Votes {
    all: Vec<Vote>,
    normal: Vec<BTreeSet<Host>>,
    noise: Noise,
    scatter: Scatter,
    /// What cleared machines reached with each other, lowest first.
    usual: Vec<f64>,
}

/// Slow measurements of how many, between machines that others cleared.
#[derive(Clone, Copy)]
pub(super) struct Noise {
    pub(super) slow: usize,
    pub(super) of: usize,
    /// The share that is slow at least, by how far measurements scatter: of few that were counted, few are slow by luck.
    least: f64,
}

/// How far measurements of healthy machines scatter, where rates are compared.
#[derive(Clone, Copy)]
pub(super) struct Scatter(pub(super) Option<Reference>);

impl Scatter {
    /// The share of measurements of healthy machines that are as slow as the fastest slow one of these.
    pub(super) fn as_slow_as(self, votes: &[Vote]) -> f64 {
        let slow = votes.iter().filter(|it| it.slow).map(|it| it.share.unwrap_or(0.0));
        let level = slow.max_by(f64::total_cmp);
        self.0.zip(level).map_or(0.0, |(it, level)| it.below_by_scatter(level))
    }
}

/// A share of measurements that are slow by scatter alone from which on an accusation needs more certainty.
const RARELY: f64 = 0.02;

impl Noise {
    /// Whether pairs of machines that are normal with others are slow by chance, as was seen or as their scatter says.
    pub(super) fn is_there(self) -> bool {
        self.slow > 0 || self.least > RARELY
    }

    /// But for some of them: a part is not held against its own measurements.
    pub(super) const fn without(self, slow: usize, of: usize) -> Counted {
        Counted::new(self.slow.saturating_sub(slow), self.of.saturating_sub(of)).or_more(self.least)
    }
}

/// A machine with what was measured against machines that others cleared.
pub(super) struct Suspect {
    pub(super) host: Host,
    pub(super) votes: Vec<Vote>,
    pub(super) slow: usize,
    /// Against whom it was slow.
    pub(super) partners: BTreeSet<Host>,
    pub(super) noise: Counted,
    /// Whether no measurement without it was slow by chance, nor does scatter make any so.
    pub(super) noise_is_rare: bool,
    /// The probability that chance makes any machine of the fleet look so.
    pub(super) chance: f64,
}

impl Vote {
    /// Whether it ended.
    pub(super) const fn ended(&self) -> bool {
        self.share.is_some()
    }
}

impl Votes {
    pub(super) fn new(machines: usize, all: Vec<Vote>, scatter: Scatter) -> Self {
        let least = scatter.0.map_or(0.0, |it| it.slow_by_scatter());
        let mut normal = vec![BTreeSet::new(); machines];
        for vote in all.iter().filter(|it| it.normal) {
            for host in vote.pair.hosts() {
                if let Some(known) = normal.get_mut(host.0) {
                    known.insert(vote.pair.other(host));
                }
            }
        }
        let mut votes =
            Self { all, normal, noise: Noise { slow: 0, of: 0, least }, scatter, usual: Vec::new() };
        for vote in votes.all.iter().filter(|it| it.ended()) {
            let [one, other] = vote.pair.hosts();
            if votes.cleared_without(one, other) && votes.cleared_without(other, one) {
                votes.noise.of += 1;
                votes.noise.slow += usize::from(vote.slow);
                votes.usual.extend(vote.share);
            }
        }
        votes.usual.sort_by(f64::total_cmp);
        votes
    }

    /// How many measurements of cleared machines are at least this.
    pub(super) fn reach(&self, share: f64) -> f64 {
        let from = self.usual.partition_point(|it| *it < share);
        as_f64(self.usual.len() - from) / as_f64(self.usual.len().max(1))
    }

    pub(super) fn all(&self) -> &[Vote] {
        &self.all
    }

    pub(super) const fn noise(&self) -> Noise {
        self.noise
    }

    pub(super) fn is_cleared(&self, host: Host) -> bool {
        self.partners(host).next().is_some()
    }

    /// With whom a machine was normal.
    pub(super) fn partners(&self, host: Host) -> impl Iterator<Item = Host> {
        self.normal.get(host.0).into_iter().flatten().copied()
    }

    /// With how many it was normal, but for one.
    pub(super) fn normal_with(&self, host: Host, but: Host) -> usize {
        self.partners(host).filter(|it| *it != but).count()
    }

    /// How often it was measured with others than one.
    pub(super) fn measured_with_others(&self, host: Host, but: Host) -> usize {
        self.all.iter().filter(|it| it.pair.has(host) && !it.pair.has(but)).count()
    }

    fn cleared_without(&self, host: Host, but: Host) -> bool {
        self.partners(host).any(|it| it != but)
    }

    pub(super) fn by_pair(&self) -> BTreeMap<Pair, Vec<Vote>> {
        let mut pairs: BTreeMap<Pair, Vec<Vote>> = BTreeMap::new();
        for vote in &self.all {
            pairs.entry(vote.pair).or_default().push(*vote);
        }
        pairs
    }

    /// Machines that were slow at least once against one that others cleared. What failed was not slow.
    pub(super) fn suspects(&self) -> Vec<Suspect> {
        let ended = || self.all.iter().filter(|it| it.ended());
        let slow: BTreeSet<Host> = ended().filter(|it| it.slow).flat_map(|it| it.pair.hosts()).collect();
        let mut against: BTreeMap<Host, Vec<Vote>> = slow.into_iter().map(|it| (it, Vec::new())).collect();
        for vote in ended() {
            for host in vote.pair.hosts() {
                if let Some(own) = against.get_mut(&host)
                    && self.cleared_without(vote.pair.other(host), host)
                {
                    own.push(*vote);
                }
            }
        }
        let suspect = |(host, votes): (Host, Vec<Vote>)| {
            let slow = votes.iter().filter(|it| it.slow).count();
            let own = |it: &&Vote| self.cleared_without(host, it.pair.other(host));
            let (own_slow, own_of) =
                (votes.iter().filter(own).filter(|it| it.slow).count(), votes.iter().filter(own).count());
            let noise = self.noise.without(own_slow, own_of).or_more(self.scatter.as_slow_as(&votes));
            Suspect {
                host,
                slow,
                partners: votes.iter().filter(|it| it.slow).map(|it| it.pair.other(host)).collect(),
                noise,
                noise_is_rare: self.noise.slow == own_slow && self.noise.least <= RARELY,
                chance: noise.at_least(slow, votes.len()) * as_f64(self.normal.len()),
                votes,
            }
        };
        against.into_iter().map(suspect).filter(|it| it.slow > 0).collect()
    }
}
