//! Whether one measurement differs from another by more than noise.

use serde::{Deserialize, Serialize};

use crate::statistics::{median, quantile, same_source};

/// How a time changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Shorter, beyond noise.
    Faster,
    /// No change beyond noise.
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

/// By how much a time changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The new median over the old one.
    pub ratio: f64,
    /// Relative changes up to this count as noise.
    pub noise: f64,
    /// The verdict.
    pub verdict: Verdict,
}

/// Relative changes below this are never reported: two runs of the same differ by as much.
const SMALLEST: f64 = 0.05;
/// The same in microseconds: where memory lies and how fast the clock runs change short calls by as much.
const SHORTEST: f64 = 0.5;
/// The same where there are too few samples to see how they vary.
const UNSAMPLED: f64 = 0.1;
/// Fewer samples show no variation.
const FEWEST: usize = 5;
/// How often chance alone may give a difference, over all comparisons made together.
const CHANCE: f64 = 0.01;
/// Calls below so many microseconds drift in another way than those above.
const SHORT: f64 = 10.0;
/// A change must be this many times as large as the usual drift.
const DRIFTS: f64 = 3.0;
/// Sizes between neighbours that show how much there is.
const NEIGHBOURS: usize = 4;
/// Passes of each run that are enough to show drift.
const PASSES: usize = 4;
/// From this many passes on, a tenth is left out at each end: the more there are, the farther apart the outermost are.
const MANY: usize = 10;
/// A change must be this many times as large as the variation from pass to pass.
///
/// Of 34 pairs of runs of the same (`-N 5`) on a noisy machine, 24 measurements each, none was then reported as a change;
/// with 1, three were.
const MOVED: f64 = 1.5;

/// Times of one size, in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Of the batches.
    pub samples: Vec<f64>,
    /// Of each pass over all sizes, a part of a second or more apart.
    pub passes: Vec<f64>,
}

impl Times {
    /// Whether there are enough passes to see how far a time varies by itself.
    pub fn shows_drift(&self) -> bool {
        self.passes.len() >= PASSES
    }

    /// The shortest and longest time of all passes; of many passes, without the outermost.
    fn ends(&self) -> [f64; 2] {
        let outer = if self.passes.len() < MANY { 0.0 } else { 0.1 };
        [outer, 1.0 - outer].map(|at| quantile(&self.passes, at))
    }

    /// How far apart they are, relative to the median.
    fn range(&self) -> f64 {
        let (middle, [low, high]) = (median(&self.passes), self.ends());
        if middle > 0.0 { (high - low) / middle } else { 0.0 }
    }
}

/// How much times of two runs differ by when each size was measured. The samples of one size, all taken within
/// milliseconds, do not show it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Drift {
    short: f64,
    long: f64,
}

impl Drift {
    /// From medians in microseconds, old and new, of one series of sizes after the other.
    ///
    /// What changed for a reason changed neighbours alike, so drift is how far a size is from the middle of its neighbours;
    /// by the median, so that a step or a few real changes do not count.
    pub fn between(series: &[Vec<(f64, f64)>]) -> Self {
        let mut apart: Vec<(bool, f64)> = Vec::new();
        for medians in series {
            let known = medians.iter().filter(|it| it.0 > 0.0 && it.1 > 0.0);
            let logs: Vec<(f64, f64)> = known.map(|it| (it.0, (it.1 / it.0).ln())).collect();
            apart.extend(
                logs.windows(3)
                    .map(|it| (it[1].0 < SHORT, (it[1].1 - f64::midpoint(it[0].1, it[2].1)).abs())),
            );
        }
        let usual = |wanted: &dyn Fn(bool) -> bool| {
            let all: Vec<f64> = apart.iter().filter(|it| wanted(it.0)).map(|it| it.1).collect();
            // From the median of absolute values to a standard deviation, and from three sizes to one.
            (all.len() >= NEIGHBOURS).then(|| 1.4826 * median(&all) / 1.5_f64.sqrt())
        };
        let all = usual(&|_| true).unwrap_or(0.0);
        Self { short: usual(&|it| it).unwrap_or(all), long: usual(&|it| !it).unwrap_or(all) }
    }

    fn of(self, time: f64) -> f64 {
        DRIFTS * if time < SHORT { self.short } else { self.long }
    }
}

/// Compares times of a call, old and new, as one of so many comparisons.
///
/// Where both runs have several passes, a change counts if all times of one are beyond all of the other, and the medians
/// differ by more than the variation from pass to pass, and than what short calls vary by. Otherwise a change counts if it
/// is larger than what the samples of one run vary by (half of the distance from p10 to p90, of the wider run), than what
/// short calls vary by, and than drift; if p10 changed as far as the median did; and if chance would rarely give it (Mann
/// and Whitney's test).
pub fn change(old: &Times, new: &Times, comparisons: usize, drift: Drift) -> Change {
    if old.shows_drift() && new.shows_drift() {
        return between_passes(old, new);
    }
    let (old, new) = (old.samples.as_slice(), new.samples.as_slice());
    let (before, after) = (median(old), median(new));
    let ratio = if before > 0.0 { after / before } else { 1.0 };
    let sampled = old.len() >= FEWEST && new.len() >= FEWEST;
    let seen = if sampled { [old, new].map(spread).into_iter().fold(SMALLEST, f64::max) } else { UNSAMPLED };
    let noise = seen.max(absolute(before, after)).max(drift.of(before));
    let chance = CHANCE / crate::statistics::count(comparisons.max(1));
    // With few samples even sets without overlap are not rare enough for many comparisons: then no overlap is enough.
    let apart = !sampled || same_source(old, new) < chance.max(least(old.len(), new.len()));
    // As a factor, so that twice as fast and half as fast are equally far.
    let far = |ratio: f64| if ratio > 1.0 { ratio } else { -1.0 / ratio.max(f64::MIN_POSITIVE) };
    let low = quantile(new, 0.1) / quantile(old, 0.1).max(f64::MIN_POSITIVE);
    let both = if ratio > 1.0 { far(ratio).min(far(low)) } else { -far(ratio).max(far(low)) };
    let verdict = match ratio > 1.0 {
        _ if !apart || both <= 1.0 + noise => Verdict::Same,
        true => Verdict::Slower,
        false => Verdict::Faster,
    };
    Change { ratio, noise, verdict }
}

fn between_passes(old: &Times, new: &Times) -> Change {
    let (before, after) = (median(&old.passes), median(&new.passes));
    let ratio = if before > 0.0 { after / before } else { 1.0 };
    let moved = MOVED * old.range().max(new.range());
    let noise = moved.max(SMALLEST).max(absolute(before, after));
    let (old, new) = (old.ends(), new.ends());
    let verdict = match ratio > 1.0 {
        true if new[0] > old[1] && ratio > 1.0 + noise => Verdict::Slower,
        false if new[1] < old[0] && 1.0 / ratio.max(f64::MIN_POSITIVE) > 1.0 + noise => Verdict::Faster,
        _ => Verdict::Same,
    };
    Change { ratio, noise, verdict }
}

/// What short calls vary by, relative to the shorter.
fn absolute(before: f64, after: f64) -> f64 {
    let shortest = before.min(after);
    if shortest > 0.0 { SHORTEST / shortest } else { 0.0 }
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
    use super::{Drift, Times, Verdict, change};

    fn now(samples: &[f64]) -> Times {
        Times { samples: samples.to_vec(), passes: Vec::new() }
    }

    fn samples(middle: f64, spread: f64) -> Vec<f64> {
        (0..20).map(|it| middle * (1.0 + spread * (f64::from(it * 7 % 20) / 10.0 - 0.95))).collect()
    }

    fn check(old: (f64, f64), new: (f64, f64)) -> Verdict {
        change(&now(&samples(old.0, old.1)), &now(&samples(new.0, new.1)), 48, Drift::default()).verdict
    }

    #[test]
    fn changes_within_noise_are_none() {
        assert_eq!(check((100.0, 0.02), (103.0, 0.02)), Verdict::Same);
        assert_eq!(check((100.0, 0.5), (120.0, 0.5)), Verdict::Same);
        assert_eq!(check((100.0, 0.1), (100.0, 0.1)), Verdict::Same);
    }

    #[test]
    fn changes_beyond_it_are_reported() {
        assert_eq!(check((100.0, 0.02), (110.0, 0.02)), Verdict::Slower);
        assert_eq!(check((100.0, 0.02), (80.0, 0.05)), Verdict::Faster);
        assert_eq!(check((100.0, 0.3), (300.0, 0.3)), Verdict::Slower);
    }

    #[test]
    fn short_calls_vary_by_a_part_of_a_microsecond() {
        assert_eq!(check((1.0, 0.02), (1.28, 0.02)), Verdict::Same);
        assert_eq!(check((1.28, 0.02), (1.0, 0.02)), Verdict::Same);
        assert_eq!(check((1.0, 0.02), (2.0, 0.02)), Verdict::Slower);
    }

    #[test]
    fn the_fast_samples_must_change_too() {
        // More than half of the new samples met something else on the machine.
        let old = samples(100.0, 0.02);
        let new: Vec<f64> =
            old.iter().enumerate().map(|(i, it)| if i % 3 == 0 { *it } else { it * 1.5 }).collect();
        assert_eq!(change(&now(&old), &now(&new), 1, Drift::default()).verdict, Verdict::Same);
    }

    #[test]
    fn without_samples_only_large_changes_are_reported() {
        let verdict =
            |old: &[f64], new: &[f64], all| change(&now(old), &now(new), all, Drift::default()).verdict;
        assert_eq!(verdict(&[100.0], &[108.0], 1), Verdict::Same);
        assert_eq!(verdict(&[100.0], &[120.0], 1), Verdict::Slower);
        assert_eq!(verdict(&[100.0; 5], &[120.0, 121.0, 122.0, 123.0, 124.0], 100), Verdict::Slower);
        assert_eq!(verdict(&[], &[100.0], 1), Verdict::Same);
        assert_eq!(verdict(&[0.0; 5], &[0.0; 5], 1), Verdict::Same);
    }

    /// Sizes from 20 us on, each new time its old one multiplied.
    fn series(factors: &[f64]) -> Vec<(f64, f64)> {
        let mut old = 10.0;
        let next = |it: &f64| {
            old *= 2.0;
            (old, old * it)
        };
        factors.iter().map(next).collect()
    }

    #[test]
    fn neighbours_that_disagree_are_drift() {
        let verdict = |factors: &[f64], at: usize| {
            let all = series(factors);
            let drift = Drift::between(std::slice::from_ref(&all));
            change(&now(&samples(all[at].0, 0.02)), &now(&samples(all[at].1, 0.02)), all.len(), drift).verdict
        };
        let noisy = [1.2, 0.85, 1.3, 0.9, 1.15, 0.8, 1.28, 0.9];
        assert_eq!(verdict(&noisy, 2), Verdict::Same);
        // What all or a part of the sizes have in common is none, and one change among quiet neighbours is none.
        assert_eq!(verdict(&[1.3; 8], 3), Verdict::Slower);
        assert_eq!(verdict(&[1.0, 1.0, 1.0, 1.0, 1.3, 1.3, 1.3, 1.3], 5), Verdict::Slower);
        assert_eq!(verdict(&[1.0, 1.0, 1.0, 1.0, 1.3, 1.0, 1.0, 1.0, 1.0, 1.0], 4), Verdict::Slower);
        assert_eq!(verdict(&[1.0, 1.0, 1.3], 2), Verdict::Slower, "too few to see drift");
    }

    #[test]
    fn passes_decide_where_there_are_enough() {
        let verdict = |old: &[f64], new: &[f64]| {
            // The samples of one pass would show a change that is none.
            let times = |passes: &[f64]| Times { samples: samples(passes[0], 0.01), passes: passes.to_vec() };
            change(&times(old), &times(new), 48, Drift::default()).verdict
        };
        let noisy = [100.0, 140.0, 105.0, 130.0, 98.0];
        assert_eq!(verdict(&noisy, &[150.0, 99.0, 135.0, 101.0, 104.0]), Verdict::Same);
        assert_eq!(
            verdict(&noisy, &[150.0, 160.0, 145.0, 151.0, 149.0]),
            Verdict::Same,
            "no overlap, but near"
        );
        assert_eq!(verdict(&noisy, &[200.0, 210.0, 205.0, 230.0, 204.0]), Verdict::Slower);
        let steady = [100.0, 101.0, 100.5, 99.5, 100.0];
        assert_eq!(verdict(&steady, &[107.0, 108.0, 107.5, 107.0, 106.5]), Verdict::Slower);
        assert_eq!(verdict(&[107.0, 108.0, 107.5, 107.0, 106.5], &steady), Verdict::Faster);
        assert_eq!(
            verdict(&steady, &[103.0, 104.0, 103.5, 103.0, 102.5]),
            Verdict::Same,
            "too small to report"
        );
        assert_eq!(verdict(&[1.0; 5], &[1.4; 5]), Verdict::Same, "a part of a microsecond");
        assert_eq!(verdict(&[0.0; 5], &[0.0; 5]), Verdict::Same);
        let mut many: Vec<f64> = steady.repeat(8);
        many[7] = 300.0;
        let slower: Vec<f64> = many.iter().map(|it| it * 1.1).collect();
        assert_eq!(verdict(&many, &slower), Verdict::Slower, "one of forty decides nothing");
    }

    #[test]
    fn times_that_cannot_be_are_no_drift() {
        let broken = vec![(0.0, 1.0), (1.0, 0.0), (-1.0, 2.0), (1.0, 1.0)];
        assert_eq!(Drift::between(&[broken, Vec::new()]), Drift::default());
    }
}
