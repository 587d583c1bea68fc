//! What launches of all machines say: whether they are enough, how many of them it takes, and what they contradict.

use super::{Validation, hosts_of};
use crate::chance::{Counted, as_f64};
use crate::fleet::{Host, Pair};
use crate::measured::{CLOSE, Measured, Repeated};
use crate::nics;
use crate::reference::{self, Reference};
use crate::resent::Usual;
use crate::rounds::FULL;

/// The part of the rate of a pair that all machines together must reach where nothing else is expected. Pairs find the part that is
/// slow; this finds a network that is slow only together: four times as many links below a switch as above it, or worse. A ring of host
/// memory is as late as its latest process in every step, so that busy processors cost it half and more.
const OF_PAIRS: f64 = 0.25;

/// Slow pairs besides those of one machine from which on pairs are slow by chance; then as many more launches must be enough than are not.
const SEVERAL: usize = 2;
const LEAD_OF_DIPS: usize = 3;

/// A machine keeps losing packets if chance would make one such in a hundred fleets.
const CHANCE: f64 = 0.01;

/// So few machines do not tell a loss from what is usual: then this share of segments sent again is one.
const COMPARABLE: usize = 4;
const LOSSY_ALONE: f64 = 0.01;

/// In standard deviations of pairs: a launch of all is not lower than the others by more, but for something that is slow at times.
const FAR: f64 = 4.0;

/// The largest standard deviation of pairs of a quiet fleet.
const QUIET: f64 = 0.025;

impl Validation {
    /// What the rest reached without those that are accused.
    pub fn without(&self) -> Measured {
        let known = self.known();
        let rest = self.outside();
        match known.hosts == rest && rest.len() < self.search.fleet().len() {
            true if self.without.ran() => self.without,
            true => self.all,
            false => Measured::Not,
        }
    }

    /// The launches that say what the others reach.
    pub(super) const fn known(&self) -> &Repeated {
        if self.without.ran() { &self.without_launches } else { &self.all_launches }
    }

    /// Whether all together reach what is expected, three times, while pairs scatter: what a single round of them shows is chance.
    pub(super) fn is_enough_for_noise(&self) -> bool {
        let samples = self.search.samples();
        let failed = samples.iter().any(|it| it.rate.is_none());
        let sure = self.expected.all.is_some() && self.all_launches.is_decided() && self.enough(self.all);
        sure && self.leads(&self.all_launches) && self.search.rounds() < FULL && !self.is_quiet() && !failed
    }

    /// Whether pairs scatter so little that a small difference tells. Few of them lie close together by luck.
    pub(super) fn is_quiet(&self) -> bool {
        let few = 1.0 + 2.0 / as_f64(self.search.samples().len().max(1)).sqrt();
        let pairs = self.search.judgement().reference.is_some_and(|it| it.spread * few <= QUIET);
        pairs || nics::are_quiet(&self.nics)
    }

    /// Whether pairs scatter so much, or are so often slow by chance, that a launch is too: a machine that is slow at times does not show
    /// then.
    pub(super) fn is_noisy(&self) -> bool {
        let Some(reference) = self.search.judgement().reference else { return false };
        reference.spread > QUIET || self.dips(&reference)
    }

    /// Whether pairs scatter so far, and nothing explains it, that neither they nor launches of all tell a fleet that is too slow from one
    /// that is not.
    pub fn scatters(&self) -> bool {
        let explained = || !self.findings().is_empty() || self.split().is_some();
        let rates = self.search.samples().iter().filter_map(|it| it.rate);
        reference::tell_nothing(rates.map(|it| it.0)) && !explained()
    }

    /// Whether several pairs were slow that no one machine explains.
    pub(super) fn dips(&self, reference: &Reference) -> bool {
        let accused: Vec<Host> =
            self.findings().iter().flat_map(|it| hosts_of(self.search.fleet(), it.culprit)).collect();
        let samples = self.search.samples().iter();
        let slow: Vec<Pair> = samples
            .filter(|it| it.rate.is_some_and(|rate| reference.is_slow(Some(rate.0))))
            .map(|it| it.pair)
            .filter(|it| !it.hosts().iter().any(|it| accused.contains(it)))
            .collect();
        let without = |host: Host| slow.iter().filter(|it| !it.has(host)).count();
        slow.iter().flat_map(|it| it.hosts()).map(without).min().is_some_and(|it| it >= SEVERAL)
    }

    /// How many launches more must be enough than were not. Without an expected bandwidth what is needed lies far below what is normal.
    pub(super) fn lead(&self) -> usize {
        let reference = self.search.judgement().reference.filter(|_| self.expected.all.is_some());
        match reference {
            Some(it) if it.spread > QUIET => it.lead(),
            Some(it) if self.dips(&it) => LEAD_OF_DIPS,
            _ => 1,
        }
    }

    /// Whether these launches are enough, by as many as the scatter of the fleet asks for.
    pub(super) fn leads(&self, launches: &Repeated) -> bool {
        launches.leads(self.lead(), |it| self.enough(it))
    }

    /// Whether another launch may say what these do not.
    pub(super) fn is_unsettled(&self, launches: &Repeated) -> bool {
        let enough = |it| self.enough(it);
        let lead = self.lead();
        self.is_noisy()
            && !launches.is_spent()
            && !launches.leads(lead, enough)
            && !launches.trails(lead, enough)
    }

    /// Whether a launch of all was too slow, although most were not.
    pub(super) fn wavers(&self) -> bool {
        let low = |it: &Option<f64>| !self.enough(Measured::of(*it));
        self.enough(self.all) && self.all_launches.rates.iter().any(low)
    }

    /// Whether a launch of all was too slow, and slower than the others by more than pairs scatter, in a fleet that is quiet: something is
    /// slow at times, and pairs did not show it.
    pub fn contradicts(&self) -> bool {
        let Some(middle) = self.all.rate() else { return false };
        let spread = self.search.judgement().reference.map_or(0.0, |it| it.spread);
        let far = |it: f64| it < middle * (1.0 - CLOSE.max(FAR * spread));
        let rates = || self.all_launches.rates.iter().copied();
        self.wavers() && !self.is_noisy() && rates().any(|it| it.is_none_or(far))
    }

    /// Whether a machine sends far more again than the others in most launches of all: it, or the one that it sends to, loses packets.
    pub fn loses_together(&self) -> bool {
        let stands_out = |shares: &&Vec<f64>| {
            Usual::of(shares.iter().copied()).is_some_and(|usual| shares.iter().any(|it| usual.is_lossy(*it)))
        };
        2 * self.all_resent.iter().filter(stands_out).count() > self.all_resent.len()
    }

    /// Whether that is the same machine again and again: full queues send now this one more again, now that one.
    pub fn keeps_losing(&self) -> bool {
        let machines = self.all_launches.hosts.len();
        if machines < COMPARABLE {
            // Nobody to be compared with.
            let lossy = |shares: &&Vec<f64>| shares.iter().any(|it| *it >= LOSSY_ALONE);
            return 2 * self.all_resent.iter().filter(lossy).count() > self.all_resent.len();
        }
        let mut often = vec![0; machines];
        for shares in &self.all_resent {
            let Some(usual) = Usual::of(shares.iter().copied()) else { continue };
            for (times, share) in often.iter_mut().zip(shares) {
                *times += usize::from(usual.is_lossy(*share));
            }
        }
        let launches = self.all_resent.len();
        let all: usize = often.iter().sum();
        let keeps = |at: usize| {
            // What a machine loses, its neighbours in the ring send again.
            let near = [at, (at + 1) % machines, (at + machines - 1) % machines];
            let near: std::collections::BTreeSet<usize> = near.into_iter().collect();
            let hits = all - near.iter().map(|it| often[*it]).sum::<usize>();
            let by_chance = Counted::new(hits, launches * (machines - near.len()));
            2 * often[at] > launches && by_chance.at_least(often[at], launches) * as_f64(machines) < CHANCE
        };
        (0..machines).any(keeps)
    }

    /// How many launches of all machines failed although others did not.
    pub fn failed_together(&self) -> usize {
        self.all_launches.rates.iter().filter(|it| it.is_none()).count()
    }

    /// What all together must reach, in GB/s: what is expected, or a part of what pairs reach.
    ///
    /// None before pairs were measured. Two machines are one pair, which says nothing about itself.
    pub fn needed(&self) -> Option<f64> {
        if let Some(least) = self.expected.all {
            return Some(least.0);
        }
        if self.search.fleet().len() < 3 {
            return None;
        }
        Reference::of_pairs(self.search.samples()).map(|it| it.normal * OF_PAIRS)
    }

    pub(super) fn enough(&self, measured: Measured) -> bool {
        measured.rate().zip(self.needed()).is_some_and(|(rate, needed)| rate >= needed)
    }

    /// Enough, but so little more than that that a second launch may say otherwise.
    pub(super) fn is_close(&self, measured: Measured) -> bool {
        let near = |(rate, needed): (f64, f64)| rate >= needed && rate < needed * (1.0 + CLOSE);
        measured.rate().zip(self.needed()).is_some_and(near)
    }
}
