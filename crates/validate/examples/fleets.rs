//! How often the search is right, over random fleets: `cargo run --release -p validate --example fleets [FLEETS]` prints the table of
//! docs/validation.md.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "prints a table")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]

use validate::simulate::{Model, Spec};
use validate::{Class, Culprit, Host, Limits, Verdict};

#[derive(Default, Clone, Copy)]
struct Count {
    fleets: usize,
    exact: usize,
    missed: usize,
    false_: usize,
    inconclusive: usize,
    launches: usize,
    most: usize,
}

/// The next number of a sequence that is the same every time.
fn next(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) as f64) / f64::from(1_u32 << 31)
}

fn fleet(kind: &str, number: u64) -> (Spec, Vec<Culprit>) {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234;
    for _ in 0..4 {
        next(&mut state);
    }
    let nodes = (8.0 * 125_f64.powf(next(&mut state))) as usize;
    let mut spec = Spec { nodes, seed: number + 1, ..Spec::default() };
    let noisy = kind.starts_with("noisy");
    spec.noise = if noisy { 0.03 + 0.03 * next(&mut state) } else { 0.005 + 0.015 * next(&mut state) };
    spec.dips = if noisy { 0.1 * next(&mut state) } else { 0.0 };
    let host = |state: &mut u64| Host((next(state) * nodes as f64) as usize);
    let mut bad = Vec::new();
    match kind {
        "quiet, one slow" | "noisy, one slow" => {
            let it = host(&mut state);
            spec.slow.push((it, 0.3 + 0.55 * next(&mut state)));
            bad.push(Culprit::Host(it));
        }
        "quiet, up to 10 % slow" | "noisy, up to 10 % slow" => {
            let many = 1 + (next(&mut state) * nodes as f64 / 10.0) as usize;
            while bad.len() < many {
                let it = host(&mut state);
                if !bad.contains(&Culprit::Host(it)) {
                    spec.slow.push((it, 0.3 + 0.55 * next(&mut state)));
                    bad.push(Culprit::Host(it));
                }
            }
        }
        "quiet, one NIC" => {
            let it = host(&mut state);
            let nic = (next(&mut state) * 8.0) as usize;
            spec.nic.push((it, nic, 0.0));
            bad.push(Culprit::Nic(it, nic));
        }
        "quiet, slow at times" => {
            let it = host(&mut state);
            spec.flaky.push((it, 0.6, 0.5));
            bad.push(Culprit::Host(it));
        }
        "quiet, one switch of 16" => {
            spec.leaf = 16;
            spec.nodes = nodes.max(48);
            spec.tier.push((1, 0.6));
            bad.push(Culprit::Group(1));
        }
        _ => {}
    }
    bad.sort();
    (spec, bad)
}

fn main() {
    let fleets = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(1000_u64);
    println!(
        "| fleets of 8 to 1,000 machines | exact | INCONCLUSIVE | missed | false | launches: mean | most |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for kind in [
        "quiet, healthy",
        "quiet, one slow",
        "quiet, up to 10 % slow",
        "quiet, one NIC",
        "quiet, slow at times",
        "quiet, one switch of 16",
        "noisy, healthy",
        "noisy, one slow",
        "noisy, up to 10 % slow",
    ] {
        let mut count = Count::default();
        for number in 0..fleets {
            let (spec, bad) = fleet(kind, number);
            let validation = Model::new(spec.clone()).run(Limits::default(), |_, _| {});
            let mut named: Vec<Culprit> = validation.findings().iter().map(|it| it.culprit).collect();
            named.sort();
            let verdict = validation.verdict();
            let right_class = kind != "quiet, slow at times"
                || validation.findings().iter().all(|it| it.class == Class::Intermittent);
            count.fleets += 1;
            count.launches += validation.launches();
            count.most = count.most.max(validation.launches());
            let expected = if bad.is_empty() { Verdict::Go } else { Verdict::NoGo };
            let wrong = named.iter().any(|it| !bad.contains(it));
            if wrong {
                count.false_ += 1;
                if std::env::var_os("SHOW").is_some() {
                    let wrong: Vec<_> =
                        validation.findings().into_iter().filter(|it| !bad.contains(&it.culprit)).collect();
                    eprintln!(
                        "{kind} {number}: nodes {} noise {:.3} dips {:.3} bad {} false {wrong:?}",
                        spec.nodes,
                        spec.noise,
                        spec.dips,
                        bad.len()
                    );
                }
            } else if verdict == Verdict::Inconclusive {
                count.inconclusive += 1;
            } else if named == bad && verdict == expected && right_class {
                count.exact += 1;
            } else {
                count.missed += 1;
                if std::env::var_os("SHOW").is_some() {
                    eprintln!(
                        "{kind} {number}: missed nodes {} noise {:.3} dips {:.3} named {named:?} bad {bad:?} {verdict:?}",
                        spec.nodes, spec.noise, spec.dips
                    );
                }
            }
        }
        let percent = |it: usize| format!("{:.1} %", 100.0 * it as f64 / count.fleets as f64);
        println!(
            "| {kind} | {} | {} | {} | {} | {:.1} | {} |",
            percent(count.exact),
            percent(count.inconclusive),
            percent(count.missed),
            percent(count.false_),
            count.launches as f64 / count.fleets as f64,
            count.most
        );
    }
}
