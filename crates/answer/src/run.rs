//! What plumb or nccl-tests wrote about a run, as a run to compare: JSON, or a page that holds it.

use std::io::Read;
use std::path::Path;

use evidence::encoding::Peeked;
use fabric::Collective;
use report::html::{BROWSER_PAGE, Kept, is_browser_page, is_page};
use rules::compare::{Measured, Quantity, Recorded};
use serde_json::Value;

use crate::expect::LONGEST;
use crate::files::limited;

/// The largest page or JSON of plumb that is read.
const MOST: u64 = 64 << 20;

/// What an answer says about a run.
#[derive(Debug, Default)]
pub struct Answered {
    /// Bandwidths.
    pub measured: Vec<Measured>,
    /// Facts and figures.
    pub recorded: Recorded,
}

/// What a file says, if it is the JSON of nccl-tests or an answer of plumb; none where it is something else. The error says why an answer
/// is not a run.
pub fn answered(name: &str, source: Box<dyn Read + '_>) -> Option<Result<Answered, String>> {
    let source = Peeked::new(source, 1024).ok()?;
    if is_browser_page(source.head()) {
        return Some(Err(format!("{BROWSER_PAGE}, not a log")));
    }
    let page = is_page(source.head());
    let json = Path::new(name).extension().is_some_and(|it| it == "json");
    if !page && !json {
        return None;
    }
    let own = page || memchr::memmem::find(source.head(), b"\"plumb.").is_some();
    let text = match limited(source, if own { MOST } else { LONGEST }) {
        Ok(text) => text,
        Err(reason) => return own.then_some(Err(reason)),
    };
    let text = match page.then(|| Kept::read(&text)) {
        None => text,
        Some(Ok(kept)) => kept.json,
        Some(Err(error)) => return Some(Err(error.to_string())),
    };
    if let Ok(record) = bench::read(&text) {
        return of_bench(&record).map(Ok);
    }
    let value: Value = serde_json::from_str(&text).ok()?;
    let command = value["schema"].as_str()?.strip_prefix("plumb.")?.split('/').next()?;
    Some(match command {
        "doctor" => Ok(of_doctor(&value)),
        "predict" => Ok(of_predict(&value)),
        "validate" => Ok(of_validate(&value)),
        other => Err(format!(
            "is a report of plumb {other}, which says nothing about one run: give logs, or reports (JSON or HTML) of plumb bench, doctor, predict or validate"
        )),
    })
}

fn of_bench(record: &bench::Record) -> Option<Answered> {
    let collective: Collective = record.collective.parse().ok()?;
    let rows = record.results.iter().filter_map(|it| {
        let timing = it.out_of_place.as_ref().or(it.in_place.as_ref())?;
        let rate = timing.bus_bandwidth;
        let at = |microseconds: f64| rate * timing.time_us / microseconds;
        let samples = timing.samples_us.iter().copied().filter(|it| it.is_finite() && *it > 0.0);
        let (short, long) = (samples.clone().fold(f64::MAX, f64::min), samples.clone().fold(0.0, f64::max));
        let spread = (samples.count() > 1).then(|| (at(long), at(short)));
        Some(Measured { collective, size: it.bytes, rate, spread })
    });
    Some(Answered { measured: rows.collect(), ..Answered::default() })
}

/// Collects facts and figures.
#[derive(Default)]
struct Collected(Recorded);

impl Collected {
    fn fact(&mut self, name: &str, value: &Value) {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return,
        };
        self.0.facts.push((name.to_owned(), value));
    }

    fn figure(&mut self, quantity: Quantity, value: Option<f64>, how: Option<&str>) {
        self.0.figures.extend(value.map(|it| (quantity, it, how.map(str::to_owned))));
    }
}

fn of_doctor(answer: &Value) -> Answered {
    let mut all = Collected::default();
    let facts = &answer["facts"];
    let (job, stack, training) = (&facts["job"], &facts["stack"], &facts["training"]);
    let state = &answer["outcome"]["state"];
    if !matches!(state.as_str(), Some("unknown" | "running")) {
        all.fact("ended", state);
    }
    for (name, value) in [("machine", &job["instance"]), ("nodes", &job["nodes"]), ("ranks", &job["ranks"])] {
        all.fact(name, value);
    }
    if let Some([Value::String(network)]) = job["networks"].as_array().map(Vec::as_slice) {
        let network = if network.contains("TCP") && !network.contains("GPUDirect") { "TCP" } else { network };
        all.fact("between nodes", &network.into());
        if network != "TCP" {
            let direct = job["gpudirect_connections"].as_u64().unwrap_or_default() > 0;
            all.fact("GPUDirect", &(if direct { "yes" } else { "no" }).into());
        }
    }
    if let Some(inside) = job["inside"].as_object().filter(|it| it.len() == 1) {
        let path = if inside.contains_key("SHM") { "SHM, through host memory" } else { "P2P" };
        all.fact("inside a node", &path.into());
    }
    // A log names the build too, as in 2.28.9+cuda13.0.
    let release = |it: &Value| it.as_str().and_then(|it| it.split('+').next()).into();
    all.fact("NCCL", &release(&stack["nccl"]));
    all.fact("libfabric", &release(&stack["libfabric"]));
    for it in facts["environment"].as_array().into_iter().flatten() {
        if let (Some(name), Some(value)) = (it["name"].as_str(), it["value"].as_str()) {
            all.0.variables.push((name.to_owned(), value.to_owned()));
        }
    }
    let step = training["mean_step_ms"].as_f64().map(|it| it / 1e3);
    all.figure(Quantity::Step, step, Some("mean of all steps, as plumb doctor reported it"));
    all.figure(Quantity::Run, training["runtime_seconds"].as_f64(), None);
    all.figure(Quantity::GpuMemory, training["gpu_memory_max_gb"].as_f64(), None);
    all.figure(Quantity::HostMemory, training["host_memory_max_percent"].as_f64(), None);
    let test = |it: &Value| {
        Some(Measured {
            collective: it["collective"].as_str()?.parse().ok()?,
            size: it["largest_bytes"].as_u64()?,
            rate: it["largest_busbw"].as_f64()?,
            spread: None,
        })
    };
    let tests = facts["tests"].as_array().into_iter().flatten().filter_map(test);
    Answered { measured: tests.collect(), recorded: all.0 }
}

fn of_predict(answer: &Value) -> Answered {
    const PREDICTED: Option<&str> = Some("predicted by plumb predict");
    let mut all = Collected::default();
    all.fact("ranks", &answer["gpus"]);
    all.figure(Quantity::Step, answer["step_time_s"].as_f64(), PREDICTED);
    all.figure(Quantity::Tokens, answer["tokens_per_s"].as_f64(), PREDICTED);
    all.figure(Quantity::Run, answer["total_time_s"].as_f64(), PREDICTED);
    let memory = answer["memory_gib"]["total"].as_f64().map(|it| it * f64::from(1 << 30) / 1e9);
    all.figure(Quantity::GpuMemory, memory, PREDICTED);
    Answered { measured: Vec::new(), recorded: all.0 }
}

/// Of a fleet, what most of its runs reach.
fn of_validate(answer: &Value) -> Answered {
    let mut all = Collected::default();
    let tests = || answer["tests"].as_array().into_iter().flatten();
    if let Some(first) = tests().next() {
        all.fact("GPU", &first["gpu"]);
        all.fact("NCCL", &first["nccl"]);
    }
    let measured = tests().filter_map(|it| {
        Some(Measured {
            collective: it["name"].as_str()?.split_whitespace().next()?.parse().ok()?,
            size: it["bytes"].as_u64()?,
            rate: it["normal_GBps"].as_f64()?,
            spread: None,
        })
    });
    Answered { measured: measured.collect(), recorded: all.0 }
}

/// The seconds that a line of a note gives a run of this name: `* EFA - 2441.04s (41 minutes)`, `| efa | 2441 s |`, `efa: 2441 s`.
pub fn noted(text: &str, run: &str) -> Option<f64> {
    let seconds = |line: &str| {
        let line = line.trim_start_matches([' ', '\t', '*', '-', '+', '|']);
        let rest = line
            .get(run.len()..)
            .filter(|_| line.get(..run.len()).is_some_and(|it| it.eq_ignore_ascii_case(run)))?;
        let number = rest.trim_start_matches([' ', '\t', '-', ':', '=', '|', '\u{2013}']);
        let end = number.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(number.len());
        let unit = number.get(end..)?.trim_start();
        let length = unit.find(|it: char| !it.is_ascii_alphabetic()).unwrap_or(unit.len());
        let known = matches!(unit.get(..length)?, "s" | "sec" | "secs" | "second" | "seconds");
        let value = number.get(..end)?.parse::<f64>().ok()?;
        (known && number.len() < rest.len() && value.is_finite() && value > 0.0).then_some(value)
    };
    (!run.is_empty()).then(|| text.lines().find_map(seconds))?
}

/// The longest file that is looked at for such a line.
pub const NOTE: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::noted;

    #[test]
    fn a_note_gives_the_time_of_a_run() {
        let notes =
            "### results ###\n* EFA - 2441.04s (about 41 minutes)\n* ENI - 5408.85s\n| p4d | 310 s |\n";
        assert_eq!(
            ["efa", "eni", "p4d"].map(|it| noted(notes, it)),
            [Some(2441.04), Some(5408.85), Some(310.0)]
        );
        for other in ["ef", "fa", "p4", "results", ""] {
            assert_eq!(noted(notes, other), None, "{other}");
        }
        for line in ["efa 3 samples", "efa - s", "efa2441s", "efa: 3 steps", "efa: 1.2.3 s", "efa: 0 s"] {
            assert_eq!(noted(line, "efa"), None, "{line}");
        }
    }
}
