//! Why one layout is slower than another.

use crate::training::{Kind, Step};

/// A part of the step that takes longer than in the best layout. Shares are of the best layout's step, so that differences add up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reason {
    /// What takes longer.
    pub kind: Kind,
    /// In this layout.
    pub here: f64,
    /// In the best one.
    pub best: f64,
}

/// A second reason counts from this share of the first.
const SECOND: f64 = 0.4;

/// The one or two parts that make a step slower than the best one, the largest first; none if every part is as fast.
pub fn reasons(here: &Step, best: &Step) -> Vec<Reason> {
    let whole = best.time.0.max(f64::MIN_POSITIVE);
    let share = |step: &Step, kind: Kind| step.breakdown[kind].exposed.0 / whole;
    let mut all: Vec<Reason> = Kind::ALL
        .into_iter()
        // Waiting for the slowest GPU follows from what is computed.
        .filter(|it| *it != Kind::Straggler)
        .map(|kind| Reason { kind, here: share(here, kind), best: share(best, kind) })
        .filter(|it| it.here - it.best > 5e-4)
        .collect();
    all.sort_by(|a, b| (b.here - b.best).total_cmp(&(a.here - a.best)));
    let least = all.first().map_or(0.0, |it| SECOND * (it.here - it.best));
    all.retain(|it| it.here - it.best >= least);
    all.truncate(2);
    all
}
