//! How often the search is right, over random fleets: `cargo run --release -p validate --example fleets [FLEETS [KIND [FIRST]]]` prints the
//! table of docs/validation.md. KIND is a part of the names of kinds. FIRST is the number of the first fleet: another range has other
//! fleets, so that what was tuned on one is tested on another. `SHOW=1` prints every fleet that was not judged right.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "prints a table")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]

use std::sync::atomic::{AtomicU64, Ordering};

use validate::simulate::{Model, Spec};
use validate::{Class, Culprit, Host, Limits, Search, Verdict};

/// How a fleet was judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The right parts with the right class and verdict.
    Exact,
    /// The right parts, as NODE with the remark that the measurements do not tell always from at times.
    ClassOpen,
    Inconclusive,
    /// GO, or fewer parts than are bad, or another class.
    Missed,
    /// A healthy part was named.
    False,
}

/// The next number of a sequence that is the same every time.
fn next(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) as f64) / f64::from(1_u32 << 31)
}

const KINDS: [&str; 35] = [
    "quiet, healthy",
    "quiet, one slow of 100",
    "quiet, one slow",
    "quiet, up to 10 % slow",
    "quiet, two slow in one pair",
    "quiet, up to 10 % fail",
    "quiet, one NIC",
    "quiet, one NIC at half rate",
    "quiet, one of 32 NICs at half rate",
    "quiet, one rail",
    "quiet, one link of 8 to 16",
    "quiet, one link of 17 to 100",
    "quiet, one loses packets",
    "quiet, one switch of 16",
    "quiet, unlike: a third reaches half",
    "quiet, slow at times",
    "noisy, healthy",
    "noisy, one slow",
    "noisy, up to 10 % slow",
    "noisy, up to 10 % fail",
    "noisy, one switch of 16",
    "noisy, far values, one slow",
    "noisy, far values, up to 10 % slow",
    "noise of 10 %, healthy",
    "noise of 10 %, one slow",
    "noise of 10 %, up to 10 % slow",
    "noise of 15 %, healthy",
    "noise of 15 %, one slow",
    "noise of 15 %, up to 10 % slow",
    "quiet and few, healthy",
    "quiet and few, one slow",
    "noisy and few, healthy",
    "noisy and few, one slow",
    "noise of 10 % and few, healthy",
    "noise of 10 % and few, one slow",
];

fn fleet(kind: &str, number: u64) -> (Spec, Vec<Culprit>) {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234;
    for _ in 0..4 {
        next(&mut state);
    }
    let mut nodes = (8.0 * 125_f64.powf(next(&mut state))) as usize;
    let (level, rest) = kind.split_once(", ").unwrap_or((kind, ""));
    let (tails, fault) = rest.strip_prefix("far values, ").map_or((0, rest), |it| (3, it));
    match fault {
        "one slow of 100" => nodes = 100,
        "one link of 8 to 16" => nodes = 8 + (9.0 * next(&mut state)) as usize,
        "one link of 17 to 100" => nodes = 17 + (84.0 * next(&mut state)) as usize,
        "one switch of 16" => nodes = nodes.max(48),
        _ => {}
    }
    let (level, few) = level.strip_suffix(" and few").map_or((level, false), |it| (it, true));
    if few {
        nodes = 3 + (5.0 * next(&mut state)) as usize;
    }
    let mut spec = Spec { nodes, tails, seed: number + 1, ..Spec::default() };
    let quiet = level == "quiet";
    let share = next(&mut state);
    spec.noise = match level {
        "quiet" => 0.005 + 0.015 * share,
        "noisy" => 0.03 + 0.03 * share,
        "noise of 10 %" => 0.1,
        _ => 0.15,
    };
    spec.dips = if quiet { 0.0 } else { 0.1 * next(&mut state) };
    let host = |state: &mut u64| Host((next(state) * nodes as f64) as usize);
    let some = |state: &mut u64, many: usize| {
        let mut hosts: Vec<Host> = Vec::new();
        while hosts.len() < many {
            let it = host(state);
            if !hosts.contains(&it) {
                hosts.push(it);
            }
        }
        hosts
    };
    let mut bad = Vec::new();
    match fault {
        "one slow" | "one slow of 100" => {
            let it = host(&mut state);
            spec.slow.push((it, 0.3 + 0.55 * next(&mut state)));
            bad.push(Culprit::Host(it));
        }
        "up to 10 % slow" => {
            let many = 1 + (next(&mut state) * nodes as f64 / 10.0) as usize;
            for it in some(&mut state, many) {
                spec.slow.push((it, 0.3 + 0.55 * next(&mut state)));
                bad.push(Culprit::Host(it));
            }
        }
        "two slow in one pair" => {
            // The first round is the same for every fleet of this size.
            let fleet = Model::new(spec.clone()).fleet();
            let pairs = Search::new(fleet, Limits::default()).next().unwrap_or_default();
            let pair = pairs[(next(&mut state) * pairs.len() as f64) as usize];
            for it in pair.hosts() {
                spec.slow.push((it, 0.3 + 0.55 * next(&mut state)));
                bad.push(Culprit::Host(it));
            }
        }
        "up to 10 % fail" => {
            let many = 1 + (next(&mut state) * nodes as f64 / 10.0) as usize;
            spec.dead = some(&mut state, many);
            bad.extend(spec.dead.iter().copied().map(Culprit::Host));
        }
        "one NIC" | "one NIC at half rate" | "one of 32 NICs at half rate" => {
            let it = host(&mut state);
            spec.nics = if fault == "one of 32 NICs at half rate" { 32 } else { 8 };
            let nic = (next(&mut state) * spec.nics as f64) as usize;
            spec.nic.push((it, nic, if fault == "one NIC" { 0.0 } else { 0.5 }));
            bad.push(Culprit::Nic(it, nic));
        }
        "one rail" => {
            let nic = (next(&mut state) * spec.nics as f64) as usize;
            spec.rail.push((nic, 0.75 * next(&mut state)));
            bad.push(Culprit::Rail(nic));
        }
        "one loses packets" => {
            let it = host(&mut state);
            spec.loss.push((it, it, 0.01 + 0.04 * next(&mut state)));
            spec.congestion = 0.001 * next(&mut state);
            bad.push(Culprit::Host(it));
        }
        "one link of 8 to 16" | "one link of 17 to 100" => {
            let pair = some(&mut state, 2);
            spec.link.push((pair[0], pair[1], 0.3 + 0.5 * next(&mut state)));
            bad.push(Culprit::Link(validate::Pair::new(pair[0], pair[1])));
        }
        "slow at times" => {
            let it = host(&mut state);
            spec.flaky.push((it, 0.6, 0.5));
            bad.push(Culprit::Host(it));
        }
        "one switch of 16" => {
            spec.leaf = 16;
            spec.tier.push((1, 0.6));
            bad.push(Culprit::Group(1));
        }
        "unlike: a third reaches half" => {
            spec.slow = some(&mut state, nodes / 3).into_iter().map(|it| (it, 0.5)).collect();
            bad.extend(spec.slow.iter().map(|it| Culprit::Host(it.0)));
        }
        _ => {}
    }
    bad.sort();
    (spec, bad)
}

fn outcome(kind: &str, number: u64) -> (Outcome, usize) {
    let (spec, bad) = fleet(kind, number);
    let validation = Model::new(spec.clone()).run(Limits::default(), |_, _| {});
    let findings = validation.findings();
    let mut named: Vec<Culprit> = findings.iter().map(|it| it.culprit).collect();
    named.sort();
    let verdict = validation.verdict();
    let expected = if bad.is_empty() { Verdict::Go } else { Verdict::NoGo };
    let at_times = kind.ends_with("slow at times");
    let class = |it: &validate::Finding| (it.class == Class::Intermittent) == at_times;
    let outcome = match () {
        () if named.iter().any(|it| !bad.contains(it)) => Outcome::False,
        () if bad.is_empty() && verdict == Verdict::NoGo => Outcome::False,
        () if verdict == Verdict::Inconclusive => Outcome::Inconclusive,
        () if named != bad || verdict != expected => Outcome::Missed,
        () if findings.iter().all(class) => Outcome::Exact,
        () if findings.iter().all(|it| class(it) || !it.class_is_sure()) => Outcome::ClassOpen,
        () => Outcome::Missed,
    };
    if !matches!(outcome, Outcome::Exact | Outcome::ClassOpen) && std::env::var_os("SHOW").is_some() {
        let what = match outcome {
            Outcome::False => "FALSE",
            Outcome::Missed => "MISSED",
            _ => "INCONCLUSIVE",
        };
        let wrong: Vec<_> = findings.iter().filter(|it| !bad.contains(&it.culprit)).collect();
        eprintln!(
            "{what} {kind} {number}: {} machines noise {:.3} dips {:.3} bad {} named {} rounds {} launches {} all {:?} without {:?} open {} verdict {verdict:?} wrong {wrong:?}",
            spec.nodes,
            spec.noise,
            spec.dips,
            bad.len(),
            named.len(),
            validation.search().rounds(),
            validation.launches(),
            validation.all(),
            validation.without(),
            validation.open().len(),
        );
    }
    (outcome, validation.launches())
}

fn main() {
    let fleets = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(1000_u64);
    let only = std::env::args().nth(2).unwrap_or_default();
    let first = std::env::args().nth(3).and_then(|it| it.parse().ok()).unwrap_or(0_u64);
    println!(
        "| fleets of 8 to 1,000 machines; few: 3 to 7 | exact | class open | INCONCLUSIVE | missed | false | launches: mean | most |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for kind in KINDS.into_iter().filter(|it| it.contains(&only)) {
        let at = AtomicU64::new(first);
        let work = || {
            let numbers = std::iter::repeat_with(|| at.fetch_add(1, Ordering::Relaxed));
            numbers.take_while(|it| *it < first + fleets).map(|it| outcome(kind, it)).collect::<Vec<_>>()
        };
        let all: Vec<(Outcome, usize)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().flat_map(|it| it.join().unwrap_or_default()).collect()
        });
        let percent = |outcome: Outcome| {
            let count = all.iter().filter(|it| it.0 == outcome).count();
            format!("{:.1} %", 100.0 * count as f64 / all.len() as f64)
        };
        println!(
            "| {kind} | {} | {} | {} | {} | {} | {:.1} | {} |",
            percent(Outcome::Exact),
            percent(Outcome::ClassOpen),
            percent(Outcome::Inconclusive),
            percent(Outcome::Missed),
            percent(Outcome::False),
            all.iter().map(|it| it.1).sum::<usize>() as f64 / all.len() as f64,
            all.iter().map(|it| it.1).max().unwrap_or(0)
        );
    }
}
