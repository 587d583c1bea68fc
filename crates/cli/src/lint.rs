//! `plumb lint`: checks files before they are submitted, and applies safe changes.

use std::fs;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use evidence::submission::{Kind, Submission};
use evidence::yaml::Trouble;
use report::Style;
use report::lint::{Lint, Unread};
use rules::Edit;
use rules::lint::Given;
use serde_json::Value;

use crate::args::{self, Colour, Format};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input, output, predict};

/// The largest file that is read.
const MOST: u64 = 64 << 20;

pub(crate) fn run(args: &args::Lint, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let paths = files(&args.paths);
    if !output::spares(&args.output, &paths, false) {
        return Ok(UNDECIDED);
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
    if args.fix || args.diff {
        change(args, &given, &mut inputs, out)?;
        if args.diff && !args.fix {
            return Ok(CLEAN);
        }
    }
    let found = rules::lint::lint_training(&inputs.files, &given, |file| {
        file.map_or_else(|| training.clone(), |file| submitted(file, &training))
    });
    let mut lint = Lint::new(&inputs.files, &inputs.unread, &found);
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
    })
    .map(|written| if written { code(args, &lint) } else { UNDECIDED })
}

/// The training job that a file submits, with what the job file says otherwise.
fn submitted(file: &Submission, job_file: &Value) -> Value {
    let mut tables = predict::inputs::of_submission(&file.name, &file.text);
    overlay(&mut tables, job_file);
    tables
}

/// Puts the values of one table into another.
fn overlay(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                overlay(under.entry(key.as_str()).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (under, over) => *under = over.clone(),
    }
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
    let nothing =
        lint.files.iter().all(|it| it.pods + it.settings + it.launches == 0 && it.kind == Some(Kind::Other));
    if args.fail_on.is_reached(&lint.findings) {
        FINDINGS
    } else if unread {
        UNDECIDED
    } else if nothing {
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
    const NAMES: [&str; 7] = ["yaml", "yml", "json", "sh", "sbatch", "slurm", "env"];
    let mut all = Vec::new();
    let mut open: Vec<PathBuf> = paths.iter().rev().cloned().collect();
    while let Some(path) = open.pop() {
        let Ok(entries) = fs::read_dir(&path) else {
            all.push(path);
            continue;
        };
        let mut below: Vec<PathBuf> = entries.filter_map(|it| Some(it.ok()?.path())).collect();
        below.sort();
        for path in below.into_iter().rev() {
            let extension =
                path.extension().map(|it| it.to_string_lossy().to_lowercase()).unwrap_or_default();
            let name = path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
            let link = path.symlink_metadata().is_ok_and(|it| it.is_symlink());
            if (path.is_dir() && !link && !name.starts_with('.'))
                || NAMES.contains(&extension.as_str())
                || name.starts_with("Dockerfile")
            {
                open.push(path);
            }
        }
    }
    all
}

pub(crate) fn open(path: &Path) -> Result<Submission, (String, Trouble)> {
    let name = input::name(path);
    let failed = |text: String| (name.clone(), Trouble { line: 1, column: 1, text });
    let mut bytes = Vec::new();
    let source = input::open_whole(path).map_err(|error| failed(error.to_string()))?;
    source.take(MOST + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > MOST {
        return Err(failed(format!("more than {} MiB", MOST >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = error.utf8_error().valid_up_to();
        let line = error.as_bytes().iter().take(before).filter(|it| **it == b'\n').count() + 1;
        (name.clone(), Trouble { line, column: 1, text: "is not UTF-8".to_owned() })
    })?;
    if text.trim().is_empty() {
        return Err(failed("is empty".to_owned()));
    }
    Submission::read(&name, &text).map_err(|trouble| (name.clone(), trouble))
}

/// Applies the safe edits until none is left: an edit can enable another.
fn change(args: &args::Lint, given: &Given, inputs: &mut Inputs, out: &mut impl Write) -> io::Result<()> {
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
            write!(out, "{}", output::shown(&report::lint::diff(&it.name, &before, &it.text)))?;
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
