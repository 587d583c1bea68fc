//! Which pairs run next, all at the same time.

use std::collections::{BTreeMap, BTreeSet};

use crate::fleet::{Fleet, Host, Pair, Sample};
use crate::judge::{Judgement, Question};
use crate::random::Random;

/// Rounds in which every machine takes part; later ones ask only what is open.
pub(crate) const FULL: usize = 3;

/// Disjoint pairs for this round: what is open first, each machine against one that is known to be normal and new to it.
///
/// Of the full rounds the first stays inside switches, where they are known, and the others go across: so that what a switch does
/// is told from what a machine does.
pub(crate) fn next(
    fleet: &Fleet,
    samples: &[Sample],
    judgement: &Judgement,
    round: usize,
    seed: u64,
) -> Vec<Pair> {
    let mut free: Vec<Host> = fleet.hosts().collect();
    Random::new(seed ^ (round as u64).wrapping_mul(0x9e37_79b9)).shuffle(&mut free);
    let mut planner =
        Planner { fleet, met: BTreeMap::new(), count: BTreeMap::new(), free, pairs: Vec::new() };
    for sample in samples {
        *planner.met.entry(sample.pair).or_default() += 1;
        for host in sample.pair.hosts() {
            *planner.count.entry(host).or_default() += 1;
        }
    }
    let accused: BTreeSet<Host> = judgement
        .findings
        .iter()
        .filter_map(|it| match it.culprit {
            crate::Culprit::Host(host) => Some(host),
            _ => None,
        })
        .collect();
    let asked: BTreeSet<Host> = judgement
        .open
        .iter()
        .filter_map(|it| match it {
            Question::Host(host) => Some(*host),
            Question::Pair(_) => None,
        })
        .collect();
    let witness =
        |it: Host| judgement.cleared.contains(&it) && !accused.contains(&it) && !asked.contains(&it);
    if round > 0 {
        for question in &judgement.open {
            match question {
                Question::Pair(pair) => planner.take(*pair),
                Question::Host(host) => planner.ask(*host, &witness),
            }
        }
    }
    if round < FULL {
        // Who sat out an odd round comes first.
        let count = std::mem::take(&mut planner.count);
        planner.free.sort_by_key(|it| count.get(it).copied().unwrap_or(0));
        planner.free.retain(|it| !accused.contains(it));
        while let Some(host) = planner.free.first().copied() {
            if planner.free.len() < 2 {
                break;
            }
            let inside = |it: Host| fleet.group(it).is_some() && fleet.group(it) == fleet.group(host);
            planner.pair(host, &|it| (inside(it) == (round == 0), true));
        }
    }
    planner.pairs
}

struct Planner<'a> {
    fleet: &'a Fleet,
    met: BTreeMap<Pair, usize>,
    count: BTreeMap<Host, usize>,
    free: Vec<Host>,
    pairs: Vec<Pair>,
}

impl Planner<'_> {
    fn take(&mut self, pair: Pair) {
        if pair.hosts().iter().all(|it| self.free.contains(it)) {
            self.free.retain(|it| !pair.has(*it));
            self.pairs.push(pair);
        }
    }

    /// Against a machine that is normal with others, if there is one.
    fn ask(&mut self, host: Host, witness: &impl Fn(Host) -> bool) {
        if !self.free.contains(&host) {
            return;
        }
        let anybody = self.free.iter().any(|it| *it != host && witness(*it));
        let group = self.fleet.group(host);
        // Inside its own switch first: that leaves fewer parts to blame.
        let near = |it: Host| group.is_none() || self.fleet.group(it) == group;
        let rank: Vec<(Host, (bool, bool))> =
            self.free.iter().map(|it| (*it, (witness(*it), near(*it)))).collect();
        let rank = |it: Host| rank.iter().find(|known| known.0 == it).map_or((false, false), |known| known.1);
        if anybody || self.fleet.len() < 4 || self.pairs.is_empty() {
            self.pair(host, &rank);
        }
    }

    /// The free machine that ranks highest among those it met least.
    fn pair(&mut self, host: Host, rank: &impl Fn(Host) -> (bool, bool)) {
        let met = |it: Host| self.met.get(&Pair::new(host, it)).copied().unwrap_or(0);
        let best = self.free.iter().copied().filter(|it| *it != host).min_by_key(|it| {
            let (first, second) = rank(*it);
            (!first, met(*it), !second)
        });
        if let Some(partner) = best {
            self.take(Pair::new(host, partner));
        } else {
            self.free.retain(|it| *it != host);
        }
    }
}
