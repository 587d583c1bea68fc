//! Whose NICs are measured one by one, and with whom.

use super::{Validation, hosts_of};
use crate::fleet::{Host, Pair};
use crate::judge::{Class, Culprit, Finding};
use crate::measured::CLOSE;
use crate::nics::{self, NicSample, Rail};
use crate::step::Step;

impl Validation {
    /// The NICs of all machines one by one, if some were not measured.
    pub(super) fn every_nic(&self) -> Option<Step> {
        let fit = self.fit();
        let asked = self.scope.nics && self.scope.every_nic && fit.len() > 1;
        (asked && !self.nics_not_measured().is_empty())
            .then(|| Step::Nics(nics::everybody(&fit, 0, self.search.limits().seed)))
    }

    /// The machines whose NICs were not measured one by one.
    pub fn nics_not_measured(&self) -> Vec<Host> {
        self.fit().into_iter().filter(|it| !self.nics_of.contains(it)).collect()
    }

    /// Leaves out to measure the NICs of all machines one by one: there is not enough time for it.
    pub const fn skip_every_nic(&mut self) {
        self.scope.every_nic = false;
    }

    /// Machines in a quiet fleet that nothing accuses, with a NIC that was slow in all its measurements. It asks for more of them.
    pub(super) fn uneven(&self) -> Vec<Finding> {
        if !self.scope.nics {
            return Vec::new();
        }
        let accused = self.accused_by_pairs();
        let suspect = |host: Host| Finding {
            class: Class::Node,
            culprit: Culprit::Host(host),
            share: 1.0,
            slow: 0,
            of: 0,
            partners: 0,
            failed: 0,
            chance: 0.0,
            loss: None,
        };
        // With a machine that is slow every NIC is slow.
        let bad = |it: &NicSample| it.pair.hosts().iter().any(|it| accused.contains(it));
        let mut samples = self.nics_beside_rails();
        samples.retain(|it| !bad(it));
        nics::slow(&samples).into_iter().filter(|it| !accused.contains(it)).map(suspect).collect()
    }

    /// Machines with a NIC that was slow in all its measurements, which are too few to say that it is not by chance.
    pub fn doubtful_nics(&self) -> Vec<Host> {
        let findings = self.findings();
        let named =
            |host: Host| findings.iter().any(|it| hosts_of(self.search.fleet(), it.culprit).contains(&host));
        let hosts = self.uneven().into_iter().filter_map(|it| match it.culprit {
            Culprit::Host(host) => Some(host),
            _ => None,
        });
        hosts.filter(|it| !named(*it)).collect()
    }

    /// NICs that were slow on nearly all machines, in too few pairs to say that it is the rail; counted from 0.
    pub fn doubtful_rails(&self) -> Vec<usize> {
        let named: Vec<Culprit> = self.findings().iter().map(|it| it.culprit).collect();
        let explained = |nic: usize| named.iter().any(|it| matches!(it, Culprit::Nic(_, of) if *of == nic));
        self.rails().iter().filter(|it| !it.is_sure() && !explained(it.nic)).map(|it| it.nic).collect()
    }

    /// Machines whose NICs were measured with accused machines alone: what is slow there may be the other's.
    fn measured_with_suspects_only(&self) -> Vec<Host> {
        // Lost packets do not show in the rate of a NIC.
        let slow = |it: &&Finding| it.loss.is_none();
        let findings = self.search.judgement().findings;
        let accused: Vec<Host> =
            findings.iter().filter(slow).flat_map(|it| hosts_of(self.search.fleet(), it.culprit)).collect();
        let clean = |host: Host| {
            let other =
                |it: &NicSample| it.pair.hosts().iter().all(|it| *it == host || !accused.contains(it));
            self.nics.iter().any(|it| it.pair.has(host) && other(it))
        };
        let known = |it: &Host| (1..nics::TIMES).contains(&self.times_of_nics(*it));
        self.fit().into_iter().filter(|it| known(it) && !accused.contains(it) && !clean(*it)).collect()
    }

    fn accused_by_pairs(&self) -> Vec<Host> {
        let findings = &self.search.judgement().findings;
        findings.iter().flat_map(|it| hosts_of(self.search.fleet(), it.culprit)).collect()
    }

    /// NICs that are slow on all machines, as far as nothing accuses these.
    pub(super) fn rails(&self) -> Vec<Rail> {
        if !self.scope.nics || self.nics.is_empty() {
            return Vec::new();
        }
        let accused = self.accused_by_pairs();
        let bad = |it: &NicSample| it.pair.hosts().iter().any(|it| accused.contains(it));
        nics::rails(self.nics.iter().filter(|it| !bad(it)))
    }

    /// Whether what is slow on all machines is all that they miss together. One that fails may end a launch of all.
    pub(super) fn rails_explain(&self) -> bool {
        let rails = self.rails();
        let costs: f64 = rails.iter().map(Rail::costs).sum();
        let near = |(rate, needed): (f64, f64)| rate >= needed * (1.0 - costs) * (1.0 - CLOSE);
        let reaches = self.all.rate().zip(self.needed()).is_none_or(near);
        !rails.is_empty() && (reaches || rails.iter().any(Rail::fails))
    }

    /// What single NICs reached, but for those that are slow on all machines.
    pub(super) fn nics_beside_rails(&self) -> Vec<NicSample> {
        let rails = self.rails();
        self.nics
            .iter()
            .filter(|it| rails.iter().all(|rail| !rail.is_sure() || rail.nic != it.nic))
            .copied()
            .collect()
    }

    /// How far single NICs scatter, as a part of what is normal, where that is too far to name one.
    pub fn nics_scatter(&self) -> Option<f64> {
        nics::scatter(&self.nics)
    }

    /// How often the NICs of a machine were measured.
    pub(super) fn times_of_nics(&self, host: Host) -> usize {
        self.nics_of.iter().filter(|it| **it == host).count()
    }

    /// Accused machines whose NICs are to be measured, each with a normal one, and two normal ones, to know what a NIC reaches; at the same
    /// time those of all others, if they were not.
    ///
    /// Once, and again where that would name a NIC: one or two slow measurements are no proof.
    pub(super) fn suspects(&self) -> Vec<Pair> {
        let judgement = self.search.judgement();
        let named = self.findings();
        let times = |host: Host| self.times_of_nics(host);
        let uneven = self.uneven();
        let in_doubt = |host: Host| uneven.iter().any(|it| it.culprit == Culprit::Host(host));
        let is_named =
            |host: Host| named.iter().any(|it| matches!(it.culprit, Culprit::Nic(of, _) if of == host));
        let again = |host: Host| (1..nics::TIMES).contains(&times(host)) && is_named(host);
        let most = |host: Host| if is_named(host) { nics::TIMES } else { nics::MOST_TIMES };
        let all: Vec<&Finding> = judgement.findings.iter().chain(&uneven).collect();
        let accused: Vec<Host> = all
            .iter()
            .filter_map(|it| match it.culprit {
                Culprit::Host(host) if nics::may_be(it) => Some(host),
                _ => None,
            })
            .filter(|it| times(*it) == 0 || again(*it) || in_doubt(*it) && times(*it) < most(*it))
            .collect();
        if accused.is_empty() {
            let unseen = self.measured_with_suspects_only();
            if !unseen.is_empty() && self.scope.every_nic && !self.is_noisy() {
                let accused = self.accused_by_pairs();
                let spare = self.fit().into_iter().find(|it| !accused.contains(it) && !unseen.contains(it));
                return nics::among(&unseen, spare, self.search.limits().seed);
            }
            // Other pairs than before: two machines with the same bad NIC look like a rail to their partners.
            let fit = self.fit();
            let round = fit.iter().map(|it| times(*it)).min().unwrap_or(0);
            let open = self.rails().iter().any(|it| !it.is_sure()) && round < nics::TIMES;
            let seed = self.search.limits().seed;
            return if open { nics::everybody(&fit, round, seed) } else { Vec::new() };
        }
        let everybody: Vec<Host> =
            all.iter().flat_map(|it| hosts_of(self.search.fleet(), it.culprit)).collect();
        let mut normal = judgement.cleared.into_iter().filter(|it| !everybody.contains(it));
        let (Some(one), Some(other)) = (normal.next(), normal.next()) else {
            // Nobody is known to be normal: everybody with another partner.
            let round = accused.iter().map(|it| times(*it)).min().unwrap_or(0);
            let known = accused.iter().all(|it| in_doubt(*it));
            let seed = self.search.limits().seed;
            return if known { nics::everybody(&self.fit(), round, seed) } else { Vec::new() };
        };
        let pair = |it: (&Host, Host)| Pair::new(*it.0, it.1);
        let mut pairs: Vec<Pair> = accused.iter().zip(normal).map(pair).collect();
        if pairs.is_empty() {
            // With two normal machines alone, they are what the others are measured against.
            return accused.iter().zip([one, other]).map(pair).collect();
        }
        pairs.push(Pair::new(one, other));
        if self.scope.every_nic && !self.is_noisy() {
            // The partners of accused machines too: with these alone nothing would say whose a slow NIC is.
            let mut rest = self.nics_not_measured();
            rest.retain(|it| *it != one && *it != other && !everybody.contains(it));
            pairs.extend(nics::among(&rest, Some(one), self.search.limits().seed));
        }
        pairs
    }
}
