//! `plumb predict --from LOG`: the job of a log.

use std::path::Path;

use forecast::training::Job;
use report::FromLog;
use rules::Log;
use rules::training::{Logged, NoJob, Said};
use serde_json::Value;

use super::inputs;
use crate::{args, expect, input};

/// The job of the logs and of a job file, and what the logs say about it.
pub(super) fn read(args: &args::Predict) -> Result<(Job, FromLog), String> {
    let file = inputs::tables(args)?;
    let hardware = args.hardware.read()?;
    let inputs = input::read(&args.from);
    if let Some(it) = inputs.unreadable.first() {
        return Err(format!("{}: {}", it.name, it.reason));
    }
    let log = Log::on(inputs.case, &hardware);
    let mut logged = Logged::of(&log);
    let says = logged.said.clone();
    for text in &args.set {
        let (key, value) = assignment(text)?;
        logged.set(key, value);
    }
    let names: Vec<String> = args.from.iter().map(|it| input::name(it)).collect();
    let described = logged.job(&without(file, &args.set)).map_err(|error| refused(&names, &error))?;
    let said = |it: &Said| {
        let place = it.quote.as_ref().map(|it| log.case.locate(it));
        (it.key.to_owned(), it.value.clone(), place.map(|(file, line)| format!("{file}:{line}")))
    };
    let from = FromLog {
        said: says.iter().filter(|it| logged.get(it.key) == Some(&it.value)).map(said).collect(),
        paths: logged.paths.words(),
        measured: logged.measured.map(|it| (it.seconds, it.how)),
        files: names,
    };
    Ok((described.job, from))
}

/// A job file as it is, of which the log may complete some keys.
pub(crate) fn job_file(path: &Path) -> Result<Value, String> {
    let name = input::name(path);
    let text = expect::read_text(path)?;
    Job::tables(&text).map_err(|error| format!("{name}: {error}"))
}

/// A job file without what a flag sets.
fn without(mut file: Value, set: &[String]) -> Value {
    for (key, _) in set.iter().filter_map(|it| assignment(it).ok()) {
        if let Some((table, name)) = key.split_once('.')
            && let Some(table) = file.get_mut(table).and_then(Value::as_object_mut)
        {
            table.remove(name);
        }
    }
    file
}

/// What `--set` can set, with its table.
const KEYS: [&str; 40] = [
    "model.name",
    "model.layers",
    "model.hidden",
    "model.heads",
    "model.kv_heads",
    "model.head_width",
    "model.ffn",
    "model.gated_mlp",
    "model.vocab",
    "model.tied_embeddings",
    "model.experts",
    "model.experts_per_token",
    "model.moe_ffn",
    "model.moe_layers",
    "model.shared_experts",
    "cluster.instance",
    "cluster.gpu",
    "cluster.gpus_per_node",
    "cluster.nodes",
    "cluster.intra",
    "cluster.pods",
    "cluster.cpus",
    "run.framework",
    "run.tp",
    "run.pp",
    "run.vpp",
    "run.cp",
    "run.ep",
    "run.zero",
    "run.seq",
    "run.micro_batch",
    "run.global_batch",
    "run.precision",
    "run.recompute",
    "run.sequence_parallel",
    "run.flash_attention",
    "run.omp_threads",
    "run.overlap",
    "run.steps",
    "run.startup_s",
];

fn name_of(key: &str) -> &str {
    key.split_once('.').map_or(key, |it| it.1)
}

/// Reads `seq=512` and `run.seq=512`.
fn assignment(text: &str) -> Result<(&'static str, Value), String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(format!("--set {text}: write KEY=VALUE, as in seq=512"));
    };
    let (key, value) = (key.trim(), value.trim());
    let Some(known) = KEYS.into_iter().find(|it| *it == key || name_of(it) == key) else {
        let near = KEYS.map(name_of).into_iter().min_by_key(|it| strsim::damerau_levenshtein(it, key));
        return Err(format!(
            "--set {text}: `{key}` is not a key of a job file: did you mean `{}`?",
            near.unwrap_or("seq")
        ));
    };
    let value = match value {
        "true" => Value::from(true),
        "false" => Value::from(false),
        _ => match (value.parse::<u64>(), value.parse::<f64>()) {
            (Ok(number), _) => Value::from(number),
            (_, Ok(number)) if number.is_finite() => Value::from(number),
            _ => Value::from(value),
        },
    };
    Ok((known, value))
}

/// What is missing, each with what gives it.
fn refused(logs: &[String], error: &NoJob) -> String {
    let names = logs.join(", ");
    let NoJob::Lacks(lacks) = error else { return format!("{names}: {error}") };
    let mut text = format!("{names} does not say all that a prediction needs; missing:");
    for it in lacks {
        let table = KEYS.into_iter().find(|key| name_of(key) == it.key).and_then(|key| key.split_once('.'));
        let table = table.map_or("cluster", |key| key.0);
        let flag = if table == "cluster" && it.key == "inter" {
            String::new()
        } else {
            format!("--set {}={}, or ", it.key, it.example)
        };
        text.push_str(&format!("\n  {}: {flag}`{}` in [{table}] of a job file", it.what, it.key));
    }
    text.push_str(&format!(
        "\nhint: plumb predict job.toml --from {}",
        logs.first().map_or("LOG", String::as_str)
    ));
    text
}

#[cfg(test)]
mod tests {
    use forecast::training::Job;
    use serde_json::json;

    use super::{KEYS, assignment, name_of};

    #[test]
    fn every_key_is_one_of_a_job_file() {
        for key in KEYS {
            let (table, name) = key.split_once('.').unwrap();
            let file = json!({ table: { name: 1 } });
            assert!(Job::tables(&file.to_string()).is_ok(), "{key}");
            assert_eq!(KEYS.into_iter().filter(|it| name_of(it) == name).count(), 1, "{key}");
        }
    }

    #[test]
    fn values_have_their_type() {
        assert_eq!(assignment("seq=512"), Ok(("run.seq", json!(512))));
        assert_eq!(assignment("run.startup_s=1.5"), Ok(("run.startup_s", json!(1.5))));
        assert_eq!(assignment("name = llama-3-8b"), Ok(("model.name", json!("llama-3-8b"))));
        assert_eq!(assignment("gated_mlp=true"), Ok(("model.gated_mlp", json!(true))));
        assert!(assignment("sqe=1").unwrap_err().contains("did you mean `seq`?"));
        assert!(assignment("seq").unwrap_err().contains("KEY=VALUE"));
    }
}
