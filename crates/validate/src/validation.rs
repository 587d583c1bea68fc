//! The whole validation: which launch is next, and what it all means.

use fabric::units::GigabytesPerSecond;

use crate::fleet::{Fleet, Host, Pair};
use crate::judge::{Class, Culprit, Finding, Question};
use crate::nics::{self, NicSample};
use crate::reference::Reference;
use crate::search::{Limits, Search};

/// One launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The collective inside each machine, all machines at the same time.
    Local(Vec<Host>),
    /// Two machines: does it run at all?
    Smoke(Pair),
    /// One collective over all these machines.
    All(Vec<Host>),
    /// Pairs that run at the same time.
    Pairs(Vec<Pair>),
    /// Every NIC of the first machine of each pair by itself, against the second; the last pair is normal, for comparison.
    Nics(Vec<(Host, Host)>),
    /// All machines again without those that are accused.
    Without(Vec<Host>),
}

/// What a launch measured, in the order of its [`Step`]; none where it failed or did not end.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Of [`Step::Local`] and [`Step::Pairs`].
    Each(Vec<Option<f64>>),
    /// Of [`Step::Smoke`], [`Step::All`] and [`Step::Without`].
    One(Option<f64>),
    /// Of [`Step::Nics`].
    Nics(Vec<NicSample>),
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All machines together reach what is normal.
    Go,
    /// They do not, and the findings say which to take out.
    NoGo,
    /// They do not, or that was not measured, and no part explains it.
    Inconclusive,
}

/// What should be reached at least; without it, machines are compared with each other alone.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Expected {
    /// Inside a machine.
    pub local: Option<GigabytesPerSecond>,
    /// By all machines together.
    pub all: Option<GigabytesPerSecond>,
}

/// A launch with one result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measured {
    /// It did not run.
    Not,
    /// It failed or did not end.
    Failed,
    /// What it reached, in GB/s.
    Rate(f64),
}

impl Measured {
    fn of(rate: Option<f64>) -> Self {
        rate.map_or(Self::Failed, Self::Rate)
    }

    /// What it reached.
    pub const fn rate(self) -> Option<f64> {
        match self {
            Self::Rate(rate) => Some(rate),
            Self::Not | Self::Failed => None,
        }
    }

    const fn ran(self) -> bool {
        !matches!(self, Self::Not)
    }
}

/// A validation under way.
#[derive(Debug, Clone)]
pub struct Validation {
    expected: Expected,
    search: Search,
    local: Option<Vec<Option<f64>>>,
    local_findings: Vec<Finding>,
    local_again: bool,
    smoke: Measured,
    all: Measured,
    nics: Vec<NicSample>,
    nics_measured: usize,
    without: Measured,
    launches: usize,
}

impl Validation {
    /// Before the first launch.
    pub const fn new(fleet: Fleet, expected: Expected, limits: Limits) -> Self {
        Self {
            expected,
            search: Search::new(fleet, limits),
            local: None,
            local_findings: Vec::new(),
            local_again: false,
            smoke: Measured::Not,
            all: Measured::Not,
            nics: Vec::new(),
            nics_measured: 0,
            without: Measured::Not,
            launches: 0,
        }
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

    /// What all reached together.
    pub const fn all(&self) -> Measured {
        self.all
    }

    /// What the rest reached without those that are accused.
    pub const fn without(&self) -> Measured {
        self.without
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
        if !self.local_again && !slow.is_empty() {
            return Some(Step::Local(slow));
        }
        let fit = self.fit();
        if !self.smoke.ran() {
            // Two that are fit by themselves: the test is about the network.
            if let [one, other, ..] = fit[..] {
                return Some(Step::Smoke(Pair::new(one, other)));
            }
        }
        if !self.all.ran() && fleet.len() > 1 {
            return Some(Step::All(fleet.hosts().collect()));
        }
        if !self.all.ran() {
            return None;
        }
        let low = !self.enough(self.all);
        if !low && self.local_findings.is_empty() {
            return None;
        }
        if low {
            if let Some(pairs) = self.search.next() {
                return Some(Step::Pairs(pairs));
            }
            let suspects = self.suspects();
            // Once, and again where it would name a NIC: one slow measurement is no proof.
            let again = self.nics_measured == 1 && self.findings().iter().any(|it| it.class == Class::Nic);
            if (self.nics_measured == 0 || again) && !suspects.is_empty() {
                return Some(Step::Nics(suspects));
            }
        }
        let rest = self.rest();
        (!self.without.ran() && rest.len() > 1 && rest.len() < fleet.len()).then_some(Step::Without(rest))
    }

    /// The results of the launch that [`Self::next`] named.
    pub fn record(&mut self, step: &Step, answer: Answer) {
        self.launches += 1;
        match (step, answer) {
            (Step::Local(hosts), Answer::Each(rates)) => self.alone(hosts, rates),
            (Step::Smoke(_), Answer::One(rate)) => self.smoke = Measured::of(rate),
            (Step::All(_), Answer::One(rate)) => self.all = Measured::of(rate),
            (Step::Without(_), Answer::One(rate)) => self.without = Measured::of(rate),
            (Step::Pairs(pairs), Answer::Each(rates)) => {
                let found = |pair| {
                    pairs.iter().position(|it| *it == pair).and_then(|at| rates.get(at).copied().flatten())
                };
                self.search.record(pairs, found);
            }
            (Step::Nics(_), Answer::Nics(samples)) => {
                self.nics.extend(samples);
                self.nics_measured += 1;
            }
            // An answer to another question: the launch failed.
            (Step::Local(hosts), _) => self.alone(hosts, vec![None; hosts.len()]),
            (Step::Smoke(_), _) => self.smoke = Measured::Failed,
            (Step::All(_), _) => self.all = Measured::Failed,
            (Step::Without(_), _) => self.without = Measured::Failed,
            (Step::Pairs(pairs), _) => self.search.record(pairs, |_| None),
            (Step::Nics(_), _) => self.nics_measured += 1,
        }
    }

    /// Machines by themselves; the slow ones a second time, and the better of the two counts.
    fn alone(&mut self, hosts: &[Host], rates: Vec<Option<f64>>) {
        match &mut self.local {
            None => self.local = Some(rates),
            Some(known) => {
                self.local_again = true;
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
        self.local_findings = local(&all, self.local.as_deref().unwrap_or_default(), self.expected.local);
    }

    /// Who is accused, by all stages.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = self.local_findings.clone();
        let mut found = self.search.judgement().findings;
        nics::blame(&mut found, &self.nics);
        let known: Vec<Culprit> = findings.iter().map(|it| it.culprit).collect();
        findings.extend(found.into_iter().filter(|it| !known.contains(&it.culprit)));
        findings
    }

    /// Machines that are slow or not known to be normal while nothing accuses them.
    pub fn open(&self) -> Vec<Question> {
        if self.search.samples().is_empty() { Vec::new() } else { self.search.judgement().open }
    }

    /// GO only for what was measured.
    pub fn verdict(&self) -> Verdict {
        let findings = self.findings();
        let out = findings.iter().any(|it| it.class != Class::Inconclusive);
        let whole = self.search.fleet().len() < 2 || self.enough(self.all);
        let alone = self.local.as_ref().is_some_and(|it| it.iter().all(Option::is_some));
        if whole && alone && findings.is_empty() {
            return Verdict::Go;
        }
        let open = self.open().iter().any(|it| matches!(it, Question::Host(_)));
        let proven =
            if self.without.ran() { self.enough(self.without) } else { whole || self.rest().len() < 2 };
        if out && !open && proven { Verdict::NoGo } else { Verdict::Inconclusive }
    }

    fn enough(&self, measured: Measured) -> bool {
        measured.rate().is_some_and(|rate| self.expected.all.is_none_or(|least| rate >= least.0))
    }

    fn fit(&self) -> Vec<Host> {
        let bad: Vec<Culprit> = self.local_findings.iter().map(|it| it.culprit).collect();
        self.search.fleet().hosts().filter(|it| !bad.contains(&Culprit::Host(*it))).collect()
    }

    /// Every accused machine, with a normal one to measure its NICs against, and two normal ones.
    fn suspects(&self) -> Vec<(Host, Host)> {
        let judgement = self.search.judgement();
        let accused: Vec<Host> = judgement
            .findings
            .iter()
            .filter_map(|it| match it.culprit {
                Culprit::Host(host) if it.class == Class::Node => Some(host),
                _ => None,
            })
            .collect();
        let everybody: Vec<Host> =
            judgement.findings.iter().flat_map(|it| hosts_of(self.search.fleet(), it.culprit)).collect();
        let mut normal = judgement.cleared.into_iter().filter(|it| !everybody.contains(it));
        let (Some(one), Some(other)) = (normal.next(), normal.next()) else { return Vec::new() };
        // Two normal ones beside them, to know what a NIC reaches.
        let mut pairs: Vec<(Host, Host)> = accused.into_iter().zip(normal).collect();
        if !pairs.is_empty() {
            pairs.push((one, other));
        }
        pairs
    }

    /// Who remains when the accused are taken out; of a slow link one end.
    pub fn rest(&self) -> Vec<Host> {
        let fleet = self.search.fleet();
        let mut out: Vec<Host> = Vec::new();
        for finding in self.findings() {
            match finding.culprit {
                Culprit::Link(pair) => {
                    if !pair.hosts().iter().any(|it| out.contains(it)) {
                        out.push(pair.hosts()[1]);
                    }
                }
                culprit => out.extend(hosts_of(fleet, culprit)),
            }
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

/// Machines that are slow by themselves.
pub(crate) fn local(
    hosts: &[Host],
    rates: &[Option<f64>],
    least: Option<GigabytesPerSecond>,
) -> Vec<Finding> {
    let reference = Reference::of(rates.iter().copied().flatten());
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
        })
        .collect()
}
