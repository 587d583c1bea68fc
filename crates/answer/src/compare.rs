//! `plumb compare`: runs side by side.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Read, Seek as _, SeekFrom};
use std::path::Path;

use report::{Compare, Redactor};
use rules::Log;
use rules::compare::{Comparison, Measured, Recorded, Run};
use serde_json::Value;

use crate::read::{self, Unreadable};
use crate::run::{self, Answered, answered};
use crate::{Files, archive, text, whole};

/// One run that was read.
#[derive(Debug)]
pub struct Given {
    /// Its logs.
    pub log: Log,
    /// What records of collectives say.
    pub measured: Vec<Measured>,
    /// What answers of plumb say.
    pub recorded: Recorded,
    /// Seconds of the whole run, as a note beside the logs has them.
    pub noted: Option<f64>,
}

/// What the files of a run say besides logs, while they are looked at.
#[derive(Debug, Default)]
pub struct Beside {
    answered: Answered,
    noted: Option<f64>,
}

impl Beside {
    /// Looks at a file; whether it is an answer of plumb or nccl-tests, and so not a log.
    pub fn look(&mut self, name: &str, source: Box<dyn Read + '_>) -> Result<bool, Unreadable> {
        match whole(source).ok().and_then(|it| answered(name, Box::new(it))) {
            None => Ok(false),
            Some(Ok(Answered { measured, recorded })) => {
                self.answered.measured.extend(measured);
                self.answered.recorded.extend(recorded);
                Ok(true)
            }
            Some(Err(reason)) => Err(Unreadable { name: name.to_owned(), reason }),
        }
    }

    /// The same of a file in an archive. What is not a run is left out there.
    pub fn look_inside(&mut self, member: archive::Member<'_>) {
        let _ = self.look(&member.name, Box::new(member.content));
    }

    /// Looks for the time of a run in a short text; `run` is what the run is called.
    pub fn note(&mut self, run: &str, source: Box<dyn Read + '_>) {
        if let (None, Ok(text)) = (self.noted, text(source, run::NOTE)) {
            self.noted = run::noted(&text, run);
        }
    }

    /// Whether nothing was measured and no answer was among the files.
    pub fn is_empty(&self) -> bool {
        self.answered.measured.is_empty() && self.answered.recorded == Recorded::default()
    }

    /// The run of these and its logs.
    pub fn with(self, log: Log) -> Given {
        let Self { answered: Answered { measured, recorded }, noted } = self;
        Given { log, measured, recorded, noted }
    }
}

impl Given {
    /// Reads the files of the run that is called `run`.
    pub fn read(
        files: &dyn Files,
        run: &str,
        names: &[String],
        hardware: &job::Hardware,
    ) -> Result<Self, Unreadable> {
        let (mut beside, mut others) = (Beside::default(), Vec::new());
        for name in names {
            if let Ok(file) = files.open(name) {
                match beside.look(name, Box::new(file)) {
                    Ok(false) => {}
                    Ok(true) => continue,
                    // In a folder it may be beside the logs.
                    Err(_) if names.len() > 1 => continue,
                    Err(it) => return Err(it),
                }
            }
            if let Ok(mut file) = files.open(name) {
                let packed = read::each_member(&mut *file, &mut |it| beside.look_inside(it)).is_some();
                if !packed && file.seek(SeekFrom::End(0)).is_ok_and(|it| it <= run::NOTE) {
                    let _ = file.seek(SeekFrom::Start(0));
                    beside.note(run, Box::new(file));
                }
            }
            others.push(name.clone());
        }
        // What nothing was measured in is read as logs.
        let inputs = read::all(files, if beside.is_empty() { names } else { &others });
        match inputs.unreadable.into_iter().next() {
            Some(it) => Err(it),
            None => Ok(beside.with(Log::on(inputs.case, hardware))),
        }
    }
}

/// Compares runs with the one at `baseline`. `took` are times of whole runs that flags give; `job_file` says of all runs what their
/// files do not.
pub fn answer(
    names: &[String],
    given: &[Given],
    took: &[Option<f64>],
    job_file: &Value,
    baseline: usize,
) -> Compare {
    let runs: Vec<Run<'_>> = given
        .iter()
        .zip(names)
        .zip(took.iter().copied().chain(std::iter::repeat(None)))
        .map(|((it, name), took)| {
            // What the trainer printed counts before a note.
            let printed = it.log.case.training.runtime_seconds.is_some();
            let took = took.or(it.noted.filter(|_| !printed));
            Run { name, log: &it.log, job_file, measured: &it.measured, took, recorded: &it.recorded }
        })
        .collect();
    let comparison = Comparison::of(&runs, baseline);
    let mut compare = Compare::new(&comparison);
    compare.not_comparable = (!comparison.is_comparable()).then(|| {
        let has = compare.measurements.iter().zip(names);
        let what = |has: &[String]| match has {
            [] => "no measurement".to_owned(),
            has => has.join(", "),
        };
        let has: Vec<String> = has.map(|(has, name)| format!("{name} has {}", what(has))).collect();
        format!(
            "no two of these runs have a measurement in common: {}; plumb compares times of training steps and runs, tokens per second, memory, and bandwidths of nccl-tests or plumb bench",
            has.join("; ")
        )
    });
    Redactor::secrets().compare(&mut compare);
    compare
}

/// The times of whole runs that words such as `efa=2441` give, in the order of the runs. `is` tells whether a name is another one of the run
/// at a position.
pub fn took<'a>(
    words: impl IntoIterator<Item = &'a str>,
    names: &[String],
    is: impl Fn(usize, &str) -> bool,
) -> Result<Vec<Option<f64>>, String> {
    let mut all = vec![None; names.len()];
    for text in words {
        let read = || {
            let (name, seconds) = text.rsplit_once('=')?;
            let seconds = seconds.trim().trim_end_matches('s').parse::<f64>().ok()?;
            Some((name.trim(), Some(seconds).filter(|it| it.is_finite() && *it > 0.0)?))
        };
        let Some((name, seconds)) = read() else {
            let first = names.first().map_or("efa", |it| it);
            return Err(format!("{text}: write RUN=SECONDS, as in {first}=2441"));
        };
        let at = names.iter().enumerate().position(|(at, it)| it == name || is(at, name));
        match at.and_then(|it| all.get_mut(it)) {
            Some(slot) => *slot = Some(seconds),
            None => return Err(format!("{text}: {name} is none of the runs: {}", names.join(", "))),
        }
    }
    Ok(all)
}

/// The shortest names that tell the runs apart: of files, else of the folders they are in, else the last parts of their paths, else all of it.
pub fn names(runs: &[String]) -> Vec<String> {
    let clean = |it: &OsStr| report::clean(&it.to_string_lossy());
    let of_file = |it: &String| Path::new(it).file_stem().map(clean);
    let folder =
        |above: usize| move |it: &String| Path::new(it).ancestors().nth(above)?.file_name().map(clean);
    let last = |parts: usize| {
        move |it: &String| {
            let all: Vec<String> = Path::new(it).iter().map(clean).collect();
            Some(all.get(all.len().checked_sub(parts)?..)?.join("/"))
        }
    };
    let short = |name: &dyn Fn(&String) -> Option<String>| {
        let all: Option<Vec<String>> = runs.iter().map(name).collect();
        all.filter(|all| all.iter().collect::<BTreeSet<_>>().len() == runs.len())
    };
    short(&of_file)
        .or_else(|| (1..=MOST_FOLDERS).find_map(|above| short(&folder(above))))
        .or_else(|| short(&folder(0)))
        .or_else(|| (2..=MOST_FOLDERS).find_map(|parts| short(&last(parts))))
        .unwrap_or_else(|| runs.iter().map(|it| report::clean(it)).collect())
}

/// How far up folders are looked at for a name.
const MOST_FOLDERS: usize = 8;

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn names_tell_runs_apart() {
        let of = |runs: &[&str]| names(&runs.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["/a/efa.log", "/a/eni.log"]), ["efa", "eni"]);
        assert_eq!(of(&["/r1/logs", "/r2/logs"]), ["r1", "r2"]);
        assert_eq!(of(&["/r/run.1", "/r/run.2"]), ["run.1", "run.2"]);
        assert_eq!(of(&["/a/x/log", "/a/y/log", "/b/x/log"]), ["a/x/log", "a/y/log", "b/x/log"]);
    }
}
