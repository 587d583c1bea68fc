//! Groups of machines: a switch that is slow to the outside, and groups that nobody named.

use std::collections::{BTreeMap, BTreeSet};

use super::votes::{Vote, Votes};
use super::{ALWAYS, Analysis, CHANCE, Class, Culprit, Finding, SEVERAL, Split};
use crate::chance::{Counted, as_f64};
use crate::fleet::{Host, Pair};
use crate::reference::middle;

impl Analysis<'_> {
    /// The switch whose machines are slow against others and normal among themselves.
    pub(super) fn group(&self, votes: &Votes) -> Option<Finding> {
        let numbers: BTreeSet<usize> = self.fleet.hosts().filter_map(|it| self.fleet.group(it)).collect();
        let many = as_f64(numbers.len());
        let found = numbers.into_iter().filter_map(|group| {
            let (across, rest): (Vec<Vote>, Vec<Vote>) =
                votes.all().iter().partition(|it| self.crosses(it.pair, group));
            let inside = |it: &Vote| it.pair.hosts().iter().all(|it| self.fleet.group(*it) == Some(group));
            let normal: BTreeSet<Host> =
                rest.iter().filter(|it| inside(it) && it.normal).flat_map(|it| it.pair.hosts()).collect();
            let slow_hosts: BTreeSet<Host> = across
                .iter()
                .filter(|it| it.slow)
                .flat_map(|it| it.pair.hosts())
                .filter(|it| normal.contains(it))
                .collect();
            let slow = across.iter().filter(|it| it.slow).count();
            let elsewhere = rest.iter().filter(|it| it.slow && !inside(it)).count();
            let least = self.measure.scatter().as_slow_as(&across);
            let by_chance = Counted::new(elsewhere, rest.len()).or_more(least);
            let chance = by_chance.at_least(slow, across.len()) * many;
            let guilty = slow_hosts.len() >= SEVERAL
                && as_f64(slow) >= ALWAYS * as_f64(across.len())
                && chance < CHANCE;
            guilty
                .then(|| Self::finding(Class::Tier, Culprit::Group(group), &across, slow_hosts.len(), chance))
        });
        found.min_by(|a, b| a.chance.total_cmp(&b.chance))
    }

    /// Groups of machines with no pair between them that comes near to what is normal, and enough slow ones to say so, where no switch
    /// was given. Near is nearer than to what slow pairs reach: where measurements scatter, a pair inside is not always normal.
    pub(super) fn groups(&mut self) -> Option<Split> {
        self.split = None;
        if self.fleet.hosts().any(|it| self.fleet.group(it).is_some()) {
            return None;
        }
        let votes = self.votes();
        let line =
            f64::midpoint(middle(votes.all().iter().filter(|it| it.slow).filter_map(|it| it.share))?, 1.0);
        let is_near = |it: &Vote| it.normal || it.share.is_some_and(|it| it >= line);
        let mut near: BTreeMap<Host, BTreeSet<Host>> = BTreeMap::new();
        for pair in votes.all().iter().filter(|it| is_near(it)).map(|it| it.pair) {
            for host in pair.hosts() {
                near.entry(host).or_default().insert(pair.other(host));
            }
        }
        let mut groups: Vec<Vec<Host>> = Vec::new();
        let mut placed: BTreeSet<Host> = BTreeSet::new();
        for start in near.keys().copied() {
            if !placed.insert(start) {
                continue;
            }
            let mut group = vec![start];
            let mut next = 0;
            while let Some(host) = group.get(next).copied() {
                next += 1;
                group.extend(near[&host].iter().copied().filter(|it| placed.insert(*it)));
            }
            group.sort_unstable();
            groups.push(group);
        }
        groups.sort_by_key(|it| std::cmp::Reverse(it.len()));
        if groups.len() < 2 || groups.iter().any(|it| it.len() < SEVERAL) {
            return None;
        }
        let place = |host: Host| groups.iter().position(|it| it.contains(&host));
        let mut between_groups: Vec<Vote> = Vec::new();
        let mut across: BTreeSet<Pair> = BTreeSet::new();
        let mut between: BTreeMap<[usize; 2], (usize, usize)> = BTreeMap::new();
        let mut inside = (0, 0);
        for vote in votes.all() {
            let [one, other] = vote.pair.hosts();
            let (Some(one), Some(other)) = (place(one), place(other)) else { continue };
            let count = if one == other {
                &mut inside
            } else {
                between_groups.push(*vote);
                across.insert(vote.pair);
                between.entry([one.min(other), one.max(other)]).or_default()
            };
            count.0 += usize::from(!is_near(vote));
            count.1 += 1;
        }
        let by_chance =
            Counted::new(inside.0, inside.1).or_more(self.measure.scatter().as_slow_as(&between_groups));
        // Any machines that are as many as the smallest group could have been one.
        let few = i32::try_from(SEVERAL).unwrap_or(i32::MAX);
        let ways = as_f64(self.fleet.len()).powi(few);
        // Between each two groups: pairs that did not meet say nothing.
        let all = groups.len() * (groups.len() - 1) / 2;
        let shown = |(slow, of): &(usize, usize)| {
            *slow >= 2 * SEVERAL
                && as_f64(*slow) >= ALWAYS * as_f64(*of)
                && by_chance.at_least(*slow, *of) * ways < CHANCE
        };
        if between.len() < all || !between.values().all(shown) {
            return None;
        }
        let share = middle(between_groups.iter().map(|it| it.share.unwrap_or(0.0)))?;
        Some(Split { share, across: across.len(), groups })
    }
}
