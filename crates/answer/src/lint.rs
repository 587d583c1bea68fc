//! `plumb lint`: files that are about to be submitted to findings.

use std::io::Read;
use std::path::Path;

use evidence::submission::Submission;
use evidence::yaml::Trouble;
use job::training::{Files, Inputs, Text};
use report::Redactor;
use report::lint::{Lint, Unread};
use rules::lint::Given;
use serde_json::Value;

use crate::whole;

/// The largest file that is read.
const MOST: u64 = 64 << 20;

/// Whether a file in a folder looks like a manifest or a script.
pub fn is_submitted(name: &str) -> bool {
    const NAMES: [&str; 7] = ["yaml", "yml", "json", "sh", "sbatch", "slurm", "env"];
    let path = Path::new(name);
    let extension = path.extension().map(|it| it.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name = path.file_name().map(|it| it.to_string_lossy()).unwrap_or_default();
    NAMES.contains(&extension.as_str()) || name.starts_with("Dockerfile")
}

/// Reads a file that is about to be submitted.
pub fn read(name: &str, source: Box<dyn Read + '_>) -> Result<Submission, (String, Trouble)> {
    let failed = |text: String| (name.to_owned(), Trouble { line: 1, column: 1, text });
    let mut bytes = Vec::new();
    let source = whole(source).map_err(|error| failed(error.to_string()))?;
    source.take(MOST + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > MOST {
        return Err(failed(format!("more than {} MiB", MOST >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = error.utf8_error().valid_up_to();
        let line = error.as_bytes().iter().take(before).filter(|it| **it == b'\n').count() + 1;
        (name.to_owned(), Trouble { line, column: 1, text: "is not UTF-8".to_owned() })
    })?;
    if report::html::is_browser_page(text.as_bytes()) {
        return Err(failed(format!("{}, not a manifest or a script", report::html::BROWSER_PAGE)));
    }
    if let Some(command) = report::html::command_of(text.as_bytes()) {
        return Err(failed(format!("is a report of plumb {command}: `plumb {command} {name}` shows it")));
    }
    if text.trim().is_empty() {
        return Err(failed("is empty".to_owned()));
    }
    Submission::read(name, &text).map_err(|trouble| (name.to_owned(), trouble))
}

/// Checks files. `training` are the tables of a job file, which count before what the files say about their training job; `beside`
/// opens what their scripts name; `names` replaces what the answer must not show.
pub fn answer(
    files: &[Submission],
    unread: &[Unread],
    given: &Given,
    training: &Value,
    beside: &mut dyn Files,
    names: &mut Redactor,
) -> Lint {
    let found = rules::lint::lint_training(files, given, |file| {
        let Some(file) = file else { return training.clone() };
        let mut tables = of_submission(&file.name, &file.text, &mut *beside);
        overlay(&mut tables, training);
        tables
    });
    let mut lint = Lint::new(files, unread, &found);
    names.lint(&mut lint);
    lint
}

/// What a file says about its training job; nothing where it does not describe one.
fn of_submission(name: &str, text: &str, beside: &mut dyn Files) -> Value {
    let text = Text { name: name.to_owned(), text: text.to_owned() };
    let mut read = |complete: bool| {
        let mut inputs = Inputs::new(&mut *beside, Vec::new());
        inputs.add(&text, None)?;
        if complete { inputs.finish() } else { inputs.incomplete() }
    };
    let finished = read(true).or_else(|_| read(false));
    finished.map_or(Value::Null, |it| it.job)
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
