//! One predicted step as a drawing: what every format of it needs.

use std::io::{self, Write};

use forecast::training::{Broken, Calibration, Job, Kind, Predictor, Step, Timeline, TooMany};

use super::{svg, text, trace};
use crate::topo::svg::canvas::Picture;

/// One predicted step, ready to be drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawing {
    pub(super) job: String,
    pub(super) step: Step,
    pub(super) timeline: Timeline,
}

/// Why a step cannot be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Undrawn {
    /// The layout is impossible.
    Broken(Broken),
    /// It has too many micro-batches.
    TooMany(TooMany),
}

impl std::fmt::Display for Undrawn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Broken(it) => it.fmt(f),
            Self::TooMany(it) => it.fmt(f),
        }
    }
}

impl std::error::Error for Undrawn {}

impl Drawing {
    /// Predicts a step of a job and puts it in order.
    pub fn new(job: &Job) -> Result<Self, Undrawn> {
        let calibration = Calibration::published();
        let predictor = Predictor::new(&calibration, &job.model, &job.cluster);
        let step = predictor.step(&job.run).map_err(Undrawn::Broken)?;
        let timeline = Timeline::new(job, &step).map_err(Undrawn::TooMany)?;
        Ok(Self { job: text::describe(job), step, timeline })
    }

    /// As a trace that Perfetto and Chrome show: Google's "Trace Event Format".
    pub fn trace(&self, out: &mut impl Write) -> io::Result<()> {
        trace::write(self, out)
    }

    /// As a picture.
    pub fn svg(&self, out: &mut impl Write) -> io::Result<()> {
        svg::picture(self, true).document(out)
    }

    /// The same for a page, which has what the picture has above it.
    pub(crate) fn picture(&self, with_head: bool) -> Picture {
        svg::picture(self, with_head)
    }

    /// `stage 3`, or `each GPU` without a pipeline.
    pub(super) fn stage_name(&self, stage: u32) -> String {
        if self.timeline.stages_there == 1 { "each GPU".to_owned() } else { format!("stage {stage}") }
    }
}

/// What works on a kind: every track is one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Track {
    Compute,
    Communication(Kind),
    Host,
}

impl Track {
    /// All, in the order of a drawing.
    pub(super) const ALL: [Self; 8] = [
        Self::Compute,
        Self::Communication(Kind::Tensor),
        Self::Communication(Kind::Context),
        Self::Communication(Kind::Expert),
        Self::Communication(Kind::Pipeline),
        Self::Communication(Kind::Gather),
        Self::Communication(Kind::Gradients),
        Self::Host,
    ];

    pub(super) fn of(kind: Kind) -> Self {
        match kind {
            Kind::Tensor | Kind::Context | Kind::Expert | Kind::Pipeline | Kind::Gather | Kind::Gradients => {
                Self::Communication(kind)
            }
            Kind::Launch | Kind::Pcie | Kind::CpuOptimizer => Self::Host,
            Kind::Matrices
            | Kind::Attention
            | Kind::Elementwise
            | Kind::Head
            | Kind::Recompute
            | Kind::Bubble
            | Kind::Optimizer
            | Kind::Straggler => Self::Compute,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication(kind) => kind.describe(),
            Self::Host => "host and PCIe",
        }
    }
}
