//! `plumb doctor`: a case to its diagnosis.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};

use report::{Doctor, Evidence, Options, Redactor};
use rules::{Diagnosis, Log};
use serde_json::Value;

use crate::excerpts::excerpts;
use crate::packed::{self, is_compressed};
use crate::read::{Inputs, Unreadable, is_own};
use crate::{Files, beginning, fleet, lines};

/// What flags say.
#[derive(Debug, Default)]
pub struct Asked {
    /// The machine, where the input does not say it.
    pub hardware: job::Hardware,
    /// The tables of a job file.
    pub training: Value,
    /// Every connection of every communicator.
    pub matrix: bool,
    /// The price of one node for an hour.
    pub price_per_hour: Option<f64>,
    /// The lines around those that are evidence, for a page.
    pub excerpts: bool,
    /// Replace host names, addresses and paths. Secrets are always replaced.
    pub redact: bool,
}

/// The diagnosis of a job, and what is said beside it.
#[derive(Debug)]
pub struct Answer {
    /// What is shown.
    pub doctor: Doctor,
    /// What it was made from.
    pub log: Log,
    /// Where lines of large files begin.
    pub landmarks: Landmarks,
    /// What could not be read at all.
    pub unreadable: Vec<Unreadable>,
    /// What was left out on purpose, and why.
    pub left_out: Vec<Unreadable>,
    /// How many lines were understood.
    pub understood: u64,
    /// Part of the input could not be read.
    pub incomplete: bool,
    /// What was replaced, for messages beside the answer.
    pub names: Redactor,
}

/// Diagnoses a job. `diagnose` runs the rules: [`rules::diagnose`], or the same on several threads.
pub fn answer(
    inputs: Inputs,
    asked: Asked,
    files: &dyn Files,
    diagnose: impl FnOnce(&Log) -> Diagnosis,
) -> Answer {
    let Inputs { case, unreadable, left_out, kept } = inputs;
    let understood = case.sources.tally().understood();
    let log = Log::on(case, &asked.hardware);
    let setups = setups(files, &log.setup(), &kept.piped);
    let log = log.with_setups(setups).with_training(asked.training);
    let diagnosis = diagnose(&log);
    let fleet = fleet::of_case(&log.case, &log.job);
    let mut doctor = Doctor::new(&log, &diagnosis, Options { matrix: asked.matrix });
    if let Some(price) = asked.price_per_hour {
        report::charge(&mut doctor.findings, price);
    }
    let mut landmarks = Landmarks::new();
    for it in &kept.landmarks {
        let (file, line) = log.case.sources.locate(it.spot);
        landmarks.entry(file.to_owned()).or_default().insert(line, it.byte);
    }
    fill_in(&mut doctor, files, &landmarks);
    // A core dump or an image among the logs is skipped and does not affect the result.
    let broken =
        |it: &report::Input| it.problem.as_deref().is_some_and(|it| it != evidence::BINARY && !is_own(it));
    let incomplete = !unreadable.is_empty() || doctor.inputs.iter().any(broken);
    if incomplete {
        doctor.mark_incomplete();
    }
    if asked.excerpts {
        doctor.excerpts = excerpts(&doctor, files, &landmarks);
    }
    let names = if asked.redact { report::redact(&mut doctor) } else { report::mask(&mut doctor) };
    // Names of hosts are not replaced in it.
    if let Some(fleet) = fleet.filter(|_| !asked.redact) {
        doctor.judge_fleet(fleet);
        if incomplete {
            doctor.mark_incomplete();
        }
    }
    Answer { doctor, log, landmarks, unreadable, left_out, understood, incomplete, names }
}

/// The most bytes of a log that are read again for the system that NCCL printed: the setup is at its beginning.
const SETUP: u64 = 32 << 20;

/// The same for all other nodes together.
const OTHER_SETUPS: u64 = 8 << 20;

/// The beginnings of logs up to these lines, the first of them first. Those of other nodes are read where the first has the system that
/// NCCL printed, and where there is not much of them.
fn setups(files: &dyn Files, wanted: &[(&str, u64)], piped: &[u8]) -> Vec<(String, Vec<u8>)> {
    let first_lines = |file: &str, last: u64, most: u64| match file {
        "standard input" => lines(piped, last, most),
        file => beginning(files, file, last, most),
    };
    let Some(&(first, line)) = wanted.first() else { return Vec::new() };
    let Some(text) = first_lines(first, line, SETUP) else { return Vec::new() };
    let alone = vec![(first.to_owned(), text)];
    if memchr::memmem::find(&alone[0].1, b"=== System").is_none() {
        return alone;
    }
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for (file, line) in wanted {
        let known = last.entry(file).or_default();
        *known = (*known).max(*line);
    }
    let mut left = OTHER_SETUPS;
    let mut all = Vec::new();
    for (file, line) in last {
        let Some(text) = first_lines(file, line, left) else { return alone };
        left = left.saturating_sub(text.len() as u64);
        all.push((file.to_owned(), text));
    }
    all
}

/// For each file, the byte at which some of its lines begin.
pub type Landmarks = BTreeMap<String, BTreeMap<u64, u64>>;

/// For very large inputs not all lines are kept. Lines that became evidence are read again.
fn fill_in(doctor: &mut Doctor, files: &dyn Files, landmarks: &Landmarks) {
    let mut wanted: BTreeMap<String, BTreeMap<u64, Vec<&mut Evidence>>> = BTreeMap::new();
    let findings = doctor.findings.iter_mut().flat_map(|it| it.evidence.iter_mut());
    let checks = doctor.checks.iter_mut().filter_map(|it| it.evidence.as_mut());
    let environment = doctor.facts.environment.iter_mut().map(|it| &mut it.evidence);
    let failure = doctor.facts.first_failure.iter_mut().map(|it| &mut it.evidence);
    for evidence in findings
        .chain(checks)
        .chain(environment)
        .chain(failure)
        .filter(|it| it.text.is_empty() && it.line > 0)
    {
        wanted.entry(evidence.file.clone()).or_default().entry(evidence.line).or_default().push(evidence);
    }
    for (file, mut lines) in wanted {
        let _ = fill_from(files, &file, &mut lines, landmarks.get(&file));
    }
}

fn fill_from(
    files: &dyn Files,
    name: &str,
    lines: &mut BTreeMap<u64, Vec<&mut Evidence>>,
    landmarks: Option<&BTreeMap<u64, u64>>,
) -> io::Result<()> {
    let mut file = BufReader::with_capacity(1 << 18, files.open(name)?);
    // Reading compressed or piped input again is expensive; its file and line are still shown.
    if is_compressed(file.fill_buf()?.get(..packed::MAGIC).unwrap_or_default()) {
        return Ok(());
    }
    // The number of the line that begins where the reader is.
    let mut number = 1;
    let mut buffer = Vec::new();
    while let Some((&next, _)) = lines.first_key_value() {
        let near = landmarks.and_then(|it| it.range(..=next).next_back());
        if let Some((&line, &byte)) = near.filter(|it| *it.0 > number) {
            file.seek(SeekFrom::Start(byte - 1))?;
            // A file in another encoding has its lines elsewhere.
            let mut before = [0];
            file.read_exact(&mut before)?;
            if before != *b"\n" {
                return Ok(());
            }
            number = line;
        }
        let block = file.fill_buf()?;
        if block.is_empty() {
            break;
        }
        // Most lines are between those that are wanted: they are counted, not read.
        let length = block.len();
        let skipped = line_ends(block);
        if number + skipped < next {
            number += skipped;
            file.consume(length);
            continue;
        }
        buffer.clear();
        file.read_until(b'\n', &mut buffer)?;
        if number == next {
            let text = String::from_utf8_lossy(&buffer);
            for evidence in lines.remove(&next).unwrap_or_default() {
                evidence.text = text.trim_end().chars().take(600).collect();
            }
        }
        number += u64::from(buffer.ends_with(b"\n"));
    }
    Ok(())
}

/// How many lines end in `block`. Sums of few bytes fit into a byte, which compilers make fast code of.
fn line_ends(block: &[u8]) -> u64 {
    block.chunks(128).map(|it| u64::from(it.iter().map(|it| u8::from(*it == b'\n')).sum::<u8>())).sum()
}
