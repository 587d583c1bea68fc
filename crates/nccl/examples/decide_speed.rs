//! How long NCCL's decisions take to compute: `cargo run --release -p nccl --example decide_speed`.
//!
//! Prints the best of several runs for 1,000 nodes of 8 GPUs, and for 16 GPUs without NVLink, where the search ends by its own limit of
//! steps. Times are those of the processor where Linux tells them (`/proc/self/schedstat`), so that other programs do not count. The
//! figures of `docs/benchmarks.md` come from it. A word as argument keeps the rows that have it.

#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::path::Path;
use std::time::{Duration, Instant};

use fabric::machine::Machine;
use fabric::units::GigabitsPerSecond;
use fabric::{Layout, Settings, Version, catalogue};
use nccl::{Job, Prediction};

const RELEASES: [(u16, u16); 5] = [(18, 6), (21, 5), (26, 6), (28, 9), (30, 7)];
const RUNS: usize = 5;

fn main() {
    println!("| job | {} |", RELEASES.map(|(minor, patch)| format!("2.{minor}.{patch}")).join(" | "));
    println!("| --- |{}", " --- |".repeat(RELEASES.len()));
    for (name, machine) in [
        ("p5.48xlarge", named("p5.48xlarge")),
        ("dgx-h100", named("dgx-h100")),
        ("dgx-a100", named("dgx-a100")),
        ("p6e-gb200.36xlarge", named("p6e-gb200.36xlarge")),
    ] {
        let gpus = u32::try_from(machine.gpus.len()).unwrap_or(0);
        row(&format!("1,000 x {gpus} {name}"), &machine, &Layout::new(1, gpus).on(1000));
    }
    let pcie16 = recorded("pcie16");
    for nodes in [1, 2, 8] {
        row(&format!("{nodes} x 16 pcie16"), &pcie16, &Layout::new(1, 16).on(nodes));
    }
}

/// A machine of the catalogue, with the devices that aws-ofi-nccl makes of its NICs.
fn named(name: &str) -> Machine {
    let machine = catalogue::machine(name).unwrap_or_default();
    if catalogue::groups_nics(name) { machine.grouped() } else { machine }
}

/// The machine of `cases/oracle-NAME`.
fn recorded(name: &str) -> Machine {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../cases/oracle-{name}/{name}.xml"));
    let text = std::fs::read(&file).unwrap_or_default();
    let mut machine = evidence::topology::read(&text).map(|it| it.machine).unwrap_or_default();
    for nic in &mut machine.nics {
        nic.rate = nic.rate.or(Some(GigabitsPerSecond(100.0)));
    }
    machine
}

/// What this thread has used of a processor.
fn processor() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn row(name: &str, machine: &Machine, layout: &Layout) {
    if std::env::args().nth(1).is_some_and(|word| !name.contains(&word)) {
        return;
    }
    let cell = |(minor, patch): (u16, u16)| {
        let settings = Settings::new(Version::new(2, minor, patch));
        let once = || -> Option<Duration> {
            let (start, before) = (Instant::now(), processor());
            Prediction::new(&Job::new(machine, layout, &settings)).ok()?;
            let used = before.zip(processor()).map(|(before, after)| after.saturating_sub(before));
            Some(used.unwrap_or_else(|| start.elapsed()))
        };
        let best = (0..RUNS).filter_map(|_| once()).min();
        best.map_or("-".to_owned(), |it| format!("{:.3} s", it.as_secs_f64()))
    };
    println!("| {name} | {} |", RELEASES.map(cell).join(" | "));
}
