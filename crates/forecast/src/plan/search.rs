//! Predicts the layouts of a space.

use std::cmp::Ordering;

use fabric::units::Gibibytes;

use super::front::Front;
use super::space::{Cell, Space};
use crate::training::{Calibration, Offload, Predictor, Recompute, Run, Seconds, Step};

/// A layout with what decides about it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The layout.
    pub run: Run,
    /// A step.
    pub time: Seconds,
    /// Memory of the GPU that needs most.
    pub memory: Gibibytes,
}

impl Candidate {
    /// The better one first: by time, by memory, then the smaller numbers. Two layouts of a space are never equal.
    pub fn compare(&self, other: &Self) -> Ordering {
        let key = |it: &Run| {
            let recompute = match it.recompute {
                Recompute::None => 0,
                Recompute::Selective => 1,
                Recompute::Full => 2,
            };
            (
                it.tp,
                it.pp,
                it.cp,
                it.ep,
                it.vpp,
                it.micro_batch,
                it.zero,
                recompute,
                it.offload.optimizer,
                it.offload.params,
            )
        };
        self.time
            .0
            .total_cmp(&other.time.0)
            .then(self.memory.0.total_cmp(&other.memory.0))
            .then_with(|| key(&self.run).cmp(&key(&other.run)))
    }
}

/// Layouts that differ in their micro-batches alone are as fast if their times differ by less than this: predictions do not tell which
/// of two published runs is faster if they are closer, and do if they are farther apart (`docs/accuracy-training.md`, sweeps).
pub const AS_FAST: f64 = 0.02;

/// Searches the cells of a space.
#[derive(Debug, Clone, Copy)]
pub struct Search<'a> {
    space: &'a Space<'a>,
    predictor: Predictor<'a>,
    /// Memory of a GPU that a layout may need.
    limit: Gibibytes,
}

/// What was found in some cells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// Layouts predicted.
    pub searched: u64,
    /// Those that fit.
    pub fitting: u64,
    /// Of each cell the best that fits with each way to shard and offload states, the fastest first: as fast as any (see [`AS_FAST`]),
    /// with the smallest micro-batches.
    best: Vec<Candidate>,
    /// The fastest that does not fit, but would with twice the memory.
    over: Option<Candidate>,
    /// The one that needs least memory, whether it fits or not.
    least: Option<Candidate>,
    /// Time against memory.
    front: Front,
}

impl<'a> Search<'a> {
    /// Of a space, with constants and the share of GPU memory that is kept free.
    pub fn new(calibration: &'a Calibration, space: &'a Space<'a>, headroom: f64) -> Self {
        let job = space.job();
        Self {
            space,
            predictor: Predictor::new(calibration, &job.model, &job.cluster).measured(&job.measured),
            limit: Gibibytes(job.cluster.gpu.memory.0 * (1.0 - headroom)),
        }
    }

    /// The same with this share of the bandwidth of all links between GPUs.
    #[must_use]
    pub fn with_bandwidth(self, share: f64) -> Self {
        Self { predictor: self.predictor.with_bandwidth(share), ..self }
    }

    /// What is searched.
    pub fn space(&self) -> &'a Space<'a> {
        self.space
    }

    /// Memory of a GPU that a layout may need.
    pub fn limit(&self) -> Gibibytes {
        self.limit
    }

    /// One layout, if it is possible.
    pub fn step(&self, run: &Run) -> Option<Step> {
        self.predictor.step(run).ok()
    }

    /// Whether a step fits into GPU and host, with what is kept free.
    pub fn fits(&self, step: &Step) -> bool {
        step.memory.fits() && step.memory.total().0 <= self.limit.0
    }

    /// All layouts of a cell.
    pub fn cell(&self, cell: &Cell) -> Found {
        let mut found = Found::default();
        let mut best: Vec<Candidate> = Vec::new();
        let twice = 2.0 * self.space.job().cluster.gpu.memory.0;
        self.space.each(cell, |run| {
            let Some(step) = self.step(run) else { return };
            found.searched += 1;
            let new = Candidate { run: *run, time: step.time, memory: step.memory.total() };
            if self.fits(&step) {
                found.fitting += 1;
                match best.iter_mut().find(|it| state(&it.run) == state(run)) {
                    Some(old) if new.compare(old).is_lt() => *old = new,
                    Some(_) => {}
                    None => best.push(new),
                }
                found.front.add(&new);
            } else if new.memory.0 <= twice {
                better(&mut found.over, &new);
            }
            let less = |old: &Candidate| {
                new.memory.0.total_cmp(&old.memory.0).then_with(|| new.compare(old)).is_lt()
            };
            if found.least.as_ref().is_none_or(less) {
                found.least = Some(new);
            }
        });
        for it in &mut best {
            *it = self.smallest(cell, it);
        }
        best.sort_by(Candidate::compare);
        found.best = best;
        found
    }

    /// The same layout with the smallest micro-batches that are as fast: less memory is sure, and a gain that small is not.
    fn smallest(&self, cell: &Cell, fastest: &Candidate) -> Candidate {
        let smaller = |micro_batch: u32| {
            let run = Run { micro_batch, ..fastest.run };
            let step = self.step(&run).filter(|it| self.fits(it))?;
            let as_fast = step.time.0 <= fastest.time.0 * (1.0 + AS_FAST);
            as_fast.then(|| Candidate { run, time: step.time, memory: step.memory.total() })
        };
        let sizes = self.space.micro_batches(cell, fastest.run.vpp);
        sizes.filter(|it| *it < fastest.run.micro_batch).find_map(smaller).unwrap_or(*fastest)
    }

    /// All cells, one after the other.
    pub fn all(&self) -> Found {
        self.space.cells().iter().map(|it| self.cell(it)).fold(Found::default(), Found::merge)
    }
}

/// How states are sharded and offloaded.
pub(super) fn state(run: &Run) -> (u32, Offload) {
    (run.zero, run.offload)
}

fn better(old: &mut Option<Candidate>, new: &Candidate) {
    if old.as_ref().is_none_or(|it| new.compare(it).is_lt()) {
        *old = Some(*new);
    }
}

impl Found {
    /// What was found in both, the same in any order.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.searched += other.searched;
        self.fitting += other.fitting;
        for new in other.best {
            let place = self.best.partition_point(|it| it.compare(&new).is_lt());
            self.best.insert(place, new);
        }
        if let Some(it) = &other.over {
            better(&mut self.over, it);
        }
        let less = |old: &Candidate, new: &Candidate| {
            new.memory.0.total_cmp(&old.memory.0).then_with(|| new.compare(old)).is_lt()
        };
        if let Some(new) = other.least
            && self.least.as_ref().is_none_or(|old| less(old, &new))
        {
            self.least = Some(new);
        }
        self.front.merge(&other.front);
        self
    }

    /// The fastest that fits, with the smallest micro-batches that are as fast.
    pub fn best(&self) -> Option<&Candidate> {
        self.best.first()
    }

    /// Of each cell the best with each way to shard and offload states, the fastest first.
    pub fn candidates(&self) -> &[Candidate] {
        &self.best
    }

    /// The fastest that does not fit, but would with twice the memory.
    pub fn over(&self) -> Option<&Candidate> {
        self.over.as_ref()
    }

    /// The one that needs least memory, whether it fits or not.
    pub fn least(&self) -> Option<&Candidate> {
        self.least.as_ref()
    }

    /// Time against memory, of those that fit.
    pub fn front(&self) -> &Front {
        &self.front
    }
}
