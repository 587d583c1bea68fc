//! Published runs, and what the model makes of them.

use forecast::training::{Broken, Calibration, Job, Predictor, Step};
use serde_json::{Map, Value, json};

/// One published run.
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) family: String,
    pub(crate) job: Job,
    /// Seconds of a step, where published.
    pub(crate) step: Option<f64>,
    /// Memory of a GPU in GiB, where published.
    pub(crate) memory: Option<f64>,
    /// Whether it ran out of memory.
    pub(crate) out_of_memory: bool,
}

impl Row {
    pub(crate) fn predict(&self, calibration: &Calibration) -> Result<Step, Broken> {
        Predictor::new(calibration, &self.job.model, &self.job.cluster).step(&self.job.run)
    }

    /// The logarithm of predicted over measured time.
    pub(crate) fn error(&self, calibration: &Calibration) -> Option<f64> {
        let step = self.predict(calibration).ok()?;
        Some((step.time.0 / self.step?).ln())
    }
}

/// Those of the repository that constants are fitted to.
pub(crate) fn published() -> Vec<Row> {
    of_repository(include_str!("../../tests/data/training.csv"))
}

/// Those of the repository that no constant with bounds was fitted to.
pub(crate) fn unseen() -> Vec<Row> {
    of_repository(include_str!("../../tests/data/training-unseen.csv"))
}

/// Those of publications that were collected when all constants and mechanisms stood.
pub(crate) fn later() -> Vec<Row> {
    of_repository(include_str!("../../tests/data/training-later.csv"))
}

/// Passes of whole models of transformers on one H200: `tools/kernels/steps.py`. The optimizer is not part of them.
pub(crate) struct Passes {
    pub(crate) job: Job,
    pub(crate) seconds: f64,
    /// GiB besides weights and gradients.
    pub(crate) activations: f64,
}

pub(crate) fn passes() -> Vec<Passes> {
    let text = include_str!("../../../../tools/kernels/h200-steps.jsonl");
    let lines = text.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
    // What is compiled has fused kernels.
    lines
        .filter(|it| it["kind"] == "step" && it["compiled"] == json!(false))
        .map(|it| passes_of(&it))
        .collect()
}

fn passes_of(line: &Value) -> Passes {
    let job = json!({
        "model": { "name": line["model"], "layers": line["layers"], "tied_embeddings": false },
        "cluster": { "gpu": "H200", "gpus_per_node": 1 },
        "run": {
            "framework": "ddp", "model_code": "transformers", "seq": line["seq"], "micro_batch": line["micro_batch"],
            "global_batch": line["micro_batch"], "recompute": if line["checkpoint"] == json!(true) { "full" } else { "none" },
        },
    });
    let number = |key: &str| line[key].as_f64().unwrap_or(0.0);
    let job = Job::of_value(job).unwrap_or_else(|error| panic!("{error}"));
    Passes { job, seconds: number("seconds"), activations: number("activations_gib") }
}

fn of_repository(text: &str) -> Vec<Row> {
    read(text).into_iter().map(|it| it.unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// Rows of a file with the columns of `tests/data/training.csv`, or why one cannot be read.
pub(crate) fn read(text: &str) -> Vec<Result<Row, String>> {
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    lines.filter(|it| !it.trim().is_empty()).map(|line| row(&columns, line)).collect()
}

fn row(columns: &[&str], line: &str) -> Result<Row, String> {
    let cells: Map<String, Value> = columns
        .iter()
        .zip(line.split(','))
        .map(|(name, cell)| {
            let number = cell.parse::<u64>().map(Value::from);
            ((*name).to_owned(), number.unwrap_or_else(|_| Value::from(cell)))
        })
        .collect();
    let flag = |name: &str| cells[name] == json!(1);
    let number = |name: &str| cells[name].as_f64().or_else(|| cells[name].as_str()?.parse().ok());
    let mut job = json!({
        "model": {
            "layers": cells["layers"], "hidden": cells["hidden"], "heads": cells["heads"], "kv_heads": cells["kv_heads"],
            "ffn": cells["ffn"], "vocab": cells["vocab"], "gated_mlp": flag("gated"),
        },
        "cluster": {
            "gpu": cells["gpu"], "gpus_per_node": cells["gpus_per_node"], "nodes": cells["nodes"], "intra": cells["intra"],
            "inter": { "kind": cells["kind"], "nics": cells["nics"], "gbps": number("gbps"), "gpudirect": true },
        },
        "run": {
            "framework": cells["framework"], "tp": cells["tp"], "pp": cells["pp"], "vpp": cells["vpp"], "cp": cells["cp"],
            "ep": cells["ep"], "zero": cells["zero"], "seq": cells["seq"], "micro_batch": cells["micro_batch"],
            "global_batch": cells["global_batch"], "precision": cells["precision"], "recompute": cells["recompute"],
            "sequence_parallel": flag("sequence_parallel"), "flash_attention": flag("flash"),
        },
    });
    // What dense models leave empty.
    for key in ["head_width", "experts", "experts_per_token", "moe_ffn", "moe_layers", "shared_experts"] {
        if let Some(number) = cells.get(key).filter(|it| it.is_number()) {
            job["model"][key] = number.clone();
        }
    }
    if let Some(libraries) = cells.get("libraries").filter(|it| *it != "") {
        job["run"]["libraries"] =
            json!(libraries.as_str().map_or_else(|| libraries.to_string(), ToOwned::to_owned));
    }
    for (column, table, key) in
        [("launch_blocking", "run", "launch_blocking"), ("tied", "model", "tied_embeddings")]
    {
        if cells.get(column).is_some_and(Value::is_number) {
            job[table][key] = json!(flag(column));
        }
    }
    if cells.get("overlap").is_some_and(Value::is_number) {
        job["run"]["overlap"] = json!(flag("overlap"));
    }
    let id = cells["id"].as_str().unwrap_or_default().to_owned();
    let family = id.rsplit_once('-').map_or(id.as_str(), |it| it.0).to_owned();
    let job = Job::of_value(job).map_err(|error| format!("{id}: {error}"))?;
    let out_of_memory = cells.get("oom") == Some(&json!(1));
    Ok(Row { id, family, job, step: number("step_s"), memory: number("memory_gib"), out_of_memory })
}

/// The families, in the order of the file.
pub(crate) fn families(rows: &[Row]) -> Vec<&str> {
    let mut families: Vec<&str> = Vec::new();
    for row in rows {
        if !families.contains(&row.family.as_str()) {
            families.push(&row.family);
        }
    }
    families
}
