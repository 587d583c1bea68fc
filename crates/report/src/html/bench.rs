//! The pages of `plumb bench`: a measurement, and two of them compared.

use std::io;

use ::bench::record::{Fit, Measure, Row};
use ::bench::statistics::quantile;
use ::bench::{Comparison, Record, Verdict};
use rules::Severity;

use super::chart::{Axis, Frame, Lines, Scale, Series, lines};
use super::page::{Page, Tone};
use super::parts::{self, Cell, Column};
use super::{Html, View, size_axis};
use crate::Style;
use crate::bench::compare::difference;
use crate::bench::summary::{expectation, name, remarks, words};
use crate::expect::{shown, time};
use crate::text::{bytes, clean, counted};

impl View for Record {
    fn page(&self) -> Page {
        let mut page = Page::new("bench", &self.schema);
        let hosts = if self.hosts > 1 { format!(" on {} hosts", self.hosts) } else { String::new() };
        let ranks = counted(self.ranks, "rank");
        page.title = format!("{} of {ranks}{hosts}", self.collective);
        let best = self
            .results
            .iter()
            .filter(|it| it.cycle == 0)
            .filter_map(|row| Some((row.bytes, row.out_of_place.as_ref().or(row.in_place.as_ref())?)))
            .max_by_key(|it| it.0);
        let what = if self.ranks > 1 { "bus bandwidth" } else { "bandwidth" };
        page.verdict = match (self.wrong, best) {
            (Some(wrong), _) if wrong > 0 => {
                format!(
                    "{} of {ranks}{hosts}: wrong results, {}",
                    self.collective,
                    counted(count(wrong), "element")
                )
            }
            (_, Some((size, it))) => format!(
                "{} of {ranks}{hosts}: {} GB/s {what} at {}",
                self.collective,
                shown(it.rate(self.ranks)),
                bytes(size)
            ),
            (_, None) => format!("{} of {ranks}{hosts}: nothing was measured", self.collective),
        };
        (page.word, page.tone) = judged(self);
        page.worst = self.first_wrong.is_some().then_some(Severity::Error);
        page.about.extend(expectation(self));
        page.about.push(format!(
            "{} engine, {}; mean {what} of all measurements {} GB/s",
            self.engine_name(),
            clean(&self.version),
            shown(self.average)
        ));
        let all: Vec<&[Row]> = self.results.chunk_by(|a, b| a.series() == b.series()).collect();
        let names: Vec<String> = all.iter().filter_map(|it| it.first()).map(name).collect();
        page.section("curves", "By size", |html| match &all[..] {
            [] => html.line("p", "soft", "Nothing was measured."),
            [only] => curves(html, self, only),
            many => parts::choice(html, "Series:", &names, |html, at| curves(html, self, many[at])),
        });
        let remarks = remarks(self);
        if !remarks.is_empty() {
            page.section("remarks", "What stands out", |html| {
                parts::list(html, remarks.iter().map(String::as_str));
            });
        }
        page.section("ranks", "Ranks", |html| {
            let rows: Vec<Vec<Cell>> = self
                .devices
                .iter()
                .map(|it| {
                    vec![
                        Cell::new(it.rank.to_string()),
                        Cell::code(clean(&it.host)),
                        Cell::new(it.pid.to_string()),
                        Cell::new(clean(&it.name)),
                    ]
                })
                .collect();
            let columns = [
                Column::Number("rank"),
                Column::Text("host"),
                Column::Number("process"),
                Column::Text("device"),
            ];
            parts::more(html, &ranks, |html| parts::table(html, "Ranks and their devices", &columns, &rows));
        });
        page
    }

    fn to_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        crate::bench::json(self, out)
    }

    fn to_text(&self, style: Style, out: &mut Vec<u8>) -> io::Result<()> {
        crate::bench::header(self, out)?;
        for row in &self.results {
            crate::bench::row(&self.config, row, out)?;
        }
        crate::bench::footer(self, out)?;
        crate::bench::summary(self, style, out)?;
        crate::bench::plot(self, true, out)
    }
}

/// The verdict of the largest size against what is normal.
fn judged(bench: &Record) -> (String, Tone) {
    if bench.first_wrong.is_some() {
        return ("wrong results".to_owned(), Tone::Bad);
    }
    let last = bench.results.iter().filter(|it| it.expected.is_some()).max_by_key(|it| it.bytes);
    let both = last.and_then(|it| Some((it.expected?, it.out_of_place.as_ref()?.bus_bandwidth)));
    match both {
        Some((normal, measured)) if measured < normal.low => ("low".to_owned(), Tone::Warning),
        Some((normal, measured)) if measured > normal.high => ("above normal".to_owned(), Tone::Warning),
        Some(_) => ("normal".to_owned(), Tone::Good),
        None => (String::new(), Tone::Plain),
    }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "a place on an axis")]
fn real(bytes: u64) -> f64 {
    bytes as f64
}

fn curves(html: &mut Html, bench: &Record, all: &[Row]) {
    let rows: Vec<&Row> = all.iter().filter(|it| it.cycle == 0 && it.bytes > 0).collect();
    let Some(first) = rows.first() else { return html.line("p", "soft", "Every size is 0.") };
    let in_place = first.out_of_place.is_none();
    let fit = bench.fits.iter().find(|it| {
        (it.data_type.as_str(), it.operation.as_deref(), it.root) == first.series() && it.in_place == in_place
    });
    let curve = |in_place: bool, value: &dyn Fn(&Measure) -> f64| -> Vec<(f64, f64)> {
        let points = rows.iter().filter_map(|row| Some((real(row.bytes), value(row.measure(in_place)?))));
        points.filter(|it| it.1 > 0.0).collect()
    };
    let places = [(false, "out of place"), (true, "in place")];
    let rate = |it: &Measure| it.rate(bench.ranks);
    let mut rates: Vec<Series> = places
        .iter()
        .map(|(in_place, name)| Series {
            name: (*name).to_owned(),
            points: curve(*in_place, &rate),
            interval: Vec::new(),
            spread: Vec::new(),
        })
        .filter(|it| !it.points.is_empty())
        .collect();
    let normal: Vec<(f64, f64, f64)> = rows
        .iter()
        .filter_map(|it| it.expected.map(|normal| (real(it.bytes), normal.low, normal.high)))
        .collect();
    if !normal.is_empty() {
        let machine = bench.machine.as_deref().map(clean).unwrap_or_default();
        rates.push(Series {
            name: format!("normal on {machine}"),
            points: Vec::new(),
            interval: normal,
            spread: Vec::new(),
        });
    }
    let spans = regimes(fit, &rows);
    let what = if bench.ranks > 1 { "bus bandwidth" } else { "bandwidth" };
    let about = fit.map(|it| words(it, first.bytes).join(". ").replace("   ", "; ")).unwrap_or_default();
    if rows.len() > 1 {
        html.picture(
            "chart",
            &lines(&Lines {
                frame: Frame {
                    title: &format!("{what} by size, {}", name(first)),
                    about: &about,
                    x: size_axis(),
                    y: Axis {
                        label: &format!("{what} at the mean time, GB/s"),
                        scale: Scale::Decades,
                        show: shown,
                    },
                },
                series: &rates,
                spans: &spans,
            }),
        );
        let mut times: Vec<Series> = Vec::new();
        for (in_place, name) in places {
            let scatter = rows.iter().filter_map(|row| {
                let it = row.measure(in_place)?;
                (it.samples_us.len() > 1 && it.p10_us > 0.0).then(|| (real(row.bytes), it.p10_us, it.p99_us))
            });
            let points = curve(in_place, &|it| it.median_us);
            if !points.is_empty() {
                let interval: Vec<_> = if in_place { Vec::new() } else { scatter.collect() };
                let band = if interval.is_empty() { "" } else { " with p10 to p99" };
                times.push(Series {
                    name: format!("{name}: median{band}"),
                    points,
                    interval,
                    spread: Vec::new(),
                });
            }
        }
        html.picture(
            "chart",
            &lines(&Lines {
                frame: Frame {
                    title: "Time of a call by size",
                    about: &about,
                    x: size_axis(),
                    y: Axis { label: "time of a call", scale: Scale::Decades, show: time },
                },
                series: &times,
                spans: &spans,
            }),
        );
    }
    if let Some(fit) = fit {
        let fits: Vec<String> = words(fit, first.bytes).iter().map(|it| it.replace("   ", "; ")).collect();
        parts::list(html, fits.iter().map(String::as_str));
    }
    for (in_place, place) in places {
        if rows.iter().any(|it| it.measure(in_place).is_some()) {
            table(html, bench, &rows, in_place, place);
        }
    }
}

/// Where latency, where bandwidth decides.
fn regimes(fit: Option<&Fit>, rows: &[&Row]) -> Vec<(f64, f64, String)> {
    let (Some(fit), Some(first), Some(last)) = (fit, rows.first(), rows.last()) else { return Vec::new() };
    let mut spans = Vec::new();
    let end = fit.latency_to_bytes.unwrap_or(first.bytes);
    let start = fit.bandwidth_from_bytes.unwrap_or(last.bytes);
    if fit.latency_to_bytes.is_some() {
        spans.push((real(first.bytes), real(end), "latency".to_owned()));
    }
    if start > end && (fit.latency_to_bytes.is_some() || fit.bandwidth_from_bytes.is_some()) {
        // Every second span is tinted: those with a name of their own.
        if spans.is_empty() {
            spans.push((real(first.bytes), real(first.bytes), String::new()));
        }
        spans.push((real(end), real(start), "mixed".to_owned()));
    }
    if fit.bandwidth_from_bytes.is_some() {
        spans.push((real(start), real(last.bytes), "bandwidth".to_owned()));
    }
    spans
}

fn table(html: &mut Html, bench: &Record, rows: &[&Row], in_place: bool, place: &str) {
    let passes = rows.iter().filter_map(|it| it.measure(in_place)).any(|it| it.passes().len() > 1);
    let normal = rows.iter().any(|it| it.expected.is_some());
    let checked = rows.iter().filter_map(|it| it.measure(in_place)).any(|it| it.wrong.is_some());
    let mut columns = vec![
        Column::Number("size"),
        Column::Number("mean"),
        Column::Number("median"),
        Column::Number("p10"),
        Column::Number("p99"),
        Column::Number("GB/s"),
    ];
    if normal {
        columns.extend([Column::Number("normal GB/s"), Column::Text("judged")]);
    }
    if passes {
        columns.push(Column::Number("between passes"));
    }
    if bench.ranks > 1 {
        columns.push(Column::Number("slowest rank"));
    }
    if checked {
        columns.push(Column::Number("wrong"));
    }
    let cells = rows.iter().filter_map(|row| {
        let it = row.measure(in_place)?;
        let [p10, p99] = [it.p10_us, it.p99_us]
            .map(|at| if it.samples_us.len() > 1 { time(at) } else { "\u{2013}".to_owned() });
        let mut cells = vec![
            Cell::new(bytes(row.bytes)),
            Cell::new(time(it.time_us)),
            Cell::new(time(it.median_us)),
            Cell::new(p10),
            Cell::new(p99),
            Cell::new(shown(it.rate(bench.ranks))),
        ];
        if normal {
            let (text, verdict) = match row.expected {
                Some(normal) => {
                    let verdict = match it.bus_bandwidth {
                        rate if rate < normal.low => Cell::new("below").toned(Tone::Warning),
                        rate if rate > normal.high => Cell::new("above").toned(Tone::Warning),
                        _ => Cell::new("normal").toned(Tone::Good),
                    };
                    (format!("{} to {}", shown(normal.low), shown(normal.high)), verdict)
                }
                None => (String::new(), Cell::new("")),
            };
            cells.extend([Cell::new(text), verdict]);
        }
        if passes {
            let all = it.passes();
            let [low, high] = [0.0, 1.0].map(|at| quantile(&all, at));
            let varied = all.len() > 1 && low > 0.0;
            cells.push(Cell::new(if varied {
                format!("{:+.0} %", (high / low - 1.0) * 100.0)
            } else {
                String::new()
            }));
        }
        if bench.ranks > 1 {
            let slowest = it.slowest_rank.map(|rank| format!("{rank}, {:+.0} %", it.slowest_lag_percent));
            cells.push(Cell::new(slowest.unwrap_or_default()));
        }
        if checked {
            let wrong = Cell::new(it.wrong.map_or_else(|| "not checked".to_owned(), |it| it.to_string()));
            cells.push(if it.wrong.is_some_and(|it| it > 0) { wrong.toned(Tone::Bad) } else { wrong });
        }
        Some(cells)
    });
    let what = if bench.ranks > 1 { "bus bandwidth" } else { "bandwidth" };
    parts::table(
        html,
        &format!("{place}: time of a call, and {what} at the mean time"),
        &columns,
        &cells.collect::<Vec<_>>(),
    );
}

/// Two measurements compared.
#[derive(Debug, Clone, Copy)]
pub struct ComparisonPage<'a> {
    /// What changed.
    pub comparison: &'a Comparison,
    /// The old and the new measurement, each with the name of its file.
    pub measured: [(&'a str, &'a Record); 2],
}

/// `4 ranks on 2 hosts`
fn scale(record: &Record) -> String {
    let hosts = if record.hosts > 1 { format!(" on {} hosts", record.hosts) } else { String::new() };
    format!("{}{hosts}", counted(record.ranks, "rank"))
}

impl View for ComparisonPage<'_> {
    fn page(&self) -> Page {
        let comparison = self.comparison;
        let [(old, before), (new, after)] = self.measured.map(|it| (clean(it.0), it.1));
        let scales = [before, after].map(scale);
        let scale = if scales[0] == scales[1] { scales[0].clone() } else { scales.join(", then ") };
        let what = format!("{} of {scale}", clean(&after.collective));
        let mut page = Page::new("bench", "plumb.bench-compare/1");
        page.title = format!("{what}: {old} and {new} compared");
        page.about = vec![what, format!("old: {old}"), format!("new: {new}")];
        let [faster, slower] = [Verdict::Faster, Verdict::Slower].map(|it| comparison.count(it));
        (page.word, page.tone) = match (faster, slower) {
            (0, 0) => ("same".to_owned(), Tone::Good),
            (_, 0) => ("faster".to_owned(), Tone::Good),
            _ => ("slower".to_owned(), Tone::Warning),
        };
        // The word is in the sentence.
        let sentence = crate::bench::sentence(comparison);
        sentence.strip_prefix(&*page.word).unwrap_or(&sentence).trim_start().clone_into(&mut page.verdict);
        page.worst = (slower > 0).then_some(Severity::Error);
        page.section("sizes", "By size", |html| {
            let mut kinds: Vec<(&str, bool)> =
                comparison.lines.iter().map(|it| (&*it.what, it.in_place)).collect();
            kinds.dedup();
            if let Some(kind) = kinds.first() {
                let place = if kind.1 { "in place" } else { "out of place" };
                let of: Vec<_> = comparison
                    .lines
                    .iter()
                    .filter(|it| (&*it.what, it.in_place) == *kind && it.bytes > 0)
                    .collect();
                let series = |name: &str, value: &dyn Fn(&::bench::Line) -> f64| Series {
                    name: name.to_owned(),
                    points: of.iter().map(|it| (real(it.bytes), value(it))).filter(|it| it.1 > 0.0).collect(),
                    interval: Vec::new(),
                    spread: Vec::new(),
                };
                if of.len() > 1 {
                    html.picture(
                        "chart",
                        &lines(&Lines {
                            frame: Frame {
                                title: &format!("Time of a call by size, {}, {place}", clean(kind.0)),
                                about: &crate::bench::sentence(comparison),
                                x: size_axis(),
                                y: Axis { label: "time of a call", scale: Scale::Decades, show: time },
                            },
                            series: &[
                                series(&format!("old, {place}"), &|it| it.old_us),
                                series(&format!("new, {place}"), &|it| it.new_us),
                            ],
                            spans: &[],
                        }),
                    );
                }
            }
            let rows: Vec<Vec<Cell>> = comparison
                .lines
                .iter()
                .map(|it| {
                    let place = if it.in_place { "in place" } else { "out of place" };
                    let verdict = Cell::new(it.change.verdict.name());
                    vec![
                        Cell::new(bytes(it.bytes)),
                        Cell::new(format!("{} {place}", clean(&it.what))),
                        Cell::new(time(it.old_us)),
                        Cell::new(time(it.new_us)),
                        Cell::new(format!("{:+.1} %", (it.change.ratio - 1.0) * 100.0)),
                        Cell::new(format!("{:.1} %", it.change.noise * 100.0)),
                        match it.change.verdict {
                            Verdict::Slower => verdict.toned(Tone::Warning),
                            Verdict::Faster => verdict.toned(Tone::Good),
                            Verdict::Same => verdict,
                        },
                    ]
                })
                .collect();
            let columns = [
                Column::Number("size"),
                Column::Text("what"),
                Column::Number("old"),
                Column::Number("new"),
                Column::Number("time"),
                Column::Number("noise"),
                Column::Text("verdict"),
            ];
            parts::table(html, "Times of a call, old and new", &columns, &rows);
        });
        let mut notes: Vec<String> = comparison.differences.iter().map(difference).collect();
        if comparison.unmatched > 0 {
            notes.push(format!("{} only in one of the two", counted(comparison.unmatched, "size")));
        }
        if !notes.is_empty() {
            page.section("notes", "Notes", |html| parts::list(html, notes.iter().map(String::as_str)));
        }
        page
    }

    fn to_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        crate::bench::comparison_json(self.comparison, out)
    }

    fn to_text(&self, style: Style, out: &mut Vec<u8>) -> io::Result<()> {
        crate::bench::comparison_text(self.comparison, style, out)
    }
}
