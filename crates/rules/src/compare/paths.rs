//! How much of the difference in bandwidth between two runs their machines and paths explain.

use fabric::Collective;

use super::Rate;

/// The bandwidth of a run beside that of the baseline, as measured and as the paths of both make one expect.
#[derive(Debug, Clone, PartialEq)]
pub struct PathRatio {
    /// The run, by its position.
    pub run: usize,
    /// What was run.
    pub collective: Collective,
    /// Bytes: the largest size that both have.
    pub size: u64,
    /// Measured: the bandwidth over that of the baseline.
    pub measured: f64,
    /// The ratio of what is normal on both; none where the machines of one are not known.
    pub expected: Option<ExpectedRatio>,
}

/// A ratio of normal bandwidths.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpectedRatio {
    /// Of the expected ones.
    pub value: f64,
    /// Between which ratios it lies if both are normal.
    pub interval: (f64, f64),
}

impl PathRatio {
    /// Whether the paths explain the measured ratio.
    pub fn is_explained(&self) -> bool {
        self.expected.is_some_and(|it| (it.interval.0..=it.interval.1).contains(&self.measured))
    }
}

/// For each run that is not the baseline and each collective, the largest size that both have.
pub(super) fn of(rates: &[Rate], baseline: usize, runs: usize) -> Vec<PathRatio> {
    let mut found: Vec<PathRatio> = Vec::new();
    for run in (0..runs).filter(|it| *it != baseline) {
        for rate in rates {
            let value = |at: usize| Some(rate.amounts.get(at)?.as_ref()?.value);
            let (Some(mine), Some(base)) = (value(run), value(baseline)) else { continue };
            let normal = |at: usize| rate.normal.get(at).copied().flatten();
            let expected = normal(run).zip(normal(baseline)).map(|(mine, base)| ExpectedRatio {
                value: mine.expected / base.expected,
                interval: (mine.low / base.high, mine.high / base.low),
            });
            let one = PathRatio {
                run,
                collective: rate.collective,
                size: rate.size,
                measured: mine / base,
                expected,
            };
            match found.iter_mut().find(|it| it.run == run && it.collective == rate.collective) {
                Some(before) if before.size < one.size => *before = one,
                Some(_) => {}
                None => found.push(one),
            }
        }
    }
    found
}
