//! Who reached what with whom.

use std::collections::BTreeMap;

use ::validate::{Fleet, Host, Reference, Sample};
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
    /// Whether it counts as slow.
    pub slow: bool,
}

impl Matrix {
    pub(super) fn of(fleet: &Fleet, samples: &[Sample], reference: &Reference, test: String) -> Self {
        let mut cells: BTreeMap<[Host; 2], (f64, u32)> = BTreeMap::new();
        for sample in samples.iter().filter(|it| it.pair.hosts().iter().all(|it| it.0 < fleet.len())) {
            let cell = cells.entry(sample.pair.hosts()).or_default();
            if let Some(rate) = sample.rate {
                cell.0 += rate.0;
                cell.1 += 1;
            }
        }
        let pairs = cells.into_iter().map(|(hosts, (sum, count))| {
            let mean = (count > 0).then(|| sum / f64::from(count));
            Cell {
                hosts: hosts.map(|it| it.0),
                share: mean.map(|it| reference.share(it)),
                slow: reference.is_slow(mean),
            }
        });
        Self { test, normal: reference.normal, pairs: pairs.collect() }
    }
}
