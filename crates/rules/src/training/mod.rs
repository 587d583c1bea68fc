//! The training job of a log: what its lines say about model, machines and run, in the form of a job file, and what it lacks.
//!
//! ```text
//! trainer, DeepSpeed, Megatron, NCCL lines -> Logged (+ job file) -> forecast::training::Job
//! ```
//!
//! A job file says what the log does not. Where both say something, the file counts for model and run, the log for what it
//! shows of paths and nodes.

mod described;
mod measured;
mod paths;
mod price;

use std::fmt;

use evidence::Quote;
use forecast::training::{Job, JobError};
use serde_json::{Map, Value};

use crate::Log;

pub use measured::{Measured, Method, Spread};
pub use paths::Paths;
pub use price::{How, Price, Slower, WholeRun, of_layout};
pub(crate) use price::{Priced, of_submitted};

/// What a log says about the training job it is of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Logged {
    /// The keys of a job file that the log gives, unless a flag does.
    pub said: Vec<Said>,
    /// What carries the data.
    pub paths: Paths,
    /// The time of a step, where the log has it.
    pub measured: Option<Measured>,
    /// The samples of the steps that are measured, where the log prints them at its steps.
    pub batch: Option<Batch>,
    /// What follows from the log and is not certain, in sentences.
    pub notes: Vec<String>,
    /// What flags say, which counts more than log and file.
    set: Vec<(String, Value)>,
    /// Ranks of the job.
    ranks: Option<u32>,
}

/// The samples of a step, as the lines of steps have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// The same in all steps that count.
    Same(u64),
    /// They differ, as while the batch grows: no one number is that of a step.
    Changes,
}

impl Batch {
    /// The one number.
    pub const fn samples(self) -> Option<u64> {
        match self {
            Self::Same(samples) => Some(samples),
            Self::Changes => None,
        }
    }
}

/// A key of a job file, and the line that gives its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// `run.seq`
    pub key: &'static str,
    /// The value.
    pub value: Value,
    /// Where; none where several lines together say so, or a flag.
    pub quote: Option<Quote>,
}

/// A training job as a log and a job file describe it together.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// The job, with the paths of the log.
    pub job: Job,
    /// The same with the paths that its machines offer.
    pub offered: Job,
    /// The tables of its job file, which do not say paths.
    pub tables: Value,
}

/// Why there is no job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoJob {
    /// Neither log nor job file say this.
    Lacks(Vec<Lack>),
    /// What they say is not a job.
    Wrong(JobError),
    /// The pods of file or flag do not make the ranks of the log.
    Ranks {
        /// Ranks of the log.
        ranks: u32,
        /// Ranks with these pods.
        job: u64,
        /// Nodes.
        nodes: u32,
        /// Pods of a node, and GPUs of a pod.
        pods: (u32, u32),
    },
}

/// Something that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lack {
    /// What it is.
    pub what: &'static str,
    /// The key of a job file that gives it.
    pub key: &'static str,
    /// What a value looks like.
    pub example: &'static str,
}

impl fmt::Display for NoJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(error) => error.fmt(f),
            Self::Ranks { ranks, job, nodes, pods: (pods, gpus) } => write!(
                f,
                "the log has {ranks} ranks, but {nodes} nodes with pods of {pods}x{gpus} have {job}: give pods that fit, or `nodes` as a flag"
            ),
            Self::Lacks(all) => {
                let each = |it: &Lack| format!("{} (`{}`)", it.what, it.key);
                write!(f, "not known: {}", all.iter().map(each).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

impl std::error::Error for NoJob {}

const MODEL: Lack = Lack { what: "the model", key: "name", example: "llama-3-8b" };
const MACHINE: Lack = Lack { what: "the machine", key: "instance", example: "p5.48xlarge" };
const NODES: Lack = Lack { what: "the number of nodes", key: "nodes", example: "4" };
const SEQ: Lack = Lack { what: "the tokens of a sequence", key: "seq", example: "2048" };
const MICRO_BATCH: Lack = Lack { what: "the sequences of a micro-batch", key: "micro_batch", example: "1" };
const GLOBAL_BATCH: Lack = Lack { what: "the sequences of a step", key: "global_batch", example: "256" };
const FRAMEWORK: Lack = Lack { what: "the framework", key: "framework", example: "deepspeed" };
const ZERO: Lack = Lack { what: "the stage of ZeRO", key: "zero", example: "3" };
const NETWORK: Lack =
    Lack { what: "NICs of a node and their rate", key: "inter", example: "{ nics = 8, gbps = 400 }" };

impl Logged {
    /// The key of the samples of a step.
    pub(crate) const BATCH: &str = "run.global_batch";

    /// Reads what a log says.
    pub fn of(log: &Log) -> Self {
        described::read(log)
    }

    /// Adds a value of a flag, which counts more than log and file: `cluster.inter.gbps`.
    pub fn set(&mut self, key: &str, value: Value) {
        self.said.retain(|it| it.key != key);
        self.set.push((key.to_owned(), value));
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.said.iter().find(|it| it.key == key).map(|it| &it.value)
    }

    /// The job that the log and a job file describe. The file has the tables `model`, `cluster` and `run`, each optional.
    pub fn job(&self, file: &Value) -> Result<Described, NoJob> {
        let tables = self.combined(file);
        let lacks = lacking(&tables);
        if !lacks.is_empty() {
            return Err(NoJob::Lacks(lacks));
        }
        let mut offered = Job::of_value(tables.clone()).map_err(NoJob::Wrong)?;
        offered.notes.extend(self.notes.iter().cloned());
        self.check_pods(file, &offered)?;
        let job = self.paths.apply(&offered).map_err(NoJob::Wrong)?;
        Ok(Described { job, offered, tables })
    }

    /// The tables of a job file, with what the log adds and what it overrides.
    fn combined(&self, file: &Value) -> Value {
        let mut tables = match file {
            Value::Object(tables) => tables.clone(),
            _ => Map::new(),
        };
        for name in ["model", "cluster", "run"] {
            tables.entry(name).or_insert_with(|| Value::Object(Map::new()));
        }
        let has = |table: &str, key: &str| !file[table][key].is_null();
        let own_model = has("model", "name") || has("model", "layers") || has("model", "config");
        let own_machine = has("cluster", "instance") || has("cluster", "gpu");
        for Said { key, value, .. } in &self.said {
            let (table, name) = key.split_once('.').unwrap_or(("run", key));
            let skipped = match table {
                "model" => own_model,
                "cluster" => match name {
                    "nodes" => false,
                    "pods" => has(table, name),
                    _ => own_machine || has(table, name),
                },
                _ => has(table, name),
            };
            if !skipped && let Some(Value::Object(table)) = tables.get_mut(table) {
                table.insert(name.to_owned(), value.clone());
            }
        }
        let mut tables = Value::Object(tables);
        for (key, value) in &self.set {
            let mut at = &mut tables;
            for name in key.split('.') {
                if !at.is_object() {
                    *at = Value::Object(Map::new());
                }
                at = &mut at[name];
            }
            *at = value.clone();
        }
        self.count_machines(file, &mut tables);
        tables
    }

    /// NCCL counts pods as nodes: where a file or a flag says that pods share machines, there are fewer machines.
    fn count_machines(&self, file: &Value, tables: &mut Value) {
        let flag = |key: &str| self.set.iter().find(|it| it.0 == key).map(|it| &it.1);
        let pods = flag("cluster.pods").or_else(|| file["cluster"].get("pods"));
        let pods = pods.and_then(Value::as_str).and_then(|it| fabric::Layout::parse(it).ok());
        let counted = self.get("cluster.nodes").and_then(Value::as_u64);
        let (Some(pods), Some(counted), None) = (pods, counted, flag("cluster.nodes")) else { return };
        if file["cluster"]["nodes"].as_u64() != Some(counted) {
            tables["cluster"]["nodes"] = counted.div_ceil(pods.pods_per_node.into()).into();
        }
    }

    /// Refuses pods of a file or a flag that would give another number of ranks than the log has.
    fn check_pods(&self, file: &Value, job: &Job) -> Result<(), NoJob> {
        let given = |name: &str| self.set.iter().any(|it| it.0 == format!("cluster.{name}"));
        let Some(ranks) = self.ranks.filter(|it| u64::from(*it) != job.cluster.ranks()) else {
            return Ok(());
        };
        let pods_given = given("pods") || !file["cluster"]["pods"].is_null();
        if given("nodes") || !pods_given {
            return Ok(());
        }
        let cluster = &job.cluster;
        Err(NoJob::Ranks {
            ranks,
            job: cluster.ranks(),
            nodes: cluster.nodes,
            pods: (cluster.pods, cluster.gpus),
        })
    }
}

/// What a prediction needs and a job file would silently assume.
fn lacking(tables: &Value) -> Vec<Lack> {
    let has = |table: &str, key: &str| !tables[table][key].is_null();
    let mut lacks = Vec::new();
    let mut need = |there: bool, lack: Lack| {
        if !there {
            lacks.push(lack);
        }
    };
    need(has("model", "name") || has("model", "layers") || has("model", "config"), MODEL);
    need(has("cluster", "instance") || has("cluster", "gpu"), MACHINE);
    need(has("cluster", "nodes"), NODES);
    let several = tables["cluster"]["nodes"].as_u64().is_some_and(|it| it > 1);
    need(!several || !has("cluster", "gpu") || has("cluster", "inter"), NETWORK);
    need(has("run", "framework"), FRAMEWORK);
    let deepspeed = tables["run"]["framework"] == "deepspeed";
    need(!deepspeed || has("run", "zero"), ZERO);
    need(has("run", "seq"), SEQ);
    need(has("run", "micro_batch"), MICRO_BATCH);
    need(has("run", "global_batch"), GLOBAL_BATCH);
    lacks
}

#[cfg(test)]
mod tests;
