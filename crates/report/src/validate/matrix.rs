//! Who reached what with whom.

use std::collections::BTreeMap;

use ::validate::{Fleet, Host, Reference, Sample, Usual};
use serde::Serialize;

/// Pairs of machines, as parts of what is normal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Matrix {
    /// What was measured.
    pub test: String,
    /// What is normal, in GB/s.
    #[serde(rename = "normal_GBps")]
    pub normal: f64,
    /// Machines by their place in `hosts` of the answer.
    pub pairs: Vec<Cell>,
}

/// One pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// The machines, by their place in `hosts`.
    pub hosts: [usize; 2],
    /// The mean of its measurements over what is normal; null if all failed.
    pub share: Option<f64>,
    /// Measurements,
    pub runs: usize,
    /// and how many of them failed.
    pub failed: usize,
    /// Whether it counts as slow.
    pub slow: bool,
    /// The share of segments that the worse of the two sends again, on average; null where that is not known.
    pub resent: Option<f64>,
    /// Whether that counts as a loss.
    pub lossy: bool,
}

impl Cell {
    /// Whether some of its measurements failed and others did not.
    pub(super) const fn fails_at_times(&self) -> bool {
        self.failed > 0 && self.failed < self.runs
    }
}

/// Sums over the measurements of a pair.
#[derive(Default)]
struct Sums {
    runs: usize,
    rate: f64,
    rates: u32,
    resent: f64,
    losses: u32,
}

impl Matrix {
    pub(super) fn of(fleet: &Fleet, samples: &[Sample], reference: &Reference, test: String) -> Self {
        let worse = |it: &Sample| it.resent.map(|[one, other]| one.max(other));
        let usual = Usual::of(samples.iter().filter_map(worse));
        let mut cells: BTreeMap<[Host; 2], Sums> = BTreeMap::new();
        for sample in samples.iter().filter(|it| it.pair.hosts().iter().all(|it| it.0 < fleet.len())) {
            let cell = cells.entry(sample.pair.hosts()).or_default();
            cell.runs += 1;
            if let Some(rate) = sample.rate {
                cell.rate += rate.0;
                cell.rates += 1;
            }
            if let Some(share) = worse(sample) {
                cell.resent += share;
                cell.losses += 1;
            }
        }
        let pairs = cells.into_iter().map(|(hosts, sums)| {
            let mean = (sums.rates > 0).then(|| sums.rate / f64::from(sums.rates));
            let resent = (sums.losses > 0).then(|| sums.resent / f64::from(sums.losses));
            Cell {
                hosts: hosts.map(|it| it.0),
                share: mean.map(|it| reference.share(it)),
                runs: sums.runs,
                failed: sums.runs.saturating_sub(sums.rates as usize),
                slow: reference.is_slow(mean),
                resent,
                lossy: usual.zip(resent).is_some_and(|(usual, share)| usual.is_lossy(share)),
            }
        });
        Self { test, normal: reference.normal, pairs: pairs.collect() }
    }
}
