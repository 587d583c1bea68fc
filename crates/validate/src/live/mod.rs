//! A validation of real machines: what is next, and what the journal says so far.
//!
//! [`Run`] takes one [`Entry`] after the other, from machines while they are measured or from the journal of an earlier run, and is in
//! the same state either way. So a validation that was interrupted goes on where it stopped, and its journal gives the same answer on
//! another machine.

mod journal;
mod size;

use std::collections::BTreeMap;

use fabric::units::GigabytesPerSecond;

pub use journal::{
    Asked, Chosen, Engine, Entry, Failed, Line, Links, Logs, Measurement, Node, Plan, Reached, SCHEMA,
};
pub use size::Size;

use crate::fleet::{Fleet, Host, Pair};
use crate::nics::NicSample;
use crate::search::Limits;
use crate::step::{Answer, Expected, Rates, Scope, Step};
use crate::validation::Validation;

/// Rounds of pairs beyond those that are made in any case.
const ROUNDS: usize = 16;

/// A validation under way.
#[derive(Debug, Clone)]
pub struct Run {
    plan: Plan,
    elapsed: f64,
    reached: BTreeMap<String, Reached>,
    nodes: BTreeMap<String, Node>,
    chosen: Option<Chosen>,
    validation: Option<Validation>,
    measured: BTreeMap<Key, Measurement>,
    launches: Vec<Launch>,
    logs: Option<Logs>,
}

/// Launch, machines, NIC.
type Key = (usize, Vec<String>, Option<String>);

/// A launch: measurements that run at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// From 1.
    pub number: usize,
    /// Which one.
    pub step: Step,
    /// Its measurements.
    pub items: Vec<Item>,
}

/// One measurement of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The machines.
    pub hosts: Vec<Host>,
    /// The NIC, by its place in [`Chosen::nics`].
    pub nic: Option<usize>,
}

impl Step {
    /// As the journal and the answer name it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::Smoke(_) => "smoke",
            Self::Scale(_) => "scale",
            Self::All(_) => "all",
            Self::Pairs(_) => "pairs",
            Self::Nics(_) => "nics",
            Self::Without(_) => "without",
        }
    }

    fn items(&self, nics: usize) -> Vec<Item> {
        let alone = |hosts: Vec<Host>| Item { hosts, nic: None };
        match self {
            Self::Local(hosts) => hosts.iter().map(|it| alone(vec![*it])).collect(),
            Self::Smoke(pair) => vec![alone(pair.hosts().to_vec())],
            Self::Scale(hosts) | Self::All(hosts) | Self::Without(hosts) => vec![alone(hosts.clone())],
            Self::Pairs(pairs) => pairs.iter().map(|it| alone(it.hosts().to_vec())).collect(),
            Self::Nics(pairs) => pairs
                .iter()
                .flat_map(|pair| {
                    let each = (0..nics).map(Some).chain([None]);
                    each.map(|nic| Item { hosts: pair.hosts().to_vec(), nic })
                })
                .collect(),
        }
    }

    fn answer(&self, items: &[Item], measured: &[&Measurement]) -> Answer {
        let rates = measured.iter().map(|it| it.rate);
        let mut resent: Vec<Vec<Option<f64>>> = measured.iter().map(|it| it.resent.clone()).collect();
        let rates = match self {
            Self::Local(_) | Self::Pairs(_) => Rates::Each(rates.collect()),
            Self::Smoke(_) | Self::Scale(_) | Self::All(_) | Self::Without(_) => {
                Rates::One(measured.first().and_then(|it| it.rate))
            }
            Self::Nics(_) => {
                let (mut each, mut pairs) = (Vec::new(), Vec::new());
                resent.clear();
                for (item, it) in items.iter().zip(measured) {
                    match (&item.hosts[..], item.nic) {
                        ([one, other], Some(nic)) => {
                            each.push(NicSample { pair: Pair::new(*one, *other), nic, rate: it.rate });
                        }
                        _ => {
                            pairs.push(it.rate);
                            resent.push(it.resent.clone());
                        }
                    }
                }
                Rates::Nics { each, pairs }
            }
        };
        Answer { rates, resent }
    }
}

impl Run {
    /// Before anything was found out.
    pub const fn new(plan: Plan) -> Self {
        Self {
            plan,
            elapsed: 0.0,
            reached: BTreeMap::new(),
            nodes: BTreeMap::new(),
            chosen: None,
            validation: None,
            measured: BTreeMap::new(),
            launches: Vec::new(),
            logs: None,
        }
    }

    /// What was asked for.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Another limit, for a run that goes on.
    pub fn set_limits(&mut self, budget_s: u64, timeout_s: u64) {
        self.plan.budget_s = budget_s;
        self.plan.timeout_s = timeout_s;
    }

    /// Seconds of work so far.
    pub const fn elapsed(&self) -> f64 {
        self.elapsed
    }

    /// Whether the time is spent.
    pub fn is_late(&self) -> bool {
        self.elapsed >= crate::chance::as_f64(usize::try_from(self.plan.budget_s).unwrap_or(usize::MAX))
    }

    /// Who answered, and how.
    pub const fn reached(&self) -> &BTreeMap<String, Reached> {
        &self.reached
    }

    /// What machines said about themselves.
    pub const fn nodes(&self) -> &BTreeMap<String, Node> {
        &self.nodes
    }

    /// With what is measured.
    pub const fn chosen(&self) -> Option<&Chosen> {
        self.chosen.as_ref()
    }

    /// Machines that take part and did not answer when they were asked last: before the validation was continued.
    pub fn lost(&self) -> Vec<&str> {
        let failed = |host: &&str| self.reached.get(*host).is_some_and(|it| it.failed.is_some());
        self.taking_part().filter(failed).collect()
    }

    /// Machines that were asked for and that nothing is known about but that they answer now: they did not when it was chosen what takes
    /// part.
    pub fn late(&self) -> Vec<&str> {
        let late = |host: &&str| {
            self.reached.get(*host).is_some_and(|it| it.failed.is_none()) && !self.nodes.contains_key(*host)
        };
        let hosts = self.plan.hosts.iter().map(String::as_str);
        if self.chosen.is_some() { hosts.filter(late).collect() } else { Vec::new() }
    }

    fn taking_part(&self) -> impl Iterator<Item = &str> {
        self.chosen.iter().flat_map(|it| &it.hosts).map(String::as_str)
    }

    /// The decisions, once it is known with what is measured.
    pub const fn validation(&self) -> Option<&Validation> {
        self.validation.as_ref()
    }

    /// Launches whose measurements have all ended.
    pub fn launches(&self) -> &[Launch] {
        &self.launches
    }

    /// What the logs of NCCL say.
    pub const fn logs(&self) -> Option<&Logs> {
        self.logs.as_ref()
    }

    /// A measurement that has ended.
    pub fn measurement(&self, launch: usize, item: &Item) -> Option<&Measurement> {
        self.measured.get(&self.key(launch, item))
    }

    /// What a launch measured; none while a measurement is missing.
    pub fn answer(&self, launch: &Launch) -> Option<Answer> {
        let each = launch.items.iter().map(|it| self.measurement(launch.number, it));
        Some(launch.step.answer(&launch.items, &each.collect::<Option<Vec<_>>>()?))
    }

    /// Machines of a measurement, by name.
    pub fn names(&self, item: &Item) -> Vec<String> {
        let names = self.chosen.as_ref().map_or(&[][..], |it| &it.hosts);
        item.hosts.iter().filter_map(|it| names.get(it.0).cloned()).collect()
    }

    /// The name of the NIC of a measurement.
    pub fn nic(&self, item: &Item) -> Option<&str> {
        let nics = &self.chosen.as_ref()?.nics;
        nics.get(item.nic?).map(String::as_str)
    }

    fn key(&self, launch: usize, item: &Item) -> Key {
        (launch, self.names(item), self.nic(item).map(str::to_owned))
    }

    /// The size of a measurement, by what two machines reached: one NIC of several reaches its part of that.
    pub fn size(&self, step: &Step, item: &Item) -> Size {
        let engine = self.chosen.as_ref().map_or(Engine::Host, |it| it.engine);
        let nics = self.chosen.as_ref().map_or(1, |it| it.nics.len().max(1));
        let part = if item.nic.is_some() { crate::chance::as_f64(nics) } else { 1.0 };
        let smoke = self.validation.as_ref().and_then(|it| it.smoke().rate());
        Size::of(engine, step, smoke.map(|it| it / part))
    }

    /// How many seconds it takes at least to measure these pairs with each NIC and with all of them: one after the other, as long as the
    /// two machines of the first launch and what is measured then. None before that launch.
    fn nics_last(&self, step: &Step) -> Option<f64> {
        let chosen = self.chosen.as_ref()?;
        let rate = self.validation.as_ref()?.smoke().rate()?;
        let begins = self.measured.values().find(|it| it.stage == "smoke")?.seconds;
        let items = step.items(chosen.nics.len());
        let mut each: BTreeMap<Host, f64> = BTreeMap::new();
        for item in &items {
            let of = item.nic.map_or(1, |_| chosen.nics.len());
            let seconds = begins + self.size(step, item).lasts(rate / crate::chance::as_f64(of));
            for host in &item.hosts {
                *each.entry(*host).or_default() += seconds;
            }
        }
        each.into_values().reduce(f64::max)
    }

    /// Leaves out the NICs of all machines where they would take more than half of the time that is left.
    fn bound(&mut self) {
        let Some(validation) = &self.validation else { return };
        let Some(step @ Step::Nics(_)) = validation.next().filter(|_| validation.scope().every_nic) else {
            return;
        };
        if self.nics_last(&step).is_some_and(|it| it > self.left() / 2.0)
            && let Some(validation) = &mut self.validation
        {
            validation.skip_every_nic();
        }
    }

    /// Seconds of the budget that are left.
    fn left(&self) -> f64 {
        crate::chance::as_f64(usize::try_from(self.plan.budget_s).unwrap_or(usize::MAX)) - self.elapsed
    }

    /// Why nothing more is measured: the collective fails on every machine, or between all of them. That is no fault of single machines, and
    /// more measurements would only fail again.
    pub fn futile(&self) -> Option<&str> {
        let validation = self.validation.as_ref()?;
        let samples = validation.search().samples();
        let (many, all) = (self.chosen.as_ref()?.hosts.len(), samples.iter().all(|it| it.rate.is_none()));
        let every = many * many.saturating_sub(1) / 2;
        let enough = samples.len() >= every || many >= 6 && validation.search().rounds() >= 2;
        let between = many > 2 && validation.all().rate().is_none() && !samples.is_empty() && all && enough;
        self.launches.iter().find_map(|launch| {
            let of = |it: &Item| self.measurement(launch.number, it);
            let counts = match launch.step {
                // The second one may be of those alone that failed in the first.
                Step::Local(_) => many > 1 && launch.items.len() == many,
                Step::Pairs(_) => between,
                _ => false,
            };
            let failed = counts && launch.items.iter().all(|it| of(it).is_some_and(|it| it.rate.is_none()));
            if !failed {
                return None;
            }
            let reasons = launch.items.iter().filter_map(|it| of(it)?.failed.as_deref());
            Some(reasons.min_by_key(|it| it.len()).unwrap_or("no reason is known"))
        })
    }

    /// The launch that is next, with the measurements that are still missing; none when there is a verdict, where more would be futile,
    /// or before anything is chosen.
    pub fn next(&self) -> Option<Launch> {
        if self.futile().is_some() {
            return None;
        }
        let launch = self.current()?;
        let missing =
            launch.items.iter().filter(|it| self.measurement(launch.number, it).is_none()).cloned().collect();
        Some(Launch { items: missing, ..launch })
    }

    fn current(&self) -> Option<Launch> {
        let step = self.validation.as_ref()?.next()?;
        let nics = self.chosen.as_ref().map_or(0, |it| it.nics.len());
        let items = step.items(nics);
        Some(Launch { number: self.launches.len() + 1, step, items })
    }

    /// Takes a line of the journal.
    pub fn take(&mut self, line: Line) {
        self.elapsed = self.elapsed.max(line.elapsed_s);
        match line.entry {
            Entry::Started { .. } => {}
            Entry::Reached(it) => drop(self.reached.insert(it.host.clone(), it)),
            Entry::Node(it) => drop(self.nodes.insert(it.host.clone(), it)),
            Entry::Chosen(it) => self.choose(it),
            Entry::Measured(it) => {
                let key = (it.launch, it.hosts.clone(), it.nic.clone());
                self.measured.insert(key, it);
            }
            Entry::Logs(it) => self.logs = Some(it),
        }
        self.advance();
    }

    fn choose(&mut self, chosen: Chosen) {
        let least = |it: Option<f64>| it.map(GigabytesPerSecond);
        let expected =
            Expected { local: least(chosen.local_least), all: least(self.plan.least.or(chosen.all_least)) };
        let many = chosen.hosts.len();
        let scope = Scope {
            scale: true,
            links: self.plan.links == Links::All,
            nics: chosen.nics.len() > 1,
            every_nic: chosen.nics.len() > 1,
            compare_local: chosen.engine == Engine::Nccl,
        };
        let limits = Limits { rounds: ROUNDS, unexplained: usize::MAX, seed: self.plan.seed };
        self.validation =
            Some(Validation::new(Fleet::new(chosen.hosts.clone()), expected, limits).with_scope(scope));
        self.chosen = Some(chosen);
        if scope.links {
            self.widen(many);
        }
    }

    /// Every pair, and as many rounds to explain what they show.
    fn widen(&mut self, many: usize) {
        if let Some(validation) = &mut self.validation {
            validation.measure_links(many + ROUNDS);
        }
    }

    /// Gives the decisions every launch whose measurements are all there.
    fn advance(&mut self) {
        while let Some(launch) = self.current() {
            let measured: Vec<Option<&Measurement>> =
                launch.items.iter().map(|it| self.measurement(launch.number, it)).collect();
            let Some(measured) = measured.into_iter().collect::<Option<Vec<_>>>() else { return };
            let seconds = measured.iter().map(|it| it.seconds).fold(0.0, f64::max);
            let answer = launch.step.answer(&launch.items, &measured);
            let Some(validation) = &mut self.validation else { return };
            validation.record(&launch.step, answer);
            let pairs = matches!(launch.step, Step::Pairs(_) | Step::Nics(_));
            let first_pairs = pairs && validation.search().rounds() == 1;
            let many = validation.search().fleet().len();
            self.launches.push(launch);
            let enough = seconds * crate::chance::as_f64(many) <= self.left() / 2.0;
            if first_pairs && self.plan.links == Links::Auto && enough {
                self.widen(many);
            }
            self.bound();
        }
    }
}
