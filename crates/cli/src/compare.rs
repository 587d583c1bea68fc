//! `plumb compare`: runs side by side.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use answer::compare::{Beside, Given};
use report::{Compare, Style};
use rules::Log;

use crate::args::{self, Colour, CompareFormat, FailOn};
use crate::{CLEAN, UNDECIDED, complain, doctor, input, page, predict};

pub(crate) fn run(args: &args::Compare, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    if let Some(read) = page::only(&args.runs, "compare") {
        let form = match args.format {
            CompareFormat::Text => page::Form::Text { verbose: args.verbose },
            CompareFormat::Json => page::Form::Json,
            CompareFormat::Html => page::Form::Html,
            CompareFormat::Markdown => {
                complain("error: a report is shown again as text, json or html");
                return Ok(UNDECIDED);
            }
        };
        return page::show(read, form, FailOn::Error, out);
    }
    if args.runs.len() < 2 {
        complain("error: plumb compare needs two runs or more\nhint: plumb compare efa/ eni/");
        return Ok(UNDECIDED);
    }
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
        CompareFormat::Html => report::html::write(&compare, out)?,
    }
    if let Some(reason) = &compare.not_comparable {
        out.flush()?;
        complain(&format!("error: {reason}"));
        return Ok(UNDECIDED);
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
    if let Some((one, other)) = twice(&args.runs) {
        return Err(format!("{} and {} are the same run", input::name(one), input::name(other)));
    }
    let names = names(&args.runs);
    let took = took(args, &names)?;
    let given: Result<Vec<Given>, String> =
        args.runs.iter().zip(&names).map(|(it, name)| read(args, it, name)).collect();
    Ok(answer::compare::answer(&names, &given?, &took, &job_file, baseline))
}

fn names(runs: &[PathBuf]) -> Vec<String> {
    answer::compare::names(&runs.iter().map(|it| input::name(&written_out(it))).collect::<Vec<_>>())
}

/// A path without `.` and `..`, which name no run. Links keep their names.
fn written_out(path: &Path) -> PathBuf {
    if path.as_os_str() == "-" {
        return path.to_path_buf();
    }
    let mut out = PathBuf::new();
    for part in std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

/// The times of whole runs that flags give, in the order of the runs.
fn took(args: &args::Compare, names: &[String]) -> Result<Vec<Option<f64>>, String> {
    let is = |at: usize, name: &str| args.runs.get(at).is_some_and(|it| same(it, Path::new(name)));
    answer::compare::took(args.took.iter().map(String::as_str), names, is)
        .map_err(|reason| format!("--took {reason}"))
}

/// Reads the run that is called `name`.
fn read(args: &args::Compare, path: &Path, name: &str) -> Result<Given, String> {
    let mut beside = Beside::default();
    let mut others = Vec::new();
    for file in input::files(&[path.to_path_buf()]) {
        let regular = std::fs::metadata(&file).is_ok_and(|it| it.is_file());
        if regular && let Ok(source) = File::open(&file) {
            match beside.look(&input::name(&file), Box::new(source)) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(it) if file == path => return Err(format!("{}: {}", it.name, it.reason)),
                // In a folder it may be beside the logs.
                Err(it) => {
                    complain(&format!("note: {}: {}: left out", it.name, it.reason));
                    continue;
                }
            }
            // What is wrong with an archive is said where it is read for logs.
            let packed = input::each_member(&file, &mut |it| beside.look_inside(it)).is_some();
            let short = std::fs::metadata(&file).is_ok_and(|it| it.len() <= answer::run::NOTE);
            if short
                && !packed
                && let Ok(source) = File::open(&file)
            {
                beside.note(name, Box::new(source));
            }
        }
        others.push(file);
    }
    if beside.is_empty() {
        others = vec![path.to_path_buf()];
    }
    let inputs = input::read(&others);
    for it in &inputs.left_out {
        complain(&format!("note: {}: {}", it.name, it.reason));
    }
    if let Some(it) = inputs.unreadable.first() {
        return Err(format!("{}: {}", it.name, it.reason));
    }
    Ok(beside.with(Log::on(inputs.case, &args.hardware.read()?)))
}

/// Two names of one run.
fn twice(runs: &[PathBuf]) -> Option<(&PathBuf, &PathBuf)> {
    runs.iter().enumerate().find_map(|(at, one)| {
        runs.iter().skip(at + 1).find(|other| same(one, other)).map(|other| (one, other))
    })
}

/// Whether two paths are the same run.
fn same(one: &Path, other: &Path) -> bool {
    one == other
        || one.canonicalize().ok().zip(other.canonicalize().ok()).is_some_and(|(one, other)| one == other)
}
