//! A value by step: what a trainer prints at its steps, kept in bounded memory.

use std::collections::BTreeMap;

/// Values by the number of their step, in the order of the input.
///
/// Of long runs only steps are kept whose number is a multiple of a power of two. Which ones these are does not depend on the order in which
/// parts of the input were read.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    points: Vec<(u64, f64)>,
    stride: u64,
    /// Values of steps that have no number, in the order of the input.
    unnumbered: Vec<f64>,
}

impl Default for Track {
    fn default() -> Self {
        Self { points: Vec::new(), stride: 1, unnumbered: Vec::new() }
    }
}

/// Values that are kept.
const MOST: usize = 16_384;

/// A day, in seconds.
const DAY: f64 = 86_400.0;

impl Track {
    pub(super) fn push(&mut self, number: Option<u64>, value: Option<f64>) {
        let Some(value) = value.filter(|it| it.is_finite()) else { return };
        let Some(number) = number else {
            self.unnumbered.push(value);
            self.unnumbered.truncate(MOST);
            return;
        };
        if number.is_multiple_of(self.stride) {
            self.points.push((number, value));
            self.thin();
        }
    }

    pub(super) fn merge(&mut self, later: Self) {
        self.stride = self.stride.max(later.stride);
        self.unnumbered.extend(later.unnumbered);
        self.unnumbered.truncate(MOST);
        self.points.extend(later.points);
        let stride = self.stride;
        self.points.retain(|it| it.0.is_multiple_of(stride));
        self.thin();
    }

    fn thin(&mut self) {
        while self.points.len() > MOST {
            // Many values of one step: the first ones have to do.
            let Some(stride) = self.stride.checked_mul(2).filter(|it| *it < 1 << 40) else {
                self.points.truncate(MOST);
                return;
            };
            self.stride = stride;
            self.points.retain(|it| it.0.is_multiple_of(stride));
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty() && self.unnumbered.is_empty()
    }

    /// One value for each step: the mean where ranks print it several times. Values that all have one number are taken as steps of their own.
    pub fn by_step(&self) -> Vec<(u64, f64)> {
        if self.points.is_empty() {
            return (1..).zip(self.unnumbered.iter().copied()).collect();
        }
        if self.is_of_one_number() {
            return (1..).zip(&self.points).map(|(number, it)| (number, it.1)).collect();
        }
        let mut all: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        for (number, value) in &self.points {
            let (sum, count) = all.entry(*number).or_default();
            *sum += value;
            *count += 1.0;
        }
        all.into_iter().map(|(number, (sum, count))| (number, sum / count)).collect()
    }

    /// The values of all steps but the first ones, as [`Self::by_step`] counts steps: those of each rank that printed one.
    pub fn after(&self, left_out: usize) -> Vec<f64> {
        if self.points.is_empty() {
            return self.unnumbered.iter().skip(left_out).copied().collect();
        }
        if self.is_of_one_number() {
            return self.points.iter().skip(left_out).map(|it| it.1).collect();
        }
        let Some((from, _)) = self.by_step().get(left_out).copied() else { return Vec::new() };
        self.points.iter().filter(|it| it.0 >= from).map(|it| it.1).collect()
    }

    fn is_of_one_number(&self) -> bool {
        let first = self.points.first().map(|it| it.0);
        self.points.iter().all(|it| Some(it.0) == first)
    }

    /// The value of each step that was read first.
    pub fn first_by_step(&self) -> Vec<(u64, f64)> {
        let mut all: BTreeMap<u64, f64> = BTreeMap::new();
        for (number, value) in &self.points {
            all.entry(*number).or_insert(*value);
        }
        all.into_iter().collect()
    }

    /// The earliest value of each step.
    pub fn earliest(&self) -> Vec<(u64, f64)> {
        let mut all: BTreeMap<u64, f64> = BTreeMap::new();
        for (number, value) in &self.points {
            let first = all.entry(*number).or_insert(*value);
            *first = first.min(*value);
        }
        all.into_iter().collect()
    }

    /// How much the value grows from a step to the next, for values that only grow: times. A time of day begins again at midnight, a clock that
    /// goes back says nothing.
    pub fn growth(&self) -> Vec<(u64, f64)> {
        let all = self.earliest();
        let of_day = all.iter().all(|it| it.1 < DAY);
        let pairs = all.iter().zip(all.iter().skip(1));
        let each = pairs.filter_map(|(one, next)| {
            let mut grown = next.1 - one.1;
            if grown < -DAY / 2.0 && of_day {
                grown += DAY;
            }
            #[expect(clippy::cast_precision_loss, reason = "steps are far below 2^52")]
            let steps = (next.0 - one.0) as f64;
            Some((next.0, grown / steps)).filter(|it| it.1 > 0.0)
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Track};

    fn track(points: impl IntoIterator<Item = (u64, f64)>) -> Track {
        let mut track = Track::default();
        for (number, value) in points {
            track.push(Some(number), Some(value));
        }
        track
    }

    #[test]
    fn ranks_that_print_the_same_step_are_one() {
        let it = track([(1, 10.0), (1, 12.0), (2, 20.0), (2, 22.0)]);
        assert_eq!(it.by_step(), [(1, 11.0), (2, 21.0)]);
        assert_eq!(it.growth(), [(2, 10.0)]);
        assert_eq!(it.first_by_step(), [(1, 10.0), (2, 20.0)]);
        assert_eq!(track([(7, 9.0), (7, 1.0)]).by_step(), [(1, 9.0), (2, 1.0)]);
        assert_eq!(track([(10, 5.0), (20, 25.0)]).growth(), [(20, 2.0)]);
    }

    #[test]
    fn first_steps_are_left_out_as_steps_are_counted() {
        assert_eq!(track([(2, 7.0), (1, 5.0), (1, 6.0), (2, 8.0)]).after(1), [7.0, 8.0]);
        assert_eq!(track([(7, 1.0), (7, 2.0), (7, 3.0)]).after(1), [2.0, 3.0]);
        assert!(track([(1, 1.0)]).after(2).is_empty());
    }

    #[test]
    fn midnight_passes_and_clocks_go_back() {
        assert_eq!(track([(1, 86_399.0), (2, 1.0), (3, 3.0)]).growth(), [(2, 2.0), (3, 2.0)]);
        assert_eq!(track([(1, 200_000.0), (2, 1.0)]).growth(), []);
        assert_eq!(track([(1, 50.0), (2, 40.0), (3, 45.0)]).growth(), [(3, 5.0)]);
    }

    #[test]
    fn what_is_kept_does_not_depend_on_how_the_input_was_divided() {
        let points = || (0..40_000_u32).map(|it| (u64::from(it), f64::from(it)));
        let whole = track(points());
        let mut parts = track(points().take(777));
        parts.merge(track(points().skip(777).take(30_000)));
        parts.merge(track(points().skip(30_777)));
        assert_eq!(whole, parts);
        assert!(whole.points.len() <= MOST && whole.points.len() > MOST / 4);
        let same = track((0..40_000).map(|_| (0, 1.0)));
        assert!(same.points.len() <= MOST);
    }
}
