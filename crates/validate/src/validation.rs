//! The whole validation: which launch is next, and what it all means.

use fabric::units::GigabytesPerSecond;

use crate::chance::{Counted, as_f64};
use crate::fleet::{Fleet, Host, Pair};
use crate::judge::{Class, Culprit, Finding, Question, Split};
use crate::measured::{CLOSE, Measured, Repeated};
use crate::nics::{self, NicSample};
use crate::reference::Reference;
use crate::resent::Usual;
use crate::rounds::{self, FULL};
use crate::search::{Limits, Search};
use crate::step::{Answer, Expected, Rates, Scope, Step, Verdict};

/// The part of the rate of a pair that all machines together must reach where nothing else is expected. Pairs find the part that is
/// slow; this finds a network that is slow only together: four times as many links below a switch as above it, or worse. A ring of host
/// memory is as late as its latest process in every step, so that busy processors cost it half and more.
const OF_PAIRS: f64 = 0.25;

/// Slow pairs besides those of one machine from which on pairs are slow by chance; then as many more launches must be enough than are not.
const SEVERAL: usize = 2;
const LEAD_OF_DIPS: usize = 3;

/// A machine keeps losing packets if chance would make one such in a hundred fleets.
const CHANCE: f64 = 0.01;

/// In standard deviations of pairs: a launch of all is not lower than the others by more, but for something that is slow at times.
const FAR: f64 = 4.0;

/// The largest standard deviation of pairs of a quiet fleet.
const QUIET: f64 = 0.025;

/// A validation under way.
#[derive(Debug, Clone)]
pub struct Validation {
    expected: Expected,
    scope: Scope,
    search: Search,
    scaled: Vec<Measured>,
    local: Option<Vec<Option<f64>>>,
    /// All that each machine reached by itself.
    local_rates: Vec<Vec<f64>>,
    local_findings: Vec<Finding>,
    local_again: usize,
    smoke: Measured,
    all: Measured,
    all_launches: Repeated,
    all_resent: Vec<Vec<f64>>,
    nics: Vec<NicSample>,
    nics_of: Vec<Host>,
    without: Measured,
    without_launches: Repeated,
    launches: usize,
}

impl Validation {
    /// Before the first launch.
    pub fn new(fleet: Fleet, expected: Expected, limits: Limits) -> Self {
        let machines = fleet.len();
        Self {
            expected,
            scope: Scope::default(),
            search: Search::new(fleet, limits),
            scaled: Vec::new(),
            local: None,
            local_rates: vec![Vec::new(); machines],
            local_findings: Vec::new(),
            local_again: 0,
            smoke: Measured::Not,
            all: Measured::Not,
            all_launches: Repeated::default(),
            all_resent: Vec::new(),
            nics: Vec::new(),
            nics_of: Vec::new(),
            without: Measured::Not,
            without_launches: Repeated::default(),
            launches: 0,
        }
    }

    /// With these measurements.
    #[must_use]
    pub const fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// From now on every pair is measured, in at most this many rounds.
    pub const fn measure_links(&mut self, rounds: usize) {
        self.scope.links = true;
        self.search.allow(rounds);
    }

    /// Which measurements it makes.
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// Launches so far.
    pub const fn launches(&self) -> usize {
        self.launches
    }

    /// The rounds of pairs.
    pub const fn search(&self) -> &Search {
        &self.search
    }

    /// What each machine reached alone.
    pub fn local(&self) -> Option<&[Option<f64>]> {
        self.local.as_deref()
    }

    /// What two reached together.
    pub const fn smoke(&self) -> Measured {
        self.smoke
    }

    /// What all reached together.
    pub const fn all(&self) -> Measured {
        self.all
    }

    /// What the rest reached without those that are accused.
    pub fn without(&self) -> Measured {
        let known = self.known();
        let rest = self.rest();
        match known.hosts == rest && rest.len() < self.search.fleet().len() {
            true if self.without.ran() => self.without,
            true => self.all,
            false => Measured::Not,
        }
    }

    /// The launches that say what the others reach.
    const fn known(&self) -> &Repeated {
        if self.without.ran() { &self.without_launches } else { &self.all_launches }
    }

    /// What should be reached.
    pub const fn expected(&self) -> Expected {
        self.expected
    }

    /// The next launch; none when there is a verdict.
    pub fn next(&self) -> Option<Step> {
        let fleet = self.search.fleet();
        if fleet.is_empty() {
            return None;
        }
        if self.local.is_none() {
            return Some(Step::Local(fleet.hosts().collect()));
        }
        let slow: Vec<Host> = fleet.hosts().filter(|it| !self.fit().contains(it)).collect();
        let reached =
            |it: &Host| self.local.as_ref().is_some_and(|all| all.get(it.0).copied().flatten().is_some());
        // Machines run at the same time: with everybody it takes no longer, and shows how far each scatters by itself.
        let again: Vec<Host> = match (self.local_again, slow.iter().any(reached)) {
            (0 | 1, true) => fleet.hosts().collect(),
            (0, false) => slow,
            _ => Vec::new(),
        };
        if !again.is_empty() {
            return Some(Step::Local(again));
        }
        let fit = self.fit();
        if fit.len() < 2 {
            // No network to measure: all but one fail by themselves.
            return None;
        }
        if !self.smoke.ran() {
            // Two that are fit by themselves: the test is about the network.
            if let [one, other, ..] = fit[..] {
                return Some(Step::Smoke(Pair::new(one, other)));
            }
        }
        if let Some(hosts) = self.scale() {
            return Some(Step::Scale(hosts));
        }
        // A launch of a few that failed would fail with all too, and hang for longer.
        if !self.all.ran() && fleet.len() > 1 && !self.scaled.contains(&Measured::Failed) {
            return Some(Step::All(fit));
        }
        // What is slow at times is missed by one launch. Pairs are as good as further launches of all.
        let first = self.all_launches.rates.first().is_some_and(|it| self.enough(Measured::of(*it)));
        let again = self.is_close(self.all) || first && self.search.rounds() == 0;
        if again && !self.all_launches.is_decided() {
            return Some(Step::All(self.all_launches.hosts.clone()));
        }
        if fleet.len() < 2 {
            return None;
        }
        if let Some(step) = self.sweep() {
            return Some(step);
        }
        if self.all_launches.is_decided() && self.is_unsettled(&self.all_launches) {
            return Some(Step::All(self.all_launches.hosts.clone()));
        }
        let low = self.is_low();
        let uneven = !self.uneven().is_empty();
        if !low && !uneven && self.local_findings.is_empty() {
            return None;
        }
        // Two machines are one pair, which tells nothing about either of them, however often it is measured.
        let tells = fit.len() > 2 || self.search.rounds() == 0;
        if low && let Some(pairs) = self.search.next().filter(|_| tells) {
            return Some(Step::Pairs(pairs));
        }
        let suspects = self.suspects();
        if (low || uneven) && self.scope.nics && !suspects.is_empty() {
            return Some(Step::Nics(suspects));
        }
        let rest = self.rest();
        if rest.len() < 2 {
            return None;
        }
        // A launch of a few failed, and pairs do not say why: all together after all.
        if !self.all.ran() && rest == self.fit() {
            return Some(Step::All(rest));
        }
        // Nobody but those that were left out before: all together is what remains. A low launch runs again before it is believed.
        if rest == self.all_launches.hosts {
            if low && !self.all_launches.is_decided() {
                return Some(Step::All(rest));
            }
            // Groups explain what pairs showed: more of them would say the same.
            return if low && (self.differs() || self.contradicts()) && self.split().is_none() {
                self.unexplained().filter(|_| tells)
            } else {
                None
            };
        }
        let known = self.without_launches.hosts == rest;
        let led = self.leads(&self.without_launches);
        let sure =
            led && self.enough(self.without) && (self.open().is_empty() || !self.is_close(self.without));
        let again = !self.without_launches.is_decided() || self.is_unsettled(&self.without_launches);
        if !known || !sure && again {
            return Some(Step::Without(rest));
        }
        if led && self.enough(self.without) { None } else { self.unexplained().filter(|_| tells) }
    }

    /// The next 4, 8, 16, ... of the machines that are fit by themselves.
    fn scale(&self) -> Option<Vec<Host>> {
        if !self.scope.scale || self.all.ran() || self.scaled.contains(&Measured::Failed) {
            return None;
        }
        let fit = self.fit();
        let many = 4_usize.checked_shl(u32::try_from(self.scaled.len()).ok()?)?;
        (many < fit.len()).then(|| fit[..many].to_vec())
    }

    /// The next round in which all machines are paired, whatever was found so far: none when it has been made. The first one measures
    /// each NIC as well, where machines have several.
    fn sweep(&self) -> Option<Step> {
        let fit = self.fit();
        let odd = fit.len() % 2;
        let every = (fit.len() + odd).saturating_sub(1);
        let (round, seed) = (self.search.rounds(), self.search.limits().seed);
        let some = self.expected.all.is_none() || self.scope.nics && self.enough(self.all);
        if let Some(step) = self.every_nic().filter(|_| some || self.scope.links) {
            return Some(step);
        }
        let rounds = match (self.scope.links, some) {
            (true, _) => every,
            // With an odd number one machine sits out.
            (false, true) if self.nics_of.is_empty() => (1 + odd).min(every),
            (false, _) => 0,
        };
        (round < rounds).then(|| Step::Pairs(rounds::tournament(&fit, round, seed)))
    }

    /// The NICs of all machines one by one, if some were not measured.
    fn every_nic(&self) -> Option<Step> {
        let fit = self.fit();
        let asked = self.scope.nics && self.scope.every_nic && fit.len() > 2;
        (asked && !self.nics_not_measured().is_empty())
            .then(|| Step::Nics(nics::everybody(&fit, 0, self.search.limits().seed)))
    }

    /// What may explain a launch that is slow while the pairs so far do not: NICs one by one, then pairs that never met.
    fn unexplained(&self) -> Option<Step> {
        // In a fleet that scatters single NICs tell nothing.
        self.every_nic().filter(|_| !self.is_noisy()).or_else(|| self.search.more().map(Step::Pairs))
    }

    /// The machines whose NICs were not measured one by one.
    pub fn nics_not_measured(&self) -> Vec<Host> {
        self.fit().into_iter().filter(|it| !self.nics_of.contains(it)).collect()
    }

    /// Leaves out to measure the NICs of all machines one by one: there is not enough time for it.
    pub const fn skip_every_nic(&mut self) {
        self.scope.every_nic = false;
    }

    /// Whether there is something to explain.
    fn is_low(&self) -> bool {
        if self.loses_together() {
            return true;
        }
        if self.wavers() && self.all_launches.is_decided() && self.search.rounds() < FULL {
            return self.search.rounds() == 0 || !self.is_noisy() || !self.leads(&self.all_launches);
        }
        // Pairs are asked for what was slow in a launch of all until they show it.
        if self.contradicts() && self.search.rounds() < self.search.limits().rounds {
            return true;
        }
        if self.is_enough_for_noise() {
            return false;
        }
        self.differs()
    }

    /// Whether all together reach what is expected, three times, while pairs scatter: what a single round of them shows is chance.
    fn is_enough_for_noise(&self) -> bool {
        let samples = self.search.samples();
        let failed = samples.iter().any(|it| it.rate.is_none());
        let sure = self.expected.all.is_some() && self.all_launches.is_decided() && self.enough(self.all);
        sure && self.leads(&self.all_launches) && self.search.rounds() < FULL && !self.is_quiet() && !failed
    }

    /// Whether pairs scatter so little that a small difference tells. Few of them lie close together by luck.
    fn is_quiet(&self) -> bool {
        let few = 1.0 + 2.0 / as_f64(self.search.samples().len().max(1)).sqrt();
        let pairs = self.search.judgement().reference.is_some_and(|it| it.spread * few <= QUIET);
        pairs || nics::are_quiet(&self.nics)
    }

    /// Machines in a quiet fleet that nothing accuses, with a NIC that was slow in all its measurements. It asks for more of them.
    fn uneven(&self) -> Vec<Finding> {
        if !self.scope.nics {
            return Vec::new();
        }
        let judgement = self.search.judgement();
        let accused: Vec<Host> =
            judgement.findings.iter().flat_map(|it| hosts_of(self.search.fleet(), it.culprit)).collect();
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
        let bad = |it: &&NicSample| it.pair.hosts().iter().any(|it| accused.contains(it));
        let samples: Vec<NicSample> = self.nics.iter().filter(|it| !bad(it)).copied().collect();
        nics::slow(&samples).into_iter().filter(|it| !accused.contains(it)).map(suspect).collect()
    }

    /// Whether pairs scatter so much, or are so often slow by chance, that a launch is too: a machine that is slow at times does not show
    /// then.
    fn is_noisy(&self) -> bool {
        let Some(reference) = self.search.judgement().reference else { return false };
        reference.spread > QUIET || self.dips(&reference)
    }

    /// Whether several pairs were slow that no one machine explains.
    fn dips(&self, reference: &Reference) -> bool {
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
    fn lead(&self) -> usize {
        let reference = self.search.judgement().reference.filter(|_| self.expected.all.is_some());
        match reference {
            Some(it) if it.spread > QUIET => it.lead(),
            Some(it) if self.dips(&it) => LEAD_OF_DIPS,
            _ => 1,
        }
    }

    /// Whether these launches are enough, by as many as the scatter of the fleet asks for.
    fn leads(&self, launches: &Repeated) -> bool {
        launches.leads(self.lead(), |it| self.enough(it))
    }

    /// Whether another launch may say what these do not.
    fn is_unsettled(&self, launches: &Repeated) -> bool {
        let enough = |it| self.enough(it);
        let lead = self.lead();
        self.is_noisy()
            && !launches.is_spent()
            && !launches.leads(lead, enough)
            && !launches.trails(lead, enough)
    }

    /// Whether a launch of all was too slow, although most were not.
    fn wavers(&self) -> bool {
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

    /// Whether all together are too slow, or pairs differ.
    fn differs(&self) -> bool {
        let it = self.search.judgement();
        let even = it.findings.is_empty() && it.open.is_empty() && it.split.is_none();
        !self.enough(self.all) || !(even || self.search.samples().is_empty())
    }

    /// The results of the launch that [`Self::next`] named.
    pub fn record(&mut self, step: &Step, answer: Answer) {
        self.launches += 1;
        let Answer { rates, resent } = answer;
        match (step, rates) {
            (Step::Local(hosts), Rates::Each(rates)) => self.alone(hosts, rates),
            (Step::Smoke(_), Rates::One(rate)) => self.smoke = Measured::of(rate),
            (Step::Scale(_), Rates::One(rate)) => self.scaled.push(Measured::of(rate)),
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
            (Step::Scale(_), _) => self.scaled.push(Measured::Failed),
            (Step::All(hosts), _) => self.all = self.all_launches.add(hosts, None),
            (Step::Without(hosts), _) => self.without = self.without_launches.add(hosts, None),
            (Step::Pairs(pairs), _) => self.search.record(pairs, |_| None, |_| None),
            (Step::Nics(pairs), _) => {
                self.nics_of.extend(pairs.iter().flat_map(|it| it.hosts()));
                self.search.record(pairs, |_| None, |_| None);
            }
        }
    }

    /// A round of pairs.
    fn pairs(&mut self, pairs: &[Pair], rates: &[Option<f64>], resent: &[Vec<Option<f64>>]) {
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
    fn alone(&mut self, hosts: &[Host], rates: Vec<Option<f64>>) {
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
        self.local_findings = local(&all, rates, self.expected.local, scatter(&self.local_rates));
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

    /// Who is accused, by all stages.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = self.local_findings.clone();
        let mut found = self.search.judgement().findings;
        let (uneven, pending): (Vec<Finding>, Vec<Finding>) = self.uneven().into_iter().partition(
            |it| matches!(it.culprit, Culprit::Host(host) if self.times_of_nics(host) >= nics::TIMES),
        );
        let suspected: Vec<Culprit> = uneven.iter().map(|it| it.culprit).collect();
        found.extend(uneven);
        // One or two slow measurements are no proof; nor is what NICs reach that may be slow themselves.
        let doubted: Vec<Culprit> = pending.iter().map(|it| it.culprit).collect();
        nics::blame(&mut found, &self.nics, &doubted);
        // Without a NIC that is slow they are healthy machines that reach a little less.
        found.retain(|it| !suspected.contains(&it.culprit));
        let known: Vec<Culprit> = findings.iter().map(|it| it.culprit).collect();
        findings.extend(found.into_iter().filter(|it| !known.contains(&it.culprit)));
        findings
    }

    /// Machines that are slow or not known to be normal while nothing accuses them.
    pub fn open(&self) -> Vec<Question> {
        if self.search.samples().is_empty() { Vec::new() } else { self.search.judgement().open }
    }

    /// Groups of machines that are slow across.
    pub fn split(&self) -> Option<Split> {
        self.search.judgement().split
    }

    /// How many launches of all machines failed although others did not.
    pub fn failed_together(&self) -> usize {
        self.all_launches.rates.iter().filter(|it| it.is_none()).count()
    }

    /// GO only for what was measured.
    pub fn verdict(&self) -> Verdict {
        let findings = self.findings();
        let split = self.split().is_some();
        let out = split || findings.iter().any(|it| it.class != Class::Inconclusive);
        // One machine has nobody to be compared with.
        let fleet_of_one = self.search.fleet().len() < 2;
        let whole = match self.search.fleet().len() {
            0 | 1 => self.expected.local.is_some(),
            _ => self.enough(self.all),
        };
        let alone = self.local.as_ref().is_some_and(|it| it.iter().all(Option::is_some));
        let open = self.open().iter().any(|it| matches!(it, Question::Host(_)));
        // All together are as slow as the slowest: three launches of all answer what pairs left open.
        let answered = !open || self.all_launches.is_decided();
        // Where a launch of all was slow or shows losses, pairs must have been asked.
        let asked = match self.search.rounds() {
            0 => !self.loses_together() && !self.wavers(),
            rounds if rounds < FULL => !self.loses_together() && (!self.wavers() || self.is_noisy()),
            _ => true,
        };
        // A launch that failed once may fail again in the middle of a training, and one that was slow may be slow again.
        let sound = self.failed_together() == 0 && !self.contradicts() && !self.keeps_losing();
        let answered = answered && asked && sound && (fleet_of_one || self.leads(&self.all_launches));
        if whole && alone && findings.is_empty() && !split && answered && self.sweep_is_done() {
            return Verdict::Go;
        }
        let proven = match self.without() {
            Measured::Rate(_) if !self.leads(self.known()) => false,
            Measured::Not => self.rest().len() < 2 || (whole && self.rest() == self.all_launches.hosts),
            measured => self.enough(measured),
        };
        // No machine is to be taken out for a split: nothing is left to prove.
        let proven = proven || split && findings.is_empty();
        if out && proven { Verdict::NoGo } else { Verdict::Inconclusive }
    }

    fn sweep_is_done(&self) -> bool {
        self.search.fleet().len() < 2 || self.sweep().is_none()
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
        let rates = self.search.samples().iter().filter_map(|it| it.rate).map(|it| it.0);
        Reference::of(rates).map(|it| it.normal * OF_PAIRS)
    }

    fn enough(&self, measured: Measured) -> bool {
        measured.rate().zip(self.needed()).is_some_and(|(rate, needed)| rate >= needed)
    }

    /// Enough, but so little more than that that a second launch may say otherwise.
    fn is_close(&self, measured: Measured) -> bool {
        let near = |(rate, needed): (f64, f64)| rate >= needed && rate < needed * (1.0 + CLOSE);
        measured.rate().zip(self.needed()).is_some_and(near)
    }

    fn fit(&self) -> Vec<Host> {
        let bad: Vec<Culprit> = self.local_findings.iter().map(|it| it.culprit).collect();
        self.search.fleet().hosts().filter(|it| !bad.contains(&Culprit::Host(*it))).collect()
    }

    /// How often the NICs of a machine were measured.
    fn times_of_nics(&self, host: Host) -> usize {
        self.nics_of.iter().filter(|it| **it == host).count()
    }

    /// Accused machines whose NICs are to be measured, each with a normal one, and two normal ones, to know what a NIC reaches; at the same
    /// time those of all others, if they were not.
    ///
    /// Once, and again where that would name a NIC: one or two slow measurements are no proof.
    fn suspects(&self) -> Vec<Pair> {
        let judgement = self.search.judgement();
        let named = self.findings();
        let times = |host: Host| self.times_of_nics(host);
        let again = |host: Host| {
            let nic = |it: &Finding| matches!(it.culprit, Culprit::Nic(of, _) if of == host);
            (1..nics::TIMES).contains(&times(host)) && named.iter().any(nic)
        };
        let uneven = self.uneven();
        let in_doubt = |host: Host| uneven.iter().any(|it| it.culprit == Culprit::Host(host));
        let all: Vec<&Finding> = judgement.findings.iter().chain(&uneven).collect();
        let accused: Vec<Host> = all
            .iter()
            .filter_map(|it| match it.culprit {
                Culprit::Host(host) if nics::may_be(it) => Some(host),
                _ => None,
            })
            .filter(|it| times(*it) == 0 || again(*it) || in_doubt(*it) && times(*it) < nics::TIMES)
            .collect();
        if accused.is_empty() {
            return Vec::new();
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
            let taken: Vec<Host> = pairs.iter().flat_map(|it| it.hosts()).collect();
            let mut rest = self.nics_not_measured();
            rest.retain(|it| !taken.contains(it) && !everybody.contains(it));
            pairs.extend(rounds::tournament(&rest, 0, self.search.limits().seed));
        }
        pairs
    }

    /// Who remains when the accused are taken out; of a slow link one end.
    pub fn rest(&self) -> Vec<Host> {
        let fleet = self.search.fleet();
        let mut out: Vec<Host> = Vec::new();
        let findings = self.findings();
        for finding in &findings {
            match finding.culprit {
                Culprit::Link(_) => {}
                culprit => out.extend(hosts_of(fleet, culprit)),
            }
        }
        // The end of most bad links first: it may be an end of all.
        let mut links: Vec<Pair> = findings
            .iter()
            .filter_map(|it| match it.culprit {
                Culprit::Link(pair) => Some(pair),
                _ => None,
            })
            .collect();
        links.retain(|it| !it.hosts().iter().any(|it| out.contains(it)));
        let of = |host: Host, links: &[Pair]| links.iter().filter(|it| it.has(host)).count();
        while let Some(host) = links.iter().flat_map(|it| it.hosts()).max_by_key(|it| (of(*it, &links), *it))
        {
            links.retain(|it| !it.has(host));
            out.push(host);
        }
        fleet.hosts().filter(|it| !out.contains(it)).collect()
    }
}

fn hosts_of(fleet: &Fleet, culprit: Culprit) -> Vec<Host> {
    match culprit {
        Culprit::Host(host) | Culprit::Nic(host, _) => vec![host],
        Culprit::Link(pair) => pair.hosts().to_vec(),
        Culprit::Group(group) => fleet.hosts().filter(|it| fleet.group(*it) == Some(group)).collect(),
    }
}

/// How far measurements of one machine by itself lie apart: their standard deviation, as a part of what it reaches. None where nothing
/// was measured twice.
fn scatter(rates: &[Vec<f64>]) -> Option<f64> {
    let (mut squares, mut of) = (0.0, 0);
    for own in rates.iter().filter(|it| it.len() > 1) {
        let mean = own.iter().sum::<f64>() / as_f64(own.len());
        squares += own.iter().map(|it| (it / mean - 1.0).powi(2)).sum::<f64>();
        of += own.len() - 1;
    }
    (of > 0).then(|| (squares / as_f64(of)).sqrt())
}

/// Machines that are slow by themselves. `scatter`: how far measurements of one machine lie apart, where that is known.
pub(crate) fn local(
    hosts: &[Host],
    rates: &[Option<f64>],
    least: Option<GigabytesPerSecond>,
    scatter: Option<f64>,
) -> Vec<Finding> {
    // What few machines reach may lie close together by luck.
    let reference = Reference::of(rates.iter().copied().flatten())
        .map(|it| Reference { spread: it.spread.max(scatter.unwrap_or(0.0)), ..it });
    let slow = |rate: Option<f64>| {
        let below = rate.is_none_or(|rate| least.is_some_and(|least| rate < least.0));
        below || reference.is_some_and(|it| it.is_far(rate, rates.len()))
    };
    let each = hosts.iter().zip(rates);
    each.filter(|(_, rate)| slow(**rate))
        .map(|(host, rate)| Finding {
            class: Class::Node,
            culprit: Culprit::Host(*host),
            share: reference.zip(*rate).map_or(0.0, |(it, rate)| it.share(rate)),
            slow: 1,
            of: 1,
            partners: 0,
            failed: usize::from(rate.is_none()),
            chance: 0.0,
            loss: None,
        })
        .collect()
}
