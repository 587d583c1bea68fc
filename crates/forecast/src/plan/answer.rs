//! The answer of a search: the best layout, what comes after it and why.

use fabric::units::Gibibytes;

use super::reason::{Reason, reasons};
use super::search::{Candidate, Found, Search, state};
use crate::training::{Run, Seconds, Step};

/// A layout with its prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The layout.
    pub run: Run,
    /// What a step takes.
    pub step: Step,
    /// Whether it fits with what is kept free.
    pub fits: bool,
}

/// A layout that is not the best, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Other {
    /// The layout.
    pub choice: Choice,
    /// Its time over that of the best one.
    pub ratio: f64,
    /// What takes longer.
    pub reasons: Vec<Reason>,
}

/// The search again with less bandwidth between GPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct Slower {
    /// The share of the bandwidth that is left.
    pub bandwidth: f64,
    /// The time of the best layout then.
    pub time: Seconds,
    /// The layout that is best then; none if it is the same.
    pub other: Option<Choice>,
}

/// Which layout is best, and what else there is.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Layouts predicted.
    pub searched: u64,
    /// Those that fit.
    pub fitting: u64,
    /// Memory of a GPU that a layout may need.
    pub limit: Gibibytes,
    /// The fastest layout that fits, with the smallest micro-batches that are as fast.
    pub best: Option<Choice>,
    /// The best of other (tp, pp, cp, ep), or of other ways to shard and offload states where those are few; the fastest first.
    pub runners_up: Vec<Other>,
    /// The best layout with one setting changed.
    pub changes: Vec<Other>,
    /// Time against memory: from the best to the one with the least memory.
    pub front: Vec<Choice>,
    /// A faster layout that does not fit, but would with twice the memory.
    pub over: Option<Other>,
    /// The layout with the least memory, whether it fits or not.
    pub least: Option<Choice>,
    /// With less bandwidth.
    pub slower: Option<Slower>,
}

/// Layouts of the front are shown if they save this share of memory.
const FRONT: f64 = 0.95;

impl Plan {
    /// From what was found, and what was found with less bandwidth, which is the share given.
    pub fn new(search: &Search<'_>, found: &Found, with_less: Option<(f64, &Search<'_>, &Found)>) -> Self {
        let choice = |it: &Candidate| choice(search, &it.run);
        let best = found.best().and_then(choice);
        let other = |best: &Choice, it: Choice| Other {
            ratio: it.step.time.0 / best.step.time.0,
            reasons: reasons(&it.step, &best.step),
            choice: it,
        };
        let mut plan = Self {
            searched: found.searched,
            fitting: found.fitting,
            limit: search.limit(),
            best,
            runners_up: Vec::new(),
            changes: Vec::new(),
            front: found
                .best()
                .map(|it| found.front().from(it, FRONT).into_iter().filter_map(choice).collect())
                .unwrap_or_default(),
            over: None,
            least: found.least().and_then(choice),
            slower: None,
        };
        let Some(best) = best else { return plan };
        let runners_up = runners_up(found, &best.run);
        plan.runners_up = runners_up.iter().filter_map(choice).map(|it| other(&best, it)).collect();
        let changes = changes(search, &best).into_iter();
        let listed = |run: &Run| runners_up.iter().any(|it| it.run == *run);
        plan.changes = changes.filter(|it| !listed(&it.run)).map(|it| other(&best, it)).collect();
        plan.over = found
            .over()
            .filter(|it| it.time.0 < best.step.time.0)
            .and_then(choice)
            .map(|it| other(&best, it));
        plan.slower = with_less.and_then(|(bandwidth, search, found)| {
            let time = search.step(&best.run)?.time;
            let then = found.best()?;
            let other = (then.run != best.run).then(|| self::choice(search, &then.run)).flatten();
            Some(Slower { bandwidth, time, other })
        });
        plan
    }
}

fn choice(search: &Search<'_>, run: &Run) -> Option<Choice> {
    let step = search.step(run)?;
    Some(Choice { run: *run, step, fits: search.fits(&step) })
}

/// With fewer runners-up than this, the best layout's (tp, pp, cp, ep) supplies more.
const FEW: usize = 4;

/// The best layout of each other (tp, pp, cp, ep); where those are few, also with other ways to shard and offload states.
fn runners_up(found: &Found, best: &Run) -> Vec<Candidate> {
    let cell = |it: &Run| (it.tp, it.pp, it.cp, it.ep);
    let mut seen = vec![cell(best)];
    let mut all: Vec<Candidate> = Vec::new();
    for it in found.candidates() {
        if !seen.contains(&cell(&it.run)) {
            seen.push(cell(&it.run));
            all.push(*it);
        }
    }
    if all.len() < FEW {
        let same = found.candidates().iter().filter(|it| cell(&it.run) == cell(best));
        all.extend(same.filter(|it| state(&it.run) != state(best)));
        all.sort_by(Candidate::compare);
    }
    all
}

/// The place of offloading in [`settings`].
const OFFLOAD: usize = 3;

/// What differs between two layouts of a cell.
fn settings(run: &Run) -> [u32; 5] {
    let offload = u32::from(run.offload.params) * 2 + u32::from(run.offload.optimizer);
    [run.vpp, run.micro_batch, run.zero, offload, run.recompute as u32]
}

/// The best layout with one setting changed: for each setting the fastest that fits, and the fastest if that one does not fit and would
/// be faster than the best. Offloading where the best has none only costs time, and is left out.
fn changes(search: &Search<'_>, best: &Choice) -> Vec<Choice> {
    let run = &best.run;
    let same = |it: &&super::Cell| (it.tp, it.pp, it.cp, it.ep) == (run.tp, run.pp, run.cp, run.ep);
    let Some(cell) = search.space().cells().iter().find(same) else { return Vec::new() };
    let mut fastest: [[Option<Choice>; 2]; 5] = [[None; 2]; 5];
    let own = settings(run);
    search.space().each(cell, |other| {
        let theirs = settings(other);
        let mut differing = (0..own.len()).filter(|it| own[*it] != theirs[*it]);
        let (Some(axis), None) = (differing.next(), differing.next()) else { return };
        if axis == OFFLOAD && own[OFFLOAD] == 0 {
            return;
        }
        let Some(new) = choice(search, other) else { return };
        let slot = &mut fastest[axis][usize::from(!new.fits)];
        if slot.is_none_or(|it| new.step.time.0 < it.step.time.0) {
            *slot = Some(new);
        }
    });
    let mut all: Vec<Choice> = Vec::new();
    for [fits, over] in fastest {
        all.extend(over.filter(|it| it.step.time.0 < best.step.time.0 || fits.is_none()));
        all.extend(fits);
    }
    all.sort_by(|a, b| a.step.time.0.total_cmp(&b.step.time.0));
    all
}
