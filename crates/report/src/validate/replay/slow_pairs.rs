//! Pairs that are slow and that nothing explains yet.

use std::collections::BTreeMap;

use ::validate::replay::Set;
use ::validate::{CONFIRMED, Culprit, Fleet, Host, Judgement, Pair, Question};

use super::samples;
use crate::validate::{list, percent};

/// A pair that is slow and that no finding explains: too little to accuse a link, enough to measure it again.
pub(super) struct SlowPair {
    pub(super) pair: Pair,
    pub(super) names: String,
    /// Measurements that were slow or failed,
    pub(super) slow: usize,
    /// of how many,
    pub(super) of: usize,
    /// and how many failed.
    pub(super) failed: usize,
    /// The median of those that ended, as a part of what is normal.
    pub(super) share: Option<f64>,
}

impl SlowPair {
    fn what(&self) -> &'static str {
        if self.failed == self.slow { "failed" } else { "slow" }
    }

    /// For the first line.
    pub(super) fn sentence(&self) -> String {
        let Self { names, slow, of, .. } = self;
        let share = self.share.map(percent);
        match (share, of) {
            (Some(share), 1) => format!("{names} reach {share} of normal"),
            (None, 1) => format!("{names} failed"),
            (Some(share), _) if self.failed == 0 => {
                format!("{names} were slow in {slow} of {of} measurements ({share} of normal)")
            }
            (_, _) if self.failed == *slow => format!("{names} failed in {slow} of {of} measurements"),
            (_, _) => format!("{names} were slow or failed in {slow} of {of} measurements"),
        }
    }

    /// What is missing to settle it, of one that was measured several times.
    pub(super) fn unsettled(&self) -> String {
        let Self { names, slow, of, .. } = self;
        let missing = match CONFIRMED.saturating_sub(*slow) {
            0 => "too few measurements to exclude chance: measure this pair again".to_owned(),
            more => format!("a link is named from {CONFIRMED} on, so {more} more at least"),
        };
        let were = if self.failed == *slow { "" } else { "were " };
        format!("why {names} {were}{} in {slow} of {of} measurements: {missing}", self.what())
    }
}

/// Pairs that are asked about, and pairs that are slow in each of several measurements.
pub(super) fn slow_pairs(fleet: &Fleet, set: &Set, judgement: &Judgement) -> Vec<SlowPair> {
    let Some(reference) = &judgement.reference else { return Vec::new() };
    let mut by_pair: BTreeMap<Pair, Vec<Option<f64>>> = BTreeMap::new();
    for it in samples(set) {
        by_pair.entry(it.pair).or_default().push(it.rate.map(|it| it.0));
    }
    let pairs = by_pair.into_iter().filter_map(|(pair, rates)| {
        let slow = rates.iter().filter(|it| reference.is_slow(**it)).count();
        let always = rates.len() > 1 && slow == rates.len() && !explained(judgement, pair);
        if !always && !judgement.open.contains(&Question::Pair(pair)) {
            return None;
        }
        let mut ended: Vec<f64> = rates.iter().copied().flatten().collect();
        ended.sort_by(f64::total_cmp);
        Some(SlowPair {
            pair,
            names: pair.hosts().map(|it| fleet.name(it)).join(" - "),
            slow,
            of: rates.len(),
            failed: rates.len() - ended.len(),
            share: ended.get(ended.len() / 2).map(|it| reference.share(*it)),
        })
    });
    pairs.collect()
}

/// Whether a finding or a boundary between groups explains why a pair is slow.
pub(super) fn explained(judgement: &Judgement, pair: Pair) -> bool {
    let accused = judgement.findings.iter().any(|it| match it.culprit {
        Culprit::Host(host) => pair.has(host),
        Culprit::Link(link) => link == pair,
        Culprit::Nic(..) | Culprit::Rail(_) | Culprit::Group(_) => false,
    });
    let group = |host: Host| {
        let split = judgement.split.as_ref()?;
        split.groups.iter().position(|it| it.contains(&host))
    };
    let [one, other] = pair.hosts().map(group);
    accused || one.is_some() && other.is_some() && one != other
}

/// Slow pairs that are to be measured again, for the first line.
pub(super) fn suspected(all: &[SlowPair]) -> Option<String> {
    let sentences: Vec<String> = all.iter().map(SlowPair::sentence).collect();
    let (pair, them) = if all.len() == 1 { ("this pair", "") } else { ("these pairs", " each") };
    let known = list(&sentences, 3);
    let once = if all.iter().all(|it| it.of == 1) {
        format!("measured once{them}")
    } else {
        "and it is not settled why".to_owned()
    };
    (!all.is_empty()).then(|| format!("{known}, {once}: measure {pair} again"))
}
