//! The page of `plumb compare`.

use std::io;

use super::chart::{Axis, Bar, Bars, Frame, Lines, Scale, Series, Step, bars, colour, lines, waterfall};
use super::page::{Page, Tone};
use super::parts::{self, Cell, Column};
use super::{Html, View, size_axis};
use crate::Style;
use crate::compare::{Bandwidth, Causes, Compare, Fact, Figure, Measured, Paths, Setting, amount, normal};
use crate::expect::shown;
use crate::text::bytes;

impl View for Compare {
    fn page(&self) -> Page {
        let mut page = Page::new("compare", self.schema);
        page.title = self.runs.join(", ");
        let mut answer = self.answer.iter();
        page.verdict = answer.next().cloned().unwrap_or_default();
        page.about.extend(answer.cloned());
        page.about.extend(self.because());
        page.about.extend(self.not_comparable.clone());
        page.undecided = self.not_comparable.is_some();
        page.tone = Tone::Plain;
        if self.not_comparable.is_some() {
            page.section("has", "What each run has", |html| has(html, self));
        }
        if !self.differs.is_empty() || self.common().is_some() {
            page.section("differs", "What differs", |html| differs(html, self));
        }
        if !self.figures.is_empty() {
            page.section("measured", "What was measured", |html| measured(html, self));
        }
        if self.steps.iter().any(|it| it.len() > 1) {
            page.section("steps", "Step by step", |html| steps(html, self));
        }
        if !self.causes.is_empty() || !self.paths.is_empty() {
            page.section("causes", "What explains the difference", |html| {
                self.causes.iter().for_each(|it| causes(html, self, it));
                paths(html, self);
            });
        }
        if !self.bandwidths.is_empty() {
            page.section("bandwidth", "Bandwidth by size", |html| {
                for of in self.bandwidths.chunk_by(|a, b| a.collective == b.collective) {
                    curves(html, self, of);
                    sizes(html, self, of);
                }
            });
        }
        page
    }

    fn to_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        self.json(out)
    }

    fn to_text(&self, style: Style, out: &mut Vec<u8>) -> io::Result<()> {
        self.text(style, out)
    }
}

fn has(html: &mut Html, compare: &Compare) {
    let row = |(run, has): (&String, &Vec<String>)| {
        let has = if has.is_empty() { "no measurement".to_owned() } else { has.join(", ") };
        vec![Cell::new(run.clone()), Cell::new(has)]
    };
    let rows: Vec<Vec<Cell>> = compare.runs.iter().zip(&compare.measurements).map(row).collect();
    parts::table(html, "What each run has", &["run", "what it has"].map(Column::Text), &rows);
}

fn differs(html: &mut Html, compare: &Compare) {
    let row = |it: &Fact| {
        let value = |it: &Option<String>| Cell::new(it.as_deref().unwrap_or("-"));
        std::iter::once(Cell::new(it.name.clone())).chain(it.values.iter().map(value)).collect()
    };
    let rows: Vec<Vec<Cell>> = compare.differs.iter().map(row).collect();
    let columns: Vec<Column<'_>> =
        std::iter::once(Column::Text("what")).chain(compare.runs.iter().map(|it| Column::Text(it))).collect();
    if !rows.is_empty() {
        parts::table(html, "What is known to differ", &columns, &rows);
    }
    if let Some(common) = compare.common() {
        parts::facts(html, &[("the same", common)]);
    }
}

fn measured(html: &mut Html, compare: &Compare) {
    for it in compare.figures.iter().filter(|it| it.values.iter().flatten().count() > 1) {
        figure(html, compare, it);
    }
    let row = |it: &Figure| values(compare, compare.label(it), &it.values, it.unit);
    let rows: Vec<Vec<Cell>> = compare.figures.iter().map(row).collect();
    parts::table(
        html,
        "Measured; in brackets the 10th and the 90th percentile",
        &heads(compare, "what"),
        &rows,
    );
    how(html, compare);
}

/// The runs, and of all but the baseline how many times its value.
fn heads<'a>(compare: &'a Compare, first: &'a str) -> Vec<Column<'a>> {
    let mut all = vec![Column::Text(first)];
    for it in &compare.runs {
        all.push(Column::Number(it));
        if *it != compare.baseline {
            all.push(Column::Number("times the baseline"));
        }
    }
    all
}

fn values(compare: &Compare, name: String, values: &[Option<Measured>], unit: &str) -> Vec<Cell> {
    let mut row = vec![Cell::new(name)];
    for (run, value) in compare.runs.iter().zip(values) {
        row.push(match value {
            Some(it) => Cell::new(amount(it.value, unit)).below(it.range(unit)),
            None => Cell::new("-"),
        });
        if *run != compare.baseline {
            let ratio = value.as_ref().and_then(|it| it.ratio);
            row.push(Cell::new(ratio.map(|it| format!("x {it:.2}")).unwrap_or_default()));
        }
    }
    row
}

fn figure(html: &mut Html, compare: &Compare, it: &Figure) {
    let show = |value: f64| amount(value, it.unit);
    let bar = |(run, value): (&String, &Option<Measured>)| {
        let value = value.as_ref()?;
        Some(Bar { name: run.clone(), parts: vec![(run.clone(), value.value)], spread: value.spread })
    };
    let all: Vec<Bar> = compare.runs.iter().zip(&it.values).filter_map(bar).collect();
    let said: Vec<String> =
        all.iter().map(|it| format!("{} {}", it.name, show(it.parts.iter().map(|it| it.1).sum()))).collect();
    // A run has one colour in all charts.
    let classes: Vec<String> = (0..compare.runs.len()).map(colour).collect();
    let colours: Vec<(&str, &str)> =
        compare.runs.iter().map(String::as_str).zip(classes.iter().map(String::as_str)).collect();
    let chart = Bars {
        title: &format!("{} by run", it.name),
        about: &format!("{}: {}.", it.name, said.join(", ")),
        show: &show,
        bars: &all,
        limit: None,
        colours: &colours,
    };
    html.line("h3", "", it.name);
    html.picture("chart", &bars(&chart));
}

/// How the time of a step was measured.
fn how(html: &mut Html, compare: &Compare) {
    let first = compare.figures.first().filter(|it| it.unit == "s");
    let values = first.iter().flat_map(|it| &it.values);
    let words = |(run, value): (&String, &Option<Measured>)| {
        Some(format!("step time of {run}: {}", value.as_ref()?.how.as_deref()?))
    };
    let all: Vec<String> = compare.runs.iter().zip(values).filter_map(words).collect();
    if !all.is_empty() {
        parts::list(html, all.iter().map(String::as_str));
    }
}

/// The time of each step, one curve for each run.
fn steps(html: &mut Html, compare: &Compare) {
    #[expect(clippy::cast_precision_loss, reason = "a place on an axis")]
    let place = |(number, seconds): &(u64, f64)| (*number as f64, *seconds);
    let times = compare.figures.iter().find(|it| it.name == "step time");
    let series = |(at, run): (usize, &String)| {
        let points: Vec<(f64, f64)> = compare.steps.get(at).into_iter().flatten().map(place).collect();
        let spread = times.and_then(|it| it.values.get(at)?.as_ref()?.spread);
        let interval = spread.map(|[low, high]| points.iter().map(|it| (it.0, low, high)).collect());
        Series { name: run.clone(), points, interval: interval.unwrap_or_default(), spread: Vec::new() }
    };
    let all: Vec<Series> = compare.runs.iter().enumerate().map(series).collect();
    let label = if all.iter().any(|it| !it.interval.is_empty()) {
        "time of a step; tinted: 10th to 90th percentile"
    } else {
        "time of a step"
    };
    let said = |it: &Series| {
        let times = it.points.iter().map(|it| it.1);
        let [low, high] =
            [times.clone().fold(f64::MAX, f64::min), times.fold(0.0, f64::max)].map(|it| amount(it, "s"));
        format!("{}: {} steps of {low} to {high}", it.name, it.points.len())
    };
    let said: Vec<String> = all.iter().filter(|it| !it.points.is_empty()).map(said).collect();
    html.picture(
        "chart",
        &lines(&Lines {
            frame: Frame {
                title: "Time of a step by its number",
                about: &said.join(". "),
                x: Axis { label: "step", scale: Scale::Linear, show: |it| format!("{it:.0}") },
                y: Axis { label, scale: Scale::Linear, show: |it| amount(it, "s") },
            },
            series: &all,
            spans: &[],
        }),
    );
    parts::list(html, said.iter().map(String::as_str));
}

/// From the step of the baseline to that of the run.
fn causes(html: &mut Html, compare: &Compare, it: &Causes) {
    html.line("h3", "", &format!("{} against {}", it.run, compare.baseline));
    if let Some(reason) = &it.not_predicted {
        html.line("p", "", &format!("What explains the difference is not predicted: {reason}"));
        return settings(html, compare, &it.run);
    }
    let step = compare.figures.iter().find(|it| it.name == "step time");
    let of = |name: &str| {
        let at = compare.runs.iter().position(|it| it == name)?;
        Some(step?.values.get(at)?.as_ref()?.value)
    };
    // One unit for all: that of the longest step.
    let longest = [of(&compare.baseline), of(&it.run)].into_iter().flatten().fold(0.0, f64::max);
    let show = |it: f64| {
        if longest < 1.0 { format!("{} ms", shown(1e3 * it)) } else { format!("{} s", shown(it)) }
    };
    let rest = it.unexplained_s.unwrap_or_default();
    let mut steps: Vec<Step> =
        it.parts.iter().map(|it| Step { name: it.what.clone(), value: it.seconds, known: true }).collect();
    steps.push(Step { name: "not explained".to_owned(), value: rest, known: false });
    if let Some(start) = of(&compare.baseline) {
        let title = format!("From a step of {} to one of {}", compare.baseline, it.run);
        let about = compare.because().join(". ");
        let ends = [compare.baseline.as_str(), it.run.as_str()];
        html.picture("chart", &waterfall(&title, &about, &show, (start, ends), &steps));
    }
    let signed = |it: f64| format!("{}{}", if it < 0.0 { "-" } else { "+" }, show(it.abs()));
    let mut rows: Vec<Vec<Cell>> =
        it.parts.iter().map(|it| vec![Cell::new(it.what.clone()), Cell::new(signed(it.seconds))]).collect();
    rows.push(vec![Cell::new("not explained"), Cell::new(signed(rest))]);
    rows.push(vec![Cell::new("measured, together"), Cell::new(signed(it.seconds))]);
    let columns = [Column::Text("because of"), Column::Number("per step")];
    parts::table(html, "Predicted parts of the difference", &columns, &rows);
    settings(html, compare, &it.run);
}

/// Settings and releases that differ: possible causes that no prediction of steps includes.
fn settings(html: &mut Html, compare: &Compare, run: &str) {
    let row = |it: &Setting| {
        let price = match (it.expected_ratio, it.not_priced) {
            (Some(ratio), _) => format!("x {ratio:.2} of the bandwidth of a large all_reduce, by expect"),
            (None, reason) => format!("not priced: {}", reason.unwrap_or_default()),
        };
        let [name, base, mine] = [&it.name, &it.baseline, &it.value].map(|it| Cell::code(it.clone()));
        vec![name, base, mine, Cell::new(price)]
    };
    let rows: Vec<Vec<Cell>> = compare.settings.iter().filter(|it| it.run == run).map(row).collect();
    if !rows.is_empty() {
        let columns = ["setting or release", &compare.baseline, run, "what it costs"].map(Column::Text);
        parts::table(html, "Differs too, and may be a cause", &columns, &rows);
    }
}

/// Bandwidths beside what machines and paths make one expect.
fn paths(html: &mut Html, compare: &Compare) {
    if compare.paths.is_empty() {
        return;
    }
    let row = |it: &Paths| {
        let expected = it.expected_ratio.zip(it.interval);
        let (expected, judged) = match expected {
            Some((expected, [low, high])) => (
                format!("x {expected:.2} ({low:.2} to {high:.2})"),
                if it.explained {
                    Cell::new("explained").toned(Tone::Good)
                } else {
                    Cell::new(format!("x {:.2} is not explained", it.ratio / expected)).toned(Tone::Warning)
                },
            ),
            None => ("not known".to_owned(), Cell::new("")),
        };
        let of_run = compare.settings.iter().filter(|other| other.run == it.run);
        let names: Vec<&str> = of_run.map(|it| &*it.name).collect();
        vec![
            Cell::new(it.run.clone()),
            Cell::new(format!("{} of {}", it.collective, bytes(it.size))),
            Cell::new(format!("x {:.2}", it.ratio)),
            Cell::new(expected),
            judged,
            Cell::new(names.join(", ")),
        ]
    };
    let rows: Vec<Vec<Cell>> = compare.paths.iter().map(row).collect();
    let columns = [
        Column::Text("run"),
        Column::Text("collective"),
        Column::Number("measured"),
        Column::Number("normal for these machines and paths"),
        Column::Text("judged"),
        Column::Text("settings and releases that differ"),
    ];
    let caption = format!("Bandwidth of the largest size, times that of {}", compare.baseline);
    parts::table(html, &caption, &columns, &rows);
}

fn curves(html: &mut Html, compare: &Compare, of: &[Bandwidth]) {
    let Some(first) = of.first() else { return };
    #[expect(clippy::cast_precision_loss, reason = "a place on an axis")]
    let size = |it: &Bandwidth| it.size as f64;
    let is_known = of.iter().any(|it| it.normal.iter().any(Option::is_some));
    let spread = |at: usize| -> Vec<(f64, f64, f64)> {
        let range = |it: &Bandwidth| {
            let [low, high] = it.values.get(at)?.as_ref()?.spread?;
            (low > 0.0).then_some((size(it), low, high))
        };
        of.iter().filter_map(range).collect()
    };
    // Where a tint shows what is normal, samples are bars.
    let series = |(at, run): (usize, &String)| Series {
        name: run.clone(),
        spread: if is_known { spread(at) } else { Vec::new() },
        points: of
            .iter()
            .filter_map(|it| Some((size(it), it.values.get(at)?.as_ref()?.value)))
            .filter(|it| it.1 > 0.0)
            .collect(),
        interval: if is_known {
            of.iter()
                .filter_map(|it| Some((size(it), (*it.normal.get(at)?)?)))
                .map(|(size, [low, high])| (size, low, high))
                .collect()
        } else {
            spread(at)
        },
    };
    let all: Vec<Series> = compare.runs.iter().enumerate().map(series).collect();
    let has = |ranges: fn(&Series) -> &Vec<(f64, f64, f64)>| all.iter().any(|it| !ranges(it).is_empty());
    let label = match (is_known, has(|it| &it.interval), has(|it| &it.spread)) {
        (true, _, true) => "bus bandwidth, GB/s; tinted: normal; bars: lowest to highest sample",
        (true, _, false) => "bus bandwidth, GB/s; tinted: normal",
        (false, true, _) => "bus bandwidth, GB/s; tinted: lowest to highest sample",
        (false, false, _) => "bus bandwidth, GB/s",
    };
    if all.iter().any(|it| it.points.len() > 1) {
        html.picture(
            "chart",
            &lines(&Lines {
                frame: Frame {
                    title: &format!("Bus bandwidth of {} by size", first.collective),
                    about: &compare.answer.join(". "),
                    x: size_axis(),
                    y: Axis { label, scale: Scale::Decades, show: shown },
                },
                series: &all,
                spans: &[],
            }),
        );
    }
}

fn sizes(html: &mut Html, compare: &Compare, of: &[Bandwidth]) {
    let Some(first) = of.first() else { return };
    let known = of.iter().any(|it| it.normal.iter().any(Option::is_some));
    let mut columns = heads(compare, "size");
    if known {
        columns.push(Column::Number("normal"));
    }
    let row = |it: &Bandwidth| {
        let mut row = values(compare, bytes(it.size), &it.values, "");
        if known {
            row.push(Cell::new(normal(&it.normal)));
        }
        row
    };
    let rows: Vec<Vec<Cell>> = of.iter().map(row).collect();
    let spread = of.iter().flat_map(|it| &it.values).flatten().any(|it| it.spread.is_some());
    let ranges = if spread { "; in brackets the lowest and the highest sample" } else { "" };
    parts::table(html, &format!("Bus bandwidth of {}, GB/s{ranges}", first.collective), &columns, &rows);
}
