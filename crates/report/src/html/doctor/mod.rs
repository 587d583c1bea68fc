//! The page of `plumb doctor`.

mod course;
mod lines;
mod map;
mod settings;
mod ticket;
mod trouble;

use std::io;

use rules::{Level, Severity, State};

use super::page::{Page, Tone};
use super::parts::{self, Cell, Column};
use super::{Html, View};
use crate::text::counted;
use crate::{Check, Doctor, Evidence, Finding, Style, Validate};
use lines::Lines;
use trouble::{Trouble, Troubles};

pub use ticket::ticket;

impl View for Doctor {
    fn page(&self) -> Page {
        if let Some(fleet) = &self.fleet {
            return machines(self, fleet);
        }
        let mut page = Page::new("doctor", &self.schema);
        let opening = self.opening();
        page.tone = tone(self.verdict.level);
        page.word = opening.word;
        page.verdict = opening.sentence;
        page.about = opening.below;
        page.title.clone_from(&self.verdict.text);
        page.ticket = Some(ticket(self));
        page.worst = self.findings.iter().map(|it| it.severity).max();
        page.undecided = self.verdict.level == Level::Unknown || self.is_incomplete();
        page.about
            .extend(self.facts.first_failure.iter().map(|it| format!("first: {}", trouble::sentence(it))));
        let (lines, troubles) = (Lines::new(self), Troubles::new(self));
        if !self.findings.is_empty() {
            page.section("findings", "Findings", |html| findings(self, &lines, html));
        }
        if map::is_drawn(self, &troubles) {
            page.section("map", "Nodes and paths", |html| map::map(self, &troubles, html));
        }
        let seen = self.facts.ranks.iter().any(|it| !it.events.is_empty());
        if seen || !self.facts.other_ranks.is_empty() {
            page.section("course", "Timeline of the ranks", |html| {
                course::course(self, &troubles, &lines, html);
            });
        }
        if !self.checks.is_empty() {
            page.section("checks", "Check list", |html| checks(self, &lines, html));
        }
        if !self.facts.environment.is_empty() {
            page.section("settings", "Settings", |html| settings::settings(self, &lines, html));
        }
        if !self.facts.ranks.is_empty() {
            page.section("ranks", "Ranks", |html| ranks(self, &troubles, html));
        }
        if !self.not_checked.is_empty() {
            page.section("unchecked", "What was not checked", |html| {
                parts::not_checked(html, &self.not_checked);
            });
        }
        if lines.has_rest() {
            page.section("lines", "Lines", |html| {
                html.line("p", "soft", "Lines of the input that the tables above name.");
                lines.write_rest(html);
            });
        }
        page.section("inputs", "Input", |html| inputs(self, html));
        page
    }

    fn to_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        crate::json(self, out)
    }

    fn to_text(&self, style: Style, out: &mut Vec<u8>) -> io::Result<()> {
        crate::text(self, style, out)
    }
}

/// The page of a verdict on machines, with the errors of their logs.
fn machines(doctor: &Doctor, fleet: &Validate) -> Page {
    let mut page = fleet.page();
    page.command = "doctor";
    page.schema.clone_from(&doctor.schema);
    page.worst = page.worst.max(doctor.findings.iter().map(|it| it.severity).max());
    page.undecided &= doctor.verdict.level == Level::Unknown;
    let errors: Vec<&Finding> = doctor.findings.iter().filter(|it| it.severity == Severity::Error).collect();
    if !errors.is_empty() {
        let lines = Lines::new(doctor);
        page.section("errors", "Errors in these logs", |html| {
            for (at, it) in errors.iter().enumerate() {
                parts::finding(html, at + 1, it, |html| {
                    for it in it.evidence.iter().take(3) {
                        parts::quote_in(html, it, lines.id_here(doctor, it).as_deref(), &doctor.excerpts);
                    }
                });
            }
        });
    }
    page
}

fn tone(level: Level) -> Tone {
    match level {
        Level::Ok => Tone::Good,
        Level::Info => Tone::Plain,
        Level::Warning => Tone::Warning,
        Level::Error => Tone::Bad,
        Level::Unknown => Tone::Unknown,
    }
}

fn findings(doctor: &Doctor, lines: &Lines<'_>, html: &mut Html) {
    let quote = |html: &mut Html, it: &Evidence| {
        parts::quote_in(html, it, lines.id_here(doctor, it).as_deref(), &doctor.excerpts);
    };
    for (at, it) in doctor.findings.iter().enumerate() {
        parts::finding(html, at + 1, it, |html| {
            let (first, rest) = it.evidence.split_at(it.evidence.len().min(3));
            for it in first {
                quote(html, it);
            }
            if !rest.is_empty() {
                parts::more(html, &counted(rest.len(), "more line"), |html| {
                    for it in rest {
                        quote(html, it);
                    }
                });
            }
        });
    }
}

/// What was checked; what was not is shown on request.
fn checks(doctor: &Doctor, lines: &Lines<'_>, html: &mut Html) {
    let tone = |it: State| match it {
        State::Ok => Tone::Good,
        State::Note => Tone::Plain,
        State::Warning => Tone::Warning,
        State::Error => Tone::Bad,
        State::NotChecked => Tone::Unknown,
    };
    let finding = |rule: &str| doctor.findings.iter().position(|it| it.id == rule);
    let row = |it: &Check| {
        let state = Cell::new(it.state.name()).toned(tone(it.state));
        vec![
            Cell::new(it.id.clone()),
            match it.rule.and_then(finding) {
                Some(at) => state.linked(format!("#finding-{}", at + 1)),
                None => state,
            },
            Cell::new(it.text.clone()),
            it.evidence.as_ref().map(|it| lines.cell(&it.file, it.line)).unwrap_or_default(),
        ]
    };
    let (open, done): (Vec<&Check>, Vec<&Check>) =
        doctor.checks.iter().partition(|it| it.state == State::NotChecked);
    let rows: Vec<Vec<Cell>> = done.into_iter().map(row).collect();
    let columns = ["check", "state", "what was found", "line"].map(Column::Text);
    if !rows.is_empty() {
        parts::table(html, "What plumb checks in every job", &columns, &rows);
    }
    if !open.is_empty() {
        parts::more(html, &format!("{} without an answer", counted(open.len(), "check")), |html| {
            let row = |it: &Check| vec![Cell::new(it.id.clone()), Cell::new(it.text.clone())];
            let rows: Vec<Vec<Cell>> = open.into_iter().map(row).collect();
            let columns = ["check", "what it needs, or why it does not apply"].map(Column::Text);
            parts::table(html, "Checks without an answer", &columns, &rows);
        });
    }
}

/// `0-3, 8`
fn numbers(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for it in ranks {
        match runs.last_mut() {
            Some(last) if last.1.checked_add(1) == Some(*it) => last.1 = *it,
            _ => runs.push((*it, *it)),
        }
    }
    let text = |it: &(u32, u32)| if it.0 == it.1 { it.0.to_string() } else { format!("{}-{}", it.0, it.1) };
    runs.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn ranks(doctor: &Doctor, troubles: &Troubles<'_>, html: &mut Html) {
    let device = |it: Option<u32>| it.map(|it| it.to_string()).unwrap_or_default();
    let rows: Vec<Vec<Cell>> = doctor
        .facts
        .ranks
        .iter()
        .map(|it| {
            vec![
                Cell::new(it.rank.to_string()),
                Cell::code(it.host.clone()),
                Cell::new(it.pid.to_string()),
                Cell::new(device(it.cuda_device)),
                Cell::code(it.bus_id.clone().unwrap_or_default()),
                if it.complete {
                    Cell::new("complete").toned(Tone::Good)
                } else {
                    Cell::new("not complete").toned(Tone::Bad)
                },
                match troubles.rank(it.rank) {
                    Some(trouble @ (Trouble::First(_) | Trouble::Fails)) => {
                        Cell::new(trouble.words()).toned(Tone::Bad)
                    }
                    Some(Trouble::Incomplete) | None => Cell::new(""),
                    Some(trouble) => Cell::new(trouble.words()).toned(Tone::Warning),
                },
            ]
        })
        .collect();
    let columns = [
        Column::Number("rank"),
        Column::Text("host"),
        Column::Number("process"),
        Column::Number("CUDA device"),
        Column::Text("PCI address"),
        Column::Text("setup"),
        Column::Text("then"),
    ];
    parts::more(html, &format!("{} of the largest communicator", counted(rows.len(), "rank")), |html| {
        parts::table(html, "Ranks whose lines were read", &columns, &rows);
    });
}

fn inputs(doctor: &Doctor, html: &mut Html) {
    let rows: Vec<Vec<Cell>> = doctor
        .inputs
        .iter()
        .map(|it| {
            vec![
                Cell::code(it.file.clone()),
                Cell::new(it.kind.name()),
                Cell::new(it.lines.to_string()),
                Cell::new(it.understood.to_string()),
                Cell::new(it.problem.clone().unwrap_or_default()),
            ]
        })
        .collect();
    let columns = [
        Column::Text("file"),
        Column::Text("kind"),
        Column::Number("lines"),
        Column::Number("understood"),
        Column::Text("problem"),
    ];
    parts::table(html, "What was read", &columns, &rows);
}
