//! Means, quantiles and a rank test.

/// The mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / count(values.len()) }
}

/// The value below which a share of all lies, between neighbours where it falls between them; 0 of nothing.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = share.clamp(0.0, 1.0) * count(last);
    let below = place.floor();
    let at = |it: f64| sorted.get(index(it)).copied().unwrap_or(sorted[last]);
    at(below) + (at(below + 1.0) - at(below)) * (place - below)
}

/// Half of the values are below, half above.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value that a share of all does not exceed, always one of them: how nccl-tests takes its p99.
pub fn nearest_rank(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).or(sorted.last()).copied().unwrap_or(0.0)
}

/// The standard deviation over the mean, in percent.
pub fn variation(values: &[f64]) -> f64 {
    let mean = mean(values);
    if mean <= 0.0 {
        return 0.0;
    }
    let squares: Vec<f64> = values.iter().map(|it| (it - mean).powi(2)).collect();
    self::mean(&squares).sqrt() / mean * 100.0
}

/// How likely it is that two sets of values this different come from the same source: the test of Mann and Whitney, both
/// sides, by the normal distribution with ties corrected.
pub fn same_source(a: &[f64], b: &[f64]) -> f64 {
    let (n, m) = (count(a.len()), count(b.len()));
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let mut all: Vec<(f64, bool)> =
        a.iter().map(|it| (*it, true)).chain(b.iter().map(|it| (*it, false))).collect();
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (mut ranks_of_a, mut ties, mut before) = (0.0, 0.0, 0.0);
    for equal in all.chunk_by(|x, y| x.0.total_cmp(&y.0).is_eq()) {
        let size = count(equal.len());
        let of_a = count(equal.iter().filter(|it| it.1).count());
        ranks_of_a += of_a * (before + f64::midpoint(size, 1.0));
        ties += size.powi(3) - size;
        before += size;
    }
    let total = n + m;
    let spread = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)).max(1.0));
    if spread <= 0.0 {
        return 1.0;
    }
    let distance = (ranks_of_a - n * (n + 1.0) / 2.0 - n * m / 2.0).abs();
    tail(((distance - 0.5).max(0.0)) / spread.sqrt()).min(1.0)
}

/// Both tails of the normal distribution beyond a distance (Abramowitz and Stegun, 7.1.26, good to 1.5e-7; beyond 5 the
/// leading term of its expansion).
fn tail(distance: f64) -> f64 {
    let x = distance / std::f64::consts::SQRT_2;
    if distance > 5.0 {
        return (-x * x).exp() / (x * std::f64::consts::PI.sqrt());
    }
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    series.iter().fold(0.0, |sum, it| sum * t + it) * t * (-x * x).exp()
}

#[expect(clippy::cast_precision_loss, reason = "counts of samples are small")]
pub(crate) fn count(n: usize) -> f64 {
    n as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a list, never negative"
)]
fn index(place: f64) -> usize {
    place as usize
}

#[cfg(test)]
mod tests {
    use super::{mean, median, nearest_rank, quantile, same_source, variation};

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6 * b.abs().max(1.0)
    }

    #[test]
    fn quantiles() {
        let values = [5.0, 1.0, 3.0, 2.0, 4.0];
        assert!(near(median(&values), 3.0));
        assert!(near(quantile(&values, 0.1), 1.4));
        assert!(near(quantile(&values, 1.0), 5.0));
        assert!(near(quantile(&[], 0.5), 0.0) && near(mean(&[]), 0.0));
        assert!(near(nearest_rank(&values, 99), 5.0) && near(nearest_rank(&values, 50), 3.0));
        assert!(near(variation(&[1.0, 3.0]), 50.0));
    }

    #[test]
    fn different_sources_are_told_apart() {
        let values = |from: f64| (0..20).map(|it| from + f64::from(it * 7 % 20) / 20.0).collect::<Vec<_>>();
        assert!(same_source(&values(1.0), &values(1.0)) > 0.9);
        assert!(same_source(&values(1.0), &values(3.0)) < 1e-6);
        assert!(same_source(&values(1.0), &values(1.1)) > 0.05);
        assert!(near(same_source(&[1.0; 9], &[1.0; 9]), 1.0));
        assert!(near(same_source(&[], &[1.0]), 1.0));
        // A table of the test's exact values: two sets of 5 without overlap differ by chance in 2 of 252 cases.
        let p = same_source(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]);
        assert!((0.005..0.02).contains(&p), "{p}");
    }
}
