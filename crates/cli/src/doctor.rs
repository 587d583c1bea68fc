//! `plumb doctor`: reads the logs of a job, diagnoses it and writes the result.

use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use answer::doctor::Answer;
use report::{Doctor, Redactor, Style};
use rules::{Level, Log};

use crate::args::{self, Colour, FailOn, Format};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, input, output, page};

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
    let page = page::only(&paths, "doctor").or_else(|| page::all(&input::files(&paths), "doctor"));
    if let Some(page) = page {
        if args.redact {
            complain(
                "error: --redact replaces names in an answer from logs: give it when the page is written",
            );
            return Ok(UNDECIDED);
        }
        return page::show_all(page, &args.format, &args.output, args.verbose, args.fail_on, out);
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
    let asked = answer::doctor::Asked {
        hardware,
        training,
        matrix: args.matrix,
        price_per_hour: args.training.price_per_hour,
        excerpts: args.format.contains(&Format::Html),
        redact: args.redact,
    };
    let answer = answer::doctor::answer(inputs, asked, &input::Disk, diagnose);
    let Answer { doctor, log, unreadable, left_out, understood, incomplete, names, .. } = answer;
    // The case can be large, and the process is about to exit: do not free it.
    std::mem::forget(log);
    let mut names = Names { redactor: names, redact: args.redact };
    for it in &left_out {
        complain(&format!("note: {}: {}", names.file(&it.name), names.text(&it.reason)));
    }
    // Nothing to report on: the reason alone.
    let unread = doctor.inputs.is_empty() && !unreadable.is_empty();
    if unread && args.output.is_empty() && args.format.iter().all(|it| *it == Format::Text) {
        for it in &unreadable {
            complain(&format!("error: {}: {}", names.file(&it.name), names.text(&it.reason)));
        }
        return Ok(UNDECIDED);
    }
    if doctor.fleet.is_some() && args.format.contains(&Format::Sarif) {
        complain(
            "error: these are runs of several machines; the verdict on machines is text, json, junit or html",
        );
        return Ok(UNDECIDED);
    }
    output::write_all(&args.format, &args.output, out, |format, to_file, mut out| {
        let colour = if to_file { colour == Colour::Always } else { coloured(colour) };
        let style = Style { colour, width: width(), verbose: args.verbose };
        write(&doctor, format, args, style, &mut out)
    })
    .map_err(|error| names.error(error, &args.output))?;
    // Last, so that it is not scrolled away, and once for each input.
    out.flush()?;
    for it in &unreadable {
        complain(&format!("error: {}: {}", names.file(&it.name), names.text(&it.reason)));
    }
    let nothing = understood == 0;
    for it in &doctor.inputs {
        if let Some(problem) = &it.problem {
            let level = if answer::read::is_own(problem) { "note" } else { "warning" };
            complain(&format!("{level}: {}: {problem}", it.file));
        } else if it.lines == 0 {
            complain(&format!("{}: {}: is empty", if nothing { "error" } else { "warning" }, it.file));
        } else if nothing {
            complain(&format!("error: {}: plumb understood no line of it", it.file));
        }
    }
    if nothing {
        if unreadable.is_empty() && doctor.inputs.is_empty() {
            let given: Vec<String> = paths.iter().take(3).map(|it| names.file(&input::name(it))).collect();
            complain(&format!("error: {}: there is no input", given.join(", ")));
        }
        complain("hint: plumb reads output of PyTorch, DeepSpeed, nccl-tests and NCCL_DEBUG=INFO");
        return Ok(UNDECIDED);
    }
    let code = exit_code(&doctor, args.fail_on);
    // An input that could not be read may hold errors: the exit code is not 0.
    Ok(if code == CLEAN && incomplete { UNDECIDED } else { code })
}

/// The name of an input, or its alias with `--redact`.
struct Names {
    redactor: Redactor,
    redact: bool,
}

impl Names {
    fn file(&mut self, name: &str) -> String {
        self.redactor.file(name)
    }

    fn text(&mut self, text: &str) -> String {
        self.redactor.text(text)
    }

    /// An error that names an output.
    fn error(&mut self, error: io::Error, outputs: &[PathBuf]) -> io::Error {
        if !self.redact {
            return error;
        }
        let number = |text: String, (i, path): (usize, &PathBuf)| {
            text.replacen(&path.display().to_string(), &format!("output-{}", i + 1), 1)
        };
        let text = outputs.iter().enumerate().fold(error.to_string(), number);
        io::Error::new(error.kind(), self.redactor.text(&text))
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
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    match format {
        Format::Text => report::text(doctor, style, out),
        Format::Json => report::json(doctor, out),
        Format::Sarif => report::sarif(doctor, out),
        Format::Junit => report::junit(doctor, args.fail_on.severity(), out),
        Format::Html => report::html::write(doctor, out),
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
    let no_go = doctor.fleet.as_ref().is_some_and(report::Validate::is_no_go) && fail_on != FailOn::Never;
    if no_go || fail_on.is_reached(&doctor.findings) {
        FINDINGS
    } else if doctor.verdict.level == Level::Unknown {
        UNDECIDED
    } else {
        CLEAN
    }
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
