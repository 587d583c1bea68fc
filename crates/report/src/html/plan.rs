//! The page of `plumb plan`.

use std::io;

use rules::Severity;

use super::chart::{Axis, Dot, Dots, Frame, Scale, scatter};
use super::page::{Page, Tone};
use super::parts::{self, Cell, Column};
use super::{Html, View};
use crate::Style;
use crate::expect::shown;
use crate::plan::table::{columns, slower};
use crate::plan::text::count;
use crate::plan::{Layout, Plan};
use crate::text::counted;

/// A plan, with what can be copied.
#[derive(Debug, Clone, Copy)]
pub struct PlanPage<'a> {
    /// The answer.
    pub plan: &'a Plan,
    /// Settings of the best layout, each with a name: a job file, arguments of Megatron-LM.
    pub settings: &'a [(String, String)],
}

impl View for PlanPage<'_> {
    fn page(&self) -> Page {
        let plan = self.plan;
        let mut page = Page::new("plan", plan.schema);
        page.title.clone_from(&plan.job);
        page.verdict = plan.headline();
        (page.word, page.tone) = match plan.best {
            Some(_) => ("fits".to_owned(), Tone::Good),
            None => ("nothing fits".to_owned(), Tone::Bad),
        };
        page.worst = plan.best.is_none().then_some(Severity::Error);
        page.about.push(plan.job.clone());
        page.about.extend(plan.best.as_ref().map(|it| plan.gain(it)).filter(|it| !it.is_empty()));
        let facts = plan.rows();
        page.section("answer-facts", "The answer", |html| parts::facts(html, &facts));
        if plan.best.is_some() {
            page.section("layouts", "Time against memory", |html| dots(html, plan));
            page.section("others", "Why others lose", |html| others(html, plan));
        }
        if !self.settings.is_empty() {
            page.section("settings", "Settings to copy", |html| {
                for (name, text) in self.settings {
                    parts::more(html, name, |html| parts::code(html, name, text));
                }
            });
        }
        if !plan.groups.is_empty() {
            page.section("groups", "Process groups", |html| groups(html, plan));
        }
        page
    }

    fn to_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        self.plan.json(out)
    }

    fn to_text(&self, style: Style, out: &mut Vec<u8>) -> io::Result<()> {
        self.plan.text(style, out)?;
        // Ranks are listed where groups were asked for.
        if self.plan.ranks.is_some() { self.plan.group_table(style.width, out) } else { Ok(()) }
    }
}

fn seconds(it: f64) -> String {
    forecast::training::Seconds(it).to_string()
}

/// Layouts with more than this many times the time of the best, or what a layout may need, are not drawn.
const SLOW: f64 = 2.5;
const LARGE: f64 = 2.0;

/// What a dot is. One layout may be several; the first that fits is taken.
const KINDS: [&str; 6] = [
    "best",
    "less memory, the fastest each",
    "runner-up",
    "one setting changed",
    "layout of the job",
    "does not fit",
];

/// The place of the layout of the job in [`KINDS`].
const OWN: usize = 4;

fn dots(html: &mut Html, plan: &Plan) {
    let mut dots: Vec<Dot> = Vec::new();
    let mut add = |it: &Layout, kind: usize| {
        let kind = if it.fits { kind } else { 5 };
        let dot = Dot {
            x: it.memory_gib,
            y: it.step_time_s,
            name: format!(
                "{}: {} per step, {} GiB ({})",
                KINDS[kind],
                it.time,
                shown(it.memory_gib),
                it.text
            ),
            kind,
            marked: kind == 0,
        };
        let same = |known: &Dot| known.x.to_bits() == dot.x.to_bits() && known.y.to_bits() == dot.y.to_bits();
        if !dots.iter().any(same) {
            dots.push(dot);
        }
    };
    plan.best.iter().for_each(|it| add(it, 0));
    plan.own.iter().filter_map(|it| it.layout.as_ref()).for_each(|it| add(it, OWN));
    plan.front.iter().for_each(|it| add(it, 1));
    plan.runners_up.iter().for_each(|it| add(&it.layout, 2));
    plan.changes.iter().for_each(|it| add(&it.layout, 3));
    plan.over.iter().for_each(|it| add(&it.layout, 5));
    // Layouts that are far off would leave no room for the others.
    let far = |it: &Dot| {
        let best = plan.best.as_ref().map_or(f64::MAX, |it| it.step_time_s);
        it.y > SLOW * best || it.x > LARGE * plan.memory_gib.limit
    };
    let all = dots.len();
    let own_is_far = dots.iter().any(|it| it.kind == OWN && far(it));
    dots.retain(|it| !far(it));
    let left_out = all - dots.len();
    let about = format!(
        "{} layouts: the fastest takes {}. The line joins the fastest layouts with less memory each.",
        dots.len(),
        plan.best.as_ref().map(|it| it.time.to_string()).unwrap_or_default()
    );
    let line: Vec<(f64, f64)> = plan
        .front
        .iter()
        .map(|it| (it.memory_gib, it.step_time_s))
        .filter(|it| plan.best.as_ref().is_none_or(|best| it.1 <= SLOW * best.step_time_s))
        .collect();
    html.picture(
        "chart",
        &scatter(&Dots {
            frame: Frame {
                title: "Time of a step against memory of a GPU",
                about: &about,
                x: Axis {
                    label: "memory of the GPU that needs most, GiB",
                    scale: Scale::Linear,
                    show: shown,
                },
                y: Axis { label: "time of a step", scale: Scale::Near, show: seconds },
            },
            kinds: &KINDS,
            dots: &dots,
            line: &line,
            limit: Some((plan.memory_gib.limit, "what a layout may need")),
        }),
    );
    // The answer lists the best of the search: not every layout that was searched.
    let drawn = format!(
        "Drawn: {} of {} layouts that were searched, the best of their kind.",
        dots.len(),
        count(plan.searched)
    );
    html.line("p", "soft", &drawn);
    if left_out > 0 {
        let own = plan.own.as_ref().and_then(|it| it.layout.as_ref()).filter(|_| own_is_far);
        let own = own.map(|it| {
            format!(
                "; the layout of the job is one of them: {} per step, {} GiB",
                it.time,
                shown(it.memory_gib)
            )
        });
        let text = format!(
            "Not drawn, because of more than {SLOW} times the time of the best or {LARGE} times the memory that a layout may need: {} of those that the answer lists{}.",
            counted(left_out, "layout"),
            own.unwrap_or_default()
        );
        html.line("p", "soft", &text);
    }
    let Some(best) = &plan.best else { return };
    let rows: Vec<(&Layout, f64, &str)> = plan
        .front
        .iter()
        .map(|it| (it, it.step_time_s / best.step_time_s.max(f64::MIN_POSITIVE), ""))
        .collect();
    let all: Vec<&Layout> = plan.front.iter().collect();
    parts::more(html, &format!("{} with less memory each", counted(rows.len(), "layout")), |html| {
        table(html, "The fastest layouts with less memory each", &all, &rows);
    });
}

fn others(html: &mut Html, plan: &Plan) {
    let tables = [
        ("Runners-up: the best with another tp, pp, cp, ep or ZeRO", &plan.runners_up),
        ("The best layout with one setting changed", &plan.changes),
    ];
    for (title, losers) in tables {
        if losers.is_empty() {
            continue;
        }
        let rows: Vec<(&Layout, f64, &str)> =
            losers.iter().map(|it| (&it.layout, it.ratio, &*it.why)).collect();
        let all: Vec<&Layout> = losers.iter().map(|it| &it.layout).collect();
        table(html, title, &all, &rows);
    }
}

fn table(html: &mut Html, title: &str, all: &[&Layout], rows: &[(&Layout, f64, &str)]) {
    let shown_columns = columns(all);
    let mut heads: Vec<Column<'_>> = shown_columns.iter().map(|it| Column::Number(it.head)).collect();
    heads.extend([
        Column::Number("per step"),
        Column::Number("slower"),
        Column::Number("GiB"),
        Column::Text("memory"),
    ]);
    let why = rows.iter().any(|it| !it.2.is_empty());
    if why {
        heads.push(Column::Text("why it loses"));
    }
    let cells: Vec<Vec<Cell>> = rows
        .iter()
        .map(|(layout, ratio, reason)| {
            let mut cells: Vec<Cell> = shown_columns.iter().map(|it| Cell::new((it.cell)(layout))).collect();
            let percent = if (ratio - 1.0).abs() < 5e-5 { String::new() } else { slower(*ratio) };
            cells.extend([
                Cell::new(layout.time.to_string()),
                Cell::new(percent),
                Cell::new(shown(layout.memory_gib)),
                if layout.fits { Cell::new("fits") } else { Cell::new("does not fit").toned(Tone::Bad) },
            ]);
            if why {
                cells.push(Cell::new(*reason));
            }
            cells
        })
        .collect();
    parts::table(html, title, &heads, &cells);
}

fn groups(html: &mut Html, plan: &Plan) {
    let rows: Vec<Vec<Cell>> = plan
        .groups
        .iter()
        .map(|it| {
            let first: Vec<String> = it.first.iter().map(u64::to_string).collect();
            vec![
                Cell::code(it.group),
                Cell::new(it.size.to_string()),
                Cell::new(it.count.to_string()),
                Cell::new(first.join(", ")),
                Cell::new(it.link.clone()),
            ]
        })
        .collect();
    let columns = [
        Column::Text("group"),
        Column::Number("ranks"),
        Column::Number("groups"),
        Column::Text("ranks of the first"),
        Column::Text("link"),
    ];
    parts::table(
        html,
        "Process groups; ranks are numbered tp, cp, dp, pp, and fill one node after the other",
        &columns,
        &rows,
    );
}
