//! What each stage found.

use std::collections::BTreeSet;

use ::validate::live::{Engine, Launch as Launched, Run};
use ::validate::{Culprit, Step, Usual};

use super::{Beside, Unfit, launched};
use crate::hosts::compact;
use crate::text::counted;
use crate::validate::failures::{self, Failure};
use crate::validate::{Stage, bandwidth};

pub(super) fn stages(run: &Run, beside: &Beside, unreachable: &[Unfit], failed: &[Failure]) -> Vec<Stage> {
    let total = run.plan().hosts.len();
    let mut all = vec![reach(run, total, unreachable), node(run, &beside.nodes)];
    for (number, name) in [(2, "local"), (3, "smoke"), (4, "all"), (5, "localise"), (6, "without")] {
        all.push(measured(run, number, name, failed));
    }
    all.push(logs(run));
    all
}

fn stage(number: usize, name: &'static str, verdict: &'static str, text: impl Into<String>) -> Stage {
    Stage { number, name, verdict, text: text.into() }
}

fn reach(run: &Run, total: usize, unreachable: &[Unfit]) -> Stage {
    let answered = run.reached().values().filter(|it| it.failed.is_none()).count();
    let verdict = match () {
        () if run.reached().is_empty() => "not run",
        () if unreachable.is_empty() => "ok",
        () => "failed",
    };
    let names: Vec<&str> = unreachable.iter().map(|it| it.host.as_str()).collect();
    let not = match &names[..] {
        [] => String::new(),
        [one] => format!("; {one} does not"),
        several => format!("; {} do not", compact(several)),
    };
    let clocks: Vec<f64> = run.reached().values().filter_map(|it| it.clock_s).map(f64::abs).collect();
    let worst = clocks.iter().copied().fold(0.0, f64::max);
    let clock =
        if clocks.is_empty() { String::new() } else { format!(", clocks within {}", short_time(worst)) };
    stage(0, "reach", verdict, format!("{answered} of {total} machines answer{clock}{not}"))
}

/// `4 ms`, `1.3 s`.
fn short_time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", (seconds * 1e3).ceil()) } else { format!("{seconds:.1} s") }
}

fn node(run: &Run, unfit: &[Unfit]) -> Stage {
    let probed = run.nodes().values().filter(|it| it.facts.is_some()).count();
    if run.nodes().is_empty() {
        return stage(1, "node", "not run", "");
    }
    let answer = run.reached().values().filter(|it| it.failed.is_none()).count();
    let seen = if probed < answer {
        format!("{probed} of {} looked at", counted(answer, "machine"))
    } else {
        format!("{} looked at", counted(probed, "machine"))
    };
    let mut bad: Vec<String> = unfit.iter().filter(|it| it.blocks).map(|it| it.host.clone()).collect();
    bad.dedup();
    if bad.is_empty() {
        let verdict = if probed < answer { "open" } else { "ok" };
        stage(1, "node", verdict, format!("{seen}: nothing stands in the way"))
    } else {
        let are = if bad.len() == 1 { "is" } else { "are" };
        let should = if bad.len() == 1 { "it" } else { "they" };
        let text = format!("{seen}: {} {are} not as {should} should be", compact(&bad));
        stage(1, "node", "failed", text)
    }
}

fn measured(run: &Run, number: usize, name: &'static str, failed: &[Failure]) -> Stage {
    let part = |step: &str| match name {
        "all" => matches!(step, "scale" | "all"),
        "localise" => matches!(step, "pairs" | "nics"),
        other => step == other,
    };
    let belongs = |step: &Step| part(step.name());
    let failed: Vec<Failure> = failed.iter().filter(|it| part(it.stage)).cloned().collect();
    let own: Vec<&Launched> = run.launches().iter().filter(|it| belongs(&it.step)).collect();
    let Some(last) = own.last() else {
        let ended = run.validation().is_some_and(|it| it.next().is_none());
        return match (ended, number) {
            (true, 5 | 6) => stage(number, name, "not needed", ""),
            _ => stage(number, name, "not run", ""),
        };
    };
    if name == "localise" {
        return pairs(run, &own, &failed);
    }
    let line = launched(run, last);
    // What failed earlier, and was not the last launch.
    let earlier: Vec<Failure> =
        failed.into_iter().filter(|it| !line.failures.contains(&it.sentence())).collect();
    let bad = run.validation().is_some_and(|it| {
        name == "local"
            && it.findings().iter().any(|it| it.partners == 0 && matches!(it.culprit, Culprit::Host(_)))
    });
    let now = line.result.starts_with("failed");
    let verdict = if now || !earlier.is_empty() {
        "failed"
    } else if line.ok && !bad {
        "ok"
    } else {
        "low"
    };
    let reasons = match &line.failures[..] {
        [only] if now => format!(" ({only})"),
        _ => String::new(),
    };
    let earlier =
        if earlier.is_empty() { String::new() } else { format!("{}; ", failures::sentence(&earlier)) };
    stage(number, name, verdict, format!("{earlier}{}: {}{reasons}", line.what, line.result))
}

fn pairs(run: &Run, own: &[&Launched], failures: &[Failure]) -> Stage {
    let Some(validation) = run.validation() else { return stage(5, "localise", "not run", "") };
    let samples = validation.search().samples();
    let reference = validation.search().judgement().reference;
    // What failed was not slow.
    let ended = samples.iter().filter(|it| it.rate.is_some());
    let slow = ended.filter(|it| reference.is_none_or(|known| known.is_slow(it.rate.map(|it| it.0)))).count();
    let failed = samples.iter().filter(|it| it.rate.is_none()).count();
    let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
    let rounds = own.iter().filter(|it| matches!(it.step, Step::Pairs(_) | Step::Nics(_))).count();
    let normal = reference.map(|it| format!(", normal {}", bandwidth(it.normal))).unwrap_or_default();
    let found = validation.findings();
    let named = found.iter().any(|it| it.partners > 0);
    let verdict = match () {
        () if named || validation.split().is_some() => "found",
        () if !failures.is_empty() => "failed",
        () if !validation.open().is_empty() => "open",
        () => "ok",
    };
    let shares = || samples.iter().filter_map(|it| it.resent).map(|[one, other]| one.max(other));
    let lossy = Usual::of(shares()).map_or(0, |usual| shares().filter(|it| usual.is_lossy(*it)).count());
    let lossy = if lossy == 0 { String::new() } else { format!(", {lossy} with lost packets") };
    let different = samples.iter().map(|it| it.pair).collect::<BTreeSet<_>>().len();
    let measured = if different < samples.len() {
        format!("{} of {}", counted(samples.len(), "measurement"), counted(different, "pair"))
    } else {
        counted(different, "pair")
    };
    let text = format!("{measured} in {}{normal}; {slow} slow{failed}{lossy}", counted(rounds, "round"));
    stage(5, "localise", verdict, text)
}

fn logs(run: &Run) -> Stage {
    match (run.logs(), run.chosen().map(|it| it.engine)) {
        (Some(it), _) => stage(
            7,
            "logs",
            if it.ok { "ok" } else { "found" },
            format!("NCCL's log of {} machines: {}", it.ranks, it.text),
        ),
        (None, Some(Engine::Host)) => {
            stage(7, "logs", "does not apply", "NCCL was not used: the host-memory engine has no such log")
        }
        _ => stage(7, "logs", "not run", ""),
    }
}
