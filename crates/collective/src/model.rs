//! Predicts the fastest method for a size from times that were measured in this job.

use crate::Algorithm;
use crate::shm::{Manner, SMALL};

/// Times within this factor are taken as equal: another measurement may order them differently.
const EQUAL_WITHIN: f64 = 1.08;
/// What the caches of the processor do not suggest must be faster by this factor: of several methods that are about equal, the one that
/// was measured fastest is often one that was lucky.
pub(crate) const UNUSUAL: f64 = 1.12;
/// Beyond this factor another measurement gives the same order, at larger sizes too.
const CLEARLY: f64 = 1.4;

/// How a call is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// Through the mailboxes, in one step.
    OneShot,
    /// Direct access to registered buffers.
    Registered(Manner),
    /// Direct access to private buffers by cross-memory attach.
    Cross(Manner),
    /// Private buffers through the staging space of the mailboxes, block by block.
    Staged(Manner),
    /// Messages between ranks.
    Messages(Algorithm),
}

impl Method {
    /// The algorithm that users know it by.
    pub(crate) fn algorithm(self) -> Algorithm {
        match self {
            Self::OneShot => Algorithm::OneShot,
            Self::Registered(_) | Self::Cross(_) | Self::Staged(_) => Algorithm::TwoShot,
            Self::Messages(algorithm) => algorithm,
        }
    }

    /// Whether it writes results past the caches.
    pub(crate) fn is_past_caches(self) -> bool {
        matches!(self, Self::Registered(it) | Self::Cross(it) | Self::Staged(it) if it == Manner::PAST)
    }

    /// Whether it could replace another: for the same buffers, with results in the same place. Which of two such is faster does not change
    /// any more beyond the sizes that a core's own cache holds; writing past the caches gains only beyond the last one.
    fn replaces(self, other: Self) -> bool {
        match (self, other) {
            (Self::Registered(own), Self::Registered(other)) => own.store == other.store,
            (Self::Cross(own) | Self::Staged(own), Self::Cross(other) | Self::Staged(other)) => {
                own.store == other.store
            }
            (Self::Messages(_), Self::Messages(_)) => true,
            _ => false,
        }
    }
}

/// The methods that need not be measured at larger sizes: another that [replaces](Method::replaces) them is clearly faster.
fn outdone(measured: &[Measured]) -> Vec<Method> {
    let clearly = |it: &&Measured| {
        measured.iter().any(|by| by.method.replaces(it.method) && CLEARLY * by.seconds < it.seconds)
    };
    measured.iter().filter(clearly).map(|it| it.method).collect()
}

/// Measured times of one collective: for every size, seconds by each method.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    rows: Vec<Row>,
    /// The methods that need not be measured at larger sizes than they were.
    outdone: Vec<Method>,
}

#[derive(Debug, Clone)]
struct Row {
    bytes: usize,
    measured: Vec<Measured>,
}

/// The time of a method.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) method: Method,
    pub(crate) seconds: f64,
}

/// What the time of a method counts at a size: once, [`UNUSUAL`] times, or without end where it is out of the question.
pub(crate) type Weigh<'a> = &'a dyn Fn(Method, usize) -> f64;

/// The method for sizes up to `up_to` bytes, from the end of the range before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeRange {
    pub(crate) up_to: usize,
    pub(crate) method: Method,
}

impl Times {
    /// Adds the times of a size, which must be larger than those of the same methods before.
    pub(crate) fn add(&mut self, bytes: usize, measured: Vec<Measured>) {
        self.rows.push(Row { bytes, measured });
    }

    /// Leaves out, at larger sizes than those measured so far, what another method outdoes in these times.
    pub(crate) fn leave_out(&mut self, measured: &[Measured]) {
        self.outdone.extend(outdone(measured));
    }

    /// Whether a method may be the fastest at larger sizes than those measured so far.
    pub(crate) fn is_open(&self, method: Method) -> bool {
        !self.outdone.contains(&method)
    }

    /// The longest time that one of these methods took at the largest size it was measured at.
    pub(crate) fn longest(&self, methods: &[Method]) -> f64 {
        let last = |method: &Method| {
            let mut all = self.rows.iter().rev().flat_map(|it| &it.measured);
            all.find(|it| it.method == *method).map(|it| it.seconds)
        };
        methods.iter().filter_map(last).fold(0.0, f64::max)
    }

    /// The time of a method: interpolated between measured sizes, extrapolated from the last two beyond them. `None` beyond them for a method
    /// that was left out there: in caches that hold the buffers it grows more slowly than beyond.
    fn predict(&self, method: Method, bytes: usize) -> Option<f64> {
        let points = || {
            self.rows.iter().filter_map(|row| {
                let measured = row.measured.iter().find(|it| it.method == method)?;
                Some((to_f64(row.bytes), measured.seconds))
            })
        };
        let wanted = to_f64(bytes);
        let mut last: Option<(f64, f64)> = None;
        let mut slope = 0.0;
        for (size, seconds) in points() {
            if let Some((before, then)) = last {
                slope = ((seconds - then) / (size - before)).max(0.0);
                if wanted <= size {
                    return Some(then + slope * (wanted - before));
                }
            } else if wanted <= size {
                return Some(seconds);
            }
            last = Some((size, seconds));
        }
        last.filter(|_| self.is_open(method)).map(|(size, seconds)| seconds + slope * (wanted - size))
    }

    /// Up to which size one shot is at most 20 % slower than registered buffers, whose addresses ranks have to exchange first.
    ///
    /// The margin is there because that exchange is of no use if a buffer turns out to be private.
    pub(crate) fn one_shot(&self) -> usize {
        let mut upto = 0;
        let mut bytes = 8;
        while bytes <= SMALL {
            let times = self
                .predict(Method::OneShot, bytes)
                .zip(self.predict(Method::Registered(Manner::PLAIN), bytes));
            if times.is_some_and(|(one, other)| one > 1.2 * other) {
                break;
            }
            upto = bytes;
            bytes *= 2;
        }
        upto
    }

    /// The first of `methods` that is about as fast as the fastest.
    pub(crate) fn fastest(&self, methods: &[Method], bytes: usize, weigh: Weigh<'_>) -> Option<Method> {
        let times = || {
            methods.iter().filter_map(|it| {
                let seconds = self.predict(*it, bytes)? * weigh(*it, bytes);
                Some(Measured { method: *it, seconds })
            })
        };
        let least = times().map(|it| it.seconds).min_by(f64::total_cmp)?;
        times().find(|it| it.seconds <= EQUAL_WITHIN * least).map(|it| it.method)
    }

    /// The best method for every size. A method is kept while it is about as fast as the fastest.
    pub(crate) fn ranges(&self, methods: &[Method], most: usize, weigh: Weigh<'_>) -> Vec<SizeRange> {
        let mut ranges: Vec<SizeRange> = Vec::new();
        let mut bytes = 8;
        while bytes <= most {
            let last = ranges.last().map(|it| it.method);
            let mut ordered: Vec<Method> = methods.to_vec();
            ordered.sort_by(|a, b| weigh(*a, bytes).total_cmp(&weigh(*b, bytes)));
            let ordered: Vec<Method> = last.into_iter().chain(ordered).collect();
            let Some(method) = self.fastest(&ordered, bytes, weigh) else { break };
            match ranges.last_mut() {
                Some(last) if last.method == method => last.up_to = bytes,
                _ => ranges.push(SizeRange { up_to: bytes, method }),
            }
            bytes *= 2;
        }
        if let Some(last) = ranges.last_mut() {
            last.up_to = usize::MAX;
        }
        ranges
    }
}

/// The method for a size among ranges.
pub(crate) fn pick(ranges: &[SizeRange], bytes: usize) -> Option<Method> {
    ranges.iter().find(|it| bytes <= it.up_to).map(|it| it.method)
}

#[expect(clippy::cast_precision_loss, reason = "sizes and times, not counts")]
pub(crate) fn to_f64(bytes: usize) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Method = Method::Messages(Algorithm::Ring);
    const TREE: Method = Method::Messages(Algorithm::Tree);

    fn measured(ring: f64, tree: f64) -> Vec<Measured> {
        vec![Measured { method: RING, seconds: ring }, Measured { method: TREE, seconds: tree }]
    }

    const ANY: Weigh<'static> = &|_, _| 1.0;

    const fn rest(method: Method) -> SizeRange {
        SizeRange { up_to: usize::MAX, method }
    }

    fn times() -> Times {
        let mut times = Times::default();
        for bytes in [8, 1 << 10, 64 << 10, 1 << 20] {
            let size = to_f64(bytes);
            times.add(bytes, measured(20e-6 + size * 1e-10, 5e-6 + size * 3e-10));
        }
        times
    }

    #[test]
    fn the_faster_changes_where_the_lines_cross() {
        let ranges = times().ranges(&[RING, TREE], 1 << 30, ANY);
        assert_eq!(ranges.len(), 2, "{ranges:?}");
        assert_eq!(ranges[0].method, TREE);
        // 15 us at 2e-10 s a byte: 75,000 bytes.
        assert!((32 << 10..=128 << 10).contains(&ranges[0].up_to), "{ranges:?}");
        assert_eq!(pick(&ranges, 8), Some(TREE));
        assert_eq!(pick(&ranges, 1 << 40), Some(RING));
    }

    #[test]
    fn a_method_is_kept_while_it_is_about_as_fast() {
        let mut times = Times::default();
        for (bytes, ring, tree) in
            [(64, 3.0, 3.1), (1 << 10, 3.1, 3.0), (1 << 20, 6.0, 5.7), (1 << 24, 9.0, 7.0)]
        {
            times.add(bytes, measured(ring, tree));
        }
        let ranges = times.ranges(&[TREE, RING], 1 << 20, ANY);
        assert_eq!(ranges, [rest(TREE)]);
        let ranges = times.ranges(&[RING, TREE], 1 << 30, ANY);
        assert_eq!((ranges.len(), ranges[0].method, ranges[1]), (2, RING, rest(TREE)));
    }

    #[test]
    fn what_was_not_measured_is_not_chosen() {
        assert_eq!(times().fastest(&[Method::Cross(Manner::PLAIN), RING], 8, ANY), Some(RING));
        assert_eq!(Times::default().fastest(&[RING], 8, ANY), None);
        assert!(Times::default().ranges(&[RING], 1 << 20, ANY).is_empty());
    }

    /// Seconds at 1, 4, 16 and 64 MiB of registered buffers, written into and past the caches.
    fn stores(plain: [f64; 4], streaming: [f64; 4]) -> Times {
        let mut times = Times::default();
        for (i, (plain, streaming)) in plain.into_iter().zip(streaming).enumerate() {
            let measured = [(PLAIN, plain), (STREAMING, streaming)];
            let measured = measured.map(|(method, seconds)| Measured { method, seconds }).to_vec();
            times.add(1 << (20 + 2 * i), measured);
        }
        times
    }

    const PLAIN: Method = Method::Registered(Manner::PLAIN);
    const STREAMING: Method = Method::Registered(Manner::PAST);

    #[test]
    fn results_go_past_the_caches_where_that_was_faster() {
        // A small core's cache and a last-level cache of 32 MiB: 16 MiB of four buffers no longer fit.
        let times = stores([60e-6, 300e-6, 3e-3, 14e-3], [170e-6, 700e-6, 2e-3, 8e-3]);
        let past: Weigh<'_> = &|method, _| if method == STREAMING { 1.0 } else { UNUSUAL };
        let ranges = times.ranges(&[PLAIN, STREAMING], 1 << 30, past);
        assert_eq!(ranges.len(), 2, "{ranges:?}");
        assert_eq!([1 << 20, 4 << 20].map(|it| pick(&ranges, it)), [Some(PLAIN); 2]);
        assert_eq!([16 << 20, 1 << 30].map(|it| pick(&ranges, it)), [Some(STREAMING); 2]);
        // A last-level cache that is slow to write: past it from the start.
        let times = stores([60e-6, 400e-6, 2e-3, 9e-3], [50e-6, 290e-6, 1e-3, 7e-3]);
        assert_eq!(times.ranges(&[PLAIN, STREAMING], 1 << 30, past), [rest(STREAMING)]);
        // What the caches suggest is kept where both are about equal.
        let times = stores([55e-6, 280e-6, 1.1e-3, 7e-3], [58e-6, 300e-6, 1.2e-3, 7e-3]);
        assert_eq!(times.ranges(&[PLAIN, STREAMING], 1 << 30, past), [rest(STREAMING)]);
        assert_eq!(times.ranges(&[PLAIN, STREAMING], 1 << 30, ANY), [rest(PLAIN)]);
        // And what is out of the question is not extrapolated.
        let until: Weigh<'_> =
            &|method, bytes| if method == PLAIN && bytes > 16 << 20 { f64::INFINITY } else { 1.0 };
        let ranges = times.ranges(&[PLAIN, STREAMING], 1 << 30, until);
        assert_eq!([16 << 20, 32 << 20].map(|it| pick(&ranges, it)), [Some(PLAIN), Some(STREAMING)]);
    }

    #[test]
    fn what_was_left_out_is_not_extrapolated() {
        // In the caches ring is clearly slower; beyond them only tree was measured, and grows faster than ring did inside.
        let mut times = Times::default();
        times.add(256 << 10, measured(19e-6, 9e-6));
        let inside = measured(77e-6, 41e-6);
        times.leave_out(&inside);
        times.add(1 << 20, inside);
        times.add(64 << 20, vec![Measured { method: TREE, seconds: 5.7e-3 }]);
        assert_eq!([RING, TREE].map(|it| times.is_open(it)), [false, true]);
        assert_eq!(times.ranges(&[RING, TREE], 1 << 30, ANY), [rest(TREE)]);
        for bytes in [1 << 20, 16 << 20, 64 << 20, 1 << 30] {
            assert_eq!(times.fastest(&[RING, TREE], bytes, ANY), Some(TREE), "{bytes}");
        }
    }

    #[test]
    fn what_another_outdoes_is_dropped_but_not_what_goes_past_the_caches() {
        let [plain, fine, past] = [Manner::PLAIN, Manner::FINE, Manner::PAST];
        let all = [
            (Method::Cross(plain), 1.0),
            (Method::Cross(fine), 1.3),
            (Method::Staged(plain), 1.5),
            (Method::Staged(past), 3.0),
            (PLAIN, 0.4),
            (STREAMING, 0.9),
            (RING, 9.0),
        ];
        let measured = all.map(|(method, seconds)| Measured { method, seconds });
        assert_eq!(outdone(&measured), [Method::Staged(plain)]);
        assert_eq!(outdone(&measured[..1]), []);
    }
}
