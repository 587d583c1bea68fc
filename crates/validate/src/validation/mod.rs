//! The whole validation: which launch is next, and what it all means.

mod one_by_one;
mod record;
mod together;

use crate::alone;
use crate::fleet::{Fleet, Host, Pair};
use crate::judge::{Class, Culprit, Finding, Question, Split};
use crate::measured::{Measured, Repeated};
use crate::nics::{self, NicSample};
use crate::rounds::{self, FULL};
use crate::search::{Limits, Search};
use crate::step::{Expected, Scope, Step, Verdict};

/// How often machines that seem slow by themselves are measured, and how often where what one machine reaches scatters.
const LOCAL: usize = 3;
const LOCAL_IF_WIDE: usize = 6;

/// A validation under way.
#[derive(Debug, Clone)]
pub struct Validation {
    expected: Expected,
    scope: Scope,
    search: Search,
    /// Launches of 4, 8, 16, ... machines; one that fails runs again, and what it reaches then counts.
    scaled: Vec<Repeated>,
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
        let compare = self.scope.compare_local;
        let doubtful = compare && self.local.as_deref().is_some_and(alone::is_in_doubt);
        let wide = compare && alone::scatter_of_best(&self.local_rates).is_some_and(|it| it.is_wide());
        let most = if wide { LOCAL_IF_WIDE } else { LOCAL } - 1;
        let again: Vec<Host> = match (self.local_again, doubtful || slow.iter().any(reached)) {
            (times, true) if times < most => fleet.hosts().collect(),
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
        if !self.all.ran() && fleet.len() > 1 && !self.is_stopped() {
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
        let uneven = !self.uneven().is_empty() || self.rails().iter().any(|it| !it.is_sure());
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
        let rest = self.outside();
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
            // Groups explain what pairs showed, and a rail what all miss: more of them would say the same.
            let explained = self.split().is_some() || self.rails_explain();
            return if low && (self.differs() || self.contradicts()) && !explained {
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
        if !self.scope.scale || self.all.ran() || self.is_stopped() {
            return None;
        }
        if let Some(last) = self.scaled.last().filter(|it| !it.ended()) {
            return Some(last.hosts.clone());
        }
        let fit = self.fit();
        let many = 4_usize.checked_shl(u32::try_from(self.scaled.len()).ok()?)?;
        (many < fit.len()).then(|| fit[..many].to_vec())
    }

    /// Whether a launch of 4, 8, 16, ... machines failed twice: more of them would fail too.
    fn is_stopped(&self) -> bool {
        self.scaled.last().is_some_and(|it| it.rates.len() > 1 && !it.ended())
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

    /// What may explain a launch that is slow while the pairs so far do not: NICs one by one, then pairs that never met.
    fn unexplained(&self) -> Option<Step> {
        // In a fleet that scatters single NICs tell nothing.
        self.every_nic().filter(|_| !self.is_noisy()).or_else(|| self.search.more().map(Step::Pairs))
    }

    /// Whether there is something to explain.
    fn is_low(&self) -> bool {
        if self.loses_together() {
            return true;
        }
        // Few pairs may lie far apart by luck.
        if self.scatters() && self.search.rounds() < FULL {
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

    /// Whether all together are too slow, or pairs differ.
    fn differs(&self) -> bool {
        let it = self.search.judgement();
        let even = it.findings.is_empty() && it.open.is_empty() && it.split.is_none();
        !self.enough(self.all) || !(even || self.search.samples().is_empty())
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
        nics::blame(&mut found, &self.nics_beside_rails(), &doubted);
        // Without a NIC that is slow they are healthy machines that reach a little less.
        found.retain(|it| !suspected.contains(&it.culprit));
        found.extend(self.rails().iter().filter(|it| it.is_sure()).map(|it| it.finding(self.fit().len())));
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
        let doubtful = !self.doubtful_nics().is_empty() || !self.doubtful_rails().is_empty();
        let clean = findings.is_empty() && !split && !self.scatters() && !doubtful;
        if whole && alone && clean && answered && self.sweep_is_done() {
            return Verdict::Go;
        }
        let proven = match self.without() {
            Measured::Rate(_) if !self.leads(self.known()) => false,
            Measured::Not => self.outside().len() < 2 || (whole && self.outside() == self.all_launches.hosts),
            measured => self.enough(measured),
        };
        // No machine is to be taken out for a split or a rail: nothing is left to prove.
        let nobody = findings.iter().all(|it| matches!(it.culprit, Culprit::Rail(_)));
        let proven = proven || out && nobody;
        if out && proven { Verdict::NoGo } else { Verdict::Inconclusive }
    }

    fn sweep_is_done(&self) -> bool {
        self.search.fleet().len() < 2 || self.sweep().is_none()
    }

    fn fit(&self) -> Vec<Host> {
        let bad: Vec<Culprit> = self.local_findings.iter().map(|it| it.culprit).collect();
        self.search.fleet().hosts().filter(|it| !bad.contains(&Culprit::Host(*it))).collect()
    }

    /// Who remains when the accused are taken out; of a slow link one end. A slow switch takes nobody out.
    pub fn rest(&self) -> Vec<Host> {
        let fleet = self.search.fleet();
        let mut out: Vec<Host> = Vec::new();
        let findings = self.findings();
        for finding in &findings {
            match finding.culprit {
                Culprit::Link(_) | Culprit::Group(_) | Culprit::Rail(_) => {}
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

    /// Who runs together as proof: those that remain, but for machines of slow switches, whose uplinks would slow down all.
    pub fn outside(&self) -> Vec<Host> {
        let fleet = self.search.fleet();
        let slow: Vec<usize> = self
            .findings()
            .iter()
            .filter_map(|it| match it.culprit {
                Culprit::Group(group) => Some(group),
                _ => None,
            })
            .collect();
        let in_slow = |host: &Host| fleet.group(*host).is_some_and(|it| slow.contains(&it));
        self.rest().into_iter().filter(|it| !in_slow(it)).collect()
    }
}

fn hosts_of(fleet: &Fleet, culprit: Culprit) -> Vec<Host> {
    match culprit {
        Culprit::Host(host) | Culprit::Nic(host, _) => vec![host],
        Culprit::Link(pair) => pair.hosts().to_vec(),
        Culprit::Group(group) => fleet.hosts().filter(|it| fleet.group(*it) == Some(group)).collect(),
        // Each of them is as it should be.
        Culprit::Rail(_) => Vec::new(),
    }
}
