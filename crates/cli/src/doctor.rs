//! `plumb doctor`: reads the logs of a job, diagnoses it and writes the result.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use report::{Doctor, Evidence, Options, Redactor, Style};
use rules::{Level, Log};

use crate::args::{self, Colour, FailOn, Format};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, fleet, input, output, texts};

pub(crate) fn run(args: &args::Doctor, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    if !output::formats_fit(&args.format, &args.output) {
        return Ok(UNDECIDED);
    }
    let Some(paths) = paths(args) else {
        complain(
            "error: no input: give a log file or a folder, or pipe a log to standard input\nhint: plumb doctor rank0.log",
        );
        return Ok(UNDECIDED);
    };
    if !args.output.is_empty() && !output::spares(&args.output, &input::files(&paths), args.redact) {
        return Ok(UNDECIDED);
    }
    let hardware = match args.hardware.read() {
        Ok(hardware) => hardware,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    let training = match args.training.read() {
        Ok(training) => training,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    // What almost every log needs, made on another core while the files are opened.
    let _ = thread::Builder::new().spawn(evidence::prepare);
    let inputs = input::read(&paths);
    let tally = inputs.case.sources.tally();
    let log = Log::on(inputs.case, &hardware);
    let setups = setups(&log.setup(), &inputs.piped);
    let log = log.with_setups(setups).with_training(training);
    let diagnosis = diagnose(&log);
    // Host names are not replaced in it.
    let fleet = if args.redact { None } else { fleet::of_case(&log.case, &log.job) };
    let mut doctor = Doctor::new(&log, &diagnosis, Options { matrix: args.matrix });
    if let Some(price) = args.training.price_per_hour {
        report::charge(&mut doctor.findings, price);
    }
    let mut landmarks = Landmarks::new();
    for it in &inputs.landmarks {
        let (file, line) = log.case.sources.locate(it.spot);
        landmarks.entry(file.to_owned()).or_default().insert(line, it.byte);
    }
    // The case can be large, and the process is about to exit: do not free it.
    std::mem::forget(log);
    fill_in(&mut doctor, &landmarks);
    // A core dump or an image among the logs is skipped and does not affect the result.
    let left_out = [evidence::BINARY, input::OWN_REPORT];
    let broken = |it: &report::Input| it.problem.as_deref().is_some_and(|it| !left_out.contains(&it));
    let incomplete = !inputs.unreadable.is_empty() || doctor.inputs.iter().any(broken);
    if incomplete {
        doctor.verdict.text.push_str("; part of the input could not be read");
        doctor.verdict.reach.push_str("; part of the input could not be read");
    }
    let mut names = Names(args.redact.then(|| report::redact(&mut doctor)));
    for it in &inputs.left_out {
        complain(&format!("note: {}: {}", names.file(&it.name), names.text(&it.reason)));
    }
    // Nothing to report on: the reason alone.
    let unread = doctor.inputs.is_empty() && !inputs.unreadable.is_empty();
    if unread && args.output.is_empty() && args.format.iter().all(|it| *it == Format::Text) {
        for it in &inputs.unreadable {
            complain(&format!("error: {}: {}", names.file(&it.name), names.text(&it.reason)));
        }
        return Ok(UNDECIDED);
    }
    output::write_all(&args.format, &args.output, out, |format, to_file, mut out| {
        let colour = if to_file { colour == Colour::Always } else { coloured(colour) };
        match &fleet {
            Some(fleet) if format == Format::Text => {
                let style = Style { colour, width: width(), verbose: args.verbose };
                fleet.text(style, &mut out)?;
                report::errors(&doctor, style, &mut out)
            }
            _ => write(&doctor, format, args, colour, &mut out),
        }
    })
    .map_err(|error| names.error(error, &args.output))?;
    // Last, so that it is not scrolled away, and once for each input.
    out.flush()?;
    for it in &inputs.unreadable {
        complain(&format!("error: {}: {}", names.file(&it.name), names.text(&it.reason)));
    }
    let nothing = tally.understood() == 0;
    for it in &doctor.inputs {
        if let Some(problem) = &it.problem {
            let level = if problem.as_str() == input::OWN_REPORT { "note" } else { "warning" };
            complain(&format!("{level}: {}: {problem}", it.file));
        } else if it.lines == 0 {
            complain(&format!("{}: {}: is empty", if nothing { "error" } else { "warning" }, it.file));
        } else if nothing {
            complain(&format!("error: {}: plumb understood no line of it", it.file));
        }
    }
    if nothing {
        if inputs.unreadable.is_empty() && doctor.inputs.is_empty() {
            let given: Vec<String> = paths.iter().take(3).map(|it| names.file(&input::name(it))).collect();
            complain(&format!("error: {}: there is no input", given.join(", ")));
        }
        complain("hint: plumb reads output of PyTorch, DeepSpeed, nccl-tests and NCCL_DEBUG=INFO");
        return Ok(UNDECIDED);
    }
    let bad = fleet.is_some_and(|it| it.is_no_go()) && args.fail_on != FailOn::Never;
    let code = if bad { FINDINGS } else { exit_code(&doctor, args.fail_on) };
    // An input that could not be read may hold errors: the exit code is not 0.
    Ok(if code == CLEAN && incomplete { UNDECIDED } else { code })
}

/// The name of an input, or its alias with `--redact`.
struct Names(Option<Redactor>);

impl Names {
    fn file(&mut self, name: &str) -> String {
        self.0.as_mut().map_or_else(|| name.to_owned(), |it| it.file(name))
    }

    fn text(&mut self, text: &str) -> String {
        self.0.as_mut().map_or_else(|| text.to_owned(), |it| it.text(text))
    }

    /// An error that names an output.
    fn error(&mut self, error: io::Error, outputs: &[PathBuf]) -> io::Error {
        let Some(redactor) = &mut self.0 else { return error };
        let number = |text: String, (i, path): (usize, &PathBuf)| {
            text.replacen(&path.display().to_string(), &format!("output-{}", i + 1), 1)
        };
        let text = outputs.iter().enumerate().fold(error.to_string(), number);
        io::Error::new(error.kind(), redactor.text(&text))
    }
}

/// The given paths, or standard input if it is not a terminal.
fn paths(args: &args::Doctor) -> Option<Vec<PathBuf>> {
    if !args.paths.is_empty() {
        return Some(args.paths.clone());
    }
    (!io::stdin().is_terminal()).then(|| vec![PathBuf::from("-")])
}

fn write(
    doctor: &Doctor,
    format: Format,
    args: &args::Doctor,
    colour: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    match format {
        Format::Text => report::text(doctor, Style { colour, width: width(), verbose: args.verbose }, out),
        Format::Json => report::json(doctor, out),
        Format::Sarif => report::sarif(doctor, out),
        Format::Junit => report::junit(doctor, args.fail_on.severity(), out),
    }
}

pub(crate) fn coloured(colour: Colour) -> bool {
    match colour {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => {
            let choice = anstream::AutoStream::choice(&io::stdout());
            choice != anstream::ColorChoice::Never
        }
    }
}

/// The columns of the terminal or of `COLUMNS`; 100 by default.
pub(crate) fn width() -> usize {
    known_width().unwrap_or(100)
}

/// The same for lists of which a pipe gets one line for each entry.
pub(crate) fn list_width() -> usize {
    known_width().unwrap_or(usize::MAX)
}

fn known_width() -> Option<usize> {
    let given = std::env::var("COLUMNS").ok().and_then(|it| it.parse().ok());
    given.or_else(|| io::stdout().is_terminal().then(terminal_width).flatten())
}

fn terminal_width() -> Option<usize> {
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0).min(120))
}

fn exit_code(doctor: &Doctor, fail_on: FailOn) -> u8 {
    if fail_on.is_reached(&doctor.findings) {
        FINDINGS
    } else if doctor.verdict.level == Level::Unknown {
        UNDECIDED
    } else {
        CLEAN
    }
}

/// The most bytes of a log that are read again for the system that NCCL printed: the setup is at its beginning.
const SETUP: u64 = 32 << 20;

/// The same for all other nodes together.
const OTHER_SETUPS: u64 = 8 << 20;

/// The beginnings of logs up to these lines, the first of them first. Those of other nodes are read where the first has the system that
/// NCCL printed, and where there is not much of them.
fn setups(wanted: &[(&str, u64)], piped: &[u8]) -> Vec<(String, Vec<u8>)> {
    let beginning = |file: &str, last: u64, most: u64| match file {
        "standard input" => texts::lines(piped, last, most),
        file => texts::beginning(file, last, most),
    };
    let Some(&(first, line)) = wanted.first() else { return Vec::new() };
    let Some(text) = beginning(first, line, SETUP) else { return Vec::new() };
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
        let Some(text) = beginning(file, line, left) else { return alone };
        left = left.saturating_sub(text.len() as u64);
        all.push((file.to_owned(), text));
    }
    all
}

/// The rules over the log, on all cores where it has many processes: for few a thread costs more than it saves.
fn diagnose(log: &Log) -> rules::Diagnosis {
    if log.case.processes.len() < 1000 {
        return rules::diagnose(log);
    }
    let threads = thread::available_parallelism().map_or(1, usize::from).min(16);
    let next = AtomicUsize::new(0);
    let work = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let mine = numbers.take_while(|it| *it < rules::all().len());
        mine.filter_map(|it| rules::check(log, it)).collect::<Vec<_>>()
    };
    let judged = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut judged = work();
        for other in others {
            match other.join() {
                Ok(more) => judged.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        judged
    });
    rules::conclude(log, judged)
}

/// For each file, the byte at which some of its lines begin.
type Landmarks = BTreeMap<String, BTreeMap<u64, u64>>;

/// For very large inputs not all lines are kept. Lines that became evidence are read again.
fn fill_in(doctor: &mut Doctor, landmarks: &Landmarks) {
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
        // Reading compressed or piped input again is expensive; its file and line are still shown.
        if !input::is_compressed(Path::new(&file)) {
            let _ = fill_from(Path::new(&file), &mut lines, landmarks.get(&file));
        }
    }
}

fn fill_from(
    path: &Path,
    lines: &mut BTreeMap<u64, Vec<&mut Evidence>>,
    landmarks: Option<&BTreeMap<u64, u64>>,
) -> io::Result<()> {
    let mut file = BufReader::with_capacity(1 << 18, File::open(path)?);
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
