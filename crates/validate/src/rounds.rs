//! Which pairs run next, all at the same time.

use std::collections::{BTreeMap, BTreeSet};

use crate::fleet::{Fleet, Host, Pair, Sample};
use crate::judge::{Culprit, Judgement, Question, TELLS_CLASS};
use crate::random::Random;

/// Rounds in which every machine takes part; later ones ask only what is open.
pub(crate) const FULL: usize = 3;

/// Disjoint pairs for this round: what is open first, each machine against one that is known to be normal and new to it. In a full
/// round everybody else meets somebody new.
///
/// Of the full rounds the first stays inside switches, where they are known, and the others go across: so that what a switch does
/// is told from what a machine does.
pub(crate) fn next(
    fleet: &Fleet,
    mut part: Vec<Host>,
    samples: &[Sample],
    judgement: &Judgement,
    full: bool,
    seed: u64,
) -> Vec<Pair> {
    Random::new(seed).shuffle(&mut part);
    let mut met: BTreeMap<Pair, usize> = BTreeMap::new();
    let mut count: BTreeMap<Host, usize> = BTreeMap::new();
    for sample in samples {
        *met.entry(sample.pair).or_default() += 1;
        for host in sample.pair.hosts() {
            *count.entry(host).or_default() += 1;
        }
    }
    let accused: BTreeMap<Host, usize> = judgement
        .findings
        .iter()
        .filter_map(|it| match it.culprit {
            Culprit::Host(host) => Some((host, it.of)),
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
        |it: Host| judgement.cleared.contains(&it) && !accused.contains_key(&it) && !asked.contains(&it);
    let mut planner =
        Planner { fleet, met, free: part.iter().copied().collect(), order: part, pairs: Vec::new() };
    if !samples.is_empty() {
        for question in &judgement.open {
            match question {
                Question::Pair(pair) => planner.take(*pair),
                Question::Host(host) => planner.ask(*host, &witness),
            }
        }
        // Others are measured anyway: more of the accused tell one that is always slow from one that is slow at times.
        for (host, _) in accused.iter().filter(|it| *it.1 < TELLS_CLASS) {
            planner.ask(*host, &witness);
        }
    }
    if full {
        let first = samples.is_empty();
        // Who sat out an odd round comes first.
        planner.order.sort_by_key(|it| count.get(it).copied().unwrap_or(0));
        for host in planner.order.clone() {
            if !planner.free.contains(&host) || accused.contains_key(&host) {
                continue;
            }
            let inside = |it: Host| fleet.group(it).is_some() && fleet.group(it) == fleet.group(host);
            planner.pair(host, |it| (!accused.contains_key(&it)).then(|| (inside(it) == first, true)));
        }
    }
    planner.pairs
}

/// Round `round` of a tournament in which everybody meets everybody once: one stays, the others move on by one place.
pub(crate) fn tournament(hosts: &[Host], round: usize, seed: u64) -> Vec<Pair> {
    let mut order: Vec<Option<Host>> = hosts.iter().copied().map(Some).collect();
    Random::new(seed).shuffle(&mut order);
    if order.len() % 2 == 1 {
        order.push(None);
    }
    let moving = order.len().saturating_sub(1).max(1);
    let at = |place: usize| if place == 0 { order[0] } else { order[1 + (place - 1 + round) % moving] };
    (0..order.len() / 2)
        .filter_map(|place| Some(Pair::new(at(place)?, at(order.len() - 1 - place)?)))
        .collect()
}

struct Planner<'a> {
    fleet: &'a Fleet,
    met: BTreeMap<Pair, usize>,
    free: BTreeSet<Host>,
    /// In which order the free are looked at.
    order: Vec<Host>,
    pairs: Vec<Pair>,
}

impl Planner<'_> {
    fn take(&mut self, pair: Pair) {
        if pair.hosts().iter().all(|it| self.free.contains(it)) {
            for host in pair.hosts() {
                self.free.remove(&host);
            }
            self.pairs.push(pair);
        }
    }

    /// Against a machine that is normal with others, if there is one.
    fn ask(&mut self, host: Host, witness: &impl Fn(Host) -> bool) {
        if !self.free.contains(&host) {
            return;
        }
        let anybody = self.free.iter().any(|it| *it != host && witness(*it));
        if anybody || self.fleet.len() < 4 || self.pairs.is_empty() {
            let group = self.fleet.group(host);
            let fleet = self.fleet;
            // Inside its own switch first: that leaves fewer parts to blame.
            let near = |it: Host| group.is_none() || fleet.group(it) == group;
            self.pair(host, |it| Some((witness(it), near(it))));
        }
    }

    /// The free machine that ranks highest among those it met least.
    fn pair(&mut self, host: Host, rank: impl Fn(Host) -> Option<(bool, bool)>) {
        let met = |it: Host| self.met.get(&Pair::new(host, it)).copied().unwrap_or(0);
        let mut best: Option<((bool, usize, bool), Host)> = None;
        for it in self.order.iter().copied().filter(|it| *it != host && self.free.contains(it)) {
            let Some((first, second)) = rank(it) else { continue };
            let key = (!first, met(it), !second);
            if best.is_none_or(|known| key < known.0) {
                best = Some((key, it));
            }
            if key == (false, 0, false) {
                break;
            }
        }
        if let Some((_, partner)) = best {
            self.take(Pair::new(host, partner));
        }
    }
}
