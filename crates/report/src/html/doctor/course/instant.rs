//! When an event was, as exactly as its line says.

use job::failure::timestamp;

/// From here to there, in seconds: a line that says `02:56:21` was written within that second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Instant {
    pub(super) from: f64,
    pub(super) to: f64,
    /// Whether the day counts in it.
    pub(super) dated: bool,
}

/// Days before a month of a leap year: the year is often not written.
const DAYS: [u32; 12] = [0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335];

impl Instant {
    /// Of `2025-10-16 22:16:08.5`, `1129 11:56:57.642513817` or `22:16:08`.
    pub(super) fn new(text: &str) -> Option<Self> {
        let it = timestamp(text)?;
        let days = match it.day {
            Some(day) => *DAYS.get(usize::try_from(day.month).ok()?.checked_sub(1)?)? + day.day,
            None => 0,
        };
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a day")]
        let from = f64::from(days) * 86_400.0 + it.nanoseconds as f64 / 1e9;
        let digits = text.rsplit_once(['.', ',']).map_or(0, |it| it.1.len().min(9));
        let precision = 0.1_f64.powi(i32::try_from(digits).unwrap_or(0));
        Some(Self { from, to: from + precision, dated: it.day.is_some() })
    }

    /// Whether its line has no fraction of the second.
    pub(super) fn is_whole_second(self) -> bool {
        self.to - self.from > 0.5
    }
}

/// A time for a reader: `Nov 15 02:54:41.832` of `1115 02:54:41.832146218`.
pub(in crate::html::doctor) fn readable(text: &str) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let short = match text.rsplit_once(['.', ',']) {
        Some((whole, fraction)) if fraction.len() > 3 && fraction.bytes().all(|it| it.is_ascii_digit()) => {
            format!("{whole}.{}", &fraction[..3])
        }
        _ => text.to_owned(),
    };
    let dated = short.split_once(' ').filter(|it| it.0.len() == 4).and_then(|(day, clock)| {
        let number: usize = day.parse().ok()?;
        let month = MONTHS.get((number / 100).checked_sub(1)?)?;
        Some(format!("{month} {} {clock}", number % 100))
    });
    dated.unwrap_or(short)
}

/// The events of a rank in their order, with when they were. What their times leave open, their kinds decide, in whose order they are given:
/// a setup begins before it is complete.
pub(super) fn in_order<T>(mut events: Vec<(Instant, T)>) -> Vec<(Instant, T)> {
    let coarsest = events.iter().map(|it| it.0.to - it.0.from).fold(0.0, f64::max).max(1e-9);
    let step = |it: &(Instant, T)| ((it.0.from + 1e-9) / coarsest).floor();
    events.sort_by(|one, other| step(one).total_cmp(&step(other)));
    // None was before the one before it, nor after the one after it.
    let mut low = f64::MIN;
    for (it, _) in &mut events {
        low = low.max(it.from);
        it.from = low;
    }
    let mut high = f64::MAX;
    for (it, _) in events.iter_mut().rev() {
        high = high.min(it.to).max(it.from);
        it.to = high;
    }
    events
}

#[cfg(test)]
mod tests {
    use super::{Instant, in_order, readable};

    #[test]
    fn a_whole_second_is_not_later_than_a_millisecond_in_it() {
        let [coarse, fine] =
            ["2026-11-15 02:56:21", "2026-11-15 02:56:21.348"].map(|it| Instant::new(it).unwrap());
        assert!(coarse.from <= fine.from && fine.to <= coarse.to);
        assert!(coarse.is_whole_second() && !fine.is_whole_second());
        let [one, other] = ["1115 23:59:59.5", "2026-11-16 00:00:01"].map(|it| Instant::new(it).unwrap());
        assert!((other.from - one.from - 1.5).abs() < 1e-6);
        assert_eq!(Instant::new("x"), None);
        assert_eq!(Instant::new("9999 10:00:00"), None);
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(readable("1115 02:54:41.832146218"), "Nov 15 02:54:41.832");
        assert_eq!(readable("2026-11-15 02:53:18"), "2026-11-15 02:53:18");
        assert_eq!(readable("9915 02:54:41"), "9915 02:54:41");
        assert_eq!(readable("x.\u{e9}\u{e9}\u{e9}"), "x.\u{e9}\u{e9}\u{e9}");
    }

    #[test]
    fn kinds_decide_what_times_leave_open() {
        let at = |it: &str| Instant::new(it).unwrap();
        let order = in_order(vec![
            (at("10:00:01.2"), "begins"),
            (at("10:00:01.7"), "complete"),
            (at("10:00:01"), "fails"),
            (at("10:00:00"), "earlier"),
        ]);
        assert_eq!(
            order.iter().map(|it| it.1).collect::<Vec<_>>(),
            ["earlier", "begins", "complete", "fails"]
        );
        let fails = order.last().unwrap().0;
        assert!(
            (fails.from - at("10:00:01.7").from).abs() < 1e-6
                && (fails.to - at("10:00:02").from).abs() < 1e-6
        );
    }
}
