//! What is normal in this fleet.

use std::collections::BTreeMap;

use crate::chance::{above, as_f64};
use crate::fleet::{Pair, Sample};

/// What most measurements reach, and how far they scatter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reference {
    /// The median of the measurements that are not slow.
    pub normal: f64,
    /// Their standard deviation, as a part of that, from the upper half: a slow part lowers rates and never raises them.
    pub spread: f64,
    /// What it may be at most: few measurements above the median lie close together by luck, so that the wider half counts, and more
    /// by the standard error.
    pub spread_at_most: f64,
    /// How far what is normal may lie from this, as a part of it: the standard error of a median.
    pub error: f64,
    /// Below this a measurement is slow.
    pub slow_below: f64,
    /// From here on a measurement clears its machines. Between the two lines it says neither: where a fleet scatters, a machine that is
    /// slow reaches the lower line by luck.
    pub normal_from: f64,
}

/// A loss that training would notice, and that no quiet fleet shows by chance: of 360 pairs of ten healthy H100 machines none lay
/// 10 % below the median (all-pairs runs of xxrjun/nccl-tests-cluster).
const LOSS: f64 = 0.1;
/// What misses this much is measured again, however far the fleet scatters.
const DOUBTFUL: f64 = 0.2;
/// In standard deviations: measurements that are lower say nothing about what is normal.
const SIGMAS: f64 = 3.0;
/// A measurement clears if it is this many standard deviations above what is slow, but not nearer to what is normal than `CLEAR`.
const ABOVE_SLOW: f64 = 1.0;
const CLEAR: f64 = 0.03;
/// How far healthy machines may lie below what is normal.
const HEALTHY: f64 = 0.02;
/// The share of fleets that are too slow whose launches may be enough by luck, and the most launches that are asked for.
const BY_LUCK: f64 = 0.02;
const MOST_LEAD: usize = 6;
/// No fleet is so quiet that a smaller spread should be believed from few measurements.
const LEAST_SPREAD: f64 = 0.005;
const MOST_SPREAD: f64 = 0.15;
/// A standard deviation over a median deviation, of a normal distribution.
const MAD: f64 = 1.4826;
/// The standard error of a deviation from the median deviation, times the root of the number of measurements: that estimate uses 37 % of
/// what they say, so it is 1 / sqrt(2 * 0.37).
pub(crate) const STANDARD_ERROR: f64 = 1.17;
/// The standard error of a median, times the root of the number of measurements, as a part of their standard deviation: sqrt(pi / 2).
const ERROR_OF_MEDIAN: f64 = 1.253;

impl Reference {
    /// None without a measurement.
    ///
    /// It holds while at least one measurement in five is normal: it starts from the rate that a fifth of them exceed.
    pub fn of(rates: impl IntoIterator<Item = f64>) -> Option<Self> {
        let rates = sorted(rates);
        Some(Self::near(fifth(&rates)?, &rates))
    }

    /// The same of pairs that were measured once or more often: it starts from the rate that a fifth of the pairs exceed, since those that
    /// are slow are measured again and again.
    pub fn of_pairs(samples: &[Sample]) -> Option<Self> {
        let mut pairs: BTreeMap<Pair, Vec<f64>> = BTreeMap::new();
        for it in samples {
            pairs.entry(it.pair).or_default().extend(it.rate.map(|it| it.0));
        }
        let middle = sorted(pairs.into_values().filter_map(|own| median(&sorted(own))));
        let rates = sorted(samples.iter().filter_map(|it| it.rate).map(|it| it.0));
        Some(Self::near(fifth(&middle)?, &rates))
    }

    /// Around this rate.
    fn near(start: f64, rates: &[f64]) -> Self {
        let mut found = Self::around(start, LEAST_SPREAD, MOST_SPREAD, 1);
        for _ in 0..8 {
            let counts = found.normal * (1.0 - LOSS.max(SIGMAS * found.spread));
            let normal: Vec<f64> = rates.iter().copied().filter(|it| *it >= counts).collect();
            let Some(middle) = median(&normal) else { break };
            let deviation = |half: &mut dyn Iterator<Item = f64>| {
                let mut far: Vec<f64> = half.map(|it| (it / middle - 1.0).abs()).collect();
                far.sort_by(f64::total_cmp);
                (median(&far).unwrap_or(0.0) * MAD, far.len())
            };
            let (above, many) = deviation(&mut normal.iter().copied().filter(|it| *it >= middle));
            let (below, _) = deviation(&mut normal.iter().copied().filter(|it| *it <= middle));
            // With few measurements the deviation of the few is uncertain: half of the loss looked for is assumed at first.
            let few = LOSS / 2.0 / SIGMAS / as_f64(many).sqrt();
            let spread = above.max(few).clamp(LEAST_SPREAD, MOST_SPREAD);
            let at_most = spread.max(below) * (1.0 + STANDARD_ERROR / as_f64(normal.len()).sqrt());
            let next = Self::around(middle, spread, at_most, normal.len());
            if next == found {
                break;
            }
            found = next;
        }
        found
    }

    /// `of`: how many measurements are normal.
    fn around(normal: f64, spread: f64, spread_at_most: f64, of: usize) -> Self {
        let error = ERROR_OF_MEDIAN * spread_at_most / as_f64(of).sqrt();
        let clear = ABOVE_SLOW.mul_add(-spread, LOSS).max(CLEAR);
        let (slow_below, normal_from) = (normal * (1.0 - LOSS), normal * (1.0 - clear));
        Self { normal, spread, spread_at_most, error, slow_below, normal_from }
    }

    /// Whether a measurement is slow; one that failed is.
    pub fn is_slow(&self, rate: Option<f64>) -> bool {
        rate.is_none_or(|it| it < self.slow_below)
    }

    /// How often a healthy machine is slow because measurements scatter: one at the lower end of what healthy machines reach, where what is
    /// normal was measured too high.
    pub(crate) fn slow_by_scatter(&self) -> f64 {
        self.below_by_scatter(1.0 - LOSS)
    }

    /// The same for measurements that are lower than this part of what is normal.
    pub(crate) fn below_by_scatter(&self, share: f64) -> f64 {
        above((1.0 - share - HEALTHY - self.error) / self.spread_at_most)
    }

    /// How many launches more must be enough than were not, before they count as enough: as many as two of a hundred fleets show whose
    /// launches reach so much less than is needed as would be noticed.
    pub(crate) fn lead(&self) -> usize {
        (1..MOST_LEAD).find(|it| is_sure(*it, self.spread)).unwrap_or(MOST_LEAD)
    }

    /// Whether a measurement clears its machines.
    pub fn is_normal(&self, rate: Option<f64>) -> bool {
        rate.is_some_and(|it| it >= self.normal_from)
    }

    /// Whether a single measurement, one of so many, is lower than chance makes any of them.
    pub fn is_far(&self, rate: Option<f64>, of: usize) -> bool {
        self.is_far_with(rate, of, of)
    }

    /// The same, where the spread was taken from so many measurements.
    pub(crate) fn is_far_with(&self, rate: Option<f64>, of: usize, measured: usize) -> bool {
        // The tail of a normal distribution: one of n lies beyond sqrt(2 ln n) deviations; 1.5 more for one fleet in a hundred.
        // The deviation itself is uncertain where measurements are few.
        let (of, measured) = (as_f64(of.max(2)), as_f64(measured.max(2)));
        let sigmas = ((2.0 * of.ln()).sqrt() + 1.5) * (1.0 + 2.0 / measured.sqrt());
        rate.is_none_or(|it| it < self.normal * (1.0 - LOSS.max(sigmas * self.spread)))
    }

    /// Whether it is so low that another measurement is worth its time: chance makes one so low in one of ten fleets.
    pub(crate) fn is_doubtful(&self, rate: f64, of: usize) -> bool {
        let sigmas = (2.0 * as_f64(of.max(2)).ln()).sqrt() + 1.0;
        rate < self.normal * (1.0 - LOSS.max((sigmas * self.spread).min(DOUBTFUL)))
    }

    /// A rate as a part of what is normal.
    pub fn share(&self, rate: f64) -> f64 {
        rate / self.normal
    }
}

/// Whether these, of machines that nothing accuses, may scatter so far that even the largest lead of launches says nothing: by 25 % and
/// more. All of them count: where most are slow and no part explains it, they are what healthy machines reach, or nothing is known.
pub(crate) fn tell_nothing(rates: impl IntoIterator<Item = f64>) -> bool {
    let rates = sorted(rates);
    let Some(middle) = median(&rates) else { return false };
    let mut far: Vec<f64> = rates.iter().map(|it| (it / middle - 1.0).abs()).collect();
    far.sort_by(f64::total_cmp);
    let at_most = 1.0 + STANDARD_ERROR / as_f64(rates.len()).sqrt();
    median(&far).is_some_and(|it| !is_sure(MOST_LEAD, it * MAD * at_most))
}

/// Whether fewer than two of a hundred fleets that are too slow lead by so many launches by luck.
fn is_sure(lead: usize, spread: f64) -> bool {
    let lucky = above(LOSS / spread);
    (lucky / (1.0 - lucky)).powf(as_f64(lead)) < BY_LUCK
}

/// The rate that a fifth of these exceed.
fn fifth(sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get(last - last / 5).copied()
}

/// Those that are above zero, the lowest first.
fn sorted(rates: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut rates: Vec<f64> = rates.into_iter().filter(|it| it.is_finite() && *it > 0.0).collect();
    rates.sort_by(f64::total_cmp);
    rates
}

/// The median of these.
pub(crate) fn middle(shares: impl Iterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<f64> = shares.collect();
    all.sort_by(f64::total_cmp);
    median(&all)
}

/// Of sorted numbers.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        return sorted.get(middle).copied();
    }
    Some(f64::midpoint(*sorted.get(middle.checked_sub(1)?)?, *sorted.get(middle)?))
}

#[cfg(test)]
mod tests {
    use super::Reference;

    #[test]
    fn slow_ones_do_not_move_what_is_normal() {
        let mut rates = vec![100.0; 70];
        rates.extend([50.0; 30]);
        let it = Reference::of(rates).unwrap();
        assert!((it.normal - 100.0).abs() < 1e-9, "{it:?}");
        assert!(it.is_slow(Some(89.0)) && !it.is_slow(Some(91.0)) && it.is_slow(None));
    }

    #[test]
    fn more_than_half_may_be_slow() {
        let mut rates = vec![100.0; 30];
        rates.extend([60.0; 70]);
        assert!(Reference::of(rates).unwrap().is_slow(Some(60.0)));
    }

    /// The upper half of these lies within 1 % by luck, the lower half does not.
    #[test]
    fn few_that_lie_close_together_leave_room_for_more_scatter() {
        let rates = [1.004, 0.92, 0.96, 0.78, 1.006, 1.02, 1.008, 0.902, 0.901, 1.012, 0.94, 1.01];
        let it = Reference::of(rates.map(|it| it * 370.0)).unwrap();
        assert!(it.spread < 0.01 && it.slow_by_scatter() > 0.05, "{it:?}");
        let quiet = Reference::of([0.99, 1.0, 0.98, 1.01].map(|it| it * 370.0)).unwrap();
        assert!(quiet.slow_by_scatter() < 0.02, "{quiet:?}");
    }

    #[test]
    fn nothing_has_no_reference() {
        assert!(Reference::of([]).is_none() && Reference::of([f64::NAN, 0.0]).is_none());
    }
}
