//! The page of `plumb predict`.

use std::io;

use forecast::training::Seconds;
use rules::Severity;

use super::chart::{Bar, Bars, bars};
use super::page::{Page, Tone};
use super::parts::{self, Cell, Column};
use super::{Html, View};
use crate::Style;
use crate::expect::shown;
use crate::predict::text::duration;
use crate::predict::{Drawing, MemoryGib, OfLog, Part, Predict, WhatIf};

/// Parts of the step that have a colour of their own; the rest is one.
const PARTS: usize = 7;

/// A prediction, and one step of it where it can be drawn.
#[derive(Debug, Clone, Copy)]
pub struct PredictPage<'a> {
    /// The answer.
    pub predict: &'a Predict,
    /// One step.
    pub drawing: Option<&'a Drawing>,
}

impl View for PredictPage<'_> {
    fn page(&self) -> Page {
        let predict = self.predict;
        let mut page = Page::new("predict", predict.schema);
        page.title.clone_from(&predict.job);
        page.verdict = predict.headline();
        (page.word, page.tone) = if predict.fits {
            ("fits".to_owned(), Tone::Good)
        } else {
            ("does not fit".to_owned(), Tone::Bad)
        };
        page.worst = (!predict.fits).then_some(Severity::Error);
        page.about.push(predict.job.clone());
        page.about.extend(predict.log.as_ref().map(OfLog::words));
        page.about.push(predict.speed());
        if let Some(total) = predict.total_time_s {
            let cost = predict.cost.map(|it| format!(", cost {it:.2}")).unwrap_or_default();
            page.about.push(format!("the whole run takes {}{cost}", duration(total)));
        }
        page.section("time", "Where the time goes", |html| time(html, predict));
        if let Some(drawing) = self.drawing {
            page.section("step", "One step", |html| html.picture("step", &drawing.picture(false)));
        }
        page.section("memory", "Memory of a GPU", |html| memory(html, &predict.memory_gib, predict.fits));
        if !predict.what_if.is_empty() {
            page.section("what-if", "What if", |html| what_if(html, predict));
        }
        if let Some(it) = &predict.measured {
            page.section("measured", "Measured", |html| {
                let percent = 100.0 * (it.ratio - 1.0);
                let rows = [
                    ("step", format!("{}, {percent:+.0} % against the prediction", Seconds(it.step_time_s))),
                    ("how", it.how.clone()),
                    ("what-ifs", "the measured step, changed by the predicted ratio".to_owned()),
                ];
                parts::facts(html, &rows);
            });
        }
        if !predict.notes.is_empty() {
            page.section("notes", "Notes", |html| {
                parts::list(html, predict.notes.iter().map(String::as_str));
            });
        }
        if let Some(log) = predict.log.as_ref().filter(|it| !it.says.is_empty()) {
            let rows: Vec<Vec<Cell>> = log
                .says
                .iter()
                .map(|it| {
                    vec![
                        Cell::code(it.key.clone()),
                        Cell::code(it.value.to_string()),
                        Cell::new(it.source.clone().unwrap_or_default()),
                    ]
                })
                .collect();
            page.section("log", "What the log says", |html| {
                parts::table(
                    html,
                    "Keys of a job file that the log gives",
                    &["key", "value", "line"].map(Column::Text),
                    &rows,
                );
            });
        }
        page
    }

    fn to_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        self.predict.json(out)
    }

    fn to_text(&self, style: Style, out: &mut Vec<u8>) -> io::Result<()> {
        self.predict.text(style, out)
    }
}

fn seconds(it: f64) -> String {
    Seconds(it).to_string()
}

fn gib(it: f64) -> String {
    format!("{} GiB", shown(it))
}

fn time(html: &mut Html, predict: &Predict) {
    html.put("p", &[], |html| {
        html.line("b", "", "Limited by: ");
        html.prose(&predict.bottleneck.text);
    });
    let mut order: Vec<&Part> = predict.breakdown.iter().collect();
    order.sort_by(|a, b| (b.exposed_s + b.hidden_s).total_cmp(&(a.exposed_s + a.hidden_s)));
    let named: Vec<&str> = order.iter().take(PARTS).map(|it| it.what).collect();
    let of = |value: fn(&Part) -> f64| -> Vec<(String, f64)> {
        let mut all: Vec<(String, f64)> =
            order.iter().take(PARTS).map(|it| (it.what.to_owned(), value(it))).collect();
        let rest: f64 = order.iter().filter(|it| !named.contains(&it.what)).map(|it| value(it)).sum();
        if order.len() > PARTS {
            all.push(("all others".to_owned(), rest));
        }
        all
    };
    let bar = |name: &str, parts: Vec<(String, f64)>| Bar { name: name.to_owned(), parts, spread: None };
    let mut all = vec![bar("the step", of(|it| it.exposed_s))];
    if predict.breakdown.iter().any(|it| it.hidden_s > 0.0) {
        all.push(bar("hidden behind it", of(|it| it.hidden_s)));
    }
    // The drawing of the step has the same colours.
    let colours: Vec<(&str, &str)> = predict.breakdown.iter().map(|it| (it.what, it.kind)).collect();
    let chart = Bars {
        title: "Where the time of a step goes",
        about: &format!("{}. {}", predict.headline(), predict.bottleneck.text),
        show: &seconds,
        bars: &all,
        limit: None,
        colours: &colours,
    };
    html.picture("chart", &bars(&chart));
    let rows: Vec<Vec<Cell>> = order
        .iter()
        .map(|it| {
            let share = 100.0 * it.exposed_s / predict.step_time_s.max(f64::MIN_POSITIVE);
            let hidden = if it.hidden_s > 0.0 { seconds(it.hidden_s) } else { String::new() };
            vec![
                Cell::new(it.what),
                Cell::new(seconds(it.exposed_s)),
                Cell::new(format!("{share:.0} %")),
                Cell::new(hidden),
            ]
        })
        .collect();
    let columns = [
        Column::Text("part"),
        Column::Number("adds to the step"),
        Column::Number("share"),
        Column::Number("hidden behind other work"),
    ];
    parts::table(html, "Parts of a step, the largest first", &columns, &rows);
}

fn memory(html: &mut Html, memory: &MemoryGib, fits: bool) {
    let all = [
        ("weights", memory.weights),
        ("gradients", memory.gradients),
        ("optimizer", memory.optimizer),
        ("activations", memory.activations),
        ("buffers", memory.buffers),
        ("CUDA and NCCL", memory.context),
    ];
    let parts = all.map(|it| (it.0.to_owned(), it.1)).to_vec();
    let needs = Bar { name: "the job needs".to_owned(), parts, spread: None };
    let about = format!(
        "The GPU that needs most needs {} of {} GiB{}.",
        shown(memory.total),
        shown(memory.available),
        if fits { "" } else { ", which does not fit" }
    );
    let chart = Bars {
        title: "Memory that the job needs",
        about: &about,
        show: &gib,
        bars: &[needs],
        limit: Some((memory.available, "the GPU has")),
        colours: &[],
    };
    html.picture("chart", &bars(&chart));
    let mut rows: Vec<Vec<Cell>> = all.iter().map(|it| vec![Cell::new(it.0), Cell::new(gib(it.1))]).collect();
    let total = Cell::new(gib(memory.total));
    rows.push(vec![Cell::new("together"), total.toned(if fits { Tone::Good } else { Tone::Bad })]);
    rows.push(vec![Cell::new("the GPU has"), Cell::new(gib(memory.available))]);
    if memory.host > 0.0 {
        let has = memory.host_available.map(|it| format!(" of {}", gib(it))).unwrap_or_default();
        rows.push(vec![
            Cell::new("host memory of a node, for offloaded states"),
            Cell::new(format!("{}{has}", gib(memory.host))),
        ]);
    }
    parts::table(
        html,
        "Memory of the GPU that needs most",
        &[Column::Text("what"), Column::Number("needs")],
        &rows,
    );
}

fn what_if(html: &mut Html, predict: &Predict) {
    let step = predict.measured.as_ref().map_or(predict.step_time_s, |it| it.step_time_s);
    let time = |it: &WhatIf| it.scaled_s.or(it.step_time_s);
    let bar = |name: &str, time: f64| Bar {
        name: name.to_owned(),
        parts: vec![("step".to_owned(), time)],
        spread: None,
    };
    let mut all = vec![bar("as it is", step)];
    all.extend(predict.what_if.iter().filter_map(|it| Some(bar(&it.change, time(it)?))));
    if all.len() > 1 {
        let chart = Bars {
            title: "Time of a step with something else",
            about: &predict.headline(),
            show: &seconds,
            bars: &all,
            limit: None,
            colours: &[],
        };
        html.picture("chart", &bars(&chart));
    }
    let rows: Vec<Vec<Cell>> = predict
        .what_if
        .iter()
        .map(|it| match (time(it), it.ratio) {
            (Some(time), Some(ratio)) => {
                let change = Cell::new(format!("{:+.0} %", 100.0 * (ratio - 1.0)));
                vec![
                    Cell::code(it.change.clone()),
                    Cell::new(seconds(time)),
                    match ratio {
                        it if it < 0.995 => change.toned(Tone::Good),
                        it if it > 1.005 => change.toned(Tone::Warning),
                        _ => change,
                    },
                    if it.fits == Some(false) {
                        Cell::new("does not fit").toned(Tone::Bad)
                    } else {
                        Cell::new("fits")
                    },
                    Cell::new(it.text.clone()),
                ]
            }
            _ => vec![
                Cell::code(it.change.clone()),
                Cell::new(""),
                Cell::new(""),
                Cell::new("impossible").toned(Tone::Bad),
                Cell::new(it.text.clone()),
            ],
        })
        .collect();
    let columns = [
        Column::Text("change"),
        Column::Number("per step"),
        Column::Number("time"),
        Column::Text("memory"),
        Column::Text("limited by"),
    ];
    parts::table(html, "The same job with something else", &columns, &rows);
}
