//! What a run reached at a size, and what runs of the same machines reach.

use std::collections::{BTreeMap, BTreeSet};

use evidence::plain::{NcclTests, Row, Timing};
use fabric::units::GigabytesPerSecond;

use super::Set;
use crate::chance::as_f64;
use crate::reference::Reference;

/// Below this a bandwidth may print as 0.00.
const ROUNDS_TO_ZERO: f64 = 0.01;
/// Runs above what is normal by more than this do not say how far normal ones scatter.
const ABOVE: f64 = 1.1;

/// What a row says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Reached {
    /// There is no such row, or its size is so small that its bandwidth rounds to zero.
    Nothing,
    /// It has a size and no bandwidth: zero, negative, infinite or not a number.
    Unusable,
    /// In GB/s.
    Rate(f64),
}

/// What a run reached at a size.
pub(super) fn of(test: &NcclTests, bytes: u64) -> Reached {
    test.rows.iter().find(|it| it.size == bytes).map_or(Reached::Nothing, row)
}

/// In place and out of place, on average.
pub(super) fn row(row: &Row) -> Reached {
    let timings: Vec<Timing> = [row.out_of_place, row.in_place].into_iter().flatten().collect();
    // A test that could not measure one of the two measured nothing that can be trusted.
    if timings.iter().any(|it| !is_usable(it) && !rounds_to_zero(row.size, it)) {
        return Reached::Unusable;
    }
    let rates: Vec<f64> = timings.iter().filter(|it| is_usable(it)).map(|it| it.busbw).collect();
    match rates.len() {
        0 => Reached::Nothing,
        many => Reached::Rate(rates.iter().sum::<f64>() / as_f64(many)),
    }
}

fn is_usable(timing: &Timing) -> bool {
    timing.busbw.is_finite() && timing.busbw > 0.0
}

/// Whether so few bytes took so long that zero is what two decimals leave.
fn rounds_to_zero(size: u64, timing: &Timing) -> bool {
    let reached = || size_in_kilobytes(size) / timing.time;
    timing.busbw == 0.0 && (size == 0 || timing.time > 0.0 && reached() < ROUNDS_TO_ZERO)
}

/// Kilobytes in a microsecond are GB/s.
fn size_in_kilobytes(size: u64) -> f64 {
    // Beyond four gigabytes nothing rounds to zero.
    u32::try_from(size).map_or(f64::INFINITY, f64::from) / 1e3
}

/// The largest size that at least nine of ten runs with results have. A row without a bandwidth counts: else a size at which runs fail
/// would give way to a smaller one.
pub(super) fn compared<'a>(tests: impl Iterator<Item = &'a NcclTests>) -> u64 {
    let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
    let mut measured = 0;
    for test in tests.filter(|it| !it.rows.is_empty()) {
        measured += 1;
        let rows = test.rows.iter().filter(|it| row(it) != Reached::Nothing);
        let own: BTreeSet<u64> = rows.map(|it| it.size).collect();
        for size in own {
            *sizes.entry(size).or_default() += 1;
        }
    }
    let common = sizes.iter().rev().find(|it| it.1 * 10 >= measured * 9);
    let most = sizes.iter().max_by_key(|it| it.1);
    common.or(most).map_or(0, |it| *it.0)
}

impl Set {
    /// What its runs reached, those that failed left out.
    pub fn rates(&self) -> impl Iterator<Item = f64> {
        self.runs.iter().filter_map(|it| it.rate).map(|it| it.0)
    }

    /// What is normal among its runs. Of runs of the same machines the middle one counts: no other machine explains why one of them is
    /// slower than the best.
    pub fn reference(&self) -> Option<Reference> {
        let Some(middle) = self.middle().filter(|_| self.is_of_the_same_machines()) else {
            return Reference::of(self.rates());
        };
        let around = Reference::of(self.rates().filter(|it| *it <= middle * ABOVE))?;
        let scale = middle / around.normal;
        Some(Reference {
            normal: middle,
            slow_below: around.slow_below * scale,
            normal_from: around.normal_from * scale,
            ..around
        })
    }

    /// The middle of what its runs reached; of an even number the lower one of two.
    pub fn middle(&self) -> Option<f64> {
        let mut rates: Vec<f64> = self.rates().collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len().checked_sub(1)? / 2).copied()
    }

    /// Runs of which this is not reached.
    pub fn below(&self, needed: GigabytesPerSecond) -> usize {
        self.rates().filter(|it| *it < needed.0).count()
    }

    fn is_of_the_same_machines(&self) -> bool {
        self.runs.iter().all(|it| self.runs.first().is_some_and(|first| first.hosts == it.hosts))
    }
}
