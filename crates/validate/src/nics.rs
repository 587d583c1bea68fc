//! Which NIC of a slow machine it is.

use std::collections::BTreeMap;

use crate::chance::{Counted, as_f64};
use crate::fleet::Host;
use crate::judge::{Class, Culprit, Finding};
use crate::reference::Reference;

/// One NIC of one machine, measured alone against the same NIC of a normal machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NicSample {
    /// The machine.
    pub host: Host,
    /// The NIC, counted from 0.
    pub nic: usize,
    /// What it reached; none if it failed.
    pub rate: Option<f64>,
}

/// How far below normal NICs are on average that are normal.
const RATHER_NORMAL: f64 = 0.04;

/// A NIC is named if chance would make one such in a thousand machines, which needs this many measurements.
const CHANCE: f64 = 0.001;
pub(crate) const TIMES: usize = 3;

/// Replaces the accusation of a machine by that of its NICs, where some of them are slow and others are not.
///
/// Machines that nobody accuses are measured with them, and say what a NIC reaches.
pub(crate) fn blame(findings: &mut Vec<Finding>, samples: &[NicSample]) {
    let accused: Vec<Culprit> = findings.iter().map(|it| it.culprit).collect();
    let normal = samples.iter().filter(|it| !accused.contains(&Culprit::Host(it.host)));
    let Some(reference) = Reference::of(normal.clone().filter_map(|it| it.rate)) else { return };
    let far = |it: &NicSample| reference.is_far(it.rate, samples.len());
    let mut named = Vec::new();
    findings.retain(|finding| {
        let Culprit::Host(host) = finding.culprit else { return true };
        if finding.class != Class::Node {
            return true;
        }
        // Measured several times, each counts at its best.
        let mut best: BTreeMap<usize, NicSample> = BTreeMap::new();
        for it in samples.iter().filter(|it| it.host == host) {
            let known = best.entry(it.nic).or_insert(*it);
            if it.rate > known.rate {
                *known = *it;
            }
        }
        let (slow, rest): (Vec<&NicSample>, Vec<&NicSample>) = best.values().partition(|it| far(it));
        // Fewer are a reason to measure again.
        let times = samples.iter().filter(|it| it.host == host).count() / best.len().max(1);
        let rest_of = |it: &&NicSample| it.host == host && rest.iter().any(|known| known.nic == it.nic);
        // How often a NIC is slow by chance: those of normal machines say so, and the others of this one.
        let others: Vec<&NicSample> = normal.clone().chain(samples.iter().filter(rest_of)).collect();
        let by_chance = Counted::new(others.iter().filter(|it| far(it)).count(), others.len());
        let chance = by_chance.at_least(times, times) * as_f64(best.len());
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
