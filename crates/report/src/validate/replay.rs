//! Runs that others made.

use std::collections::{BTreeMap, BTreeSet};

use ::validate::replay::{Gap, Incomplete, Judged, Lacks, Replay, Set, Unusable, Wrong};
use ::validate::{Culprit, Finding, Fleet, Host, Judgement, Pair, Question, Sample, Verdict};
use fabric::Collective;
use fabric::units::GigabytesPerSecond;

use super::simulated::{accused, named_out, open, out_list};
use super::{Accused, Matrix, Normal, Split, Test, Validate, bandwidth, list, percent, word};
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

/// Slow measurements that name a link, at least: what was seen first and what confirms it.
const CONFIRMED: usize = 4;

/// A pair that is slow and that no finding explains: too little to accuse a link, enough to measure it again.
struct SlowPair {
    pair: Pair,
    names: String,
    /// Measurements that were slow or failed,
    slow: usize,
    /// of how many,
    of: usize,
    /// and how many failed.
    failed: usize,
    /// The median of those that ended, as a part of what is normal.
    share: Option<f64>,
}

impl SlowPair {
    fn what(&self) -> &'static str {
        if self.failed == self.slow { "failed" } else { "slow" }
    }

    /// For the first line.
    fn sentence(&self) -> String {
        let Self { names, slow, of, .. } = self;
        let share = self.share.map(percent);
        match (share, of) {
            (Some(share), 1) => format!("{names} reach {share} of normal"),
            (None, 1) => format!("{names} failed"),
            (Some(share), _) if self.failed == 0 => {
                format!("{names} were slow in {slow} of {of} measurements ({share} of normal)")
            }
            (_, _) if self.failed == *slow => format!("{names} failed in {slow} of {of} measurements"),
            (_, _) => format!("{names} were slow or failed in {slow} of {of} measurements"),
        }
    }

    /// What is missing to settle it, of one that was measured several times.
    fn unsettled(&self) -> String {
        let Self { names, slow, of, .. } = self;
        let missing = match CONFIRMED.saturating_sub(*slow) {
            0 => "too few measurements to exclude chance: measure this pair again".to_owned(),
            more => format!("a link is named from {CONFIRMED} on, so {more} more at least"),
        };
        let were = if self.failed == *slow { "" } else { "were " };
        format!("why {names} {were}{} in {slow} of {of} measurements: {missing}", self.what())
    }
}

/// Pairs that are asked about, and pairs that are slow in each of several measurements.
fn slow_pairs(fleet: &Fleet, set: &Set, judgement: &Judgement) -> Vec<SlowPair> {
    let Some(reference) = &judgement.reference else { return Vec::new() };
    let mut by_pair: BTreeMap<Pair, Vec<Option<f64>>> = BTreeMap::new();
    for it in samples(set) {
        by_pair.entry(it.pair).or_default().push(it.rate.map(|it| it.0));
    }
    let pairs = by_pair.into_iter().filter_map(|(pair, rates)| {
        let slow = rates.iter().filter(|it| reference.is_slow(**it)).count();
        let always = rates.len() > 1 && slow == rates.len() && !explained(judgement, pair);
        if !always && !judgement.open.contains(&Question::Pair(pair)) {
            return None;
        }
        let mut ended: Vec<f64> = rates.iter().copied().flatten().collect();
        ended.sort_by(f64::total_cmp);
        Some(SlowPair {
            pair,
            names: pair.hosts().map(|it| fleet.name(it)).join(" - "),
            slow,
            of: rates.len(),
            failed: rates.len() - ended.len(),
            share: ended.get(ended.len() / 2).map(|it| reference.share(*it)),
        })
    });
    pairs.collect()
}

/// Whether a finding or a boundary between groups explains why a pair is slow.
fn explained(judgement: &Judgement, pair: Pair) -> bool {
    let accused = judgement.findings.iter().any(|it| match it.culprit {
        Culprit::Host(host) => pair.has(host),
        Culprit::Link(link) => link == pair,
        Culprit::Nic(..) | Culprit::Rail(_) | Culprit::Group(_) => false,
    });
    let group = |host: Host| {
        let split = judgement.split.as_ref()?;
        split.groups.iter().position(|it| it.contains(&host))
    };
    let [one, other] = pair.hosts().map(group);
    accused || one.is_some() && other.is_some() && one != other
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

/// Runs that were cut, those that lack the same in one line.
fn incomplete(all: &[Incomplete]) -> Vec<String> {
    let mut by_reason: BTreeMap<Lacks, Vec<String>> = BTreeMap::new();
    for it in all {
        by_reason.entry(it.lacks).or_default().push(it.name.clone());
    }
    let lines = by_reason.into_iter().map(|(lacks, names)| {
        let why = match lacks {
            Lacks::Table => {
                "incomplete: the output ends before the table of sizes, and no line reports an error"
                    .to_owned()
            }
            Lacks::Devices => "incomplete: not the same number of GPUs on each machine".to_owned(),
            Lacks::Size(0) => "incomplete: no row of results, and no line reports an error".to_owned(),
            Lacks::Size(size) => format!("no row of {}, the size that is compared", bytes(size)),
        };
        format!("{}: {why}", list(&names, 3))
    });
    lines.collect()
}

/// Rows without a bandwidth, those of one size in one line.
fn unusable(all: &[Unusable]) -> Vec<String> {
    let mut by_size: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for it in all {
        by_size.entry(it.bytes).or_default().push(it.name.clone());
    }
    let line = |(size, names): (u64, Vec<String>)| {
        format!(
            "{} failed at {}: the bandwidth is zero, negative, infinite or not a number ({})",
            counted(names.len(), "run"),
            bytes(size),
            list(&names, 8)
        )
    };
    by_size.into_iter().rev().map(line).collect()
}

/// What was not measured because its runs are incomplete, in a sentence each, what weighs most first.
fn gaps(replay: &Replay) -> Vec<String> {
    let mut said = Vec::new();
    let hosts = &replay.unmeasured;
    if !hosts.is_empty() {
        let (was, its) = if hosts.len() == 1 { ("was", "its") } else { ("were", "their") };
        said.push(format!("{} {was} not measured: {its} runs are incomplete", list(hosts, 8)));
    }
    let measured = |it: &&Gap| !it.hosts.iter().any(|it| hosts.contains(it));
    let all = replay.gaps();
    let (pairs, others): (Vec<&Gap>, Vec<&Gap>) =
        all.iter().filter(measured).partition(|it| it.hosts.len() == 2);
    said.extend(others.into_iter().map(|it| {
        let who = match &it.hosts[..] {
            [one] if it.all_named => format!("{one} by itself"),
            [one] => format!("{one} by itself or with others"),
            many if many.len() == replay.machines() => format!("all {} machines", many.len()),
            many if it.all_named => format!("{} machines", many.len()),
            many => format!("{} machines or more", many.len()),
        };
        did_not_end(&who, &it.files)
    }));
    said.extend(pair_gaps(pairs));
    said
}

/// The same in one line: the files are named by what they lack, too.
fn gaps_in_a_line(gaps: &[String]) -> Option<String> {
    let more = gaps.len().saturating_sub(MOST_GAPS);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    let known: Vec<&str> = gaps.iter().take(MOST_GAPS).map(String::as_str).collect();
    (!known.is_empty()).then(|| format!("{}{more}", known.join("; ")))
}

/// Of machines and pairs without a complete run, so many are named.
const MOST_GAPS: usize = 8;

/// Pairs with incomplete runs alone; those that have a machine in common are one sentence.
fn pair_gaps(mut pairs: Vec<&Gap>) -> Vec<String> {
    let mut said = Vec::new();
    while let Some(host) = most_common(&pairs) {
        let (own, rest): (Vec<&Gap>, Vec<&Gap>) = pairs.iter().partition(|it| it.hosts.contains(&host));
        if own.len() < 2 {
            break;
        }
        let files: Vec<String> = own.iter().flat_map(|it| it.files.clone()).collect();
        said.push(did_not_end(&format!("{host} with {} others", own.len()), &files));
        pairs = rest;
    }
    said.extend(pairs.into_iter().map(|it| did_not_end(&it.hosts.join(" - "), &it.files)));
    said
}

/// The machine that most of these have.
fn most_common(gaps: &[&Gap]) -> Option<String> {
    let mut often: BTreeMap<&String, usize> = BTreeMap::new();
    for host in gaps.iter().flat_map(|it| &it.hosts) {
        *often.entry(host).or_default() += 1;
    }
    often.into_iter().max_by_key(|it| it.1).map(|it| it.0.clone())
}

fn did_not_end(who: &str, files: &[String]) -> String {
    let (runs, are) =
        if files.len() == 1 { ("the run".to_owned(), "is") } else { (counted(files.len(), "run"), "are") };
    format!("{runs} of {who} {are} incomplete ({})", list(files, 2))
}

/// Files without a run.
fn unused(files: &[String]) -> Option<String> {
    (!files.is_empty()).then(|| {
        let are = if files.len() == 1 { "is" } else { "are" };
        format!("{} {are} not used: no run of nccl-tests", list(files, 3))
    })
}

/// Slow pairs that are to be measured again, for the first line.
fn suspected(all: &[SlowPair]) -> Option<String> {
    let sentences: Vec<String> = all.iter().map(SlowPair::sentence).collect();
    let (pair, them) = if all.len() == 1 { ("this pair", "") } else { ("these pairs", " each") };
    let known = list(&sentences, 3);
    let once = if all.iter().all(|it| it.of == 1) {
        format!("measured once{them}")
    } else {
        "and it is not settled why".to_owned()
    };
    (!all.is_empty()).then(|| format!("{known}, {once}: measure {pair} again"))
}

/// What the first line is made of.
struct Headline<'a> {
    findings: &'a [Accused],
    splits: &'a [Split],
    low: Option<String>,
    suspects: Vec<SlowPair>,
    /// Runs that failed, of which no machine is accused.
    failures: Vec<Failure>,
    /// Runs with rows that have no bandwidth.
    unusable: Vec<String>,
    /// What was not measured because its runs are incomplete.
    gaps: Vec<String>,
    together: Vec<Together>,
    /// Machines that were slow, or not measured with one that is normal.
    untold: Vec<String>,
    /// Whether it is known what some runs should reach.
    known: bool,
    replay: &'a Replay,
}

impl Headline<'_> {
    fn text(self) -> String {
        let machines = self.replay.fleet.len();
        let mut parts = self.no_go();
        if let Some(first) = parts.first_mut() {
            *first = format!("NO-GO: {first}");
            parts.extend(self.low);
            return parts.join("; ");
        }
        let compared = self.replay.sets.iter().any(|it| it.hosts <= 2 && it.runs.len() > 1);
        let even = match machines {
            1 => String::new(),
            _ if !compared => "no runs compare the machines with each other".to_owned(),
            _ => match &self.untold[..] {
                [] => format!("none of {machines} machines is slower than the others"),
                [one] => format!("whether {one} is slower than the others is not told"),
                more => format!("whether {} are slower than the others is not told", list(more, 4)),
            },
        };
        if let Some(first) = self.failures.first().filter(|_| self.suspects.is_empty()) {
            let low = self.low.map(|it| format!("; {it}")).unwrap_or_default();
            let more = match self.failures.len() - 1 {
                0 => String::new(),
                more => format!(", and {more} more (see below)"),
            };
            return format!("INCONCLUSIVE: {}{more}{low}", first.text);
        }
        let suspects = suspected(&self.suspects);
        if let Some(low) = self.low {
            return match suspects {
                Some(suspects) => format!("INCONCLUSIVE: {low}; {suspects}"),
                None if self.together.is_empty() && machines > 1 => {
                    format!("INCONCLUSIVE: {even}, but all are slow: {low}")
                }
                None if even.is_empty() => format!("INCONCLUSIVE: {low}"),
                None => format!("INCONCLUSIVE: {low}; {even}"),
            };
        }
        if let Some(suspects) = suspects {
            return format!("INCONCLUSIVE: {suspects}");
        }
        if !self.together.is_empty() || !self.replay.unmeasured.is_empty() {
            let mut lacking = self.unusable.iter().chain(&self.gaps);
            if let Some(first) = lacking.next() {
                let more = match lacking.count() {
                    0 => String::new(),
                    more => format!(", and {more} more (see below)"),
                };
                return format!("INCONCLUSIVE: {first}{more}");
            }
        }
        if let Some(it) = self.together.first() {
            return format!("GO: all {machines} machines together reach {}{}", bandwidth(it.rate), it.beside);
        }
        if even.is_empty() {
            return "INCONCLUSIVE: these runs are of one machine: nothing was measured between machines"
                .to_owned();
        }
        let none_has_all = !self.replay.sets.iter().any(|it| is_all(it, self.replay));
        let what = if self.known && none_has_all {
            "no run has all of them together"
        } else {
            "nothing says what they should reach together"
        };
        format!("INCONCLUSIVE: {even}, and {what}")
    }

    /// What keeps the fleet from being fit, in the order of its weight.
    fn no_go(&self) -> Vec<String> {
        let mut parts = Vec::new();
        // Wrong results of many machines accuse none of them by name.
        let many = |it: &&Wrong| it.hosts.len() > 2;
        let crowd = self.replay.wrong.iter().filter(many).count();
        let named: Vec<&Accused> =
            self.findings.iter().filter(|it| it.class != "node" || it.hosts.len() <= 2).collect();
        let (links, others): (Vec<&Accused>, Vec<&Accused>) = named.iter().partition(|it| it.class == "link");
        let mut out: Vec<String> = others.iter().flat_map(|it| it.hosts.clone()).collect();
        for link in links {
            if !link.hosts.iter().any(|it| out.contains(it)) {
                out.extend(link.hosts.last().cloned());
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        out.retain(|it| seen.insert(it.clone()));
        if !out.is_empty() {
            let wrong = self.replay.wrong.iter().filter(|it| !many(it)).count();
            let why = if wrong > 0 && wrong == named.len() { " (wrong results)" } else { "" };
            parts.push(format!("take out {}{why}", out_list(&named_out(&out, self.findings))));
        }
        if crowd > 0 {
            let most = self.replay.wrong.iter().map(|it| it.hosts.len()).max().unwrap_or(0);
            parts.push(format!(
                "wrong results in {} of {}",
                if crowd == 1 { "a run".to_owned() } else { format!("{crowd} kinds of runs") },
                counted(most, "machine")
            ));
        }
        if let Some(split) = self.splits.iter().min_by(|a, b| a.share.total_cmp(&b.share)) {
            parts.push(split.sentence());
        }
        parts
    }
}
