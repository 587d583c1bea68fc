//! The answer of `plumb plan`: which layout of a training job is best. Schema `plumb.plan/1`.

mod groups;
mod settings;
pub(crate) mod table;
pub(crate) mod text;

use std::io::{self, Write};

use forecast::plan::{self, Choice, Other};
use forecast::training::{Broken, Calibration, Job, Predictor, Run, Seconds};
use serde::Serialize;

use crate::expect::rounded;
use crate::predict::text::{assumed, bottleneck, describe};

pub use groups::{Group, Rank};
pub use settings::{Target, command, variables};

/// Runners-up that are kept.
const RUNNERS_UP: usize = 20;

/// Which layout is best.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// `plumb.plan/1`.
    pub schema: &'static str,
    /// The job with its best layout, in words.
    pub job: String,
    /// Its GPUs.
    pub gpus: u64,
    /// What was fixed, as given.
    pub fixed: Vec<String>,
    /// Layouts predicted.
    pub searched: u64,
    /// Those that fit.
    pub fitting: u64,
    /// Memory of a GPU, and what of it a layout may need.
    pub memory_gib: Limit,
    /// The fastest layout that fits.
    pub best: Option<Layout>,
    /// What limits it, in words.
    pub bottleneck: Option<String>,
    /// The layout of the job file.
    pub own: Option<Own>,
    /// The best of other (tp, pp, cp, ep) or `ZeRO`, the fastest first.
    pub runners_up: Vec<Loser>,
    /// The best layout with one setting changed.
    pub changes: Vec<Loser>,
    /// Time against memory, from the fastest to the one with the least memory.
    pub front: Vec<Layout>,
    /// A faster layout that does not fit, but would with twice the memory.
    pub over: Option<Loser>,
    /// The layout with the least memory, whether it fits or not.
    pub least: Option<Layout>,
    /// The search again with less bandwidth between GPUs.
    pub less_bandwidth: Option<LessBandwidth>,
    /// The process groups of the best layout.
    pub groups: Vec<Group>,
    /// Where every rank of it runs, if asked for.
    pub ranks: Option<Vec<Rank>>,
    /// What was assumed.
    pub notes: Vec<String>,
}

/// Memory of a GPU in 2^30 bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    /// What it has.
    pub available: f64,
    /// What a layout may need.
    pub limit: f64,
}

/// A layout and its prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Layout {
    /// In words.
    pub text: String,
    /// Tensor parallelism.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Pieces of the model on each stage.
    pub vpp: u32,
    /// Context parallelism.
    pub cp: u32,
    /// Expert parallelism.
    pub ep: u32,
    /// Data parallelism.
    pub dp: u64,
    /// The stage of `ZeRO`.
    pub zero: u32,
    /// What rests on the host.
    pub offload: Offload,
    /// Sequences of a micro-batch.
    pub micro_batch: u32,
    /// Micro-batches of a step.
    pub micro_batches: u64,
    /// `none`, `selective`, `full`.
    pub recompute: &'static str,
    /// Whether norms are split over the ranks of tensor parallelism.
    pub sequence_parallel: bool,
    /// The time of one step.
    pub step_time_s: f64,
    /// Between which times it lies in nine of ten published runs.
    pub interval_s: [f64; 2],
    /// Tokens per second of one GPU.
    pub tokens_per_s_per_gpu: f64,
    /// Model operations per second of one GPU, in 1e12.
    pub model_tflops_per_gpu: f64,
    /// The same over the peak of the GPU.
    pub mfu: f64,
    /// Memory of the GPU that needs most.
    pub memory_gib: f64,
    /// Memory of a node for what is offloaded.
    pub host_gib: f64,
    /// Whether it fits with what is kept free.
    pub fits: bool,
    /// The time as predicted, for texts.
    #[serde(skip)]
    pub time: Seconds,
}

/// What rests on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Offload {
    /// Parameters.
    pub params: bool,
    /// The optimizer.
    pub optimizer: bool,
}

/// A layout that is not the best.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Loser {
    /// The layout.
    #[serde(flatten)]
    pub layout: Layout,
    /// Its time over that of the best.
    pub ratio: f64,
    /// What takes longer, the largest first.
    pub reasons: Vec<Reason>,
    /// Why it loses, in words.
    pub why: String,
}

/// A part of the step that takes longer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reason {
    /// `bubble`, `gather`, ...
    pub kind: &'static str,
    /// Its part here, of the best layout's step.
    pub share: f64,
    /// Its part in the best layout.
    pub share_of_best: f64,
}

/// The layout of the job file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Own {
    /// None if it is impossible.
    pub layout: Option<Layout>,
    /// The rule that it breaks.
    pub impossible: Option<String>,
    /// What the best layout gains, of the time of a step; none if this one does not fit.
    pub gain: Option<f64>,
}

/// With less bandwidth between GPUs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LessBandwidth {
    /// The share that is left.
    pub bandwidth: f64,
    /// The best layout then.
    pub step_time_s: f64,
    /// Whether it is still the best.
    pub same: bool,
    /// The one that is best then.
    pub best: Option<Layout>,
    /// What the first choice loses then, over that one.
    pub loss: f64,
}

/// What a plan was made for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The job.
    pub job: &'a Job,
    /// Whether its layout is one of the file's.
    pub has_layout: bool,
    /// What was fixed.
    pub fixed: &'a [String],
    /// Whether every rank is listed.
    pub ranks: bool,
}

impl Plan {
    /// The answer of a search.
    pub fn new(asked: Asked<'_>, plan: &plan::Plan) -> Self {
        let job = asked.job;
        let layout = |it: &Choice| Layout::new(job, it);
        let loser = |it: &Other| Loser::new(job, it);
        let with = |run: Run| Job { run, ..job.clone() };
        let best = plan.best.as_ref();
        let chosen = best.map_or_else(|| job.clone(), |it| with(it.run));
        Self {
            schema: "plumb.plan/1",
            job: describe(&chosen),
            gpus: job.cluster.ranks(),
            fixed: asked.fixed.to_vec(),
            searched: plan.searched,
            fitting: plan.fitting,
            memory_gib: Limit { available: rounded(job.cluster.gpu.memory.0), limit: rounded(plan.limit.0) },
            best: best.map(layout),
            bottleneck: best.map(|it| bottleneck(&chosen, &it.step)),
            own: asked.has_layout.then(|| own(job, plan)),
            runners_up: plan.runners_up.iter().take(RUNNERS_UP).map(loser).collect(),
            changes: plan.changes.iter().map(loser).collect(),
            front: plan.front.iter().map(layout).collect(),
            over: plan.over.as_ref().map(loser),
            least: plan.least.as_ref().map(layout),
            less_bandwidth: plan.slower.as_ref().map(|it| LessBandwidth {
                bandwidth: it.bandwidth,
                step_time_s: rounded(it.time.0),
                same: it.other.is_none(),
                best: it.other.as_ref().map(layout),
                loss: rounded(it.other.map_or(0.0, |other| it.time.0 / other.step.time.0 - 1.0)),
            }),
            groups: best.map(|it| groups::all(&job.cluster, &it.run)).unwrap_or_default(),
            ranks: best.filter(|_| asked.ranks).map(|it| groups::ranks(&job.cluster, &it.run)),
            notes: assumed(job.assumed.iter()).into_iter().chain(job.notes.clone()).collect(),
        }
    }

    /// For programs.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        crate::json::write_json(self, out)
    }
}

/// The layout of the job file beside the best one.
fn own(job: &Job, plan: &plan::Plan) -> Own {
    let calibration = Calibration::published();
    let predictor = Predictor::new(&calibration, &job.model, &job.cluster).measured(&job.measured);
    let step: Result<_, Broken> = predictor.step(&job.run);
    match step {
        Err(broken) => Own { layout: None, impossible: Some(broken.to_string()), gain: None },
        Ok(step) => {
            let fits = step.memory.fits();
            let gain = plan.best.filter(|_| fits).map(|best| rounded(1.0 - best.step.time.0 / step.time.0));
            let choice = Choice { run: job.run, step, fits };
            Own { layout: Some(Layout::new(job, &choice)), impossible: None, gain }
        }
    }
}

impl Layout {
    fn new(job: &Job, choice: &Choice) -> Self {
        let (run, step) = (&choice.run, &choice.step);
        let dp = job.cluster.ranks() / run.model_ranks().max(1);
        let sequences = u64::from(run.micro_batch).saturating_mul(dp).max(1);
        Self {
            text: text::layout(run, dp),
            tp: run.tp,
            pp: run.pp,
            vpp: run.vpp,
            cp: run.cp,
            ep: run.ep,
            dp,
            zero: run.zero,
            offload: Offload { params: run.offload.params, optimizer: run.offload.optimizer },
            micro_batch: run.micro_batch,
            micro_batches: u64::from(run.global_batch) / sequences,
            recompute: run.recompute.name(),
            sequence_parallel: run.sequence_parallel,
            step_time_s: rounded(step.time.0),
            interval_s: [rounded(step.interval.0.0), rounded(step.interval.1.0)],
            tokens_per_s_per_gpu: rounded(step.tokens_per_gpu),
            model_tflops_per_gpu: rounded(step.tflops),
            mfu: rounded(step.mfu),
            memory_gib: rounded(step.memory.total().0),
            host_gib: rounded(step.memory.host.0),
            fits: choice.fits,
            time: step.time,
        }
    }
}

impl Loser {
    fn new(job: &Job, other: &Other) -> Self {
        let reason = |it: &plan::Reason| Reason {
            kind: it.kind.key(),
            share: rounded(it.here),
            share_of_best: rounded(it.best),
        };
        Self {
            layout: Layout::new(job, &other.choice),
            ratio: rounded(other.ratio),
            reasons: other.reasons.iter().map(reason).collect(),
            why: text::why(job, other),
        }
    }
}
