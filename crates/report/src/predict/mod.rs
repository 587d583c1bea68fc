//! The answer of `plumb predict`: what a training job takes. Schema `plumb.predict/1`.

mod drawing;
mod svg;
pub(crate) mod text;
mod trace;

use std::io::{self, Write};

use forecast::training::{Broken, Calibration, Job, Kind, Memory, Predictor, Step};
use serde::Serialize;

use crate::expect::{rounded, shown};

pub use drawing::{Drawing, Undrawn};

/// What a job takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Predict {
    /// `plumb.predict/1`.
    pub schema: &'static str,
    /// What is trained, in words.
    pub job: String,
    /// All parameters of the model.
    pub parameters: f64,
    /// Its GPUs.
    pub gpus: u64,
    /// Data-parallel ranks.
    pub dp: u64,
    /// The time of one step.
    pub step_time_s: f64,
    /// Between which times it lies in nine of ten published runs.
    pub interval_s: [f64; 2],
    /// Tokens per second of one GPU.
    pub tokens_per_s_per_gpu: f64,
    /// Tokens per second of all GPUs.
    pub tokens_per_s: f64,
    /// Model operations per second of one GPU, in 1e12.
    pub model_tflops_per_gpu: f64,
    /// The same over the peak of the GPU.
    pub mfu: f64,
    /// How operations are counted.
    pub flops_counted: &'static str,
    /// The whole run, where the job says how many steps it has.
    pub total_time_s: Option<f64>,
    /// What the whole run costs, where a price was given.
    pub cost: Option<f64>,
    /// Memory of the GPU that needs most.
    pub memory_gib: MemoryGib,
    /// Whether it fits.
    pub fits: bool,
    /// Where the time goes.
    pub breakdown: Vec<Part>,
    /// What limits the job.
    pub bottleneck: Bottleneck,
    /// The same job with something else.
    pub what_if: Vec<WhatIf>,
    /// What was assumed.
    pub notes: Vec<String>,
    /// The log that the job is of.
    pub log: Option<OfLog>,
    /// The time of a step in that log.
    pub measured: Option<MeasuredStep>,
}

/// The log that a job is of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfLog {
    /// Its files.
    pub files: Vec<String>,
    /// The keys of a job file that it gives.
    pub says: Vec<Saying>,
    /// The paths that it shows, in words.
    pub paths: Vec<String>,
}

/// A key of a job file, and where its value stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Saying {
    /// `run.seq`.
    pub key: String,
    /// The value.
    pub value: serde_json::Value,
    /// File and line, where it is one.
    pub source: Option<String>,
}

/// The time of a step that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredStep {
    /// Seconds.
    pub step_time_s: f64,
    /// Over the predicted step.
    pub ratio: f64,
    /// How it was measured.
    pub how: String,
}

/// What a log says about its job.
#[derive(Debug, Clone, PartialEq)]
pub struct FromLog {
    /// The files.
    pub files: Vec<String>,
    /// Keys of a job file, their values, and where they stand.
    pub said: Vec<(String, serde_json::Value, Option<String>)>,
    /// The paths, in words.
    pub paths: Vec<String>,
    /// The time of a step in seconds, and how it was measured.
    pub measured: Option<(f64, String)>,
}

/// Memory in 2^30 bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryGib {
    /// All of it.
    pub total: f64,
    /// Weights.
    pub weights: f64,
    /// Gradients.
    pub gradients: f64,
    /// States of the optimizer.
    pub optimizer: f64,
    /// Activations.
    pub activations: f64,
    /// Buffers of communication and of the framework.
    pub buffers: f64,
    /// CUDA and NCCL.
    pub context: f64,
    /// What the GPU has.
    pub available: f64,
    /// What a node needs in host memory for offloaded states.
    pub host: f64,
    /// What the node has, where that is known.
    pub host_available: Option<f64>,
}

/// A part of the step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// `matmul`, `gather`, ...
    pub kind: &'static str,
    /// In words.
    pub what: &'static str,
    /// What adds to the step.
    pub exposed_s: f64,
    /// What runs beside something else.
    pub hidden_s: f64,
}

/// What limits a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bottleneck {
    /// `matmul`, `gather`, ...
    pub kind: &'static str,
    /// In words.
    pub text: String,
}

/// The same job with something else.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIf {
    /// `network=eni`.
    pub change: String,
    /// The time of a step; none where the layout is impossible.
    pub step_time_s: Option<f64>,
    /// Over the job as it is.
    pub ratio: Option<f64>,
    /// The measured time of a step, changed by the same ratio.
    pub scaled_s: Option<f64>,
    /// Whether it fits.
    pub fits: Option<bool>,
    /// What limits it then, or why it is impossible.
    pub text: String,
}

impl Predict {
    /// Predicts a job and what else was asked. The price is of one node and hour.
    pub fn new(job: &Job, changes: &[(String, Job)], price: Option<f64>) -> Result<Self, Broken> {
        let calibration = Calibration::published();
        let predictor = Predictor::new(&calibration, &job.model, &job.cluster).measured(&job.measured);
        let of = |job: &Job| {
            Predictor::new(&calibration, &job.model, &job.cluster).measured(&job.measured).step(&job.run)
        };
        let step = of(job)?;
        let ranks = job.cluster.ranks();
        #[allow(clippy::cast_precision_loss, reason = "ranks and steps are far below 2^53")]
        let (gpus, total) = (ranks as f64, job.steps.map(|it| it as f64 * step.time.0 + job.startup.0));
        let what_if = changes.iter().map(|(change, changed)| what_if(change, &of(changed), &step)).collect();
        let part = |kind: Kind| {
            let part = step.breakdown[kind];
            Part {
                kind: kind.key(),
                what: kind.describe(),
                exposed_s: rounded(part.exposed.0),
                hidden_s: rounded(part.hidden.0),
            }
        };
        let mut notes = predictor.measured_notes(&job.measured, &job.run);
        notes.extend(text::assumed(job.assumed.iter().chain(&job.assumed_layout)));
        notes.extend(job.notes.clone());
        notes.extend(text::remarks(job, &step));
        let cost = |seconds: f64, price: f64| seconds / 3600.0 * f64::from(job.cluster.nodes) * price;
        if let (None, Some(price)) = (total, price) {
            let thousand = shown(cost(1000.0 * step.time.0, price));
            notes.push(format!("`steps` is not given: 1000 steps cost {thousand}"));
        }
        Ok(Self {
            schema: "plumb.predict/1",
            job: text::describe(job),
            parameters: rounded(job.model.parameters()),
            gpus: ranks,
            dp: ranks / job.run.model_ranks().max(1),
            step_time_s: rounded(step.time.0),
            interval_s: [rounded(step.interval.0.0), rounded(step.interval.1.0)],
            tokens_per_s_per_gpu: rounded(step.tokens_per_gpu),
            tokens_per_s: rounded(step.tokens_per_gpu * gpus),
            model_tflops_per_gpu: rounded(step.tflops),
            mfu: rounded(step.mfu),
            flops_counted: "6 for each parameter a token meets, and 12 x layers x width x sequence for attention; recomputation is not counted",
            total_time_s: total.map(rounded),
            cost: total.zip(price).map(|(seconds, price)| rounded(cost(seconds, price))),
            memory_gib: MemoryGib::new(&step.memory),
            fits: step.memory.fits(),
            breakdown: Kind::ALL
                .into_iter()
                .map(part)
                .filter(|it| it.exposed_s > 0.0 || it.hidden_s > 0.0)
                .collect(),
            bottleneck: Bottleneck {
                kind: step.breakdown.bottleneck().key(),
                text: text::bottleneck(job, &step),
            },
            what_if,
            notes,
            log: None,
            measured: None,
        })
    }

    /// Adds what the log of the job says; what-ifs are scaled to the step that it measured.
    #[must_use]
    pub fn from_log(mut self, from: FromLog) -> Self {
        let saying = |(key, value, source)| Saying { key, value, source };
        self.log = Some(OfLog {
            files: from.files,
            says: from.said.into_iter().map(saying).collect(),
            paths: from.paths,
        });
        self.measured = from.measured.map(|(seconds, how)| MeasuredStep {
            step_time_s: rounded(seconds),
            ratio: rounded(seconds / self.step_time_s),
            how,
        });
        if let Some(measured) = &self.measured {
            for it in &mut self.what_if {
                it.scaled_s = it.ratio.map(|ratio| rounded(ratio * measured.step_time_s));
            }
        }
        self
    }

    /// For programs.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        crate::json::write_json(self, out)
    }
}

fn what_if(change: &str, changed: &Result<Step, Broken>, now: &Step) -> WhatIf {
    let change = change.to_owned();
    match changed {
        Err(broken) => WhatIf {
            change,
            step_time_s: None,
            ratio: None,
            scaled_s: None,
            fits: None,
            text: broken.to_string(),
        },
        Ok(step) => WhatIf {
            change,
            step_time_s: Some(rounded(step.time.0)),
            ratio: Some(rounded(step.time.0 / now.time.0)),
            scaled_s: None,
            fits: Some(step.memory.fits()),
            text: step.breakdown.bottleneck().describe().to_owned(),
        },
    }
}

impl MemoryGib {
    fn new(memory: &Memory) -> Self {
        Self {
            total: rounded(memory.total().0),
            weights: rounded(memory.weights.0),
            gradients: rounded(memory.gradients.0),
            optimizer: rounded(memory.optimizer.0),
            activations: rounded(memory.activations.0),
            buffers: rounded(memory.buffers.0),
            context: rounded(memory.context.0),
            available: rounded(memory.available.0),
            host: rounded(memory.host.0),
            host_available: memory.host_available.map(|it| rounded(it.0)),
        }
    }
}
