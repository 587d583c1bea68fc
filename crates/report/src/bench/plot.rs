//! Bus bandwidth over size, drawn with characters; both axes are logarithmic.

use std::io::{self, Write};

use crate::expect::shown;
use crate::text::bytes;
use bench::Record;

/// Characters across.
const WIDTH: usize = 60;
/// And down.
const HEIGHT: usize = 10;

/// Writes the plot: with Braille dots, or with ASCII characters.
pub fn plot(bench: &Record, braille: bool, out: &mut impl Write) -> io::Result<()> {
    let points = points(bench);
    let (Some(left), Some(right)) = (points.first(), points.last()) else { return Ok(()) };
    if points.len() < 3 {
        return Ok(());
    }
    let top = points.iter().map(|it| it.1).fold(f64::MIN, f64::max);
    let bottom = points.iter().map(|it| it.1).fold(f64::MAX, f64::min).max(top / 1e5);
    let across = |size: f64| (size / left.0).ln() / (right.0 / left.0).ln();
    let up =
        |rate: f64| if top > bottom { ((rate / bottom).ln() / (top / bottom).ln()).max(0.0) } else { 1.0 };
    let (columns, lines) = if braille { (WIDTH * 2, HEIGHT * 4) } else { (WIDTH, HEIGHT) };
    let mut dots = vec![false; columns * lines];
    for pair in points.windows(2) {
        let ends = [pair[0], pair[1]].map(|it| (across(it.0), up(it.1)));
        let steps = columns.max(lines);
        for step in 0..=steps {
            #[expect(clippy::cast_precision_loss, reason = "a few hundred at most")]
            let share = step as f64 / steps as f64;
            let [x, y] = [
                ends[0].0 + (ends[1].0 - ends[0].0) * share,
                1.0 - (ends[0].1 + (ends[1].1 - ends[0].1) * share),
            ];
            if let Some(dot) = dots.get_mut(place(y, lines) * columns + place(x, columns)) {
                *dot = true;
            }
        }
    }
    // One rank has no bus bandwidth.
    let what = if bench.ranks > 1 { "bus bandwidth" } else { "bandwidth" };
    writeln!(out, "\n  {what} (GB/s) by size")?;
    for line in 0..HEIGHT {
        let label = match line {
            0 => shown(top),
            it if it == HEIGHT - 1 => shown(bottom),
            _ => String::new(),
        };
        let cells: String = (0..WIDTH).map(|it| cell(&dots, columns, line, it, braille)).collect();
        let axis = if braille { '│' } else { '|' };
        writeln!(out, "  {label:>8} {axis}{}", cells.trim_end_matches(['\u{2800}', ' ']))?;
    }
    let (corner, line) = if braille { ('└', "─") } else { ('+', "-") };
    writeln!(out, "  {:>8} {corner}{}", "", line.repeat(WIDTH))?;
    let [from, to] = [left.0, right.0].map(whole).map(bytes);
    writeln!(out, "  {:>8}  {from}{to:>width$}", "", width = WIDTH.saturating_sub(from.chars().count()))
}

/// Sizes and bandwidths of the first series, out of place if there is.
fn points(bench: &Record) -> Vec<(f64, f64)> {
    let first = bench.results.first().map(bench::record::Row::series);
    let rows = bench.results.iter().filter(|it| Some(it.series()) == first && it.cycle == 0);
    let mut points: Vec<(f64, f64)> = rows
        .filter_map(|row| {
            let measure = row.out_of_place.as_ref().or(row.in_place.as_ref())?;
            let rate = measure.rate(bench.ranks);
            #[expect(clippy::cast_precision_loss, reason = "a place on an axis")]
            (row.bytes > 0 && rate > 0.0).then_some((row.bytes as f64, rate))
        })
        .collect();
    points.dedup_by_key(|it| it.0.to_bits());
    points
}

/// One character: two dots across, four down, in the order of Unicode's Braille patterns.
fn cell(dots: &[bool], columns: usize, line: usize, column: usize, braille: bool) -> char {
    let dot = |x: usize, y: usize| dots.get(y * columns + x).copied().unwrap_or(false);
    if !braille {
        return if dot(column, line) { '*' } else { ' ' };
    }
    let order = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)];
    let set = (0_u32..).zip(order).filter(|(_, (x, y))| dot(column * 2 + x, line * 4 + y));
    char::from_u32(0x2800 + set.map(|(bit, _)| 1 << bit).sum::<u32>()).unwrap_or(' ')
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a place in a small grid"
)]
fn place(share: f64, length: usize) -> usize {
    (share.clamp(0.0, 1.0) * (length - 1) as f64).round() as usize
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "made of a u64")]
fn whole(size: f64) -> u64 {
    size as u64
}
