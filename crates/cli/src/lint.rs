//! `plumb lint`: checks files before they are submitted, and applies safe changes.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use evidence::submission::Submission;
use evidence::yaml::Trouble;
use report::lint::{Lint, Unread};
use report::{Redactor, Style};
use rules::Edit;
use rules::lint::Given;

use crate::args::{self, Colour, Format};
use crate::mounts::Kernel;
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input, output, page, predict};

pub(crate) fn run(args: &args::Lint, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let paths = files(&args.paths);
    if !output::spares(&args.output, &paths, args.redact) {
        return Ok(UNDECIDED);
    }
    if let Some(page) = page::only(&args.paths, "lint").or_else(|| page::all(&paths, "lint")) {
        if args.redact {
            complain(
                "error: --redact replaces names in an answer from files: give it when the page is written",
            );
            return Ok(UNDECIDED);
        }
        return page::show_all(page, &args.format, &args.output, false, args.fail_on, out);
    }
    let given = match given(&args.hardware) {
        Ok(given) => Given { nccl: args.nccl, plugin: args.plugin, libfabric: args.libfabric, ..given },
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
    let mut inputs = Inputs::read(paths);
    let names = if args.redact { Redactor::all() } else { Redactor::secrets() };
    let mut names = names.of_files(&inputs.files);
    if args.fix || args.diff {
        change(args, &given, &mut inputs, &mut names, out)?;
        if args.diff && !args.fix {
            return Ok(CLEAN);
        }
    }
    let disk = &mut predict::inputs::Disk;
    let mut lint = answer::lint::answer(&inputs.files, &inputs.unread, &given, &training, disk, &mut names);
    if let Some(price) = args.training.price_per_hour {
        report::charge(&mut lint.findings, price);
    }
    for file in &lint.files {
        if let Some(problem) = &file.problem {
            complain(&format!("error: {}:{}:{}: {}", file.file, problem.line, problem.column, problem.text));
        }
    }
    let style = Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: false };
    output::write_all(&args.format, &args.output, out, |format, to_file, mut out| match format {
        Format::Text => {
            report::lint::text(&lint, Style { colour: style.colour && !to_file, ..style }, &mut out)
        }
        Format::Json => lint.json(&mut out),
        Format::Sarif => report::lint::sarif(&lint, &mut out),
        Format::Junit => report::lint::junit(&lint, args.fail_on.severity(), &mut out),
        Format::Html => report::html::write(&lint, &mut out),
    })
    .map(|written| if written { code(args, &lint) } else { UNDECIDED })
}

/// The machine of the flags. Rules about files need one of the catalogue.
pub(crate) fn given(args: &args::Hardware) -> Result<Given, String> {
    let hardware = args.read()?;
    let model = hardware.machine.as_ref().and_then(|it| it.model);
    if let (Some(path), None) = (&args.cluster, model) {
        complain(&format!(
            "note: {} describes a machine that is not in the catalogue: files are checked without a machine",
            input::name(path)
        ));
    }
    Ok(Given { instance: model, gpu: args.gpu, ..Given::default() })
}

fn code(args: &args::Lint, lint: &Lint) -> u8 {
    let unread = lint.files.iter().any(|it| it.problem.is_some());
    if args.fail_on.is_reached(&lint.findings) {
        FINDINGS
    } else if unread {
        UNDECIDED
    } else if lint.is_empty() {
        complain("error: plumb found no manifest, script or setting in the input");
        UNDECIDED
    } else {
        CLEAN
    }
}

/// What was read, in the order it was given.
struct Inputs {
    files: Vec<Submission>,
    /// Where each of `files` comes from.
    paths: Vec<PathBuf>,
    unread: Vec<Unread>,
}

impl Inputs {
    fn read(all: Vec<PathBuf>) -> Self {
        let (mut files, mut paths, mut unread) = (Vec::new(), Vec::new(), Vec::new());
        for path in all {
            match open(&path) {
                Ok(file) => {
                    files.push(file);
                    paths.push(path);
                }
                Err((name, trouble)) => unread.push(Unread { position: files.len(), name, trouble }),
            }
        }
        Self { files, paths, unread }
    }
}

/// The files as given; from folders, those that look like a manifest or a script.
fn files(paths: &[PathBuf]) -> Vec<PathBuf> {
    let kernel = Kernel::mounted();
    let mut all = Vec::new();
    let mut open: Vec<PathBuf> = paths.iter().rev().cloned().collect();
    while let Some(path) = open.pop() {
        if fs::metadata(&path).is_ok_and(|it| it.is_dir() && kernel.holds(&it).is_some()) {
            continue;
        }
        let Ok(entries) = fs::read_dir(&path) else {
            all.push(path);
            continue;
        };
        let mut below: Vec<PathBuf> = entries.filter_map(|it| Some(it.ok()?.path())).collect();
        below.sort();
        for path in below.into_iter().rev() {
            let name = path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
            let link = path.symlink_metadata().is_ok_and(|it| it.is_symlink());
            if (path.is_dir() && !link && !name.starts_with('.')) || answer::lint::is_submitted(&name) {
                open.push(path);
            }
        }
    }
    all
}

pub(crate) fn open(path: &Path) -> Result<Submission, (String, Trouble)> {
    let name = input::name(path);
    match input::open_whole(path) {
        Ok(source) => answer::lint::read(&name, source),
        Err(error) => Err((name, Trouble { line: 1, column: 1, text: error.to_string() })),
    }
}

/// Applies the safe edits until none is left: an edit can enable another.
fn change(
    args: &args::Lint,
    given: &Given,
    inputs: &mut Inputs,
    names: &mut Redactor,
    out: &mut impl Write,
) -> io::Result<()> {
    const ROUNDS: usize = 8;
    let before: Vec<Box<str>> = inputs.files.iter().map(|it| it.text.clone()).collect();
    for _ in 0..ROUNDS {
        let mut edits: Vec<Vec<Edit>> = vec![Vec::new(); inputs.files.len()];
        for it in rules::lint::lint(&inputs.files, given) {
            if let Some(edits) = it.finding.file().and_then(|file| edits.get_mut(file)) {
                edits.extend(it.finding.edits);
            }
        }
        let mut changed = false;
        for (submission, edits) in inputs.files.iter_mut().zip(&edits) {
            let after = rules::lint::apply(&submission.text, edits);
            if after == *submission.text {
                continue;
            }
            // An edit that makes the file unreadable is a bug in plumb: leave the file unchanged.
            let Ok(mut again) = Submission::read(&submission.name, &after) else { continue };
            again.byte_order_mark = submission.byte_order_mark;
            *submission = again;
            changed = true;
        }
        if !changed {
            break;
        }
    }
    for ((it, before), path) in inputs.files.iter().zip(before).zip(&inputs.paths) {
        if it.text == before {
            continue;
        }
        if args.diff {
            let diff = report::lint::diff(&it.name, &before, &it.text);
            let hidden: String = diff.split_inclusive('\n').map(|line| names.text(line)).collect();
            if hidden != diff {
                complain(&format!(
                    "note: {}: secrets{} are replaced in the diff, so it cannot be applied as a patch: --fix changes the file",
                    names.file(&it.name),
                    if args.redact { " and names" } else { "" }
                ));
            }
            write!(out, "{}", output::shown(&hidden))?;
        }
        if args.fix {
            let mark = if it.byte_order_mark { "\u{feff}" } else { "" };
            let text = format!("{mark}{}", it.text);
            if path.as_os_str() == "-" {
                write!(out, "{}", output::shown(&text))?;
            } else {
                output::write_file(path, |out| out.write_all(text.as_bytes()))?;
                complain(&format!("changed {}", path.display()));
            }
        }
    }
    Ok(())
}
