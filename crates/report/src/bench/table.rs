//! nccl-tests' header, table and footer, so that its parsers also read these.

use std::io::{self, Write};

use super::time::date;
use bench::Record;
use bench::record::{Config, Measure, Row};

use crate::text::clean;

/// Writes the header.
pub fn header(bench: &Record, out: &mut impl Write) -> io::Result<()> {
    let config = &bench.config;
    let (step, kind) = match config.step_factor {
        Some(it) => (it, "factor"),
        None => (config.step_bytes.unwrap_or_default(), "bytes"),
    };
    writeln!(out, "# plumb bench, {} engine: {}", bench.engine_name(), clean(&bench.version))?;
    writeln!(out, "# Collective test starting: {}_perf", bench.collective)?;
    writeln!(
        out,
        "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {step}({kind}) warmup iters: {} iters: {} agg iters: {} validation: {} graph: 0 unalign: 0",
        config.minimum_bytes,
        config.maximum_bytes,
        config.warm_up,
        config.iterations.unwrap_or(bench::LEAST_ITERATIONS),
        config.aggregate,
        config.check,
    )?;
    if config.iterations.is_none() {
        let least = bench::LEAST_SECONDS * 1e3;
        writeln!(out, "# iters: more where {} take less than {least} ms", bench::LEAST_ITERATIONS)?;
    }
    if config.blocking {
        writeln!(out, "# Blocking Enabled: wait and barrier after each iteration; time excludes barrier")?;
    }
    if config.per_iteration {
        let skipped = match config.skip {
            0 => String::new(),
            it => format!("; summary skips first {it} iterations"),
        };
        writeln!(out, "# Per-Iteration Report: i_* uses max over ranks{skipped}")?;
    }
    writeln!(out, "#\n# Using devices")?;
    for it in &bench.devices {
        writeln!(
            out,
            "#  Rank {:>2} Group  0 Pid {:>6} on {:>10} device {:>2} [{}] {}",
            it.rank,
            it.pid,
            clean(&it.host),
            it.device,
            it.bus.as_deref().map_or_else(|| "none".to_owned(), clean),
            clean(&it.name)
        )?;
    }
    writeln!(out, "#")?;
    columns(config, out)
}

fn columns(config: &Config, out: &mut impl Write) -> io::Result<()> {
    let first = ["size", "count", "type", "redop", "root"];
    let second = ["(B)", "(elements)", "", "", ""];
    let (mut names, mut units) = (
        vec![("time", 7), ("algbw", 6), ("busbw", 6), ("#wrong", 6)],
        vec![("(us)", 7), ("(GB/s)", 6), ("(GB/s)", 6), ("", 6)],
    );
    let title = if config.per_iteration {
        names.extend([("i_min", 7), ("i_max", 7), ("i_p99", 7), ("i_cv%", 7)]);
        units.extend([("(us)", 7), ("(us)", 7), ("(us)", 7), ("(%)", 7)]);
        [
            "            out-of-place (+ per-iteration)            ",
            "                    in-place (+ per-iteration)",
        ]
    } else {
        ["         out-of-place             ", "          in-place          "]
    };
    writeln!(out, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {}{}", "", "", "", "", "", title[0], title[1])?;
    let stamps = if config.timestamps { ["           timestamp", "   %Y-%m-%d %H:%M:%S"] } else { [""; 2] };
    for (words, cells, stamp) in [(first, names, stamps[0]), (second, units, stamps[1])] {
        let [size, count, kind, operation, root] = words;
        write!(out, "# {size:>10}  {count:>12}  {kind:>8}  {operation:>6}  {root:>6}")?;
        for (text, width) in cells.iter().chain(&cells) {
            write!(out, "  {text:>width$}")?;
        }
        writeln!(out, " {stamp}")?;
    }
    Ok(())
}

/// Writes one row.
pub fn row(config: &Config, row: &Row, out: &mut impl Write) -> io::Result<()> {
    let root = row.root.map_or_else(|| "-1".to_owned(), |it| it.to_string());
    let operation = row.operation.as_deref().unwrap_or("none");
    write!(out, "{:>12}  {:>12}  {:>8}  {operation:>6}  {root:>6}", row.bytes, row.count, row.data_type)?;
    for it in [&row.out_of_place, &row.in_place] {
        measure(config, it.as_ref(), out)?;
    }
    if config.timestamps {
        write!(out, "{:>21}", date(row.time))?;
    }
    writeln!(out)
}

fn measure(config: &Config, measure: Option<&Measure>, out: &mut impl Write) -> io::Result<()> {
    let Some(it) = measure else {
        write!(out, "  {:>7}  {:>6}  {:>6}  {:>6}", "N/A", "N/A", "N/A", "N/A")?;
        if config.per_iteration {
            write!(out, "  {:>7}  {:>7}  {:>7}  {:>7}", "N/A", "N/A", "N/A", "N/A")?;
        }
        return Ok(());
    };
    let wrong = it.wrong.map_or_else(|| "N/A".to_owned(), general);
    write!(
        out,
        "  {}  {}  {}  {wrong:>6}",
        fitted(it.time_us, 7),
        fitted(it.algorithm_bandwidth, 6),
        fitted(it.bus_bandwidth, 6)
    )?;
    if config.per_iteration {
        let times = it.longest_us.get(config.skip..).unwrap_or_default();
        let ends = [0.0, 1.0].map(|share| bench::statistics::quantile(times, share));
        let p99 = bench::statistics::nearest_rank(times, 99);
        for value in [ends[0], ends[1], p99, bench::statistics::variation(times)] {
            write!(out, "  {}", fitted(value, 7))?;
        }
    }
    Ok(())
}

/// Writes the footer.
pub fn footer(bench: &Record, out: &mut impl Write) -> io::Result<()> {
    let wrong = bench.wrong.unwrap_or_default();
    let verdict = if wrong > 0 { "FAILED" } else { "OK" };
    writeln!(out, "# {:<20} : {wrong} {verdict}", "Out of bounds values")?;
    writeln!(out, "# {:<20} : {} ", "Avg bus bandwidth", crate::expect::rounded(bench.average))?;
    writeln!(out, "#\n# Collective test concluded: {}_perf\n#", bench.collective)
}

/// As many digits after the point as fit, two at most; then `1e+09`, as C writes it.
fn fitted(value: f64, width: usize) -> String {
    for digits in [2, 1, 0] {
        let text = format!("{value:>width$.digits$}");
        if text.len() <= width {
            return text;
        }
    }
    let digits = usize::from(width >= 7);
    let text = format!("{value:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{mantissa}e+{exponent:0>2}")
}

/// A count as C's `%g` writes it: six digits.
fn general(count: u64) -> String {
    if count < 1_000_000 {
        return count.to_string();
    }
    #[expect(clippy::cast_precision_loss, reason = "six digits are shown")]
    let text = format!("{:.5e}", count as f64);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
    format!("{mantissa}e+{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::{fitted, general};

    #[test]
    fn numbers_shrink_to_their_column() {
        for (value, width, text) in [
            (1.234, 7, "   1.23"),
            (12_345.678, 7, "12345.7"),
            (123_456.7, 7, " 123457"),
            (12_345_678.9, 7, "1.2e+07"),
            (1234.5, 6, "1234.5"),
            (12_345_678.0, 6, "1e+07"),
            (0.0, 6, "  0.00"),
        ] {
            assert_eq!(fitted(value, width), text);
        }
        assert_eq!([general(0), general(999_999), general(1_234_567)], ["0", "999999", "1.23457e+06"]);
    }
}
