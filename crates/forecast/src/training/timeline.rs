//! One predicted step, drawn out: which stage does what, when.
//!
//! The prediction says how long each kind of work takes in all. Here these times are put in order: the schedule of the pipeline
//! (`order`) says which micro-batch a stage works on next, and every pass over a micro-batch has its part of each kind. Sums by kind on
//! the slowest stage and the end are those of the prediction. How a kind is divided between the passes follows its operations:
//! backward passes have twice the matrix products of forward passes.

mod order;

use std::fmt;

use super::job::Job;
use super::run::{Framework, Recompute, Run};
use super::step::{Breakdown, Kind, Seconds, Step};
use order::{Pass, Scheduled, Task};

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// The pipeline stages that are shown; one without a pipeline.
    pub stages: Vec<StageTimeline>,
    /// How many stages the job has.
    pub stages_there: u32,
    /// When the step ends.
    pub end: Seconds,
}

/// What one stage does.
#[derive(Debug, Clone, PartialEq)]
pub struct StageTimeline {
    /// Its number, from 0.
    pub stage: u32,
    /// Whether the times of the prediction are those of this stage.
    pub slowest: bool,
    /// Passes over micro-batches, in order.
    pub passes: Vec<PassSpan>,
    /// What is done, by kind. What is hidden runs beside other work.
    pub spans: Vec<Span>,
}

/// A pass over one micro-batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PassSpan {
    /// Whether it is the backward pass.
    pub backward: bool,
    /// Which micro-batch, from 0.
    pub micro_batch: u32,
    /// Which of the stage's pieces of the model, from 0; above 0 in interleaved schedules.
    pub piece: u32,
    /// When it begins.
    pub start: Seconds,
    /// How long it takes.
    pub length: Seconds,
}

/// Work of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Its kind.
    pub kind: Kind,
    /// Whether it runs beside other work, and adds nothing to the step.
    pub hidden: bool,
    /// When it begins.
    pub start: Seconds,
    /// How long it takes.
    pub length: Seconds,
}

/// A step has too many micro-batches to be drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany {
    /// Passes of all stages.
    pub passes: u64,
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the step has {} passes over micro-batches, and a timeline at most {MOST}: set a smaller `global_batch`",
            self.passes
        )
    }
}

impl std::error::Error for TooMany {}

/// Passes of all stages that are put in order.
const MOST: u64 = 1_000_000;

/// Passes that are shown: of jobs with more, only some stages are.
const SHOWN: u64 = 10_000;

impl Timeline {
    /// The step of a job, as it was predicted.
    pub fn new(job: &Job, step: &Step) -> Result<Self, TooMany> {
        let run = &job.run;
        let dp = (job.cluster.ranks() / run.model_ranks().max(1)).max(1);
        let each = u64::from(run.micro_batch).saturating_mul(dp).max(1);
        let micro_batches = (u64::from(run.global_batch) / each).max(1);
        let per_stage = 2 * micro_batches.saturating_mul(run.vpp.into());
        let passes = per_stage.saturating_mul(run.pp.into());
        let Some(micro_batches) = u32::try_from(micro_batches).ok().filter(|_| passes <= MOST) else {
            return Err(TooMany { passes });
        };
        let parts = Parts::new(run, &step.breakdown, micro_batches);
        let stages = parts.stages(run);
        let tasks = order::schedule(run, micro_batches, |stage, backward| {
            let scale = stages.scale(stage);
            parts.pass(backward, f64::from(run.vpp)).sum() * scale + parts.send / 2.0
        });
        let end = tasks.iter().flatten().map(|it| it.end).fold(0.0, f64::max);
        let wanted = parts.piped();
        // Unlike stages wait for each other in ways that the prediction's sum does not see.
        let stretch = if end > 0.0 { wanted / end } else { 1.0 };
        let most = usize::try_from((SHOWN / per_stage.max(1)).clamp(1, run.pp.into())).unwrap_or(1);
        let shown = chosen(run.pp, most, stages.slowest);
        let stages = shown.into_iter().filter_map(|stage| {
            let tasks = tasks.get(stage as usize)?;
            Some(parts.draw(run, stage, &stages, tasks, stretch, wanted))
        });
        Ok(Self { stages: stages.collect(), stages_there: run.pp, end: step.time })
    }
}

/// At most this many stages: the first, the last, the slowest, and some between them.
fn chosen(stages: u32, most: usize, slowest: u32) -> Vec<u32> {
    let all = usize::try_from(stages).unwrap_or(usize::MAX);
    if most >= all {
        return (0..stages).collect();
    }
    if most == 1 {
        return vec![slowest];
    }
    let last = u64::from(stages.saturating_sub(1));
    let steps = (most - 1) as u64;
    let mut some: Vec<u32> = (0..=steps).filter_map(|it| u32::try_from(last * it / steps).ok()).collect();
    if let (false, Some(second)) = (some.contains(&slowest), some.get_mut(1)) {
        *second = slowest;
    }
    some.sort_unstable();
    some.dedup();
    some
}

/// Which stage is the slowest, and how much faster the others are.
#[derive(Debug, Clone, Copy)]
struct Stages {
    slowest: u32,
    others: f64,
}

impl Stages {
    fn scale(&self, stage: u32) -> f64 {
        if stage == self.slowest { 1.0 } else { self.others }
    }
}

/// The times of the prediction: for each micro-batch, and once a step.
#[derive(Debug, Clone)]
struct Parts<'a> {
    breakdown: &'a Breakdown,
    run: &'a Run,
    micro_batches: f64,
    /// What the slowest stage needs for one micro-batch, both passes, without sends.
    both: f64,
    /// The sends of one micro-batch and piece, both ways.
    send: f64,
}

/// Kinds of a pass in the order in which they are drawn: what it waits for first, then its work, then what it sends.
const BEFORE: [Kind; 2] = [Kind::Gather, Kind::Pcie];
const WORK: [Kind; 9] = [
    Kind::Launch,
    Kind::Recompute,
    Kind::Matrices,
    Kind::Attention,
    Kind::Elementwise,
    Kind::Head,
    Kind::Tensor,
    Kind::Context,
    Kind::Expert,
];
const AFTER: [Kind; 1] = [Kind::Gradients];
/// What is done once a step, in order.
const ONCE: [Kind; 5] = [Kind::Straggler, Kind::Gradients, Kind::CpuOptimizer, Kind::Optimizer, Kind::Gather];

/// The exposed and hidden parts of one pass.
#[derive(Debug, Clone, Default)]
struct Portions(Vec<(Kind, f64, f64)>);

impl Portions {
    fn sum(&self) -> f64 {
        self.0.iter().map(|it| it.1).sum()
    }
}

impl<'a> Parts<'a> {
    fn new(run: &'a Run, breakdown: &'a Breakdown, micro_batches: u32) -> Self {
        let micro_batches = f64::from(micro_batches);
        let mut parts = Self { breakdown, run, micro_batches, both: 0.0, send: 0.0 };
        parts.both = parts.pass(false, 1.0).sum() + parts.pass(true, 1.0).sum();
        let slots = micro_batches * f64::from(run.vpp) + f64::from(run.pp) - 1.0;
        parts.send = breakdown[Kind::Pipeline].exposed.0 / slots.max(1.0);
        parts
    }

    fn stages(&self, run: &Run) -> Stages {
        let last = run.pp.saturating_sub(1);
        // The prediction counts the head only where the last stage is the slowest.
        let head = self.breakdown[Kind::Head].exposed.0 > 0.0;
        let slowest = if head { last } else { last / 2 };
        let others = self.breakdown[Kind::Bubble].exposed.0 * f64::from(run.vpp)
            / f64::from(last.max(1))
            / self.both.max(f64::MIN_POSITIVE);
        Stages { slowest, others: others.clamp(0.0, 1.0) }
    }

    /// Until the last pass ends.
    fn piped(&self) -> f64 {
        self.micro_batches * self.both
            + self.breakdown[Kind::Bubble].exposed.0
            + self.breakdown[Kind::Pipeline].exposed.0
    }

    /// Whether a kind belongs to micro-batches, not to the end of the step.
    fn each_micro_batch(&self, kind: Kind) -> bool {
        let (framework, zero) = (self.run.framework, self.run.zero);
        match kind {
            Kind::Gather => zero == 3 || (framework == Framework::Fsdp && zero > 0),
            Kind::Gradients => {
                zero == 3
                    || (framework == Framework::Fsdp && zero > 0)
                    || (framework == Framework::DeepSpeed && zero == 2)
            }
            _ => BEFORE.contains(&kind) || WORK.contains(&kind),
        }
    }

    /// The part of a kind that belongs to the forward pass.
    fn forward(&self, kind: Kind) -> f64 {
        match kind {
            Kind::Recompute | Kind::Gradients => 0.0,
            // Two products forward, five backward.
            Kind::Attention if self.run.flash_attention => 2.0 / 7.0,
            Kind::Tensor | Kind::Context | Kind::Expert if self.run.recompute != Recompute::Full => 0.5,
            // FSDP that shards gradients keeps what it gathered.
            Kind::Gather if self.run.zero != 3 => 1.0,
            Kind::Gather => 0.5,
            Kind::Pcie if !self.run.offload.params => 0.0,
            _ => 1.0 / 3.0,
        }
    }

    /// One pass of the slowest stage over a micro-batch and one of its `pieces` of the model.
    fn pass(&self, backward: bool, pieces: f64) -> Portions {
        let of = |kind: Kind| {
            let part = self.breakdown[kind];
            let share = if backward { 1.0 - self.forward(kind) } else { self.forward(kind) };
            let share = share / self.micro_batches / pieces;
            (kind, part.exposed.0 * share, part.hidden.0 * share)
        };
        let kinds = BEFORE.into_iter().chain(WORK).chain(AFTER).filter(|it| self.each_micro_batch(*it));
        Portions(kinds.map(of).filter(|it| it.1 > 0.0 || it.2 > 0.0).collect())
    }

    fn draw(
        &self,
        run: &Run,
        stage: u32,
        stages: &Stages,
        tasks: &[Scheduled],
        stretch: f64,
        end: f64,
    ) -> StageTimeline {
        let mut drawn =
            StageTimeline { stage, slowest: stage == stages.slowest, passes: Vec::new(), spans: Vec::new() };
        let passes = [false, true].map(|backward| self.pass(backward, f64::from(run.vpp)));
        let hidden = self.breakdown[Kind::Pipeline].hidden.0 / self.slots();
        for it in tasks {
            let Task { pass, micro_batch, piece } = it.task;
            let backward = pass == Pass::Backward;
            drawn.passes.push(PassSpan {
                backward,
                micro_batch,
                piece,
                start: Seconds(it.start * stretch),
                length: Seconds((it.end - it.start) * stretch),
            });
            let scale = stages.scale(stage) * stretch;
            let portions = &passes[usize::from(backward)];
            let start = it.start * stretch;
            let after = drawn.pass(portions, scale, start);
            drawn.add(Kind::Pipeline, after, self.send / 2.0 * stretch);
            drawn.hide(Kind::Pipeline, start, hidden / 2.0 * stretch);
        }
        self.finish(&mut drawn, end);
        drawn
    }

    /// Sends of one direction: in a pipeline every pass has one.
    fn slots(&self) -> f64 {
        (self.micro_batches * f64::from(self.run.vpp)).max(1.0)
    }

    /// What is done once a step, after the last pass, and what of it ran beside the passes.
    fn finish(&self, drawn: &mut StageTimeline, end: f64) {
        let mut at = end;
        for kind in ONCE.into_iter().filter(|it| !self.each_micro_batch(*it)) {
            let part = self.breakdown[kind];
            // Gradients are reduced beside the last backward passes; parameters are gathered beside the first forward passes.
            let beside = if kind == Kind::Gather { 0.0 } else { (end - part.hidden.0).max(0.0) };
            drawn.hide(kind, beside, part.hidden.0.min(end));
            drawn.add(kind, at, part.exposed.0);
            at += part.exposed.0;
        }
    }
}

impl StageTimeline {
    fn add(&mut self, kind: Kind, start: f64, length: f64) {
        self.span(kind, start, length, false);
    }

    fn hide(&mut self, kind: Kind, start: f64, length: f64) {
        self.span(kind, start, length, true);
    }

    fn span(&mut self, kind: Kind, start: f64, length: f64, hidden: bool) {
        if length > 0.0 {
            self.spans.push(Span { kind, hidden, start: Seconds(start), length: Seconds(length) });
        }
    }

    /// The kinds of a pass one after the other, and beside its work what is hidden; when it ends.
    fn pass(&mut self, portions: &Portions, scale: f64, start: f64) -> f64 {
        let mut at = start;
        let mut work = None;
        for (kind, exposed, _) in &portions.0 {
            if WORK.contains(kind) {
                work = work.or(Some(at));
            }
            self.add(*kind, at, exposed * scale);
            at += exposed * scale;
        }
        // What hides behind the same work runs one after the other.
        let mut beside = work.unwrap_or(start);
        for (kind, _, hidden) in portions.0.iter().filter(|it| it.2 > 0.0) {
            self.hide(*kind, beside, hidden * scale);
            beside += hidden * scale;
        }
        at
    }
}

#[cfg(test)]
mod tests;
