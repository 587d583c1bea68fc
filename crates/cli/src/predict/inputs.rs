//! The inputs of `plumb predict`: files, command lines and flags that make one job.

use std::path::{Path, PathBuf};

use forecast::training::Job;
use job::training::{Files, Inputs, Kind, Text};
use serde_json::Value;

use super::measured;
use crate::{args, expect, input};

/// Reads the job that the arguments describe.
pub(crate) fn read(args: &args::Predict) -> Result<Job, String> {
    if args.hardware.cluster.is_some() {
        return Err("--cluster describes the machine of a log: it needs --from; otherwise a job file has a [cluster] table".to_owned());
    }
    let mut disk = Disk;
    let finished = collect(args, &mut disk)?.finish()?;
    let name = args.job.first().map(|it| format!("{}: ", input::name(it))).unwrap_or_default();
    let mut job = Job::of_value(finished.job).map_err(|error| format!("{name}{error}"))?;
    for change in &finished.changes {
        job = job.with(change).map_err(|error| format!("{name}{error}"))?;
    }
    job.notes.splice(0..0, finished.notes);
    if job.model_name.is_none() {
        job.model_name = finished.title;
    }
    for (path, place) in &finished.measured {
        measured::add(&mut job, &beside(&place.file, path)).map_err(|error| format!("{place}: {error}"))?;
    }
    Ok(job)
}

/// The tables of a job file that the arguments describe, which a log completes.
pub(crate) fn tables(args: &args::Predict) -> Result<Value, String> {
    let mut disk = Disk;
    let tables = collect(args, &mut disk)?.tables()?;
    Job::check_keys(&tables).map_err(|error| error.to_string())?;
    Ok(tables)
}

fn collect<'a>(args: &args::Predict, disk: &'a mut Disk) -> Result<Inputs<'a>, String> {
    let mut variables = Vec::new();
    for text in &args.define {
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!("--define {text}: write NAME=VALUE, as in --define TP=8"));
        };
        variables.push((name.trim().to_owned(), value.to_owned()));
    }
    let mut inputs = Inputs::new(disk, variables);
    flags(&mut inputs, args)?;
    for path in &args.deepspeed {
        inputs.deepspeed(&text_of(path)?)?;
    }
    if let Some(text) = &args.megatron {
        inputs.add(&file_or_command(Path::new(text), "--megatron")?, Some(Kind::Script))?;
    }
    for path in &args.job {
        let text = file_or_command(path, "the command")?;
        let kind = (text.name == "the command").then_some(Kind::Script);
        inputs.add(&text, kind)?;
    }
    Ok(inputs)
}

fn flags(inputs: &mut Inputs<'_>, args: &args::Predict) -> Result<(), String> {
    if let Some(model) = &args.model {
        let path = Path::new(model);
        let folder = path.join("config.json");
        if folder.is_file() {
            inputs.model(&text_of(&folder)?)?;
        } else if path.is_file() || path.extension().is_some_and(|it| it == "json") {
            inputs.model(&text_of(path)?)?;
        } else {
            inputs.flag("model.name", model.as_str(), "--model");
        }
    }
    if let Some(gpu) = args.hardware.gpu {
        inputs.flag("cluster.gpu", gpu.name.as_str(), "--gpu");
    }
    if let Some(instance) = args.hardware.instance {
        inputs.flag("cluster.instance", instance.name, "--instance");
    }
    if let Some(nodes) = args.nodes {
        inputs.flag("cluster.nodes", nodes, "--nodes");
    }
    for text in &args.set {
        let Some((key, value)) = text.split_once('=') else {
            return Err(format!("--set {text}: write KEY=VALUE, as in --set seq=4096"));
        };
        let key = Job::full_key(key.trim()).map_err(|error| format!("--set {text}: {error}"))?;
        let value = value.trim();
        let flag = format!("--set {text}");
        match (value.parse::<u64>(), value.parse::<f64>(), value.parse::<bool>()) {
            (Ok(number), ..) => inputs.flag(&key, number, &flag),
            (_, Ok(number), _) => inputs.flag(&key, number, &flag),
            (.., Ok(on)) => inputs.flag(&key, on, &flag),
            _ => inputs.flag(&key, value, &flag),
        }
    }
    Ok(())
}

/// Files of this machine.
struct Disk;

impl Files for Disk {
    fn read(&mut self, from: &str, path: &str) -> Result<Text, String> {
        let beside = beside(from, path);
        // Trainers and launchers read names from the folder they are started in.
        if !beside.exists() && Path::new(path).is_file() {
            return text_of(Path::new(path));
        }
        text_of(&beside)
    }
}

/// A path as the file `from` means it.
fn beside(from: &str, path: &str) -> PathBuf {
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let path = path.strip_prefix("./").unwrap_or(path);
    folder.join(path)
}

fn text_of(path: &Path) -> Result<Text, String> {
    Ok(Text { name: input::name(path), text: expect::read_text(path)? })
}

/// A file, or what looks like a command line.
fn file_or_command(path: &Path, called: &str) -> Result<Text, String> {
    let text = path.to_string_lossy();
    if !path.exists() && (text.starts_with("--") || text.contains([' ', '\n'])) {
        return Ok(Text { name: called.to_owned(), text: text.into_owned() });
    }
    text_of(path)
}
