//! Which NIC of a slow machine it is.

use std::collections::{BTreeMap, BTreeSet};

use crate::chance::{Counted, as_f64};
use crate::fleet::{Host, Pair};
use crate::judge::{Class, Culprit, Finding};
use crate::reference::{Reference, STANDARD_ERROR, median};
use crate::rounds;

/// One NIC of two machines, measured alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NicSample {
    /// The machines.
    pub pair: Pair,
    /// The NIC, counted from 0.
    pub nic: usize,
    /// What it reached; none if it failed.
    pub rate: Option<f64>,
}

/// How far below normal NICs are on average that are normal.
const RATHER_NORMAL: f64 = 0.04;

/// What a machine reaches of normal that may be slow at times by scatter.
const NEAR: f64 = 0.8;

/// The largest standard deviation of single NICs of a fleet in which a slow one is looked for.
const MOST_SPREAD: f64 = 0.035;

/// The same of a quiet fleet.
const QUIET: f64 = 0.03;

/// A NIC is named if chance would make one such in a thousand machines, which needs this many measurements.
const CHANCE: f64 = 0.001;
pub(crate) const TIMES: usize = 3;
/// In a small fleet with few NICs three slow measurements of three may still be chance: so many at most.
pub(crate) const MOST_TIMES: usize = 6;

/// The largest standard deviation in which a NIC is looked for that is slow on all machines: it has many measurements.
const MOST_SPREAD_OF_RAILS: f64 = 0.08;

/// Different pairs in which a NIC is slow before it is that of all machines, and which part of its measurements.
const RAIL_PAIRS: usize = 3;
const RAIL_SHARE: f64 = 0.75;

/// A NIC that is slow on all machines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rail {
    /// Counted from 0.
    pub(crate) nic: usize,
    /// What it reaches of normal, in the middle; 0 where most failed.
    share: f64,
    slow: usize,
    of: usize,
    failed: usize,
    /// Whether more pairs showed it than one or two machines with a bad NIC are in.
    sure: bool,
    /// NICs of a machine.
    nics: usize,
}

impl Rail {
    pub(crate) const fn is_sure(&self) -> bool {
        self.sure
    }

    /// What all machines together lose by it, as a part of what they would reach.
    pub(crate) fn costs(&self) -> f64 {
        (1.0 - self.share) / as_f64(self.nics)
    }

    /// Whether it fails rather than being slow.
    pub(crate) const fn fails(&self) -> bool {
        2 * self.failed > self.of
    }

    /// As an accusation, in a fleet of so many machines.
    pub(crate) const fn finding(&self, machines: usize) -> Finding {
        Finding {
            class: Class::Tier,
            culprit: Culprit::Rail(self.nic),
            share: self.share,
            slow: self.slow,
            of: self.of,
            partners: machines,
            failed: self.failed,
            chance: 0.0,
            loss: None,
        }
    }
}

/// NICs that are slow in nearly all pairs, where others of the same machines are normal: fewer than half of them, or nothing says which
/// are normal.
pub(crate) fn rails<'a>(samples: impl Iterator<Item = &'a NicSample>) -> Vec<Rail> {
    let samples: Vec<&NicSample> = samples.collect();
    let reference = Reference::of(samples.iter().filter_map(|it| it.rate));
    let Some(reference) = reference.filter(|it| it.spread <= MOST_SPREAD_OF_RAILS) else { return Vec::new() };
    // Few measurements may scatter further than they show.
    let quiet = reference.spread_at_most <= MOST_SPREAD_OF_RAILS;
    let mut by_nic: BTreeMap<usize, Vec<&NicSample>> = BTreeMap::new();
    for it in &samples {
        by_nic.entry(it.nic).or_default().push(it);
    }
    let nics = by_nic.len();
    let far = |it: &NicSample| reference.is_far(it.rate, samples.len());
    let rail = |(nic, own): (usize, Vec<&NicSample>)| {
        let slow: Vec<&NicSample> = own.iter().copied().filter(|it| far(it)).collect();
        let pairs: BTreeSet<Pair> = slow.iter().map(|it| it.pair).collect();
        // One machine that is in all of them would explain them.
        let first = pairs.first()?.hosts();
        let one = first.iter().any(|host| pairs.iter().all(|it| it.has(*host)));
        let others = samples.iter().filter(|it| it.nic != nic && far(it)).count();
        let by_chance = Counted::new(others, samples.len() - own.len());
        let chance = by_chance.at_least(slow.len(), own.len()) * as_f64(nics);
        let sure = quiet && !one && pairs.len() >= RAIL_PAIRS && chance < CHANCE;
        if as_f64(slow.len()) < RAIL_SHARE * as_f64(own.len()) {
            return None;
        }
        let mut shares: Vec<f64> =
            slow.iter().map(|it| it.rate.map_or(0.0, |it| reference.share(it))).collect();
        shares.sort_by(f64::total_cmp);
        let failed = slow.iter().filter(|it| it.rate.is_none()).count();
        let share = median(&shares)?;
        Some(Rail { nic, share, slow: slow.len(), of: own.len(), failed, sure, nics })
    };
    let rails: Vec<Rail> = by_nic.into_iter().filter_map(rail).collect();
    if 2 * rails.len() > nics { Vec::new() } else { rails }
}

/// Their standard deviation, as a part of what is normal, where it is too large to look for a slow one.
pub(crate) fn scatter(samples: &[NicSample]) -> Option<f64> {
    let spread = Reference::of(samples.iter().filter_map(|it| it.rate))?.spread;
    (spread > MOST_SPREAD).then_some(spread)
}

/// Replaces the accusation of a machine by that of its NICs, where some of them are slow and others are not.
///
/// Machines that nobody accuses or doubts are measured with them, and say what a NIC reaches.
pub(crate) fn blame(findings: &mut Vec<Finding>, samples: &[NicSample], doubted: &[Culprit]) {
    let accused: Vec<Culprit> = findings.iter().map(|it| it.culprit).chain(doubted.iter().copied()).collect();
    let is_accused = |it: &Host| accused.contains(&Culprit::Host(*it));
    let normal = samples.iter().filter(|it| !it.pair.hosts().iter().any(is_accused));
    let Some(reference) = Reference::of(normal.clone().filter_map(|it| it.rate)) else { return };
    let far = |it: &NicSample| reference.is_far(it.rate, samples.len());
    let machines = samples.iter().flat_map(|it| it.pair.hosts()).collect::<BTreeSet<Host>>().len();
    let fine: BTreeSet<(Host, usize)> = samples.iter().filter(|it| !far(it)).flat_map(ends).collect();
    let mut named = Vec::new();
    findings.retain(|finding| {
        let Culprit::Host(host) = finding.culprit else { return true };
        if !may_be(finding) {
            return true;
        }
        let best = best_of(host, samples);
        let (slow, rest): (Vec<&NicSample>, Vec<&NicSample>) = best.values().partition(|it| far(it));
        // Fewer are a reason to measure again.
        let times = samples.iter().filter(|it| it.pair.has(host)).count() / best.len().max(1);
        // How often a NIC is slow by chance: of NICs that were normal at another time.
        let known =
            samples.iter().filter(|it| !it.pair.has(host) || rest.iter().any(|rest| rest.nic == it.nic));
        let known: Vec<&NicSample> = known.filter(|it| ends(it).iter().all(|it| fine.contains(it))).collect();
        let by_chance = Counted::new(known.iter().filter(|it| far(it)).count(), known.len());
        // Any NIC of any machine that was measured could have been it.
        let chance = by_chance.at_least(times, times) * as_f64(best.len() * machines);
        if times >= TIMES && chance >= CHANCE {
            return true;
        }
        // If all are slow, or the rest is not quite normal either, it is the machine and not a NIC.
        let shares = rest.iter().filter_map(|it| it.rate).map(|it| reference.share(it)).sum::<f64>();
        let usual = 1.0 - RATHER_NORMAL.max(3.0 * reference.spread / as_f64(rest.len().max(1)).sqrt());
        if slow.is_empty() || slow.len() > rest.len() || shares / as_f64(rest.len()) < usual {
            return true;
        }
        named.extend(slow.into_iter().map(|it| Finding {
            class: Class::Nic,
            culprit: Culprit::Nic(host, it.nic),
            share: it.rate.map_or(0.0, |rate| reference.share(rate)),
            failed: usize::from(it.rate.is_none()),
            chance: finding.chance.max(chance.min(1.0)),
            ..finding.clone()
        }));
        false
    });
    findings.extend(named);
}

/// Whether a machine may be accused for one of its NICs: it is slow always, or so near to what is normal that scatter makes it look
/// normal at times. Lost packets do not show in the rate of a NIC.
pub(crate) fn may_be(finding: &Finding) -> bool {
    let near = finding.class == Class::Intermittent && finding.share >= NEAR && finding.failed == 0;
    (finding.class == Class::Node || near) && finding.loss.is_none()
}

/// All machines in pairs, others in each round; with an odd number one of them is in two.
pub(crate) fn everybody(hosts: &[Host], round: usize, seed: u64) -> Vec<Pair> {
    let mut pairs = rounds::tournament(hosts, round, seed);
    let out = hosts.iter().copied().find(|it| !pairs.iter().any(|pair| pair.has(*it)));
    let partner = hosts.iter().copied().find(|it| Some(*it) != out);
    pairs.extend(out.zip(partner).map(|(out, partner)| Pair::new(out, partner)));
    pairs
}

/// These with each other; one alone with the spare machine.
pub(crate) fn among(hosts: &[Host], spare: Option<Host>, seed: u64) -> Vec<Pair> {
    match hosts {
        [last] => spare.map(|it| Pair::new(*last, it)).into_iter().collect(),
        _ => everybody(hosts, 0, seed),
    }
}

/// Measured several times, each NIC of a machine counts at its best: with a partner whose own NIC is slow it is slow too.
fn best_of(host: Host, samples: &[NicSample]) -> BTreeMap<usize, NicSample> {
    let mut best: BTreeMap<usize, NicSample> = BTreeMap::new();
    for it in samples.iter().filter(|it| it.pair.has(host)) {
        let known = best.entry(it.nic).or_insert(*it);
        if it.rate > known.rate {
            *known = *it;
        }
    }
    best
}

/// Whether single NICs scatter so little that a small difference tells. There are many of them, so that this is known better than of
/// pairs.
pub(crate) fn are_quiet(samples: &[NicSample]) -> bool {
    let few = 1.0 + STANDARD_ERROR / as_f64(samples.len().max(1)).sqrt();
    Reference::of(samples.iter().filter_map(|it| it.rate)).is_some_and(|it| it.spread * few <= QUIET)
}

/// The NICs of a measurement.
fn ends(sample: &NicSample) -> [(Host, usize); 2] {
    sample.pair.hosts().map(|it| (it, sample.nic))
}

/// Machines with a NIC that was slow in all its measurements; none where half of all machines have one: then NICs are slow by chance.
/// Where they scatter far, those that fail, which no scatter does.
pub(crate) fn slow(samples: &[NicSample]) -> Vec<Host> {
    let Some(reference) = Reference::of(samples.iter().filter_map(|it| it.rate)) else { return Vec::new() };
    let quiet = reference.spread <= MOST_SPREAD;
    let far = |it: &NicSample| match it.rate {
        None => true,
        rate => quiet && reference.is_far(rate, samples.len()),
    };
    let fine: BTreeSet<(Host, usize)> = samples.iter().filter(|it| !far(it)).flat_map(ends).collect();
    let all: BTreeSet<Host> = samples.iter().flat_map(|it| it.pair.hosts()).collect();
    let mut by_nic: BTreeMap<usize, BTreeSet<Pair>> = BTreeMap::new();
    for it in samples.iter().filter(|it| far(it)) {
        by_nic.entry(it.nic).or_default().insert(it.pair);
    }
    let mut slow: BTreeSet<Host> = BTreeSet::new();
    for (nic, pairs) in by_nic {
        let bad = |it: &Host| !fine.contains(&(*it, nic));
        let ends: BTreeSet<Host> = pairs.iter().flat_map(|it| it.hosts()).filter(bad).collect();
        // One machine that is in several of them, and in all, explains its partners.
        let one = ends.iter().find(|host| pairs.len() > 1 && pairs.iter().all(|it| it.has(**host)));
        slow.extend(one.map_or_else(|| ends.clone(), |it| BTreeSet::from([*it])));
    }
    if 2 * slow.len() > all.len() { Vec::new() } else { slow.into_iter().collect() }
}
