//! The timeline of the ranks: how far each came, and when.

mod drawing;
mod instant;
mod waits;

use std::collections::BTreeSet;

use job::FailureKind;

pub(super) use instant::readable;

use super::lines::Lines;
use super::trouble::{self, Trouble, Troubles};
use crate::html::parts::{self, Cell, Column};
use crate::html::{Html, Tone};
use crate::text::counted;
use crate::{Doctor, Event, Moment};
use waits::Span;

/// Ranks that are drawn: those in trouble first.
const RANKS: usize = 32;
/// Ranks without trouble that are drawn, to compare with.
const OTHERS: usize = 4;
/// The same where none is in trouble.
const ALIKE: usize = 8;

/// What is said of a rank that did not join.
const NO_LINE: &str = "no line of this rank";
/// The same of the first cause.
const NO_LINE_OF_IT: &str = "did not join the others: no line of this rank";

/// A rank with its events, or a process that is the first cause and has no rank that is known.
struct Lane {
    rank: Option<u32>,
    host: String,
    events: Vec<Event>,
    /// What it did, if it is the first cause.
    first: Option<FailureKind>,
    /// No line comes from it.
    missing: bool,
    /// How long it waited in the setup, by NCCL's count.
    waited: Option<Span>,
}

impl Lane {
    fn name(&self) -> String {
        match (self.rank, &*self.host) {
            (Some(rank), "") => format!("rank {rank}"),
            (Some(rank), host) => format!("rank {rank}, {host}"),
            (None, host) => format!("{host}, rank not known"),
        }
    }

    /// What it did that is the first cause and not a failure: `finished early`.
    fn cause(&self) -> Option<&'static str> {
        let cause = self.first.filter(|it| !trouble::is_failure(*it)).map(trouble::cause);
        let silent = if cause.is_some() { NO_LINE_OF_IT } else { NO_LINE };
        if self.missing { Some(silent) } else { cause }
    }

    /// Whether it failed first.
    fn failed_first(&self) -> bool {
        self.first.is_some_and(trouble::is_failure)
    }
}

/// Draws the course, where lines show one.
pub(super) fn course(doctor: &Doctor, troubles: &Troubles<'_>, lines: &Lines<'_>, html: &mut Html) {
    let (shown, all) = lanes(doctor, troubles);
    if let Some(failure) = &doctor.facts.first_failure {
        html.put("p", &[], |html| {
            let failed = trouble::is_failure(failure.kind);
            html.line("b", "", if failed { "First failure: " } else { "First cause: " });
            html.prose(&trouble::sentence(failure));
            html.words(", ");
            lines.link(html, &failure.evidence);
        });
    }
    match drawing::drawing(&shown) {
        Some(picture) => html.picture("course", &picture),
        None => html.line("p", "", &alike(&shown, all)),
    }
    for it in notes(doctor, &shown, all) {
        html.line("p", "soft", &it);
    }
    waits::waits(doctor, lines, html);
    let rows: Vec<Vec<Cell>> = shown
        .iter()
        .flat_map(|lane| {
            let events = lane.events.iter().map(|it| row(lane, it, lines));
            lane.missing.then(|| row_without_line(lane)).into_iter().chain(events)
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    parts::more(html, &format!("{} as a table", counted(rows.len(), "event")), |html| {
        let columns = [
            Column::Number("rank"),
            Column::Text("host"),
            Column::Text("what"),
            Column::Text("time"),
            Column::Text("line"),
            Column::Text("says"),
        ];
        parts::table(html, "What happened to each rank", &columns, &rows);
    });
}

/// What is drawn, the first cause on top, and how many there are in all.
fn lanes(doctor: &Doctor, troubles: &Troubles<'_>) -> (Vec<Lane>, usize) {
    let seen = doctor.facts.ranks.iter().filter(|it| !it.events.is_empty());
    let seen = seen.map(|it| (it.rank, &*it.host, &it.events, false));
    let others = doctor.facts.other_ranks.iter();
    let others = others.map(|it| (it.rank, it.host.as_deref().unwrap_or(""), &it.events, it.missing));
    let mut ranks: Vec<_> = seen.chain(others).collect();
    ranks.sort_by_key(|it| {
        let trouble = troubles.rank(it.0);
        (trouble.is_none(), trouble, it.0)
    });
    let trouble =
        ranks.iter().filter(|it| troubles.rank(it.0).is_some_and(|it| it != Trouble::Named)).count();
    let drawn = if trouble == 0 { ALIKE } else { (trouble + OTHERS).min(RANKS) };
    let mut lanes: Vec<Lane> = ranks
        .iter()
        .take(drawn)
        .map(|(rank, host, events, missing)| Lane {
            rank: Some(*rank),
            host: (*host).to_owned(),
            events: (*events).clone(),
            first: match troubles.rank(*rank) {
                Some(Trouble::First(kind)) => Some(kind),
                _ => None,
            },
            missing: *missing,
            waited: waits::of_rank(doctor, *rank),
        })
        .collect();
    let mut all = ranks.len();
    let Some(failure) = &doctor.facts.first_failure else { return (lanes, all) };
    let event = trouble::is_failure(failure.kind).then(|| trouble::event(failure));
    match (lanes.iter_mut().find(|it| it.first.is_some()), event) {
        // The line that shows the first failure may be of another rank, or not be among the last lines of its own.
        (Some(lane), Some(event))
            if !lane.events.iter().any(|it| (&it.file, it.line) == (&event.file, event.line)) =>
        {
            lane.events.insert(0, event);
            lane.events.sort_by_key(|it| it.what);
        }
        (None, event) if failure.rank.is_some() || failure.host.is_some() => {
            let (host, first) = (failure.host.clone().unwrap_or_default(), Some(failure.kind));
            lanes.insert(
                0,
                Lane {
                    rank: failure.rank,
                    host,
                    events: event.into_iter().collect(),
                    first,
                    missing: false,
                    waited: None,
                },
            );
            all += 1;
        }
        _ => {}
    }
    (lanes, all)
}

/// The kinds of events of a lane.
fn kinds(lane: &Lane) -> BTreeSet<Moment> {
    lane.events.iter().map(|it| it.what).collect()
}

/// Whether all ranks came equally far and none failed or waits.
fn are_alike(lanes: &[Lane]) -> bool {
    let first = lanes.first().map(kinds).unwrap_or_default();
    first.contains(&Moment::SetupComplete)
        && !first.contains(&Moment::Fails)
        && !first.contains(&Moment::Waits)
        && lanes.iter().all(|it| kinds(it) == first)
}

/// Instead of a picture in which all rows are the same.
fn alike(lanes: &[Lane], all: usize) -> String {
    let kinds = lanes.first().map(kinds).unwrap_or_default();
    let first = lanes.first().map(|it| &*it.events).unwrap_or_default();
    let events = kinds.into_iter().filter_map(|kind| first.iter().find(|it| it.what == kind));
    let kinds = events.map(words).collect::<Vec<_>>().join(", ");
    let who = match all {
        1 => return format!("The lines of the rank show: {kinds}. They have no times."),
        2 => "Both ranks".to_owned(),
        n => format!("All {n} ranks"),
    };
    format!("{who} came equally far: {kinds}. The lines have no times that could be compared.")
}

/// What the picture does not show.
fn notes(doctor: &Doctor, lanes: &[Lane], all: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if all > lanes.len() {
        notes.push(format!(
            "{} of {all} ranks are shown: those in trouble first, then by number.",
            lanes.len()
        ));
    }
    let job = &doctor.facts.job;
    if let Some(ranks) = job.ranks.and_then(|it| usize::try_from(it).ok()).filter(|it| *it > job.ranks_seen) {
        notes.push(format!(
            "{} of {ranks} ranks: no line about the setup in this input.",
            ranks - job.ranks_seen
        ));
    }
    notes.extend(drawing::setup_note(doctor, lanes));
    notes
}

fn row_without_line(lane: &Lane) -> Vec<Cell> {
    let what = Cell::new(NO_LINE).toned(Tone::Bad);
    let rank = lane.rank.map_or_else(|| "?".to_owned(), |it| it.to_string());
    vec![Cell::new(rank), Cell::code(lane.host.clone()), what, Cell::new(""), Cell::new(""), Cell::code("")]
}

fn row(lane: &Lane, it: &Event, lines: &Lines<'_>) -> Vec<Cell> {
    let what = Cell::new(words(it));
    let what = match it.what {
        Moment::Fails => what.toned(Tone::Bad),
        Moment::Waits => what.toned(Tone::Warning),
        _ => what,
    };
    vec![
        Cell::new(lane.rank.map_or_else(|| "?".to_owned(), |it| it.to_string())),
        Cell::code(lane.host.clone()),
        what,
        Cell::new(it.time.as_deref().map(readable).unwrap_or_default()),
        lines.cell(&it.file, it.line),
        Cell::code(it.text.clone()),
    ]
}

fn words(it: &Event) -> &'static str {
    match it.what {
        Moment::SetupBegins => "setup begins",
        Moment::SetupComplete => "setup complete",
        Moment::FirstWork => "first work: rings connected",
        Moment::Waits => "waits",
        Moment::Fails => "fails",
        // NCCL's line about the communicator: it does not say how the process ended.
        Moment::Ends if it.text.is_empty() => "destroys its communicator",
        Moment::Ends => "ends",
    }
}
