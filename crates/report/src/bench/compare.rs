//! Two results held against each other: what changed, and whether it is more than noise.

use std::io::{self, Write};

use bench::statistics::median;
use bench::{Times, Verdict};
use serde_json::Value;

use super::model::usable;
use super::{Bench, BenchMeasure, BenchRow};
use crate::Style;
use crate::expect::time;
use crate::text::{bytes, clean, counted, wrap};

/// The changes of all sizes that both have.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Size by size.
    pub lines: Vec<Line>,
    /// Sizes that only one of both has.
    pub unmatched: usize,
    /// What else differs between both, which may be the reason.
    pub differences: Vec<String>,
}

/// One size.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Bytes.
    pub bytes: u64,
    /// `float sum`.
    pub what: String,
    /// Whether in place.
    pub in_place: bool,
    /// The old time, in microseconds: the median of all moments, or of the samples where there is one moment.
    pub old_us: f64,
    /// The new one.
    pub new_us: f64,
    /// The change.
    pub change: bench::Change,
}

/// More results than anyone compares.
const MOST: usize = 20_000;

/// Reads a result: plumb's own, or the JSON that nccl-tests writes with `-J`.
pub fn read(text: &str) -> Result<Bench, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
    match value["schema"].as_str() {
        _ if value["results"].as_array().is_some_and(|it| it.len() > MOST) => {
            Err(format!("has more than {MOST} results"))
        }
        Some("plumb.bench/1") => {
            serde_json::from_value(value).map_err(|error| format!("is damaged: {error}"))
        }
        Some(other) if other.starts_with("plumb.bench/") => {
            Err(format!("has the schema {other}, which is newer than this plumb"))
        }
        Some(other) => Err(format!("has the schema {other}: give the JSON of plumb bench")),
        None if value["results"].is_array() => foreign(&value),
        None => Err("is no result: give the JSON of plumb bench, or that of nccl-tests -J".to_owned()),
    }
}

/// nccl-tests' own.
fn foreign(value: &Value) -> Result<Bench, String> {
    let program = value["args"][0].as_str().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    let number = |it: &Value| it.as_f64().filter(|it| it.is_finite() && *it >= 0.0);
    let times = |it: &Value| it.as_array().map(|it| it.iter().filter_map(number).collect::<Vec<f64>>());
    let measure = |row: &Value, name: &str| {
        let it = &row[name];
        let time = number(&it["time"]).or_else(|| number(&it["cpu_time"]))?;
        let samples = times(&row[format!("{name}_per_iter")]["times_us"]).unwrap_or_else(|| vec![time]);
        Some(BenchMeasure {
            time_us: time,
            algorithm_bandwidth: number(&it["alg_bw"]).unwrap_or_default(),
            bus_bandwidth: number(&it["bus_bw"]).unwrap_or_default(),
            wrong: None,
            iterations: 0,
            median_us: median(&samples),
            p10_us: bench::statistics::quantile(&samples, 0.1),
            p99_us: bench::statistics::quantile(&samples, 0.99),
            samples_us: samples,
            longest_us: Vec::new(),
            ranks_us: Vec::new(),
            slowest_rank: None,
            slowest_lag_percent: 0.0,
            looks_us: Vec::new(),
        })
    };
    let row = |it: &Value| {
        let root = it["root"].as_str().and_then(|it| it.trim().parse().ok());
        Some(BenchRow {
            bytes: it["size"].as_u64()?,
            count: it["count"].as_u64()?,
            data_type: it["type"].as_str()?.chars().take(20).collect(),
            operation: it["redop"]
                .as_str()
                .filter(|it| *it != "none")
                .map(|it| it.chars().take(20).collect()),
            root,
            cycle: 0,
            time: 0,
            out_of_place: measure(it, "out_of_place"),
            in_place: measure(it, "in_place"),
            expected: None,
        })
    };
    let rows = value["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    let results: Option<Vec<BenchRow>> = rows.iter().map(row).collect();
    let collective: fabric::Collective =
        program.parse().map_err(|_| "does not tell which collective it is of".to_owned())?;
    let mut bench = Bench::begun(collective, super::BenchConfig::default(), ("", ""), &[]);
    bench.results = results.ok_or("has a row without its size, count or type")?;
    bench.ranks = value["config"]["devices"].as_array().map_or(0, Vec::len);
    Ok(bench)
}

/// Compares them; an error where they are not of the same.
pub fn compare(old: &Bench, new: &Bench) -> Result<Comparison, String> {
    if old.collective != new.collective {
        return Err(format!("one is of {}, the other of {}", old.collective, new.collective));
    }
    // Means are held against means.
    let means = [old, new].into_iter().any(unsampled);
    let pairs: Vec<(&BenchRow, bool, Times, Times)> = old
        .results
        .iter()
        .enumerate()
        .filter(|(i, row)| !old.results.iter().take(*i).any(|it| same(it, row)))
        .flat_map(|(_, row)| [(row, false), (row, true)])
        .filter_map(|(row, in_place)| {
            let [old, new] = [old, new].map(|it| times(it, row, in_place, means));
            (!old.samples.is_empty() && !new.samples.is_empty()).then_some((row, in_place, old, new))
        })
        .collect();
    if pairs.is_empty() {
        return Err("they have no size, type and operation in common".to_owned());
    }
    // Sizes of one kind follow each other, as they were measured.
    let mut series: Vec<(_, Vec<(f64, f64)>)> = Vec::new();
    for (row, in_place, old, new) in &pairs {
        let kind = (row.series(), *in_place);
        let medians = (median(&old.samples), median(&new.samples));
        match series.iter_mut().find(|it| it.0 == kind) {
            Some((_, all)) => all.push(medians),
            None => series.push((kind, vec![medians])),
        }
    }
    let series: Vec<Vec<(f64, f64)>> = series.into_iter().map(|it| it.1).collect();
    let drift = bench::Drift::between(&series);
    let lines: Vec<Line> = pairs
        .iter()
        .map(|(row, in_place, old, new)| {
            let moments = old.shows_drift() && new.shows_drift();
            let middle = |it: &Times| median(if moments { &it.moments } else { &it.samples });
            Line {
                bytes: row.bytes,
                what: format!(
                    "{}{}",
                    row.data_type,
                    row.operation.as_ref().map(|it| format!(" {it}")).unwrap_or_default()
                ),
                in_place: *in_place,
                old_us: middle(old),
                new_us: middle(new),
                change: bench::change(old, new, pairs.len(), drift),
            }
        })
        .collect();
    let hasty = !means
        && lines.iter().zip(&pairs).any(|(line, (_, _, old, new))| {
            line.change.verdict != Verdict::Same && !(old.shows_drift() && new.shows_drift())
        });
    let missing = |a: &Bench, b: &Bench| {
        a.results.iter().filter(|row| !b.results.iter().any(|it| same(it, row))).count()
    };
    let unmatched = missing(old, new) + missing(new, old);
    let told = |name: &str, a: &dyn ToString, b: &dyn ToString| {
        let (a, b) = (a.to_string(), b.to_string());
        // What one of them does not tell is no difference.
        let known = |it: &str| !matches!(it, "" | "0");
        (a != b && known(&a) && known(&b)).then(|| format!("{name}: {a}, then {b}"))
    };
    let option = |it: &Option<String>| it.clone().unwrap_or_else(|| "by itself".to_owned());
    let differences = [
        told("ranks", &old.ranks, &new.ranks),
        told("hosts", &old.hosts, &new.hosts),
        told("engine", &old.engine, &new.engine),
        told("release", &old.version, &new.version),
        told("private buffers", &old.config.private, &new.config.private),
        told("transport", &option(&old.config.transport), &option(&new.config.transport)),
        told("algorithm", &option(&old.config.algorithm), &option(&new.config.algorithm)),
        hasty.then(|| {
            "a change was told by times of one moment, which do not show drift: measure both again, with -N 5"
                .to_owned()
        }),
        means.then(|| "means are compared: one has no other times (nccl-tests -J without -I 1)".to_owned()),
    ];
    Ok(Comparison { lines, unmatched, differences: differences.into_iter().flatten().collect() })
}

/// Whether it was read from a file that has nothing but means.
fn unsampled(bench: &Bench) -> bool {
    let measures = || bench.results.iter().flat_map(|it| [&it.out_of_place, &it.in_place]).flatten();
    bench.version.is_empty() && measures().all(|it| it.samples_us == [it.time_us])
}

/// The times of a size, of all times it was run; or the mean of each time.
fn times(bench: &Bench, row: &BenchRow, in_place: bool, means: bool) -> Times {
    let mut times = Times::default();
    let same = bench.results.iter().filter(|it| same(it, row));
    for it in same.filter_map(|it| it.measure(in_place)) {
        let samples = if means { std::slice::from_ref(&it.time_us) } else { &it.samples_us };
        times.samples.extend(samples.iter().copied().filter(|it| usable(*it)));
        if means {
            times.moments.extend(Some(it.time_us).filter(|it| usable(*it)));
        } else {
            times.moments.extend(it.moments());
        }
    }
    times
}

fn same(a: &BenchRow, b: &BenchRow) -> bool {
    a.bytes == b.bytes && a.series() == b.series()
}

impl Comparison {
    /// How many sizes have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.lines.iter().filter(|it| it.change.verdict == verdict).count()
    }

    /// One sentence about all of them.
    pub fn sentence(&self) -> String {
        let [faster, slower] = [Verdict::Faster, Verdict::Slower].map(|it| self.count(it));
        let all = counted(self.lines.len(), "measurement");
        let logs: Vec<f64> = self.lines.iter().map(|it| it.change.ratio.ln()).collect();
        let overall = (bench::statistics::mean(&logs).exp() - 1.0) * 100.0;
        let overall = format!("times {overall:+.1} % in the mean");
        match (faster, slower) {
            (0, 0) => format!("the same within noise in all {all}; {overall}"),
            (_, 0) => format!("faster in {faster} of {all}, slower in none; {overall}"),
            (0, _) => format!("slower in {slower} of {all}, faster in none; {overall}"),
            _ => format!("slower in {slower} of {all}, faster in {faster}; {overall}"),
        }
    }

    /// For people.
    pub fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let paint = |text: &str, verdict: Verdict| match verdict {
            Verdict::Slower if style.colour => format!("\x1b[1;33m{text}\x1b[0m"),
            Verdict::Faster if style.colour => format!("\x1b[32m{text}\x1b[0m"),
            _ => text.to_owned(),
        };
        let worst = if self.count(Verdict::Slower) > 0 { Verdict::Slower } else { Verdict::Same };
        writeln!(out, "{}\n", paint(&self.sentence(), worst))?;
        writeln!(
            out,
            "  {:>10}  {:<22}  {:>9}  {:>9}  {:>8}  {:>7}",
            "size", "", "old", "new", "time", "noise"
        )?;
        for it in &self.lines {
            let place = if it.in_place { "in place" } else { "out of place" };
            let name = match it.change.verdict {
                Verdict::Same => "",
                it => it.name(),
            };
            let line = format!(
                "  {:>10}  {:<22}  {:>9}  {:>9}  {:>+6.1} %  {:>5.1} %  {}",
                bytes(it.bytes),
                format!("{} {place}", clean(&it.what)),
                time(it.old_us),
                time(it.new_us),
                (it.change.ratio - 1.0) * 100.0,
                it.change.noise * 100.0,
                paint(name, it.change.verdict)
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        let mut notes = Vec::new();
        if self.unmatched > 0 {
            notes.push(format!("{} only in one of both", counted(self.unmatched, "size")));
        }
        notes.extend(self.differences.iter().cloned());
        for note in &notes {
            for (i, line) in wrap(note, style.width.saturating_sub(11).max(30)).into_iter().enumerate() {
                writeln!(
                    out,
                    "{}  {:<8} {line}",
                    if i == 0 { "\n" } else { "" },
                    if i == 0 { "note" } else { "" }
                )?;
            }
        }
        Ok(())
    }

    /// For programs: schema `plumb.bench-compare/1`.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        let lines: Vec<Value> = self
            .lines
            .iter()
            .map(|it| {
                serde_json::json!({
                    "bytes": it.bytes, "what": it.what, "in_place": it.in_place, "old_us": it.old_us, "new_us": it.new_us,
                    "ratio": it.change.ratio, "noise": it.change.noise, "verdict": it.change.verdict.name(),
                })
            })
            .collect();
        let all = serde_json::json!({
            "schema": "plumb.bench-compare/1", "text": self.sentence(), "results": lines, "unmatched": self.unmatched,
            "differences": self.differences,
        });
        crate::json::write_json(&all, out)
    }
}
