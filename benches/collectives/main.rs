//! Compares the collective engine with its peers on the same machine in the same run.
//!
//! `cargo bench --bench collectives` installs Open MPI, MPICH, Intel MPI and PyTorch's gloo (`benches/peers`), runs
//! `all_reduce` of float sums on each and on plumb's engine, and prints the tables of `docs/benchmarks.md`.
//! `-- --quick` takes fewer sizes and repetitions, `-- --json FILE` keeps every figure, `-- --only shm-2` takes one
//! case, `-- --peers` leaves plumb out.
//!
//! A repetition starts every engine of a case afresh. Then, size by size, each has its turn while the others sleep,
//! so that whatever else the machine does meets them all. Ratios are of medians over the batches of all repetitions.
//! The limits of the machine are measured in between. Nothing asserts a time.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes, counts and times are far from the limits of their types, and printed with three digits"
)]

mod case;
mod engine;
mod figures;
mod limits;
mod load;
mod peers;
mod rank;
mod table;

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use case::{Case, Effort};

struct Arguments {
    quick: bool,
    peers_alone: bool,
    only: Option<String>,
    json: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some("rank") {
        return rank::serve(words);
    }
    let arguments = arguments(std::env::args().skip(1))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let peers = peers::install(&root)?;
    let effort = if arguments.quick { Effort::QUICK } else { Effort::FULL };

    let mut out = std::io::stdout();
    writeln!(out, "{}\n", table::machine(&peers.versions))?;
    let mut results = Vec::new();
    for case in case::all(&peers, arguments.peers_alone) {
        if arguments.only.as_ref().is_some_and(|it| it != case.name) {
            continue;
        }
        let result = measure(case, &effort)?;
        writeln!(out, "{}", table::markdown(&result))?;
        out.flush()?;
        results.push(result);
    }
    if let Some(path) = arguments.json {
        std::fs::write(path, format!("{:#}\n", table::json(&peers.versions, &results)))?;
    }
    Ok(())
}

fn measure(case: Case, effort: &Effort) -> Result<figures::Figures, Box<dyn Error>> {
    let mut figures = figures::Figures::new(case, effort);
    for repetition in 1..=effort.repetitions {
        writeln!(
            std::io::stderr(),
            "{}: repetition {repetition} of {}",
            figures.case.name,
            effort.repetitions
        )?;
        figures.repeat(effort)?;
    }
    Ok(figures)
}

fn arguments(words: impl Iterator<Item = String>) -> Result<Arguments, Box<dyn Error>> {
    let mut arguments = Arguments { quick: false, peers_alone: false, only: None, json: None };
    let mut words = words;
    while let Some(word) = words.next() {
        match word.as_str() {
            // Cargo passes this to every benchmark.
            "--bench" => {}
            "--quick" => arguments.quick = true,
            "--peers" => arguments.peers_alone = true,
            "--only" => arguments.only = Some(words.next().ok_or("--only CASE")?),
            "--json" => arguments.json = Some(words.next().ok_or("--json FILE")?.into()),
            _ => {
                return Err(
                    format!("unknown option `{word}`: --quick, --peers, --only CASE, --json FILE").into()
                );
            }
        }
    }
    Ok(arguments)
}
