//! The job file of a layout: that of the job with another `[run]`.

use serde_json::{Map, Value};

use crate::training::{JobError, Precision, Run};

/// A job file as values, TOML or JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFile(Value);

/// Keys of `[run]` that a layout consists of.
const LAYOUT: [&str; 10] =
    ["tp", "pp", "vpp", "cp", "ep", "zero", "offload", "micro_batch", "recompute", "sequence_parallel"];

impl JobFile {
    /// Reads a file.
    pub fn read(text: &str) -> Result<Self, JobError> {
        if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map(Self).map_err(|error| JobError::new(error.to_string()))
        } else {
            let value = toml::from_str(text).map(Self);
            value.map_err(|error: toml::de::Error| JobError::new(error.to_string().trim_end()))
        }
    }

    /// Of tables that were read already.
    pub fn of_value(tables: Value) -> Self {
        Self(tables)
    }

    fn run(&self) -> Option<&Map<String, Value>> {
        self.0.get("run")?.as_object()
    }

    /// Whether it has a layout of its own.
    pub fn has_layout(&self) -> bool {
        self.run().is_some_and(|run| LAYOUT.iter().any(|it| run.contains_key(*it)))
    }

    /// Whether norms are split over the ranks of tensor parallelism, where the file says so.
    pub fn sequence_parallel(&self) -> Option<bool> {
        self.run()?.get("sequence_parallel")?.as_bool()
    }

    /// The machine that it names.
    pub fn instance(&self) -> Option<&str> {
        self.0.get("cluster")?.get("instance")?.as_str()
    }

    /// The file as TOML, with this layout. Model, cluster and all other keys stay.
    pub fn with(&self, run: &Run) -> String {
        let mut text = String::new();
        let empty = Map::new();
        let line = |text: &mut String, key: &str, value: &Value| {
            text.push_str(&format!("{key} = {}\n", toml_value(value)));
        };
        for name in ["model", "cluster"] {
            let table = self.0.get(name).and_then(Value::as_object).unwrap_or(&empty);
            text.push_str(&format!("[{name}]\n"));
            // What names the rest comes first.
            let mut keys: Vec<(&String, &Value)> = table.iter().collect();
            keys.sort_by_key(|it| !matches!(it.0.as_str(), "name" | "config" | "instance" | "gpu"));
            for (key, value) in keys {
                line(&mut text, key, value);
            }
        }
        text.push_str("[run]\n");
        let own = own_keys(run);
        for (key, value) in &own {
            line(&mut text, key, value);
        }
        let others = self.run().unwrap_or(&empty).iter();
        let others = others.filter(|it| own.iter().all(|own| own.0 != it.0.as_str()));
        for (key, value) in others {
            line(&mut text, key, value);
        }
        text
    }
}

fn own_keys(run: &Run) -> Vec<(&'static str, Value)> {
    let offload = serde_json::json!({ "params": run.offload.params, "optimizer": run.offload.optimizer });
    let mut keys = run.software();
    keys.extend([
        ("tp", run.tp.into()),
        ("pp", run.pp.into()),
        ("vpp", run.vpp.into()),
        ("cp", run.cp.into()),
        ("ep", run.ep.into()),
        ("zero", run.zero.into()),
        ("offload", offload),
        ("seq", run.seq.into()),
        ("micro_batch", run.micro_batch.into()),
        ("global_batch", run.global_batch.into()),
        ("precision", run.precision.name().into()),
        ("recompute", run.recompute.name().into()),
        ("sequence_parallel", run.sequence_parallel.into()),
        ("flash_attention", run.flash_attention.into()),
    ]);
    let reduced = match (run.reduces_half, run.precision) {
        (Some(true), Precision::Fp16) => Some("fp16"),
        (Some(true), _) => Some("bf16"),
        (Some(false), _) => Some("fp32"),
        (None, _) => None,
    };
    if run.etp > 1 {
        keys.push(("etp", run.etp.into()));
    }
    keys.extend(reduced.map(|it| ("reduce_dtype", it.into())));
    keys
}

fn toml_value(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let keys: Vec<String> =
                table.iter().map(|(key, it)| format!("{key} = {}", toml_value(it))).collect();
            format!("{{ {} }}", keys.join(", "))
        }
        Value::Array(all) => {
            let all: Vec<String> = all.iter().map(toml_value).collect();
            format!("[{}]", all.join(", "))
        }
        // The escapes of JSON are those of TOML, which also wants this one.
        Value::String(text) => Value::from(text.as_str()).to_string().replace('\u{7f}', "\\u007F"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::JobFile;
    use crate::training::Job;

    #[test]
    fn the_file_is_read_again_as_the_same_job() {
        let text = "[model]\nname = 'llama-3-8b'\nlayers = 16\n[cluster]\ngpu = 'A100-80GB'\ngpus_per_node = 8\nnodes = 4\n\
                    inter = { kind = 'infiniband', nics = 8, gbps = 200 }\n[run]\nglobal_batch = 256\ntp = 2\nsteps = 7\nomp_threads = 3\nreduce_dtype = 'fp32'\n";
        let file = JobFile::read(text).unwrap();
        assert!(file.has_layout() && file.sequence_parallel().is_none() && file.instance().is_none());
        let mut job = Job::read(text).unwrap();
        job.run.pp = 4;
        job.run.offload.optimizer = true;
        job.run.zero = 1;
        // A written file leaves nothing open.
        (job.assumed, job.assumed_layout) = (Vec::new(), Vec::new());
        job.notes.clear();
        let again = Job::read(&file.with(&job.run)).unwrap();
        assert_eq!(again, job);
        let bare = "{\"model\": {\"name\": \"llama-3-8b\"}, \"cluster\": {\"instance\": \"p5.48xlarge\"}, \"run\": {\"seq\": 4096}}";
        let bare = JobFile::read(bare).unwrap();
        assert_eq!((bare.has_layout(), bare.instance()), (false, Some("p5.48xlarge")));
        assert!(JobFile::read("[model").is_err() && JobFile::read("{").is_err());
    }
}
