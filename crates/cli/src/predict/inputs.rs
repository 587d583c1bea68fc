//! The inputs of `plumb predict` and `plumb plan`: files, command lines and flags that make one job.

use std::path::{Path, PathBuf};

use forecast::training::Job;
use job::training::{Files, Finished, Inputs, Kind, Place, Text};
use report::FromLog;
use serde_json::Value;

use super::measured;
use crate::{args, expect, input};

/// A job, and the tables of its job file.
pub(crate) struct Described {
    pub(crate) job: Job,
    pub(crate) tables: Value,
    /// What the job has that tables do not say.
    pub(crate) changes: Vec<String>,
}

/// Reads the job that files and flags describe, or that of a log with what they add.
pub(crate) fn read(args: &args::TrainedJob) -> Result<(Described, Option<FromLog>), String> {
    if !args.from.is_empty() {
        return super::from::read(args).map(|(described, from)| (described, Some(from)));
    }
    if args.hardware.cluster.is_some() {
        return Err("--cluster describes the machine of a log: it needs --from; otherwise a job file has a [cluster] table".to_owned());
    }
    described(args).map(|described| (described, None))
}

fn described(args: &args::TrainedJob) -> Result<Described, String> {
    let mut disk = Disk;
    let Finished { job: mut tables, changes, assumed, notes, measured, title } =
        collect(args, &mut disk)?.finish()?;
    let name = args.job.first().map(|it| format!("{}: ", input::name(it))).unwrap_or_default();
    let mut job = Job::of_value(tables.clone()).map_err(|error| format!("{name}{error}"))?;
    for change in &changes {
        job = job.with(change).map_err(|error| format!("{name}{error}"))?;
    }
    job.assumed.splice(0..0, assumed);
    job.notes.splice(0..0, notes);
    if job.model_name.is_none() {
        job.model_name = title;
    }
    add_measured(&mut job, &mut tables, &measured)?;
    Ok(Described { job, tables, changes })
}

/// Adds what files of measurements say.
pub(super) fn add_measured(
    job: &mut Job,
    tables: &mut Value,
    files: &[(String, Place)],
) -> Result<(), String> {
    for (path, place) in files {
        let path = beside(&place.file, path);
        measured::add(job, &path).map_err(|error| format!("{place}: {error}"))?;
        // Wherever the tables are written to, they name the file.
        let path = path.canonicalize().unwrap_or(path);
        tables["cluster"]["measured"] = path.to_string_lossy().into();
    }
    Ok(())
}

/// What files and flags say, which a log completes.
pub(super) fn incomplete(args: &args::TrainedJob) -> Result<Finished, String> {
    let mut disk = Disk;
    let finished = collect(args, &mut disk)?.incomplete()?;
    Job::check_keys(&finished.job).map_err(|error| error.to_string())?;
    Ok(finished)
}

fn collect<'a>(args: &args::TrainedJob, disk: &'a mut Disk) -> Result<Inputs<'a>, String> {
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

fn flags(inputs: &mut Inputs<'_>, args: &args::TrainedJob) -> Result<(), String> {
    if let Some(model) = args.model.as_deref() {
        let path = Path::new(model);
        let folder = path.join("config.json");
        if folder.is_file() {
            inputs.model(&text_of(&folder)?)?;
        } else if path.is_file() || path.extension().is_some_and(|it| it == "json") {
            inputs.model(&text_of(path)?)?;
        } else {
            inputs.flag("model.name", model, "--model");
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
        let (key, value) = assignment(text)?;
        inputs.flag(&key, value, &format!("--set {text}"));
    }
    Ok(())
}

/// Reads `seq=512` and `run.seq=512` of `--set`.
pub(super) fn assignment(text: &str) -> Result<(String, Value), String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(format!("--set {text}: write KEY=VALUE, as in --set seq=4096"));
    };
    let key = Job::full_key(key.trim()).map_err(|error| format!("--set {text}: {error}"))?;
    let value = value.trim();
    let value = match (value.parse::<u64>(), value.parse::<f64>(), value.parse::<bool>()) {
        (Ok(number), ..) => Value::from(number),
        (_, Ok(number), _) if number.is_finite() => Value::from(number),
        (.., Ok(on)) => Value::from(on),
        _ => Value::from(value),
    };
    Ok((key, value))
}

/// Files of this machine.
pub(crate) struct Disk;

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::assignment;

    #[test]
    fn values_have_their_type() {
        assert_eq!(assignment("seq=512"), Ok(("run.seq".to_owned(), json!(512))));
        assert_eq!(assignment("run.startup_s=1.5"), Ok(("run.startup_s".to_owned(), json!(1.5))));
        assert_eq!(assignment("name = llama-3-8b"), Ok(("model.name".to_owned(), json!("llama-3-8b"))));
        assert_eq!(assignment("gated_mlp=true"), Ok(("model.gated_mlp".to_owned(), json!(true))));
        assert_eq!(assignment("inter.gbps=200"), Ok(("cluster.inter.gbps".to_owned(), json!(200))));
        assert!(assignment("sqe=1").unwrap_err().contains("did you mean `seq`?"));
        assert!(assignment("seq").unwrap_err().contains("KEY=VALUE"));
    }
}
