//! `plumb compare`: runs side by side.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fabric::Collective;
use report::{Compare, Style};
use rules::Log;
use rules::compare::{Comparison, Measured, Run};

use crate::args::{self, Colour, CompareFormat};
use crate::{CLEAN, UNDECIDED, complain, doctor, expect, input, predict};

pub(crate) fn run(args: &args::Compare, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let compare = match compared(args) {
        Ok(it) => it,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    match args.format {
        CompareFormat::Text => compare.text(
            Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: args.verbose },
            out,
        )?,
        CompareFormat::Json => compare.json(out)?,
        CompareFormat::Markdown => compare.markdown(out)?,
    }
    Ok(CLEAN)
}

fn compared(args: &args::Compare) -> Result<Compare, String> {
    let job_file = args.job.as_deref().map(predict::from::job_file).transpose()?.unwrap_or_default();
    let baseline = match &args.baseline {
        None => 0,
        Some(wanted) => args.runs.iter().position(|it| same(it, wanted)).ok_or_else(|| {
            let all: Vec<String> = args.runs.iter().map(|it| input::name(it)).collect();
            format!("--baseline {}: is none of the runs: {}", input::name(wanted), all.join(", "))
        })?,
    };
    let names = names(&args.runs);
    let given: Result<Vec<Given>, String> = args.runs.iter().map(|it| Given::read(args, it)).collect();
    let given = given?;
    let took = took(args, &names)?;
    let runs: Vec<Run<'_>> = given
        .iter()
        .zip(&names)
        .zip(took)
        .map(|((it, name), took)| Run {
            name,
            log: &it.log,
            job_file: &job_file,
            measured: &it.measured,
            took,
        })
        .collect();
    let comparison = Comparison::of(&runs, baseline);
    if !comparison.is_comparable() {
        return Err(format!(
            "{}: no two of these runs have a measurement in common: plumb compares times of training steps and runs, memory, and bandwidths of nccl-tests or plumb bench",
            names.join(", ")
        ));
    }
    Ok(Compare::new(&comparison))
}

/// The times of whole runs that flags give, in the order of the runs.
fn took(args: &args::Compare, names: &[String]) -> Result<Vec<Option<f64>>, String> {
    let mut all = vec![None; names.len()];
    for text in &args.took {
        let read = || {
            let (name, seconds) = text.rsplit_once('=')?;
            let seconds = seconds.trim().trim_end_matches('s').parse::<f64>().ok()?;
            Some((name.trim(), Some(seconds).filter(|it| it.is_finite() && *it > 0.0)?))
        };
        let Some((name, seconds)) = read() else {
            return Err(format!(
                "--took {text}: write RUN=SECONDS, as in {}=2441",
                names.first().map_or("efa", |it| it)
            ));
        };
        let given = |(at, it): (usize, &String)| {
            it == name || args.runs.get(at).is_some_and(|it| same(it, Path::new(name)))
        };
        let at = names.iter().enumerate().position(given);
        match at.and_then(|it| all.get_mut(it)) {
            Some(slot) => *slot = Some(seconds),
            None => return Err(format!("--took {text}: {name} is none of the runs: {}", names.join(", "))),
        }
    }
    Ok(all)
}

/// One run that was read.
struct Given {
    log: Log,
    measured: Vec<Measured>,
}

impl Given {
    fn read(args: &args::Compare, path: &Path) -> Result<Self, String> {
        let mut measured = Vec::new();
        let mut others = Vec::new();
        for file in input::files(&[path.to_path_buf()]) {
            match record(&file) {
                Some(found) => measured.extend(found),
                None => others.push(file),
            }
        }
        if measured.is_empty() {
            others = vec![path.to_path_buf()];
        }
        let inputs = input::read(&others);
        for it in &inputs.left_out {
            complain(&format!("note: {}: {}", it.name, it.reason));
        }
        if let Some(it) = inputs.unreadable.first() {
            return Err(format!("{}: {}", it.name, it.reason));
        }
        Ok(Self { log: Log::on(inputs.case, &args.hardware.read()?), measured })
    }
}

/// What the JSON of `plumb bench` or of nccl-tests measured; none where the file is something else.
fn record(path: &Path) -> Option<Vec<Measured>> {
    if path.extension().is_none_or(|it| it != "json") {
        return None;
    }
    let record = bench::read(&expect::read_text(path).ok()?).ok()?;
    let collective: Collective = record.collective.parse().ok()?;
    let rows = record.results.iter().filter_map(|it| {
        let timing = it.out_of_place.as_ref().or(it.in_place.as_ref())?;
        Some(Measured { collective, size: it.bytes, rate: timing.bus_bandwidth })
    });
    Some(rows.collect())
}

/// The shortest names that tell the runs apart.
fn names(runs: &[PathBuf]) -> Vec<String> {
    let short = |it: &PathBuf| it.file_stem().map(|it| it.to_string_lossy().into_owned());
    let shorts: Vec<Option<String>> = runs.iter().map(short).collect();
    let unique = |it: &Option<String>| shorts.iter().filter(|other| *other == it).count() == 1;
    if shorts.iter().all(|it| it.is_some() && unique(it)) {
        return shorts.into_iter().flatten().map(|it| report::clean(&it)).collect();
    }
    runs.iter().map(|it| input::name(it)).collect()
}

/// Whether two paths are the same run.
fn same(one: &Path, other: &Path) -> bool {
    one == other
        || one.canonicalize().ok().zip(other.canonicalize().ok()).is_some_and(|(one, other)| one == other)
}
