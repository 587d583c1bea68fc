//! Latency, bandwidth and the three regimes, found from the times themselves.
//!
//! Times are taken as they are: no line is drawn through all of them, since caches, protocols and algorithms give most curves
//! more than one slope. Small sizes have a floor: that is the latency. Large sizes have a rate: that is the bandwidth. Where
//! the data does not reach one of them, it stays unknown.

use serde::{Deserialize, Serialize};

use crate::statistics::median;

/// A size and how long it takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Bytes.
    pub bytes: u64,
    /// Seconds, the median.
    pub seconds: f64,
}

/// Latency, bandwidth and regimes of a series of sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Seconds of the smallest sizes; none where none is small enough.
    pub latency: Option<f64>,
    /// Bytes a second of the largest; none where the rate still rises.
    pub bandwidth: Option<f64>,
    /// Bytes at which half of the bandwidth is reached.
    pub half: Option<f64>,
    /// The highest rate and its size, where it is well above that of the largest sizes.
    pub peak: Option<Point>,
    /// The regimes.
    pub regimes: Regimes,
}

/// Which sizes are bound by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Regimes {
    /// Up to this size the time is that of the smallest, within [`FLOOR`].
    pub latency: Option<u64>,
    /// From this size on the rate is that of the largest, within [`CEILING`].
    pub bandwidth: Option<u64>,
}

/// One of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Regime {
    /// The time does not depend on the size.
    Latency,
    /// Between.
    Mixed,
    /// The time grows as the size does.
    Bandwidth,
}

impl Regimes {
    /// The regime of a size.
    pub fn of(self, bytes: u64) -> Regime {
        if self.latency.is_some_and(|it| bytes <= it) {
            Regime::Latency
        } else if self.bandwidth.is_some_and(|it| bytes >= it) {
            Regime::Bandwidth
        } else {
            Regime::Mixed
        }
    }
}

/// A time is at the floor up to this many times the latency.
pub const FLOOR: f64 = 1.3;
/// A rate is the bandwidth from this share of it on.
pub const CEILING: f64 = 0.8;
/// Sizes that a fit needs.
const FEWEST: usize = 4;
/// How many times the smallest size the largest must be.
const NARROWEST: f64 = 16.0;
/// A floor is one if it is this many times as wide as its smallest size.
const FLAT: f64 = 4.0;

/// Fits the times; the error says why there is no fit.
pub fn fit(points: &[Point]) -> Result<Fit, String> {
    let points = merged(points);
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Err("no fit: no sizes above 0".to_owned());
    };
    if points.len() < FEWEST || size(last) / size(first) < NARROWEST {
        return Err(format!(
            "no fit: {} sizes above 0; plumb needs {FEWEST}, the largest at least {NARROWEST} times the smallest",
            points.len()
        ));
    }
    let smooth = rising(&points);
    let floor = smooth[0];
    let flat = smooth.iter().take_while(|it| **it <= floor * FLOOR).count();
    let at_floor = size(&points[flat - 1]) / size(first) >= FLAT;
    let latency = at_floor.then(|| {
        let near: Vec<f64> =
            points.iter().zip(&smooth).filter(|it| *it.1 <= floor * 1.1).map(|it| it.0.seconds).collect();
        median(&near)
    });

    // The largest: a factor of 4. How the time grows takes two.
    let large = points.iter().position(|it| size(it) * 4.0 >= size(last)).unwrap_or(0);
    let top = large.min(points.len() - 2);
    let growth = (smooth[points.len() - 1] / smooth[top]).ln() / (size(last) / size(&points[top])).ln();
    let bandwidth = (growth >= CEILING && flat < points.len()).then(|| {
        let rates: Vec<f64> = points[large..]
            .iter()
            .map(|it| size(it) / (it.seconds - latency.unwrap_or(0.0)).max(it.seconds / 2.0))
            .collect();
        median(&rates)
    });

    let rates: Vec<f64> = points.iter().zip(&smooth).map(|(point, time)| size(point) / time).collect();
    let half = bandwidth.and_then(|it| crossing(&points, &rates, it / 2.0));
    let reached = bandwidth.map(|it| {
        let below = rates.iter().rposition(|rate| *rate < it * CEILING);
        below.map_or(0, |it| it + 1).max(if at_floor { flat } else { 0 })
    });
    let fastest = points.iter().max_by(|a, b| (size(a) / a.seconds).total_cmp(&(size(b) / b.seconds)));
    let peak = fastest.filter(|it| bandwidth.is_some_and(|rate| size(it) / it.seconds > 1.3 * rate)).copied();
    let regimes = Regimes {
        latency: at_floor.then(|| points[flat - 1].bytes),
        bandwidth: reached.and_then(|it| points.get(it)).map(|it| it.bytes),
    };
    Ok(Fit { latency, bandwidth, half, peak, regimes })
}

/// One point a size, in order, with a time.
fn merged(points: &[Point]) -> Vec<Point> {
    let possible = |it: &Point| it.bytes > 0 && (1e-12..1e9).contains(&it.seconds);
    let mut sorted: Vec<Point> = points.iter().copied().filter(possible).collect();
    sorted.sort_by_key(|it| it.bytes);
    let same = sorted.chunk_by(|a, b| a.bytes == b.bytes);
    same.map(|it| {
        let seconds: Vec<f64> = it.iter().map(|it| it.seconds).collect();
        Point { bytes: it[0].bytes, seconds: median(&seconds) }
    })
    .collect()
}

/// The nearest times that never fall as sizes grow: neighbours that do are replaced by their mean.
fn rising(points: &[Point]) -> Vec<f64> {
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for point in points {
        let mut block = (point.seconds.ln(), 1);
        while let Some(before) = blocks.pop_if(|it| it.0 > block.0) {
            let [a, b] = [before.1, block.1].map(crate::statistics::count);
            block = ((before.0 * a + block.0 * b) / (a + b), before.1 + block.1);
        }
        blocks.push(block);
    }
    blocks.into_iter().flat_map(|(mean, length)| std::iter::repeat_n(mean.exp(), length)).collect()
}

/// The size at which a rate is first reached; none where it is reached from the start.
fn crossing(points: &[Point], rates: &[f64], wanted: f64) -> Option<f64> {
    let above = rates.iter().position(|it| *it >= wanted)?;
    let below = above.checked_sub(1)?;
    let share = (wanted / rates[below]).ln() / (rates[above] / rates[below]).ln();
    Some(size(&points[below]) * (size(&points[above]) / size(&points[below])).powf(share))
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a buffer, exact up to 2^53")]
fn size(point: &Point) -> f64 {
    point.bytes as f64
}

#[cfg(test)]
mod tests {
    use super::{Fit, Point, Regime, fit};
    use proptest::prelude::*;

    fn points(exponents: std::ops::RangeInclusive<u32>, time: impl Fn(f64) -> f64) -> Vec<Point> {
        exponents.map(|it| Point { bytes: 1 << it, seconds: time(f64::from(it).exp2()) }).collect()
    }

    fn within(value: Option<f64>, expected: f64, share: f64) -> bool {
        value.is_some_and(|it| (it / expected - 1.0).abs() <= share)
    }

    fn found(points: &[Point]) -> Fit {
        fit(points).expect("enough points")
    }

    #[test]
    fn a_straight_line() {
        let it = found(&points(3..=26, |size| 2e-6 + size / 1e10));
        assert!(within(it.latency, 2e-6, 0.05), "{it:?}");
        assert!(within(it.bandwidth, 1e10, 0.02), "{it:?}");
        assert!(within(it.half, 20_000.0, 0.1), "{it:?}");
        assert_eq!((it.regimes.latency, it.regimes.bandwidth), (Some(4096), Some(131_072)), "{it:?}");
        assert_eq!(it.peak, None);
        assert_eq!(it.regimes.of(8), Regime::Latency);
        assert_eq!(it.regimes.of(16_384), Regime::Mixed);
        assert_eq!(it.regimes.of(1 << 30), Regime::Bandwidth);
    }

    #[test]
    fn caches_make_two_slopes() {
        let it = found(&points(3..=28, |size| 1e-6 + size.min(4e6) / 2e10 + (size - 4e6).max(0.0) / 4e9));
        assert!(within(it.latency, 1e-6, 0.05), "{it:?}");
        assert!(it.bandwidth.is_some_and(|it| (3.9e9..6e9).contains(&it)), "{it:?}");
        assert!(it.peak.is_some_and(|it| it.bytes == 1 << 21 || it.bytes == 1 << 22), "{it:?}");
        assert!(it.half.is_some_and(|it| it < 10_000.0), "{it:?}");
    }

    #[test]
    fn what_is_not_there_is_not_told() {
        // Only large sizes.
        let it = found(&points(24..=30, |size| 2e-6 + size / 1e10));
        assert_eq!((it.latency, it.regimes.latency, it.half), (None, None, None), "{it:?}");
        assert!(within(it.bandwidth, 1e10, 0.02), "{it:?}");
        // Only small ones.
        let it = found(&points(3..=10, |size| 2e-6 + size / 1e10));
        assert!(within(it.latency, 2e-6, 0.05), "{it:?}");
        assert_eq!((it.bandwidth, it.regimes.bandwidth), (None, None), "{it:?}");
        // Neither.
        let it = found(&points(12..=16, |size| 2e-6 + size / 1e10));
        assert_eq!((it.latency, it.bandwidth), (None, None), "{it:?}");
    }

    #[test]
    fn the_rate_of_large_sizes_is_that_of_the_largest_where_steps_are_wide() {
        // 32 KiB at 32 GB/s from a cache, 2 MiB at 22.
        let times = [(8, 0.4e-6), (512, 0.4e-6), (32 << 10, 1.02e-6), (2 << 20, 93e-6)];
        let it = found(&times.map(|(bytes, seconds)| Point { bytes, seconds }));
        assert!(within(it.bandwidth, 22.6e9, 0.01), "{it:?}");
        assert_eq!(it.peak.map(|it| it.bytes), Some(32 << 10), "{it:?}");
    }

    #[test]
    fn few_points_say_nothing() {
        assert!(fit(&[]).is_err());
        assert!(fit(&points(3..=5, |_| 1.0)).is_err());
        let near: Vec<Point> = (1..9).map(|it| Point { bytes: it << 20, seconds: 1.0 }).collect();
        assert!(fit(&near).is_err());
        let none: Vec<Point> = (0..9).map(|it| Point { bytes: 0, seconds: f64::from(it) }).collect();
        assert!(fit(&none).is_err());
    }

    proptest! {
        #[test]
        fn noise_does_not_matter_much(noise in prop::collection::vec(0.9..1.25_f64, 27), latency in 0.5..50.0_f64, rate in 1.0..400.0_f64) {
            let mut points = points(3..=29, |size| latency * 1e-6 + size / (rate * 1e9));
            points.iter_mut().zip(&noise).for_each(|(point, noise)| point.seconds *= noise);
            let it = found(&points);
            prop_assert!(within(it.latency, latency * 1e-6, 0.25), "{it:?}");
            if let Some(found) = it.bandwidth {
                prop_assert!(within(Some(found), rate * 1e9, 0.3), "{it:?}");
            }
            if let (Some(a), Some(b)) = (it.regimes.latency, it.regimes.bandwidth) {
                prop_assert!(a < b, "{it:?}");
            }
        }

        #[test]
        fn nothing_makes_it_fail(times in prop::collection::vec((0..u64::MAX, prop::num::f64::ANY), 0..40)) {
            let points: Vec<Point> = times.iter().map(|it| Point { bytes: it.0, seconds: it.1 }).collect();
            if let Ok(it) = fit(&points) {
                prop_assert!(it.latency.is_none_or(|it| it > 0.0));
                prop_assert!(it.bandwidth.is_none_or(|it| it > 0.0));
            }
        }
    }
}
