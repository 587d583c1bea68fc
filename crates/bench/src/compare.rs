//! Whether one measurement differs from another by more than noise.

use crate::statistics::{median, quantile, same_source};

/// What became of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Shorter, beyond noise.
    Faster,
    /// The same, as far as can be told.
    Same,
    /// Longer, beyond noise.
    Slower,
}

impl Verdict {
    /// `faster`, `same`, `slower`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Same => "same",
            Self::Slower => "slower",
        }
    }
}

/// How a time changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// The new median over the old one.
    pub ratio: f64,
    /// Changes up to this, relative, are taken for noise.
    pub noise: f64,
    /// The verdict.
    pub verdict: Verdict,
}

/// Changes below this are not worth telling: two runs of the same differ by as much.
const SMALLEST: f64 = 0.05;
/// The same where there are too few samples to see how they vary.
const UNSAMPLED: f64 = 0.1;
/// Fewer samples show no variation.
const FEWEST: usize = 5;
/// How often chance alone may give a difference, over all comparisons made together.
const CHANCE: f64 = 0.01;

/// Compares times of a call, old and new, as one of so many comparisons.
///
/// A change counts if it is larger than what the samples of one run vary by (half of the distance from p10 to p90, of the
/// wider run) and if chance would rarely give it (Mann and Whitney's test).
pub fn change(old: &[f64], new: &[f64], comparisons: usize) -> Change {
    let (before, after) = (median(old), median(new));
    let ratio = if before > 0.0 { after / before } else { 1.0 };
    let sampled = old.len() >= FEWEST && new.len() >= FEWEST;
    let noise = if sampled { [old, new].map(spread).into_iter().fold(SMALLEST, f64::max) } else { UNSAMPLED };
    let chance = CHANCE / crate::statistics::count(comparisons.max(1));
    // With few samples even sets without overlap are not rare enough for many comparisons: then that is asked for.
    let apart = !sampled || same_source(old, new) < chance.max(least(old.len(), new.len()));
    // As a factor, so that twice as fast and half as fast are equally far.
    let far = ratio.max(1.0 / ratio) > 1.0 + noise;
    let verdict = match ratio > 1.0 {
        _ if !apart || !far => Verdict::Same,
        true => Verdict::Slower,
        false => Verdict::Faster,
    };
    Change { ratio, noise, verdict }
}

/// Half of the distance from p10 to p90, relative to the median.
fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    if middle > 0.0 { (quantile(values, 0.9) - quantile(values, 0.1)) / 2.0 / middle } else { 0.0 }
}

/// A little more than the least that the test can give for so many samples.
fn least(n: usize, m: usize) -> f64 {
    let low: Vec<f64> = (0..n).map(crate::statistics::count).collect();
    let high: Vec<f64> = (0..m).map(|it| crate::statistics::count(n + it)).collect();
    same_source(&low, &high) * 1.01
}

#[cfg(test)]
mod tests {
    use super::{Verdict, change};

    fn samples(middle: f64, spread: f64) -> Vec<f64> {
        (0..20).map(|it| middle * (1.0 + spread * (f64::from(it * 7 % 20) / 10.0 - 0.95))).collect()
    }

    fn check(old: (f64, f64), new: (f64, f64)) -> Verdict {
        change(&samples(old.0, old.1), &samples(new.0, new.1), 48).verdict
    }

    #[test]
    fn changes_within_noise_are_none() {
        assert_eq!(check((1.0, 0.02), (1.03, 0.02)), Verdict::Same);
        assert_eq!(check((1.0, 0.5), (1.2, 0.5)), Verdict::Same);
        assert_eq!(check((1.0, 0.1), (1.0, 0.1)), Verdict::Same);
    }

    #[test]
    fn changes_beyond_it_are_told() {
        assert_eq!(check((1.0, 0.02), (1.1, 0.02)), Verdict::Slower);
        assert_eq!(check((1.0, 0.02), (0.8, 0.05)), Verdict::Faster);
        assert_eq!(check((1.0, 0.3), (3.0, 0.3)), Verdict::Slower);
    }

    #[test]
    fn without_samples_only_large_changes_are_told() {
        assert_eq!(change(&[1.0], &[1.08], 1).verdict, Verdict::Same);
        assert_eq!(change(&[1.0], &[1.2], 1).verdict, Verdict::Slower);
        assert_eq!(change(&[1.0; 5], &[1.2, 1.21, 1.22, 1.23, 1.24], 100).verdict, Verdict::Slower);
        assert_eq!(change(&[], &[1.0], 1).verdict, Verdict::Same);
    }
}
