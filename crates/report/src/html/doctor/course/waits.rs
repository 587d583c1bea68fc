//! How long ranks waited for each other in the setup of communicators, by NCCL's own count: it needs no times of lines.

use super::drawing::{LEFT, RIGHT, ROW, STYLE, WIDTH, label, tick};
use crate::html::doctor::lines::Lines;
use crate::html::parts::{self, Cell, Column};
use crate::html::{Html, Picture};
use crate::text::counted;
use crate::topo::svg::canvas::{Canvas, Rect, length};
use crate::{Communicator, Doctor, Setup};

/// Communicators that are drawn: the largest, and those with the longest waits.
const COMMUNICATORS: usize = 3;
/// Ranks of each that are drawn: half of them the last to join, half of them those that waited longest.
const RANKS: usize = 12;

/// Draws the setups in which ranks waited, where NCCL says so.
pub(super) fn waits(doctor: &Doctor, lines: &Lines<'_>, html: &mut Html) {
    let mut all: Vec<&Communicator> =
        doctor.facts.communicators.iter().filter(|it| !it.setups.is_empty()).collect();
    if all.is_empty() {
        return;
    }
    let largest = all.iter().filter_map(|it| it.ranks).max();
    all.sort_by(|one, other| {
        let order = |it: &Communicator| (it.ranks != largest, -longest(it));
        order(one).partial_cmp(&order(other)).unwrap_or(std::cmp::Ordering::Equal)
    });
    html.line("h3", "", "Waits in the setup");
    html.line(
        "p",
        "soft",
        "NCCL prints how long each rank waited until all had joined. All these waits end at one instant, so the lines need no times.",
    );
    for it in all.iter().take(COMMUNICATORS) {
        html.line("p", "", &sentence(it));
        html.picture("course", &picture(it));
    }
    if all.len() > COMMUNICATORS {
        let left = all.len() - COMMUNICATORS;
        let them = counted(left, "more communicator");
        html.line("p", "soft", &format!("Ranks of {them} waited, too: see the table."));
    }
    let rows: Vec<Vec<Cell>> =
        all.iter().flat_map(|of| of.setups.iter().map(|it| row(of, it, lines))).collect();
    parts::more(html, &format!("{} as a table", counted(rows.len(), "setup")), |html| {
        let columns = [
            Column::Text("communicator"),
            Column::Number("rank in it"),
            Column::Number("rank of the job"),
            Column::Text("host"),
            Column::Number("waited"),
            Column::Number("in all"),
            Column::Text("line"),
        ];
        parts::table(html, "How long each rank waited for others to join", &columns, &rows);
    });
}

/// The setup of the largest communicator for a rank of it, where NCCL prints how long all of it took.
pub(super) fn of_rank(doctor: &Doctor, rank: u32) -> Option<Span> {
    let all = || doctor.facts.communicators.iter();
    let largest = all().filter_map(|it| it.ranks).max()?;
    let world = all().find(|it| it.ranks == Some(largest))?;
    world.setups.iter().find(|it| it.rank == rank && it.seconds.is_some()).map(Span::new)
}

fn longest(it: &Communicator) -> f64 {
    it.setups.iter().map(|it| it.waited_seconds).fold(0.0, f64::max)
}

fn seconds(it: f64) -> String {
    if it < 9.95 { format!("{it:.1} s") } else { format!("{it:.0} s") }
}

/// What the picture shows, in a sentence.
fn sentence(of: &Communicator) -> String {
    let size = of.ranks.map(|it| format!(" ({it} ranks)")).unwrap_or_default();
    let absent = of.ranks.and_then(|it| usize::try_from(it).ok()).is_some_and(|it| it > of.setups.len());
    let last = of.setups.iter().min_by(|one, other| one.waited_seconds.total_cmp(&other.waited_seconds));
    let longest = seconds(longest(of));
    let last = match last {
        Some(it) if it.waited_seconds < self::longest(of) / 4.0 => {
            format!("; {} joined last", name(it))
        }
        _ if absent => "; the last to join is not in this input".to_owned(),
        _ => String::new(),
    };
    format!("Communicator {}{size}: ranks waited up to {longest} for others to join{last}.", of.name)
}

fn name(it: &Setup) -> String {
    let rank = match it.world_rank {
        Some(rank) => format!("rank {rank}"),
        None => format!("rank {} of it", it.rank),
    };
    if it.host.is_empty() { rank } else { format!("{rank}, {}", it.host) }
}

fn row(of: &Communicator, it: &Setup, lines: &Lines<'_>) -> Vec<Cell> {
    vec![
        Cell::code(of.name.clone()),
        Cell::new(it.rank.to_string()),
        Cell::new(it.world_rank.map_or_else(|| "?".to_owned(), |it| it.to_string())),
        Cell::code(it.host.clone()),
        Cell::new(format!("{:.2} s", it.waited_seconds)),
        Cell::new(it.seconds.map(|it| format!("{it:.2} s")).unwrap_or_default()),
        lines.cell(&it.file, it.line),
    ]
}

/// Parts of a rank's setup, in seconds from the instant at which all had joined.
pub(super) struct Span {
    begins: f64,
    pub(super) waits: f64,
    pub(super) complete: f64,
}

impl Span {
    pub(super) fn new(it: &Setup) -> Self {
        let waits = -it.waited_seconds.max(0.0);
        let kernels = it.kernels_seconds.unwrap_or_default().max(0.0);
        let rest = it.seconds.unwrap_or_default() - kernels + waits;
        Self { begins: waits - kernels, waits, complete: rest.max(0.0) }
    }
}

fn picture(of: &Communicator) -> Picture {
    let mut by_wait: Vec<&Setup> = of.setups.iter().collect();
    by_wait.sort_by(|one, other| one.waited_seconds.total_cmp(&other.waited_seconds));
    let mut shown: Vec<&Setup> = if by_wait.len() > RANKS {
        let (first, last) = (by_wait.iter().take(RANKS / 2), by_wait.iter().rev().take(RANKS / 2));
        first.chain(last).copied().collect()
    } else {
        by_wait
    };
    shown.sort_by_key(|it| it.rank);
    let spans: Vec<Span> = shown.iter().map(|it| Span::new(it)).collect();
    let low = spans.iter().map(|it| it.begins).fold(0.0, f64::min);
    let high = spans.iter().map(|it| it.complete).fold(0.0, f64::max);
    let step = tick(high - low);
    let (first, last) = ((low / step - 1e-6).floor() * step, (high / step + 1e-6).ceil().max(1.0) * step);
    let place = |at: f64| LEFT + 4.0 + (at - first) / (last - first) * (RIGHT - LEFT - 20.0);

    let mut canvas = Canvas::default();
    let mut x = LEFT;
    for (name, class) in
        [("setup", "setup"), ("waits for others to join", "waits"), ("setup goes on", "work")]
    {
        canvas.rect(Rect { x, y: 8.0, width: 14.0, height: 12.0 }, 2.0, class);
        canvas.words((x + 20.0, 18.0), "", name);
        x += length(name) + 44.0;
    }
    if of.setups.len() > shown.len() {
        let words = format!("{} of {} ranks", shown.len(), of.setups.len());
        canvas.words((RIGHT, 18.0), "soft e", &words);
    }
    let top = 52.0;
    #[expect(clippy::cast_precision_loss, reason = "some rows")]
    let bottom = top + ROW * shown.len() as f64;
    let mut y = top;
    for it in &shown {
        canvas.fitted((8.0, y + 13.0), "", &name(it), LEFT - 16.0);
        canvas.rect(Rect { x: LEFT, y: y + 1.0, width: RIGHT - LEFT, height: ROW - 5.0 }, 3.0, "lane");
        y += ROW;
    }
    let mut at = first;
    while at < last + step / 2.0 {
        canvas.line((place(at), top - 4.0), (place(at), bottom), "tick");
        let words = if at.abs() < step / 2.0 { "all joined".to_owned() } else { label(at, step) };
        canvas.words((place(at), top - 8.0), "soft m", &words);
        at += step;
    }
    let mut y = top;
    for (it, span) in shown.iter().zip(&spans) {
        let about = format!("{}: waited {} ({}:{})", name(it), seconds(it.waited_seconds), it.file, it.line);
        canvas.named(&about, |canvas| {
            for (from, to, class) in
                [(span.begins, span.waits, "setup"), (span.waits, 0.0, "waits"), (0.0, span.complete, "work")]
            {
                if to > from {
                    let (from, to) = (place(from), place(to).max(place(from) + 2.0));
                    let bar = Rect { x: from, y: y + 3.0, width: to - from, height: ROW - 9.0 };
                    canvas.rect(bar, 2.0, class);
                }
            }
            let words = seconds(it.waited_seconds);
            if place(0.0) - place(span.waits) > length(&words) + 8.0 {
                canvas.words((place(span.waits) + 6.0, y + 13.5), "on light", &words);
            }
        });
        y += ROW;
    }
    let names = [format!("Waits until all had joined {}", of.name), sentence(of)];
    canvas.picture([WIDTH, bottom + 8.0], [&names[0], &names[1]], STYLE)
}
