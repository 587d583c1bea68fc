//! Takes what a launch measured.

use super::Validation;
use crate::alone::{local, scatter_of_best};
use crate::fleet::{Host, Pair};
use crate::judge::Culprit;
use crate::measured::{Measured, Repeated};
use crate::step::{Answer, Rates, Step};

impl Validation {
    /// The results of the launch that [`Self::next`] named.
    pub fn record(&mut self, step: &Step, answer: Answer) {
        self.launches += 1;
        let Answer { rates, resent } = answer;
        match (step, rates) {
            (Step::Local(hosts), Rates::Each(rates)) => self.alone(hosts, rates),
            (Step::Smoke(_), Rates::One(rate)) => self.smoke = Measured::of(rate),
            (Step::Scale(hosts), Rates::One(rate)) => self.scale_reached(hosts, rate),
            (Step::All(hosts), Rates::One(rate)) => {
                if self.all_launches.hosts != *hosts {
                    self.all_resent.clear();
                }
                self.all = self.all_launches.add(hosts, rate);
                let shares: Option<Vec<f64>> = resent.iter().flatten().copied().collect();
                self.all_resent.extend(shares.filter(|it| !it.is_empty()));
            }
            (Step::Without(hosts), Rates::One(rate)) => {
                self.without = self.without_launches.add(hosts, rate);
                // Two machines are a pair: what they reach together tells what is normal, too.
                if let [one, other] = hosts[..] {
                    self.search.also(Pair::new(one, other), rate);
                }
            }
            (Step::Pairs(pairs), Rates::Each(rates)) => self.pairs(pairs, &rates, &resent),
            (Step::Nics(pairs), Rates::Nics { each, pairs: rates }) => {
                self.nics.extend(each);
                self.nics_of.extend(pairs.iter().flat_map(|it| it.hosts()));
                self.pairs(pairs, &rates, &resent);
            }
            // An answer to another question: the launch failed.
            (Step::Local(hosts), _) => self.alone(hosts, vec![None; hosts.len()]),
            (Step::Smoke(_), _) => self.smoke = Measured::Failed,
            (Step::Scale(hosts), _) => self.scale_reached(hosts, None),
            (Step::All(hosts), _) => self.all = self.all_launches.add(hosts, None),
            (Step::Without(hosts), _) => self.without = self.without_launches.add(hosts, None),
            (Step::Pairs(pairs), _) => self.search.record(pairs, |_| None, |_| None),
            (Step::Nics(pairs), _) => {
                self.nics_of.extend(pairs.iter().flat_map(|it| it.hosts()));
                self.search.record(pairs, |_| None, |_| None);
            }
        }
    }

    /// One launch of 4, 8, 16, ... machines, or the same again.
    fn scale_reached(&mut self, hosts: &[Host], rate: Option<f64>) {
        if self.scaled.last().is_none_or(|it| it.hosts != hosts) {
            self.scaled.push(Repeated::default());
        }
        if let Some(last) = self.scaled.last_mut() {
            last.add(hosts, rate);
        }
    }

    /// A round of pairs.
    pub(super) fn pairs(&mut self, pairs: &[Pair], rates: &[Option<f64>], resent: &[Vec<Option<f64>>]) {
        let found =
            |pair| pairs.iter().position(|it| *it == pair).and_then(|at| rates.get(at).copied().flatten());
        let lost = |pair| {
            let at = pairs.iter().position(|it| *it == pair)?;
            match resent.get(at)?[..] {
                [Some(one), Some(other)] => Some([one, other]),
                _ => None,
            }
        };
        self.search.record(pairs, found, lost);
    }

    /// Machines by themselves; where one fails a second time, where one is slow a third, and the best counts.
    pub(super) fn alone(&mut self, hosts: &[Host], rates: Vec<Option<f64>>) {
        for (host, rate) in hosts.iter().zip(&rates) {
            if let Some(known) = self.local_rates.get_mut(host.0) {
                known.extend(rate);
            }
        }
        match &mut self.local {
            None => self.local = Some(rates),
            Some(known) => {
                self.local_again += 1;
                for (host, rate) in hosts.iter().zip(rates) {
                    if let Some(known) = known.get_mut(host.0)
                        && rate > *known
                    {
                        *known = rate;
                    }
                }
            }
        }
        let all: Vec<Host> = self.search.fleet().hosts().collect();
        let rates = self.local.as_deref().unwrap_or_default();
        self.local_findings = local(&all, rates, self.expected.local, scatter_of_best(&self.local_rates));
        if !self.scope.compare_local {
            let least = self.expected.local;
            self.local_findings.retain(|it| match it.culprit {
                Culprit::Host(host) => {
                    let rate = rates.get(host.0).copied().flatten();
                    rate.is_none_or(|rate| least.is_some_and(|least| rate < least.0))
                }
                _ => true,
            });
        }
        let bad = self.local_findings.iter().filter_map(|it| match it.culprit {
            Culprit::Host(host) => Some(host),
            _ => None,
        });
        self.search.leave_out(bad.collect::<Vec<_>>());
    }
}
