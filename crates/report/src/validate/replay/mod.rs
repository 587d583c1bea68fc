//! Runs that others made.

mod gaps;
mod headline;
mod slow_pairs;

use std::collections::{BTreeMap, BTreeSet};

use ::validate::replay::{Judged, Replay, Set, Wrong};
use ::validate::{Culprit, Finding, Fleet, Pair, Question, Sample, Verdict};
use fabric::Collective;
use fabric::units::GigabytesPerSecond;

use self::gaps::{gaps, gaps_in_a_line, incomplete, unusable};
use self::headline::Headline;
use self::slow_pairs::slow_pairs;
use super::simulated::{accused, open};
use super::{Accused, Matrix, Normal, Split, Test, Validate, bandwidth, list, word};
use crate::expect::shown;
use crate::text::{bytes, counted};

impl Validate {
    /// Judges runs of nccl-tests, each kind by itself, with what is normal for each beside it. `least` is the bus bandwidth in GB/s that
    /// all machines together must reach.
    pub fn replayed(
        replay: &Replay,
        files: usize,
        least: Option<f64>,
        normal: impl Fn(&Set) -> Option<Normal>,
    ) -> Self {
        let fleet = &replay.fleet;
        let names = |hosts: &[::validate::Host]| {
            hosts.iter().map(|it| fleet.name(*it).to_owned()).collect::<Vec<_>>()
        };
        let mut accusations: BTreeMap<Culprit, Vec<(String, Finding)>> = BTreeMap::new();
        let mut splits = Vec::new();
        let mut tests = Vec::new();
        let mut not_known = Vec::new();
        let mut suspects = Vec::new();
        let mut untold: BTreeSet<::validate::Host> = BTreeSet::new();
        let mut best: Option<(usize, Matrix)> = None;
        for (set, name) in replay.sets.iter().zip(set_names(&replay.sets)) {
            let reference = set.reference();
            let slow = set
                .runs
                .iter()
                .filter(|it| reference.is_none_or(|known| known.is_slow(it.rate.map(|it| it.0))))
                .count();
            let rates: Vec<f64> = set.rates().collect();
            tests.push(Test {
                name: name.clone(),
                hosts: set.hosts,
                gpu: (!set.gpu.is_empty()).then(|| set.gpu.clone()),
                nccl: set.nccl.map(|it| it.to_string()),
                bytes: set.bytes,
                runs: set.runs.len(),
                failed: set.runs.len() - rates.len(),
                normal: reference.map(|it| it.normal),
                lowest: rates.iter().copied().min_by(f64::total_cmp),
                spread: reference.map(|it| it.spread),
                slow,
                expected: normal(set),
            });
            match &set.judged {
                Judged::Alone(findings) => {
                    for it in findings {
                        accusations.entry(it.culprit).or_default().push((name.clone(), it.clone()));
                    }
                }
                Judged::Pairs(judgement) => {
                    for it in &judgement.findings {
                        accusations.entry(it.culprit).or_default().push((name.clone(), it.clone()));
                    }
                    if let Some(split) = &judgement.split {
                        splits.push(Split {
                            test: name.clone(),
                            groups: split.groups.iter().map(|it| names(it)).collect(),
                            share: split.share,
                            across: split.across,
                        });
                    }
                    untold.extend(judgement.open.iter().filter_map(|it| match it {
                        Question::Host(host) => Some(*host),
                        Question::Pair(_) => None,
                    }));
                    let slow_pairs = slow_pairs(fleet, set, judgement);
                    // Whether a pair that is slow again and again is a link has a line of its own.
                    let again = slow_pairs.iter().filter(|it| it.of > 1);
                    not_known.extend(again.clone().map(|it| format!("{name}: {}", it.unsettled())));
                    let again: BTreeSet<Pair> = again.map(|it| it.pair).collect();
                    let mut asked = judgement.open.clone();
                    asked.retain(|it| !matches!(it, Question::Pair(pair) if again.contains(pair)));
                    suspects.extend(slow_pairs);
                    not_known.extend(
                        open(fleet, &asked, &samples(set), judgement.split.as_ref())
                            .into_iter()
                            .map(|it| format!("{name}: {it}")),
                    );
                    // The matrix that shows most.
                    let telling =
                        slow + 1000 * (judgement.findings.len() + usize::from(judgement.split.is_some()));
                    if let (Some(reference), true) =
                        (&judgement.reference, best.as_ref().is_none_or(|it| telling > it.0))
                    {
                        best = Some((telling, Matrix::of(fleet, &samples(set), reference, name.clone())));
                    }
                }
                Judged::Together => {}
            }
        }
        let mut findings: Vec<Accused> = accusations
            .into_values()
            .filter_map(|mut all| {
                all.sort_by(|a, b| a.1.chance.total_cmp(&b.1.chance));
                let tests = all.iter().map(|it| it.0.clone()).collect();
                all.first().map(|it| accused(fleet, &it.1, &[], tests))
            })
            .collect();
        super::alike(&mut findings, fleet.len());
        let wrong: Vec<Accused> = replay.wrong.iter().map(|it| wrong_results(fleet, it)).collect();
        findings.splice(0..0, wrong);
        let together = together(replay, &tests, least);
        let failures = failures(replay, &findings);
        if let Some(unknown) = tests.iter().find(|it| it.expected.is_none() && least.is_none()) {
            not_known.push(format!(
                "what {} should reach: the output does not say which machines and which network (--instance NAME)",
                unknown.name
            ));
        }
        let all = replay.machines();
        if all > 1 && !replay.sets.iter().any(|it| is_all(it, replay)) {
            let least =
                least.map(|it| format!("; --least {} is not compared", shown(it))).unwrap_or_default();
            not_known.push(format!("what all {all} machines reach together: no run has all of them{least}"));
        }
        if let (1, Some(least)) = (all, least) {
            not_known.push(format!(
                "what several machines reach together: --least {} is not compared",
                shown(least)
            ));
        }
        if replay.unnamed > 0 {
            not_known
                .push(format!("{}: the output does not name the machines", counted(replay.unnamed, "run")));
        }
        not_known.extend(incomplete(&replay.incomplete));
        let low = low(&tests, &together, all);
        let unusable = unusable(&replay.unusable);
        let gaps = gaps(replay);
        let verdict = match () {
            () if !findings.is_empty() || !splits.is_empty() => Verdict::NoGo,
            () if low.is_some() || together.is_empty() => Verdict::Inconclusive,
            () if !suspects.is_empty() || !failures.is_empty() => Verdict::Inconclusive,
            () if !unusable.is_empty() || !gaps.is_empty() => Verdict::Inconclusive,
            () => Verdict::Go,
        };
        // These keep the fleet from being fit, and come first.
        not_known.splice(0..0, unusable.iter().cloned().chain(gaps_in_a_line(&gaps)));
        not_known.extend(failures.iter().filter(|it| !it.asked).map(|it| format!("why {}", it.text)));
        let known = tests.iter().any(|it| it.expected.is_some());
        let untold: Vec<String> = untold.iter().map(|it| fleet.name(*it).to_owned()).collect();
        let headline = Headline {
            findings: &findings,
            splits: &splits,
            low,
            suspects,
            failures,
            unusable,
            gaps,
            together,
            untold,
            known,
            replay,
        };
        let runs: usize = replay.sets.iter().map(|it| it.runs.len()).sum();
        Self {
            schema: "plumb.validate/1",
            verdict: word(verdict),
            text: headline.text(),
            source: source(runs, files, all, &tests),
            hosts: fleet.names().to_vec(),
            findings,
            splits,
            stages: Vec::new(),
            next: None,
            notes: unused(&replay.unused).into_iter().collect(),
            launches: Vec::new(),
            tests,
            matrix: best.map(|it| it.1),
            not_known,
            results: None,
        }
    }
}

fn samples(set: &Set) -> Vec<Sample> {
    let pair = |it: &validate::replay::Run| match it.hosts[..] {
        [one, other] => {
            let pair = ::validate::Pair::new(one, other);
            Some(Sample { round: 0, pair, rate: it.rate, resent: None })
        }
        _ => None,
    };
    set.runs.iter().filter_map(pair).collect()
}

/// What each kind of runs is called, with its GPU and release where that alone tells it from another kind.
fn set_names(sets: &[Set]) -> Vec<String> {
    let short: Vec<String> = sets.iter().map(name).collect();
    let whole = short.iter().zip(sets).map(|(own, set)| {
        let like = || short.iter().zip(sets).filter(|it| it.0 == own).map(|it| it.1);
        let mut name = own.clone();
        if like().any(|it| it.gpu != set.gpu) {
            name.push_str(", ");
            name.push_str(if set.gpu.is_empty() { "GPU not named" } else { &set.gpu });
        }
        if like().any(|it| it.nccl != set.nccl) {
            let release = set.nccl.map_or_else(|| "not named".to_owned(), |it| it.to_string());
            name.push_str(", NCCL ");
            name.push_str(&release);
        }
        name
    });
    whole.collect()
}

/// `alltoall of 16 GiB, 8 GPUs each, pairs`.
fn name(set: &Set) -> String {
    let program = set.program.trim_end_matches("_perf");
    let machines = match set.hosts {
        1 => "one machine".to_owned(),
        2 => "pairs".to_owned(),
        more => format!("{more} machines"),
    };
    let gpus = if set.gpus == 1 { "1 GPU" } else { &format!("{} GPUs", set.gpus) };
    // Where every run failed there is no size.
    let size = if set.bytes == 0 { String::new() } else { format!(" of {}", bytes(set.bytes)) };
    format!("{program}{size}, {gpus} each, {machines}")
}

/// `810 runs of nccl-tests in 408 files, 17 machines with H100, NCCL 2.28.7`.
fn source(runs: usize, files: usize, machines: usize, tests: &[Test]) -> String {
    let distinct = |of: fn(&Test) -> Option<&String>| {
        let mut all: Vec<String> = tests.iter().filter_map(of).cloned().collect();
        all.sort();
        all.dedup();
        all
    };
    let (gpus, releases) = (distinct(|it| it.gpu.as_ref()), distinct(|it| it.nccl.as_ref()));
    let gpus = if gpus.is_empty() { String::new() } else { format!(" with {}", list(&gpus, 2)) };
    let releases = if releases.is_empty() { String::new() } else { format!(", NCCL {}", list(&releases, 3)) };
    format!(
        "{} of nccl-tests in {}, {}{gpus}{releases}",
        counted(runs, "run"),
        counted(files, "file"),
        counted(machines, "machine")
    )
}

/// Whether the runs have all machines.
fn is_all(set: &Set, replay: &Replay) -> bool {
    set.hosts > 1 && set.hosts == replay.machines()
}

/// What all machines reach together, beside what they must.
struct Together {
    test: String,
    /// Of the middle run.
    rate: f64,
    lowest: f64,
    /// Runs,
    runs: usize,
    /// and how many of them do not reach what is needed.
    slow: usize,
    /// `, 300 GB/s needed (--least)`.
    beside: String,
}

/// The runs of all machines that something can be said about. `--least` is about all-reduce where that was run.
fn together(replay: &Replay, tests: &[Test], least: Option<f64>) -> Vec<Together> {
    let all = || replay.sets.iter().zip(tests).filter(|it| is_all(it.0, replay));
    let reduced = all().any(|it| it.0.collective == Some(Collective::AllReduce));
    let judged = all().filter_map(|(set, test)| {
        // Where every run failed there is no rate, and that is said.
        let (rate, lowest) = (set.middle()?, test.lowest?);
        let counts = !reduced || set.collective == Some(Collective::AllReduce);
        let (needed, beside) = match (least.filter(|_| counts), &test.expected) {
            (Some(least), _) => (least, format!(", {} needed (--least)", bandwidth(least))),
            (None, Some(it)) => {
                let range = format!("{} to {} GB/s", shown(it.low), shown(it.high));
                (it.low, format!(", {range} is normal for {}", it.machine))
            }
            (None, None) => return None,
        };
        let (runs, slow) = (set.rates().count(), set.below(GigabytesPerSecond(needed)));
        Some(Together { test: test.name.clone(), rate, lowest, runs, slow, beside })
    });
    judged.collect()
}

/// What is below what it should reach, in a sentence. Then no machine is slower than the others.
fn low(tests: &[Test], together: &[Together], machines: usize) -> Option<String> {
    let slow = together.iter().filter(|it| it.slow > 0);
    if let Some(it) = slow.max_by_key(|it| it.slow == it.runs) {
        if it.slow < it.runs {
            let were = if it.slow == 1 { "was" } else { "were" };
            return Some(format!(
                "{} of {} runs of all {machines} machines {were} too slow: the lowest reached {}{}",
                it.slow,
                it.runs,
                bandwidth(it.lowest),
                it.beside
            ));
        }
        return Some(format!(
            "all {machines} machines together reach only {}{}",
            bandwidth(it.rate),
            it.beside
        ));
    }
    tests.iter().filter(|it| together.iter().all(|known| known.test != it.name)).find_map(|it| {
        let (normal, expected) = (it.normal?, it.expected.as_ref()?);
        (normal < expected.low).then(|| {
            format!(
                "{} reach {} GB/s, and {} to {} is normal for {}",
                it.name,
                shown(normal),
                shown(expected.low),
                shown(expected.high),
                expected.machine
            )
        })
    })
}

/// Runs of the same machines that failed, at least one of them.
struct Failure {
    /// In a sentence.
    text: String,
    /// Whether it is a pair that always failed: what is not known about pairs names it.
    asked: bool,
}

/// Runs that failed and that no finding explains, by kind and machines: they may fail again.
fn failures(replay: &Replay, findings: &[Accused]) -> Vec<Failure> {
    let fleet = &replay.fleet;
    let mut said = Vec::new();
    for set in &replay.sets {
        let mut by_machines: BTreeMap<&[::validate::Host], Vec<&::validate::replay::Run>> = BTreeMap::new();
        for run in &set.runs {
            by_machines.entry(&run.hosts).or_default().push(run);
        }
        for (hosts, runs) in by_machines {
            let names: Vec<String> = hosts.iter().map(|it| fleet.name(*it).to_owned()).collect();
            let explained = findings.iter().any(|it| match it.class {
                "link" => it.hosts.iter().all(|it| names.contains(it)),
                _ => it.hosts.iter().any(|it| names.contains(it)),
            });
            let place = |it: &&::validate::replay::Run| it.error.as_ref().unwrap_or(&it.name).clone();
            let files: Vec<String> = runs.iter().filter(|it| it.rate.is_none()).map(place).collect();
            if files.is_empty() || explained {
                continue;
            }
            let asked = hosts.len() == 2 && files.len() == runs.len();
            let who = match names.len() {
                _ if is_all(set, replay) => format!("all {} machines", names.len()),
                1 | 2 => names.join(" - "),
                many => format!("{many} machines"),
            };
            let of = match runs.len() {
                1 => "the run".to_owned(),
                all if all == files.len() => format!("all {all} runs"),
                all => format!("{} of {all} runs", files.len()),
            };
            said.push(Failure { text: format!("{of} of {who} failed ({})", list(&files, 2)), asked });
        }
    }
    said
}

fn wrong_results(fleet: &Fleet, wrong: &Wrong) -> Accused {
    let hosts: Vec<String> = wrong.hosts.iter().map(|it| fleet.name(*it).to_owned()).collect();
    let of = format!("wrong results in {} of {}", wrong.runs, counted(wrong.of, "run"));
    let apart = match (hosts.len(), wrong.right_apart) {
        (1, _) => String::new(),
        (_, 0) => " together; no other run tells which of them is at fault".to_owned(),
        (_, right) => format!(
            " together; {} of one without the other {} right, so these runs do not tell which is at fault",
            counted(right, "run"),
            if right == 1 { "is" } else { "are" }
        ),
    };
    let action = match hosts.len() {
        1 => "take it out: check its GPUs (dcgmi diag -r 3, ECC errors, Xid) and replace what fails",
        2 => {
            "take both out until it is known which: run each with another machine and with validation (-c 1), and check its GPUs (dcgmi diag -r 3, ECC errors, Xid)"
        }
        _ => {
            "start no job on them: run pairs of these machines with validation (-c 1) to find the one at fault"
        }
    };
    Accused {
        class: "node",
        hosts,
        rule: None,
        references: Vec::new(),
        nic: None,
        device: None,
        share: 0.0,
        slow: wrong.runs,
        of: wrong.of,
        failed: wrong.runs,
        chance: 0.0,
        loss: None,
        tests: Vec::new(),
        text: format!("{of}{apart} ({})", list(&wrong.files, 2)),
        remark: None,
        action: action.to_owned(),
    }
}

/// Files without a run.
fn unused(files: &[String]) -> Option<String> {
    (!files.is_empty()).then(|| {
        let are = if files.len() == 1 { "is" } else { "are" };
        format!("{} {are} not used: no run of nccl-tests", list(files, 3))
    })
}
