//! A folder of nccl-tests runs is a fleet too: one, two or many machines per run, each test against the others of its kind.

mod reached;
mod unmeasured;
mod wrong;

use std::collections::{BTreeMap, BTreeSet};

use evidence::Case;
use evidence::plain::NcclTests;
use fabric::units::GigabytesPerSecond;
use fabric::{Collective, Version};

use crate::alone::local;
use crate::fleet::{Fleet, Host, Pair, Sample};
use crate::judge::{Finding, Judgement, judge};
use reached::{Reached, compared};
pub use unmeasured::{Gap, Unusable};
pub use wrong::Wrong;

/// Runs of one kind on so many different sets of machines are about a fleet and not about a job, which has one.
const DIFFERENT: usize = 3;

/// Runs that can be compared with each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    /// The program, as in `all_reduce_perf`.
    pub program: String,
    /// GPUs of each machine.
    pub gpus: usize,
    /// Machines of each run.
    pub hosts: usize,
    /// The GPU as its driver names it; empty where the output does not.
    pub gpu: String,
    /// The release of NCCL, where the output states it.
    pub nccl: Option<Version>,
    /// What was run, where it is a collective that plumb knows.
    pub collective: Option<Collective>,
    /// The size that is compared: the largest that most runs have that ended; 0 where none did.
    pub bytes: u64,
    /// Every run, in the order it was read.
    pub runs: Vec<Run>,
    /// What they say, for one and two machines per run.
    pub judged: Judged,
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its machines.
    pub hosts: Vec<Host>,
    /// The bus bandwidth at the size that is compared; none if it failed.
    pub rate: Option<GigabytesPerSecond>,
    /// Whether the test found wrong results.
    pub wrong: bool,
    /// The file, with the line where it has several runs.
    pub name: String,
    /// The first line that reports an error, with its file.
    pub error: Option<String>,
}

/// A run that is not judged: its output is a part of what the test prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incomplete {
    /// The file, with the line where it has several runs.
    pub name: String,
    /// What its output lacks.
    pub lacks: Lacks,
    /// The machines that its output names, in order.
    pub hosts: Vec<String>,
    /// The program, as in `all_reduce_perf`.
    pub program: String,
    /// GPUs of each machine, where they are even.
    pub gpus: Option<usize>,
}

/// What the output of a run lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lacks {
    /// It ends among the devices, or before the table, and no line reports an error.
    Table,
    /// It has a different number of GPUs on each machine.
    Devices,
    /// The table has no row of the size that is compared, and no line reports an error.
    Size(u64),
}

/// What a set of runs says.
#[derive(Debug, Clone, PartialEq)]
pub enum Judged {
    /// Machines alone: those that are slower than the others.
    Alone(Vec<Finding>),
    /// Pairs.
    Pairs(Judgement),
    /// Larger runs are shown, and accuse nobody.
    Together,
}

/// All runs of a folder.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The machines, in the order of their names.
    pub fleet: Fleet,
    /// Kinds of runs: pairs first, then machines alone, then larger ones.
    pub sets: Vec<Set>,
    /// Runs that name no machine.
    pub unnamed: usize,
    /// Runs that were cut; they accuse nobody.
    pub incomplete: Vec<Incomplete>,
    /// Runs with rows that have no bandwidth; at the size that is compared they failed.
    pub unusable: Vec<Unusable>,
    /// Machines of which every run is incomplete; they are not part of the fleet.
    pub unmeasured: Vec<String>,
    /// Machines whose results are wrong.
    pub wrong: Vec<Wrong>,
    /// Files without a run.
    pub unused: Vec<String>,
}

/// A run as it was read.
struct Read<'a> {
    test: &'a NcclTests,
    machines: BTreeSet<&'a str>,
    name: String,
    /// The first line that reports an error, with its file.
    error: Option<String>,
}

impl Read<'_> {
    /// Whether a run of so many machines failed. One that stops without an error was cut or hangs; that proves nothing about a machine
    /// by itself, and among pairs the others decide.
    fn failed(&self) -> bool {
        !self.test.has_ended() && (self.error.is_some() || self.machines.len() > 1)
    }

    fn program(&self) -> String {
        let program = self.test.program.as_deref().unwrap_or("nccl-tests");
        program.rsplit('/').next().unwrap_or(program).to_owned()
    }

    /// GPUs of each machine, where all have the same number.
    fn gpus(&self) -> Option<usize> {
        let (gpus, machines) = (self.test.devices.len(), self.machines.len());
        (gpus.checked_rem(machines) == Some(0)).then(|| gpus / machines)
    }

    fn kind(&self) -> Kind {
        Kind {
            program: self.program(),
            gpus: self.gpus().unwrap_or_default(),
            hosts: self.machines.len(),
            gpu: self.test.devices.first().map(|it| it.name.to_string()).unwrap_or_default(),
            nccl: self.test.nccl,
        }
    }

    fn incomplete(self, lacks: Lacks) -> Incomplete {
        let hosts = self.machines.iter().map(|it| (*it).to_owned()).collect();
        Incomplete { program: self.program(), gpus: self.gpus(), hosts, lacks, name: self.name }
    }
}

/// Runs of the same kind are compared.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    program: String,
    gpus: usize,
    hosts: usize,
    gpu: String,
    nccl: Option<Version>,
}

impl Replay {
    /// Sorts runs into kinds and judges each.
    pub fn new(case: &Case) -> Self {
        let mut incomplete = Vec::new();
        let mut unnamed = 0;
        let mut kinds: BTreeMap<Kind, Vec<Read<'_>>> = BTreeMap::new();
        for read in read(case) {
            let cut = !read.test.table && read.error.is_none();
            match read.test.devices.len().checked_rem(read.machines.len()) {
                None => unnamed += 1,
                Some(_) if cut => incomplete.push(read.incomplete(Lacks::Table)),
                Some(0) => kinds.entry(read.kind()).or_default().push(read),
                Some(_) => incomplete.push(read.incomplete(Lacks::Devices)),
            }
        }
        let unusable = kinds.values().flatten().filter_map(Unusable::of).collect();
        let kinds: Vec<Comparable<'_>> =
            kinds.into_iter().map(|(kind, runs)| Comparable::new(kind, runs, &mut incomplete)).collect();
        let measured = kinds.iter().flat_map(|it| &it.runs).flat_map(|it| &it.machines);
        let names: BTreeSet<&str> = measured.copied().collect();
        let fleet = Fleet::new(names.iter().map(|it| (*it).to_owned()).collect());
        let mut sets: Vec<Set> = kinds
            .into_iter()
            .filter(|it| !it.runs.is_empty())
            .map(|it| Set::new(&fleet, &names, it))
            .collect();
        let order = |hosts: usize| match hosts {
            2 => 0,
            1 => 1,
            _ => 2,
        };
        sets.sort_by_key(|it| (order(it.hosts), it.program.clone(), std::cmp::Reverse(it.gpus)));
        let runs: Vec<&Run> = sets.iter().flat_map(|it| &it.runs).collect();
        let wrong = wrong::judge(&runs);
        let unmeasured = unmeasured::hosts(&incomplete, &names);
        Self { fleet, sets, unnamed, incomplete, unusable, unmeasured, wrong, unused: unused(case) }
    }

    /// How many machines the runs name, whether or not they were measured.
    pub const fn machines(&self) -> usize {
        self.fleet.len() + self.unmeasured.len()
    }

    /// Whether these are runs of many machines or pairs, rather than a few runs of one job.
    pub fn is_fleet(&self) -> bool {
        // Two machines, each by itself and then both together, are still what one job runs on.
        self.sets.iter().filter(|it| it.hosts <= 2).any(|set| {
            let mut machines: Vec<&[Host]> = set.runs.iter().map(|it| it.hosts.as_slice()).collect();
            machines.sort_unstable();
            machines.dedup();
            machines.len() >= DIFFERENT
        })
    }
}

/// Runs of a kind that ended or failed at the size that is compared.
struct Comparable<'a> {
    kind: Kind,
    bytes: u64,
    collective: Option<Collective>,
    runs: Vec<Read<'a>>,
}

impl<'a> Comparable<'a> {
    fn new(kind: Kind, tests: Vec<Read<'a>>, incomplete: &mut Vec<Incomplete>) -> Self {
        // A run that failed says nothing about sizes, however many of them there are.
        let (ended, rest): (Vec<_>, Vec<_>) = tests.iter().partition(|it| it.test.has_ended());
        let unknown = rest.iter().filter(|it| !it.failed()).map(|it| it.test);
        let bytes = Some(compared(ended.iter().map(|it| it.test))).filter(|it| *it > 0);
        let bytes = bytes.unwrap_or_else(|| compared(unknown));
        let collective = tests.iter().find_map(|it| it.test.collective());
        let mut runs = Vec::new();
        for read in tests {
            let row = reached::of(read.test, bytes);
            // A row without a bandwidth was measured, and failed.
            if read.failed() || !matches!(row, Reached::Nothing) {
                runs.push(read);
            } else {
                incomplete.push(read.incomplete(Lacks::Size(bytes)));
            }
        }
        Self { kind, bytes, collective, runs }
    }
}

impl Set {
    /// `names` are those of the fleet, in its order.
    fn new(fleet: &Fleet, names: &BTreeSet<&str>, comparable: Comparable<'_>) -> Self {
        let Comparable { kind: Kind { program, gpus, hosts, gpu, nccl }, bytes, collective, runs } =
            comparable;
        let run = |read: Read<'_>| {
            let places = read.machines.iter().filter_map(|it| names.iter().position(|name| name == it));
            let rate = match reached::of(read.test, bytes) {
                Reached::Rate(rate) if !read.failed() => Some(GigabytesPerSecond(rate)),
                _ => None,
            };
            let hosts = places.map(Host).collect();
            Run { hosts, rate, wrong: read.test.is_wrong(), name: read.name, error: read.error }
        };
        let runs: Vec<Run> = runs.into_iter().map(run).collect();
        let judged = match hosts {
            1 => {
                let best = best_of(&runs);
                let (hosts, rates): (Vec<Host>, Vec<Option<f64>>) = best.into_iter().unzip();
                Judged::Alone(local(&hosts, &rates, None, None))
            }
            2 => {
                // Machines that never met anybody in this kind of run are not part of it.
                let pairs = runs.iter().enumerate().filter_map(|(round, run)| match run.hosts[..] {
                    [one, other] => {
                        Some(Sample { round, pair: Pair::new(one, other), rate: run.rate, resent: None })
                    }
                    _ => None,
                });
                let samples: Vec<Sample> = pairs.collect();
                let mut judgement = judge(fleet, &samples);
                let seen: BTreeSet<Host> = samples.iter().flat_map(|it| it.pair.hosts()).collect();
                judgement.open.retain(|it| match it {
                    crate::Question::Host(host) => seen.contains(host),
                    crate::Question::Pair(_) => true,
                });
                Judged::Pairs(judgement)
            }
            _ => Judged::Together,
        };
        Self { program, gpus, hosts, gpu, nccl, collective, bytes, runs, judged }
    }
}

/// The runs of a case, each with its name and whether a line of it reports an error.
fn read(case: &Case) -> Vec<Read<'_>> {
    let mut begins: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (file, line) in case.tests.iter().map(|it| case.locate(&it.quote)) {
        begins.entry(file).or_default().push(line);
    }
    let mut errors: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for spot in &case.deaths {
        let (file, line) = case.sources.locate(*spot);
        errors.entry(file).or_default().push(line);
    }
    let each = case.tests.iter().map(|test| {
        let (file, line) = case.locate(&test.quote);
        let beside = || begins.get(file).into_iter().flatten().copied();
        let first = beside().all(|it| it >= line);
        let next = beside().filter(|it| *it > line).min().unwrap_or(u64::MAX);
        // What a launcher prints before the header belongs to the first run.
        let from = if first { 0 } else { line };
        let error = errors.get(file).into_iter().flatten().filter(|it| (from..next).contains(it)).min();
        let error = error.map(|it| format!("{file}:{it}"));
        let alone = first && next == u64::MAX;
        let name = if alone { file.to_owned() } else { format!("{file}:{line}") };
        let machines = test.devices.iter().map(|it| &*it.host).collect();
        Read { test, machines, name, error }
    });
    each.collect()
}

/// Files without a run, whether or not plumb knows what they are.
fn unused(case: &Case) -> Vec<String> {
    let used: BTreeSet<&str> = case.tests.iter().map(|it| case.locate(&it.quote).0).collect();
    let files = case.sources.files.iter().map(|it| &*it.name);
    files.filter(|it| !used.contains(it)).map(str::to_owned).collect()
}

/// The best run of each machine: what is slow by itself is slow every time.
fn best_of(runs: &[Run]) -> BTreeMap<Host, Option<f64>> {
    let mut best: BTreeMap<Host, Option<f64>> = BTreeMap::new();
    for run in runs {
        for host in &run.hosts {
            let known = best.entry(*host).or_default();
            let rate = run.rate.map(|it| it.0);
            if rate > *known {
                *known = rate;
            }
        }
    }
    best
}
