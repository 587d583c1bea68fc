//! A folder of nccl-tests runs is a fleet too: one, two or many machines per run, each test against the others of its kind.

use std::collections::{BTreeMap, BTreeSet};

use evidence::plain::{NcclTests, Row};
use fabric::units::GigabytesPerSecond;
use fabric::{Collective, Version};

use crate::fleet::{Fleet, Host, Pair, Sample};
use crate::judge::{Finding, Judgement, judge};
use crate::validation::local;

/// Machines and runs from which on a folder is about a fleet and not about a job.
const FLEET: usize = 4;
const RUNS: usize = 6;

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
    /// The size that is compared: the largest that most runs have.
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
    pub fn new(tests: &[NcclTests]) -> Self {
        let names: BTreeSet<&str> = tests.iter().flat_map(|it| &it.devices).map(|it| &*it.host).collect();
        let fleet = Fleet::new(names.iter().map(|it| (*it).to_owned()).collect());
        let mut kinds: BTreeMap<Kind, Vec<(Vec<Host>, &NcclTests)>> = BTreeMap::new();
        let mut unnamed = 0;
        for test in tests {
            let hosts: BTreeSet<Host> = test
                .devices
                .iter()
                .filter_map(|it| fleet.names().binary_search_by(|name| name.as_str().cmp(&it.host)).ok())
                .map(Host)
                .collect();
            let Some(gpus) = test
                .devices
                .len()
                .checked_div(hosts.len())
                .filter(|it| it * hosts.len() == test.devices.len())
            else {
                unnamed += 1;
                continue;
            };
            let program = test.program.as_deref().unwrap_or("nccl-tests");
            let kind = Kind {
                program: program.rsplit('/').next().unwrap_or(program).to_owned(),
                gpus,
                hosts: hosts.len(),
                gpu: test.devices.first().map(|it| it.name.to_string()).unwrap_or_default(),
                nccl: test.nccl,
            };
            kinds.entry(kind).or_default().push((hosts.into_iter().collect(), test));
        }
        let mut sets: Vec<Set> =
            kinds.into_iter().map(|(kind, runs)| Set::new(&fleet, kind, &runs)).collect();
        let order = |hosts: usize| match hosts {
            2 => 0,
            1 => 1,
            _ => 2,
        };
        sets.sort_by_key(|it| (order(it.hosts), it.program.clone(), std::cmp::Reverse(it.gpus)));
        Self { fleet, sets, unnamed }
    }

    /// Whether these are runs of many machines or pairs, rather than a few runs of one job.
    pub fn is_fleet(&self) -> bool {
        let small = self.sets.iter().filter(|it| it.hosts <= 2);
        self.fleet.len() >= FLEET && small.map(|it| it.runs.len()).sum::<usize>() >= RUNS
    }
}

impl Set {
    fn new(fleet: &Fleet, kind: Kind, tests: &[(Vec<Host>, &NcclTests)]) -> Self {
        let Kind { program, gpus, hosts, gpu, nccl } = kind;
        let bytes = compared(tests.iter().map(|it| it.1));
        let runs: Vec<Run> = tests
            .iter()
            .map(|(hosts, test)| {
                let row = test.rows.iter().find(|it| it.size == bytes);
                Run { hosts: hosts.clone(), rate: row.and_then(rate).map(GigabytesPerSecond) }
            })
            .collect();
        let judged = match hosts {
            1 => {
                let best = best_of(&runs);
                let (hosts, rates): (Vec<Host>, Vec<Option<f64>>) = best.into_iter().unzip();
                Judged::Alone(local(&hosts, &rates, None))
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
        let collective = tests.iter().find_map(|it| it.1.collective());
        Self { program, gpus, hosts, gpu, nccl, collective, bytes, runs, judged }
    }
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

/// The largest size that at least nine of ten runs with results have.
fn compared<'a>(tests: impl Iterator<Item = &'a NcclTests>) -> u64 {
    let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
    let mut measured = 0;
    for test in tests.filter(|it| !it.rows.is_empty()) {
        measured += 1;
        let own: BTreeSet<u64> = test.rows.iter().filter(|it| rate(it).is_some()).map(|it| it.size).collect();
        for size in own {
            *sizes.entry(size).or_default() += 1;
        }
    }
    let common = sizes.iter().rev().find(|it| it.1 * 10 >= measured * 9);
    let most = sizes.iter().max_by_key(|it| it.1);
    common.or(most).map_or(0, |it| *it.0)
}

/// In place and out of place, on average.
fn rate(row: &Row) -> Option<f64> {
    let both = [row.out_of_place, row.in_place];
    let rates: Vec<f64> =
        both.iter().flatten().map(|it| it.busbw).filter(|it| it.is_finite() && *it > 0.0).collect();
    (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / crate::chance::as_f64(rates.len()))
}
