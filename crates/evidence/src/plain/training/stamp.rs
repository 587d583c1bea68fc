//! The time that a logger writes before a line, as a number.

/// Seconds from a fixed point for `2025-10-16 22:16:08,123`, the same with `T`, `10/16/2025 22:16:08`, and for `1116 16:11:59.95`, which has
/// no year; since midnight for a time of day alone.
pub(super) fn seconds(text: &str) -> Option<f64> {
    let colon = text.find(':')?;
    let of_day = text.get(colon.checked_sub(2)?..)?;
    let end = of_day
        .find(|it: char| !it.is_ascii_digit() && !matches!(it, ':' | '.' | ','))
        .unwrap_or(of_day.len());
    let mut parts = of_day.get(..end)?.splitn(3, ':');
    let mut next = || parts.next().map(|it| it.replace(',', ".")).and_then(|it| it.parse::<f64>().ok());
    let time = (next()? * 60.0 + next()?) * 60.0 + next()?;
    let date = text.get(..colon - 2)?.trim_end_matches([' ', 'T', 't']);
    let number = |from: usize, to: usize| date.get(from..to).and_then(|it| it.parse::<i32>().ok());
    let days = match (date.len(), date.as_bytes().get(4)) {
        (10, Some(b'-' | b'/')) => days(number(0, 4)?, number(5, 7)?, number(8, 10)?),
        // `%m/%d/%Y`
        (10, _) if date.as_bytes().get(2) == Some(&b'/') => {
            days(number(6, 10)?, number(0, 2)?, number(3, 5)?)
        }
        (4, _) => days(2000, number(0, 2)?, number(2, 4)?),
        (0, _) => 0,
        _ => return None,
    };
    Some(f64::from(days) * 86_400.0 + time)
}

/// Whether a time is dated with the year.
pub(super) fn has_year(text: &str) -> bool {
    text.len() > 10
        && matches!(text.as_bytes().get(..10), Some([.., b'-' | b'/', _, _] | [.., b'/', _, _, _, _]))
}

/// Days since a fixed day, of the Gregorian calendar. A year begins in March here, so that its last day may be the 29th of February.
fn days(year: i32, month: i32, day: i32) -> i32 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_that_are_written_in_three_ways() {
        let between = |one: &str, other: &str| seconds(other).unwrap() - seconds(one).unwrap();
        for (one, other, want) in [
            ("2024-02-28 23:59:59,500", "2024-02-29T00:00:01.500", 2.0),
            ("2024-02-29 00:00:00", "2024-03-01 00:00:00Z", 86_400.0),
            ("02/28/2024 23:59:59", "02/29/2024 00:00:01", 2.0),
            ("2024/02/28 23:59:59", "2024-02-29 00:00:01", 2.0),
            ("2023-12-31 12:00:00", "2024-01-01 12:00:00", 86_400.0),
            ("1116 16:11:59.956764785", "1116 16:12:00.956764785", 1.0),
            ("10:00:00", "10:01:00.25", 60.25),
        ] {
            assert!((between(one, other) - want).abs() < 1e-6, "{one} {other}");
        }
        for wrong in ["", "::", "1:2", "aa:bb:cc", "20x4-01-01 10:00:00", "9:9:9"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
