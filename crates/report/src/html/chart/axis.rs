//! Axes: from values to places, and the numbers beside them.

use super::{LEFT, RIGHT, STYLE, WIDTH, legend};
use crate::topo::svg::canvas::{Canvas, Picture, Rect, short};

/// How an axis is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// From zero, in equal steps.
    Linear,
    /// In equal steps around the values.
    Near,
    /// By decades.
    Decades,
    /// By powers of two, for sizes in bytes.
    Octaves,
}

/// One axis.
#[derive(Debug, Clone, Copy)]
pub struct Axis<'a> {
    /// What it shows, with its unit.
    pub label: &'a str,
    /// How it is divided.
    pub scale: Scale,
    /// A number beside the axis.
    pub show: fn(f64) -> String,
}

/// The range of an axis and its numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ticks {
    scale: Scale,
    low: f64,
    high: f64,
    pub(super) at: Vec<f64>,
}

impl Ticks {
    /// For these values; those that the scale cannot show do not count.
    pub(super) fn new(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let shown = |it: &f64| it.is_finite() && (matches!(scale, Scale::Linear | Scale::Near) || *it > 0.0);
        let values: Vec<f64> = values.filter(shown).collect();
        let (mut low, mut high) =
            values.iter().fold((f64::MAX, f64::MIN), |(low, high), it| (low.min(*it), high.max(*it)));
        match scale {
            Scale::Linear => {
                let high = if high > 0.0 { high } else { 1.0 };
                let step = nice(high / 5.0);
                let count = (high * 1.02 / step).ceil().clamp(1.0, 12.0);
                let at = (0..13).map(f64::from).take_while(|it| *it <= count).map(|it| it * step).collect();
                Self { scale, low: 0.0, high: step * count, at }
            }
            Scale::Near => {
                if low > high {
                    (low, high) = (0.0, 1.0);
                }
                // At least a hundredth of the value, so that equal values have an axis too.
                let step = nice(((high - low) / 4.0).max(high.abs() / 100.0).max(f64::MIN_POSITIVE));
                let first = (low / step - 0.1).floor();
                let count = ((high / step + 0.1).ceil() - first).clamp(1.0, 12.0);
                let at = (0..13)
                    .map(f64::from)
                    .take_while(|it| *it <= count)
                    .map(|it| (first + it) * step)
                    .collect();
                Self { scale, low: first * step, high: (first + count) * step, at }
            }
            Scale::Decades => Self::decades(low, high),
            Scale::Octaves => Self::octaves(low, high, &values),
        }
    }

    /// From a round number below the values to one above: 1, 2, 5 where there are few decades, otherwise every decade or fewer.
    fn decades(low: f64, high: f64) -> Self {
        let (low, high) = if low > high { (1.0, 10.0) } else { (low.max(1e-300), high.clamp(1e-300, 1e300)) };
        let (mut first, mut last) = (round_down(low), nice(high));
        if last <= first * 1.001 {
            (first, last) = (round_down(low / 1.5), nice(high * 1.5));
        }
        let decades = last.log10() - first.log10();
        let digits: &[f64] = if decades < 2.6 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let step = (decades / 12.0).ceil().max(1.0);
        let begin = first.log10().floor();
        let at = (0..=13)
            .map(|it| 10_f64.powf(begin + f64::from(it) * step))
            .flat_map(|power| digits.iter().map(move |it| it * power))
            .filter(|it| *it >= first * 0.999 && *it <= last * 1.001)
            .collect();
        Self { scale: Scale::Decades, low: first, high: last, at }
    }

    /// From the first to the last size, with numbers such as 1, 4, 16 KiB, or 1 KiB, 32 KiB, 1 MiB: those that were measured, if some are.
    fn octaves(low: f64, high: f64, values: &[f64]) -> Self {
        let (low, high) = if low > high { (1.0, 2.0) } else { (low, high) };
        let (low, high) = if high > low {
            (low, high)
        } else {
            (low.log2().floor().exp2(), low.log2().floor().exp2() * 2.0)
        };
        let (first, last) = (low.log2(), high.log2());
        let fits = |it: &f64| (last - first) / it <= 13.5;
        let step = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0].into_iter().find(fits).unwrap_or(500.0);
        let from = |offset: f64| -> Vec<f64> {
            let begin = ((first - offset) / step - 1e-9).ceil();
            (0..15)
                .map(|it| ((begin + f64::from(it)) * step + offset).exp2())
                .take_while(|it| *it <= high * 1.001)
                .collect()
        };
        let measured = |at: &[f64]| {
            at.iter().filter(|at| values.iter().any(|it| (*it / **at - 1.0).abs() < 1e-9)).count()
        };
        let mut at = from(0.0);
        for it in (1..5).map(f64::from).take_while(|it| *it < step).map(from) {
            if measured(&it) > measured(&at) {
                at = it;
            }
        }
        if at.is_empty() {
            at = vec![low, high];
        }
        Self { scale: Scale::Octaves, low, high, at }
    }

    /// From 0 at the low end to 1 at the high end.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear | Scale::Near => (value - self.low) / (self.high - self.low),
            _ if value <= 0.0 => 0.0,
            _ => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// 1, 2 or 5 times a power of ten, not more than the value.
fn round_down(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let digit = [5.0, 2.0, 1.0].into_iter().find(|it| *it * power <= value * 1.001).unwrap_or(1.0);
    digit * power
}

/// 1, 2 or 5 times a power of ten, not less than the value.
fn nice(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let digit = [1.0, 2.0, 5.0, 10.0].into_iter().find(|it| *it * power >= value * 0.999).unwrap_or(10.0);
    digit * power
}

/// The number beside an axis: `10 s` instead of `10.0 s`, for numbers on it are round.
fn tick(text: &str) -> String {
    let (number, unit) = text.split_once(' ').map_or((text, ""), |(number, unit)| (number, unit));
    let number = match number.split_once('.') {
        Some((_, digits)) if digits.bytes().all(|it| it.is_ascii_digit()) => {
            number.trim_end_matches('0').trim_end_matches('.')
        }
        _ => number,
    };
    if unit.is_empty() { number.to_owned() } else { format!("{number} {unit}") }
}

/// The numbers beside an axis: zero has the unit of the number next to it.
pub(super) fn numbers(at: &[f64], show: &dyn Fn(f64) -> String) -> Vec<String> {
    let next = at.iter().find(|it| **it != 0.0).map(|it| show(*it)).unwrap_or_default();
    let zero = match next.split_once(' ') {
        Some((_, unit)) => format!("0 {unit}"),
        None => "0".to_owned(),
    };
    at.iter().map(|it| if *it == 0.0 { zero.clone() } else { tick(&show(*it)) }).collect()
}

/// A chart with two axes: what curves and points have in common.
#[derive(Debug, Clone)]
pub struct Frame<'a> {
    /// What it shows.
    pub title: &'a str,
    /// The same in a sentence with its numbers, for a screen reader.
    pub about: &'a str,
    /// From left to right.
    pub x: Axis<'a>,
    /// From the bottom up.
    pub y: Axis<'a>,
}

impl Frame<'_> {
    /// A legend of names with their colours, and the place of both axes for these values below it. `strip` is kept free above the frame.
    pub(super) fn begin(
        &self,
        names: &[(String, String)],
        [strip, height]: [f64; 2],
        across: impl Iterator<Item = f64>,
        up: impl Iterator<Item = f64>,
    ) -> (Canvas, Area) {
        let mut canvas = Canvas::default();
        let top = legend(names, 8.0, &mut canvas) + 40.0 + strip;
        let area = Area {
            strip,
            frame: Rect { x: LEFT, y: top, width: WIDTH - LEFT - RIGHT, height },
            across: Ticks::new(self.x.scale, across),
            up: Ticks::new(self.y.scale, up),
        };
        (canvas, area)
    }

    /// Lines of the grid and their numbers. Below the frame it takes 44 pixels, above 22.
    pub(super) fn axes(&self, area: &Area, canvas: &mut Canvas) {
        let frame = area.frame;
        for (it, number) in area.up.at.iter().zip(numbers(&area.up.at, &self.y.show)) {
            let place = area.y(*it);
            canvas.line((frame.x, place), (frame.right(), place), "grid");
            canvas.words((frame.x - 8.0, place + 4.0), "soft e", &number);
        }
        for (it, number) in area.across.at.iter().zip(numbers(&area.across.at, &self.x.show)) {
            let place = area.x(*it);
            canvas.line((place, frame.y), (place, frame.bottom()), "grid");
            canvas.words((place, frame.bottom() + 18.0), "soft m", &number);
        }
        canvas.rect(frame, 0.0, "edge");
        canvas.words((frame.x, frame.y - area.strip - 8.0), "h2", self.y.label);
        canvas.words((frame.right(), frame.bottom() + 36.0), "h2 e", self.x.label);
    }

    pub(super) fn finish(&self, canvas: Canvas, area: &Area) -> Picture {
        canvas.picture([WIDTH, area.frame.bottom() + 48.0], [self.title, self.about], STYLE)
    }
}

/// From values to places.
pub(super) struct Area {
    pub(super) frame: Rect,
    /// The height that is kept free above the frame.
    strip: f64,
    across: Ticks,
    up: Ticks,
}

impl Area {
    pub(super) fn x(&self, value: f64) -> f64 {
        self.frame.x + self.frame.width * self.across.share(value)
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        self.frame.bottom() - self.frame.height * self.up.share(value)
    }

    /// A path along values.
    pub(super) fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        for it in points {
            let letter = if path.is_empty() { 'M' } else { 'L' };
            path.push_str(&format!("{letter}{} {}", short(self.x(it.0)), short(self.y(it.1))));
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::{Scale, Ticks, numbers, tick};

    #[test]
    fn numbers_beside_an_axis_are_round() {
        let sizes = |low: f64, high: f64| Ticks::new(Scale::Octaves, [low, high].into_iter()).at;
        // Every fourth size from 16 B to 1 GiB, not 8, 64, 512.
        let large: Vec<f64> = (2..=15).map(|it| 4_f64.powi(it)).collect();
        assert_eq!(sizes(8.0, 1_073_741_824.0), large);
        assert_eq!(sizes(1.0, 65_536.0 * 65_536.0).first(), Some(&1.0));
        assert_eq!(sizes(5.0, 7.0), [5.0, 7.0]);
        let fours: Vec<f64> = (0..11).map(|it| 8.0 * 4_f64.powi(it)).collect();
        assert_eq!(Ticks::new(Scale::Octaves, fours.iter().copied()).at, fours, "those that were measured");
        let few = Ticks::new(Scale::Decades, [0.06, 1.9].into_iter()).at;
        assert!(
            few.iter().zip([0.05, 0.1, 0.2, 0.5, 1.0, 2.0]).all(|(is, want)| (is - want).abs() < 1e-9),
            "{few:?}"
        );
        assert_eq!(
            ["10.0 s", "0.20", "100 ms", "1.00 us", "2.5 GB", "1e3"].map(tick),
            ["10 s", "0.2", "100 ms", "1 us", "2.5 GB", "1e3"]
        );
    }

    #[test]
    fn zero_has_the_unit_of_the_others() {
        let show = |it: f64| if it < 1.0 { format!("{:.1} ms", it * 1e3) } else { format!("{it:.1} s") };
        assert_eq!(numbers(&[0.0, 50.0, 100.0], &show), ["0 s", "50 s", "100 s"]);
        assert_eq!(numbers(&[0.0, 0.5], &|it| it.to_string()), ["0", "0.5"]);
        assert_eq!(numbers(&[0.0], &show), ["0"]);
    }

    #[test]
    fn axes_hold_all_values() {
        let linear = Ticks::new(Scale::Linear, [3.0, 42.0].into_iter());
        assert_eq!(linear.at, [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        let decades = Ticks::new(Scale::Decades, [0.0, 0.3, 42.0, f64::NAN].into_iter());
        assert_eq!(decades.at.len(), 8, "0.2, 0.5, 1 to 50: {:?}", decades.at);
        assert!(decades.share(0.3) > 0.0 && decades.share(42.0) < 1.0 && decades.share(0.0) == 0.0);
        for scale in [Scale::Linear, Scale::Near, Scale::Decades, Scale::Octaves] {
            for values in [vec![], vec![f64::INFINITY], vec![5.0], vec![0.0], vec![1e-300, 1e300]] {
                let ticks = Ticks::new(scale, values.iter().copied());
                assert!(!ticks.at.is_empty() && ticks.at.len() <= 14, "{scale:?} {values:?}");
                assert!(values.iter().all(|it| (0.0..=1.0).contains(&ticks.share(*it))));
            }
        }
    }
}
