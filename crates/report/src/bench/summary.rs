//! What the table does not show: how times vary, latency, bandwidth, regimes.

use std::collections::BTreeMap;
use std::io::{self, Write};

use bench::statistics::{median, quantile};

use bench::Record;
use bench::record::{Fit, Measure, Row};

use crate::Style;
use crate::expect::{shown, time};
use crate::text::{bytes, clean, counted, wrap};

/// A rank is reported if it is the slowest at more than half of the sizes, and by this median lag, in percent.
const STANDS_OUT: f64 = 10.0;

/// Writes it.
pub fn summary(bench: &Record, style: Style, out: &mut impl Write) -> io::Result<()> {
    let mut lines: Vec<String> = Vec::new();
    let all: Vec<&[Row]> = bench.results.chunk_by(|a, b| a.series() == b.series()).collect();
    for rows in &all {
        let Some(first) = rows.first() else { continue };
        let in_place = first.out_of_place.is_none();
        writeln!(out)?;
        if all.len() > 1 {
            writeln!(out, "  {}", name(first))?;
        }
        times(bench, rows, in_place, out)?;
        let fit = bench.fits.iter().find(|it| {
            (it.data_type.as_str(), it.operation.as_deref(), it.root) == first.series()
                && it.in_place == in_place
        });
        writeln!(out)?;
        for line in fit.map(|it| words(it, first.bytes)).unwrap_or_default() {
            writeln!(out, "  {line}")?;
        }
    }
    lines.extend(expectation(bench));
    lines.extend(remarks(bench));
    for line in lines {
        for (i, part) in wrap(&line, style.width.saturating_sub(4).max(40)).into_iter().enumerate() {
            writeln!(out, "  {}{part}", if i > 0 { "  " } else { "" })?;
        }
    }
    Ok(())
}

/// What looked odd, and how ranks were connected.
pub(crate) fn remarks(bench: &Record) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(slowest(bench));
    lines.extend(drift(bench));
    lines.extend(bench.paths.as_ref().map(|it| format!("paths: {}", clean(it))));
    lines.extend(bench.oversubscribed.as_ref().map(|it| {
        let on = if bench.hosts > 1 { format!(" of {}", clean(&it.host)) } else { String::new() };
        let cores = if it.cores == 1 { "one core".to_owned() } else { format!("{} cores", it.cores) };
        format!("{} ranks share {cores}{on}: times include waiting for a core", it.ranks)
    }));
    lines.extend(bench.first_wrong.as_ref().map(|it| {
        format!(
            "error: wrong result at {} {}: rank {} has {} at index {}, expected {}",
            bytes(it.bytes),
            if it.in_place { "in place" } else { "out of place" },
            it.rank,
            it.got,
            it.index,
            it.expected
        )
    }));
    lines
}

/// `float sum`, `half, root 2`
pub(crate) fn name(row: &Row) -> String {
    let operation = row.operation.as_ref().map(|it| format!(" {it}")).unwrap_or_default();
    let root = row.root.map(|it| format!(", root {it}")).unwrap_or_default();
    format!("{}{operation}{root}", row.data_type)
}

/// Medians, how far times scatter, and the slowest rank.
fn times(bench: &Record, rows: &[Row], in_place: bool, out: &mut impl Write) -> io::Result<()> {
    let place = if in_place { "in place" } else { "out of place" };
    let ranks = if bench.ranks > 1 { "   slowest rank" } else { "" };
    writeln!(out, "  {place:<12}  {:>9}  {:>9}  {:>9}{ranks}", "median", "p10", "p99")?;
    for row in rows {
        let Some(it) = row.measure(in_place) else { continue };
        let slowest = match it.slowest_rank {
            Some(rank) if bench.ranks > 1 => format!("   {rank}, {:+.0} %", it.slowest_lag_percent),
            _ => String::new(),
        };
        let median = time(it.median_us);
        // A single batch does not show variation.
        let [p10, p99] =
            [it.p10_us, it.p99_us].map(|at| if it.samples_us.len() > 1 { time(at) } else { "-".into() });
        writeln!(out, "  {:>12}  {median:>9}  {p10:>9}  {p99:>9}{slowest}", bytes(row.bytes))?;
    }
    Ok(())
}

/// Latency, half, bandwidth; then the regimes.
pub(crate) fn words(fit: &Fit, smallest: u64) -> Vec<String> {
    if let Some(reason) = &fit.reason {
        return vec![reason.clone()];
    }
    let mut first = Vec::new();
    first.push(match fit.latency_us {
        Some(it) => format!("latency {}", time(it)),
        None if smallest > 64 => "latency unknown: start at smaller sizes (-b 8)".to_owned(),
        None => "latency unknown: times of small sizes differ".to_owned(),
    });
    first.extend(fit.half_bytes.map(|it| format!("half of the bandwidth at {}", about(it))));
    first.push(match fit.bandwidth {
        Some(it) => format!("{} GB/s at large sizes", shown(it)),
        None => "bandwidth unknown: measure larger sizes (-e 1G)".to_owned(),
    });
    let mut regimes = Vec::new();
    regimes.extend(fit.latency_to_bytes.map(|it| format!("latency up to {}", bytes(it))));
    regimes.push(match (fit.latency_to_bytes, fit.bandwidth_from_bytes) {
        (None, None) => "all sizes are mixed".to_owned(),
        (Some(_), None) => "mixed above".to_owned(),
        _ => "mixed".to_owned(),
    });
    regimes.extend(fit.bandwidth_from_bytes.map(|it| format!("bandwidth from {}", bytes(it))));
    let mut lines = vec![first.join("   "), format!("regimes: {}", regimes.join(" | "))];
    if let (Some(size), Some(peak)) = (fit.peak_bytes, fit.peak) {
        lines.push(format!("up to {} GB/s at {}: the data fits into a cache", shown(peak), bytes(size)));
    }
    lines
}

/// Bytes that are not a round number.
fn about(size: f64) -> String {
    let units = [(1024.0 * 1024.0 * 1024.0, "GiB"), (1024.0 * 1024.0, "MiB"), (1024.0, "KiB"), (1.0, "B")];
    let (unit, name) = units.into_iter().find(|it| size >= it.0).unwrap_or((1.0, "B"));
    let number = size / unit;
    if number >= 10.0 || name == "B" { format!("{number:.0} {name}") } else { format!("{number:.1} {name}") }
}

/// What is normal at the largest size.
pub(crate) fn expectation(bench: &Record) -> Option<String> {
    let row = bench.results.iter().filter(|it| it.expected.is_some()).max_by_key(|it| it.bytes)?;
    let (normal, measured) = (row.expected?, row.out_of_place.as_ref()?.bus_bandwidth);
    let verdict = match measured {
        it if it < normal.low => "below that",
        it if it > normal.high => "above that",
        _ => "within that",
    };
    let machine = bench.machine.as_deref().unwrap_or("these machines");
    Some(format!(
        "expected on {}: {} to {} GB/s at {}; measured {} GB/s, {verdict}",
        clean(machine),
        shown(normal.low),
        shown(normal.high),
        bytes(row.bytes),
        shown(measured)
    ))
}

/// How far times vary from pass to pass, out of place.
fn drift(bench: &Record) -> Option<String> {
    let mut sizes: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for row in bench.results.iter().filter(|it| it.bytes > 0) {
        let passes = row.out_of_place.iter().flat_map(Measure::passes);
        sizes.entry((row.series(), row.bytes)).or_default().extend(passes);
    }
    let range = |((_, size), passes): (&(_, u64), &Vec<f64>)| {
        let [low, high] = [0.0, 1.0].map(|at| quantile(passes, at));
        (passes.len() > 1 && low > 0.0).then(|| (*size, (high / low - 1.0) * 100.0))
    };
    let varied: Vec<(u64, f64)> = sizes.iter().filter_map(range).collect();
    let (size, most) = varied.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let middle = median(&varied.iter().map(|it| it.1).collect::<Vec<_>>());
    let passes = sizes.values().map(Vec::len).max()?;
    Some(match varied.len() {
        1 => format!("drift: measured {passes} times; the time varied by {most:.0} %"),
        _ => format!(
            "drift: measured {passes} times; times varied by {middle:.0} % (median over sizes), at most by {most:.0} % at {}",
            bytes(size)
        ),
    })
}

/// A rank that is behind at most sizes.
fn slowest(bench: &Record) -> Option<String> {
    if bench.ranks < 3 {
        return None;
    }
    let all: Vec<(usize, f64)> = bench
        .results
        .iter()
        .filter_map(|it| it.out_of_place.as_ref())
        .filter_map(|it| Some((it.slowest_rank?, it.slowest_lag_percent)))
        .collect();
    let (rank, mut lags) = bench
        .devices
        .iter()
        .map(|it| (it, all.iter().filter(|one| one.0 == it.rank).map(|one| one.1).collect::<Vec<f64>>()))
        .max_by_key(|it| it.1.len())?;
    let behind = lags.len();
    lags.retain(|it| it.is_finite());
    let lag = median(&lags);
    (behind * 2 > all.len() && behind > 2 && lag >= STANDS_OUT).then(|| {
        format!(
            "rank {} on {} was the slowest at {} of {}, by {lag:.0} % (median)",
            rank.rank,
            clean(&rank.host),
            behind,
            counted(all.len(), "size")
        )
    })
}
