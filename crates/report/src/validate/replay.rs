//! Runs that others made.

use std::collections::BTreeMap;

use ::validate::replay::{Judged, Replay, Set};
use ::validate::{Culprit, Finding, Reference, Sample, Verdict};

use super::simulated::{accused, named_out, open};
use super::{Accused, Matrix, Normal, Split, Test, Validate, list, percent, word};
use crate::expect::shown;
use crate::text::bytes;

impl Validate {
    /// Judges runs of nccl-tests, each kind by itself, with what is normal for each beside it.
    pub fn replayed(replay: &Replay, files: usize, normal: impl Fn(&Set) -> Option<Normal>) -> Self {
        let fleet = &replay.fleet;
        let names = |hosts: &[::validate::Host]| {
            hosts.iter().map(|it| fleet.name(*it).to_owned()).collect::<Vec<_>>()
        };
        let mut accusations: BTreeMap<Culprit, Vec<(String, Finding)>> = BTreeMap::new();
        let mut splits = Vec::new();
        let mut tests = Vec::new();
        let mut not_known = Vec::new();
        let mut best: Option<(usize, Matrix)> = None;
        for set in &replay.sets {
            let name = name(set);
            let reference = Reference::of(set.runs.iter().filter_map(|it| it.rate).map(|it| it.0));
            let slow = set
                .runs
                .iter()
                .filter(|it| reference.is_none_or(|known| known.is_slow(it.rate.map(|it| it.0))))
                .count();
            let rates: Vec<f64> = set.runs.iter().filter_map(|it| it.rate).map(|it| it.0).collect();
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
                    not_known
                        .extend(open(fleet, &judgement.open).into_iter().map(|it| format!("{name}: {it}")));
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
                all.first().map(|it| accused(fleet, &it.1, tests))
            })
            .collect();
        super::alike(&mut findings, fleet.len());
        if let Some(unknown) = tests.iter().find(|it| it.expected.is_none()) {
            not_known.push(format!(
                "what {} should reach: the output does not say which machines and which network (--instance NAME)",
                unknown.name
            ));
        }
        if !replay.sets.iter().any(|it| it.hosts == fleet.len() && fleet.len() > 2) {
            not_known
                .push(format!("what all {} machines reach together: no run has all of them", fleet.len()));
        }
        if replay.unnamed > 0 {
            not_known.push(format!("{} runs: their output does not name the machines", replay.unnamed));
        }
        let verdict =
            if findings.is_empty() && splits.is_empty() { Verdict::Inconclusive } else { Verdict::NoGo };
        let runs: usize = replay.sets.iter().map(|it| it.runs.len()).sum();
        Self {
            schema: "plumb.validate/1",
            verdict: word(verdict),
            text: headline(&findings, &splits, &tests, fleet.len()),
            source: source(runs, files, fleet.len(), &tests),
            hosts: fleet.names().to_vec(),
            findings,
            splits,
            stages: Vec::new(),
            next: None,
            notes: Vec::new(),
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

/// `alltoall of 16 GiB, 8 GPUs each, pairs`.
fn name(set: &Set) -> String {
    let program = set.program.trim_end_matches("_perf");
    let machines = match set.hosts {
        1 => "one machine".to_owned(),
        2 => "pairs".to_owned(),
        more => format!("{more} machines"),
    };
    let gpus = if set.gpus == 1 { "1 GPU" } else { &format!("{} GPUs", set.gpus) };
    format!("{program} of {}, {gpus} each, {machines}", bytes(set.bytes))
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
    format!("{runs} runs of nccl-tests in {files} files, {machines} machines{gpus}{releases}")
}

fn headline(findings: &[Accused], splits: &[Split], tests: &[Test], machines: usize) -> String {
    let mut parts = Vec::new();
    let (links, others): (Vec<&Accused>, Vec<&Accused>) = findings.iter().partition(|it| it.class == "link");
    let mut out: Vec<String> = others.iter().flat_map(|it| it.hosts.clone()).collect();
    for link in links {
        if !link.hosts.iter().any(|it| out.contains(it)) {
            out.extend(link.hosts.last().cloned());
        }
    }
    if !out.is_empty() {
        parts.push(format!("NO-GO: take out {}", list(&named_out(&out, findings), 8)));
    }
    if let Some(split) = splits.iter().min_by(|a, b| a.share.total_cmp(&b.share)) {
        let sizes: Vec<String> = split.groups.iter().map(|it| it.len().to_string()).collect();
        let text = format!(
            "the machines fall into groups of {}: pairs across them reach {} of pairs inside",
            sizes.join(" and "),
            percent(split.share)
        );
        parts.push(if parts.is_empty() { format!("NO-GO: {text}") } else { text });
    }
    // Every machine below what it should reach: then none is slower than the others.
    let low = tests.iter().find_map(|it| {
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
    });
    if let (true, Some(low)) = (parts.is_empty(), &low) {
        return format!(
            "INCONCLUSIVE: none of {machines} machines is slower than the others, but all are slow: {low}"
        );
    }
    parts.extend(low);
    if parts.is_empty() {
        return format!(
            "INCONCLUSIVE: none of {machines} machines is slower than the others, and nothing says what they should reach together"
        );
    }
    parts.join("; ")
}
