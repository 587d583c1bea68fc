//! `plumb predict --from LOG`: the job of a log.

use std::path::Path;

use forecast::training::Job;
use report::FromLog;
use rules::Log;
use rules::training::{Logged, NoJob, Said};
use serde_json::Value;

use super::inputs::{self, Described, assignment};
use crate::{args, expect, input, page};

/// The job of the logs and of a job file, and what the logs say about it.
pub(super) fn read(args: &args::TrainedJob) -> Result<(Described, FromLog), String> {
    if let Some(reason) = page::among_logs(&args.from) {
        return Err(reason);
    }
    let finished = inputs::incomplete(args)?;
    let hardware = args.hardware.read()?;
    let inputs = input::read(&args.from);
    if let Some(it) = inputs.unreadable.first() {
        return Err(format!("{}: {}", it.name, it.reason));
    }
    let log = Log::on(inputs.case, &hardware);
    let mut logged = Logged::of(&log);
    let mut file = finished.job;
    for text in &args.set {
        let (key, value) = assignment(text)?;
        remove(&mut file, &key);
        logged.set(&key, value);
    }
    if let Some(nodes) = args.nodes {
        logged.set("cluster.nodes", nodes.into());
    }
    let names: Vec<String> = args.from.iter().map(|it| input::name(it)).collect();
    let described = logged.job(&file).map_err(|error| refused(&names, &error))?;
    let said = |it: &Said| {
        let place = it.quote.as_ref().map(|it| log.case.locate(it));
        (it.key.to_owned(), it.value.clone(), place.map(|(file, line)| format!("{file}:{line}")))
    };
    let from = FromLog {
        said: logged.said.iter().map(said).collect(),
        paths: logged.paths.words(),
        measured: logged.measured.map(|it| (it.seconds, it.how)),
        files: names,
    };
    let (mut job, mut tables) = (described.job, described.tables);
    inputs::add_measured(&mut job, &mut tables, &finished.measured)?;
    Ok((Described { job, tables, changes: from.paths.clone() }, from))
}

/// A job file as it is, of which the log may complete some keys.
pub(crate) fn job_file(path: &Path) -> Result<Value, String> {
    let name = input::name(path);
    let text = expect::read_text(path)?;
    Job::tables(&text).map_err(|error| format!("{name}: {error}"))
}

/// Takes a key out of the tables of a job file: what it belongs to is then the log's, as `layers` of a model that the log names.
fn remove(tables: &mut Value, key: &str) {
    let (table, name) = key.rsplit_once('.').unwrap_or(("run", key));
    let table = table.split('.').try_fold(tables, |value, name| value.get_mut(name));
    if let Some(table) = table.and_then(Value::as_object_mut) {
        table.remove(name);
    }
}

/// What is missing, each with what gives it.
fn refused(logs: &[String], error: &NoJob) -> String {
    let names = logs.join(", ");
    let NoJob::Lacks(lacks) = error else { return format!("{names}: {error}") };
    let mut text = format!("{names} does not say all that a prediction needs; missing:");
    for it in lacks {
        let full = Job::full_key(it.key).unwrap_or_default();
        let table = full.split_once('.').map_or("cluster", |key| key.0);
        let flag = if table == "cluster" && it.key == "inter" {
            String::new()
        } else {
            format!("--set {}={}, or ", it.key, it.example)
        };
        text.push_str(&format!("\n  {}: {flag}`{}` in [{table}] of a job file", it.what, it.key));
    }
    text.push_str(&format!(
        "\nhint: write them into job.toml and give both: job.toml --from {}",
        logs.first().map_or("LOG", String::as_str)
    ));
    text
}
