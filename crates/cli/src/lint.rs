//! `plumb lint`: reads what is to be submitted, judges it, and changes what is safe to change.

use std::fs;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use evidence::submission::Submission;
use evidence::yaml::Trouble;
use report::Style;
use report::lint::Lint;
use rules::lint::{Edit, Given};

use crate::args::{self, Colour, FailOn, Format};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input, output};

/// More of a file is not read: no manifest is as long.
const MOST: u64 = 64 << 20;

pub(crate) fn run(args: &args::Lint, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let paths = files(&args.paths);
    if !output::spares(&args.output, &paths, false) {
        return Ok(UNDECIDED);
    }
    let mut read: Vec<Result<Submission, (String, Trouble)>> = paths.iter().map(|it| open(it)).collect();
    let given = Given {
        nccl: args.nccl,
        plugin: args.plugin,
        libfabric: args.libfabric,
        instance: args.instance.clone(),
    };
    if args.fix || args.diff {
        change(args, &given, &mut read, &paths, out)?;
        if args.diff && !args.fix {
            return Ok(CLEAN);
        }
    }
    let submissions: Vec<Submission> = read.iter().filter_map(|it| it.as_ref().ok().cloned()).collect();
    let found = rules::lint::lint(&submissions, &given);
    let mut next = submissions.iter();
    let outcomes: Vec<Result<&Submission, (String, Trouble)>> = read
        .iter()
        .filter_map(|it| match it {
            Ok(_) => next.next().map(Ok),
            Err(error) => Some(Err(error.clone())),
        })
        .collect();
    let lint = Lint::new(&outcomes, &found);
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
        Format::Junit => report::lint::junit(&lint, &mut out),
    })
    .map(|written| if written { code(args, &lint) } else { UNDECIDED })
}

fn code(args: &args::Lint, lint: &Lint) -> u8 {
    let counted: &[&str] = match args.fail_on {
        FailOn::Never => &[],
        FailOn::Error => &["error"],
        FailOn::Warning => &["error", "warning"],
        FailOn::Info => &["error", "warning", "info"],
    };
    let unread = lint.files.iter().any(|it| it.problem.is_some());
    let nothing = lint
        .files
        .iter()
        .all(|it| it.pods + it.settings + it.launches == 0 && it.kind.as_deref() == Some("other"));
    if counted.iter().any(|it| lint.count(it) > 0) {
        FINDINGS
    } else if unread {
        UNDECIDED
    } else if nothing {
        complain("error: nothing in the input is a manifest, a script or a setting that plumb knows");
        UNDECIDED
    } else {
        CLEAN
    }
}

/// Files as they are; of folders, what looks like a manifest or a script.
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

/// Applies the safe edits until there are none left, which a few rounds reach: an edit can uncover another.
fn change(
    args: &args::Lint,
    given: &Given,
    read: &mut [Result<Submission, (String, Trouble)>],
    paths: &[PathBuf],
    out: &mut impl Write,
) -> io::Result<()> {
    const ROUNDS: usize = 8;
    let before: Vec<Option<Box<str>>> =
        read.iter().map(|it| it.as_ref().ok().map(|it| it.text.clone())).collect();
    for _ in 0..ROUNDS {
        let submissions: Vec<Submission> = read.iter().filter_map(|it| it.as_ref().ok().cloned()).collect();
        let found = rules::lint::lint(&submissions, given);
        let mut changed = false;
        let mut number = 0;
        for it in read.iter_mut() {
            let Ok(submission) = it else { continue };
            let edits: Vec<Edit> = found
                .iter()
                .filter(|it| it.flaw.file == number)
                .flat_map(|it| it.flaw.edits.iter().cloned())
                .collect();
            number += 1;
            let after = rules::lint::apply(&submission.text, &edits);
            if after == *submission.text {
                continue;
            }
            // An edit that breaks the file would be a mistake of ours: leave the file as it is.
            let Ok(mut again) = Submission::read(&submission.name, &after) else { continue };
            again.byte_order_mark = submission.byte_order_mark;
            *submission = again;
            changed = true;
        }
        if !changed {
            break;
        }
    }
    for ((it, before), path) in read.iter().zip(before).zip(paths) {
        let (Ok(it), Some(before)) = (it, before) else { continue };
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
