//! The picture: by time where every line has one, otherwise by how far each rank came.

use super::super::trouble::cause;
use super::instant::{Instant, in_order};
use super::{Lane, are_alike, readable, words};
use crate::html::Picture;
use crate::text::counted;
use crate::topo::svg::canvas::{Canvas, Rect, fitting, length};
use crate::{Doctor, Event, Moment};

pub(super) const STYLE: &str = include_str!("course.css");
pub(super) const LEFT: f64 = 176.0;
pub(super) const WIDTH: f64 = 900.0;
/// Of the lanes.
pub(super) const RIGHT: f64 = WIDTH - 16.0;
pub(super) const ROW: f64 = 22.0;
/// The columns where the lines have no times.
const STAGES: [(Moment, &str); 6] = [
    (Moment::SetupBegins, "setup begins"),
    (Moment::SetupComplete, "setup complete"),
    (Moment::FirstWork, "first work"),
    (Moment::Waits, "waits"),
    (Moment::Fails, "fails"),
    (Moment::Ends, "ends"),
];

/// The picture; `None` if it would only show that all ranks are alike.
pub(super) fn drawing(lanes: &[Lane]) -> Option<Picture> {
    let mut canvas = Canvas::default();
    let (height, by) = match timed(lanes) {
        Some(timed) => (by_time(lanes, &timed, &mut canvas), "by time"),
        None if are_alike(lanes) => return None,
        None => (by_stage(lanes, &mut canvas), "by how far they came"),
    };
    let mut about = format!("The timeline of {} {by}.", counted(lanes.len(), "rank"));
    if let Some((first, kind)) = lanes.iter().find_map(|it| Some((it, it.first?))) {
        about.push_str(&format!(" First cause: {} {}.", first.name(), cause(kind)));
    }
    for it in lanes.iter().filter(|it| it.missing) {
        about.push_str(&format!(" {}: {}.", it.name(), super::NO_LINE));
    }
    let failed =
        lanes.iter().filter(|it| it.first.is_none() && it.events.iter().any(|it| it.what == Moment::Fails));
    let failed: Vec<String> = failed.map(Lane::name).collect();
    if !failed.is_empty() {
        about.push_str(&format!(" Failures are also reported by: {}.", failed.join("; ")));
    }
    Some(canvas.picture([WIDTH, height + 8.0], ["Ranks by time or stage", &about], STYLE))
}

/// The events of every lane with their times, if all can be compared and they are not all the same.
fn timed(lanes: &[Lane]) -> Option<Vec<Vec<(Instant, &Event)>>> {
    let all: Vec<Vec<(Instant, &Event)>> = lanes
        .iter()
        .map(|lane| {
            let instant = |it: &Event| it.time.as_deref().and_then(Instant::new);
            lane.events.iter().map(|it| Some((instant(it)?, it))).collect::<Option<Vec<_>>>()
        })
        .collect::<Option<_>>()?;
    let instants = || all.iter().flatten().map(|it| it.0);
    let dated = instants().filter(|it| it.dated).count();
    let (low, high) = range(instants());
    // A year's end, a clock that was set, or a course within one step of the clock.
    let comparable = (dated == 0 || dated == instants().count()) && high - low < 100.0 * 86_400.0;
    let moves = instants().any(|it| it.from >= low && instants().any(|other| other.from >= it.to));
    (comparable && moves).then(|| all.into_iter().map(in_order).collect())
}

fn range(instants: impl Iterator<Item = Instant>) -> (f64, f64) {
    instants.fold((f64::MAX, f64::MIN), |(low, high), it| (low.min(it.from), high.max(it.to)))
}

fn class(what: Moment) -> &'static str {
    match what {
        Moment::SetupBegins => "setup",
        Moment::SetupComplete | Moment::FirstWork => "work",
        Moment::Waits => "waits",
        Moment::Fails => "fails",
        Moment::Ends => "ends",
    }
}

/// The name of a lane and its ground.
fn ground(lane: &Lane, y: f64, canvas: &mut Canvas) {
    let class = if lane.first.is_some() || lane.missing { "b first" } else { "" };
    canvas.fitted((8.0, y + 13.0), class, &lane.name(), LEFT - 16.0);
    canvas.rect(Rect { x: LEFT, y: y + 1.0, width: RIGHT - LEFT, height: ROW - 5.0 }, 3.0, "lane");
}

/// What a browser shows for an event.
fn title(lane: &Lane, it: &Event) -> String {
    let first = if lane.failed_first() && it.what == Moment::Fails { " first" } else { "" };
    let time = it.time.as_ref().map(|it| format!(" at {}", readable(it))).unwrap_or_default();
    format!("{}: {}{first}{time} ({}:{}) {}", lane.name(), words(it), it.file, it.line, it.text)
}

fn by_time(lanes: &[Lane], timed: &[Vec<(Instant, &Event)>], canvas: &mut Canvas) -> f64 {
    let all = || timed.iter().flatten().map(|it| it.0);
    let (low, high) = range(all());
    let mut x = LEFT;
    for (name, class) in
        [("setup", "setup"), ("work", "work"), ("waits", "waits"), ("fails", "fails"), ("ends", "ends")]
    {
        canvas.rect(Rect { x, y: 8.0, width: 14.0, height: 12.0 }, 2.0, class);
        canvas.words((x + 20.0, 18.0), "", name);
        x += 84.0;
    }
    if all().any(Instant::is_whole_second) {
        canvas.rect(Rect { x, y: 8.0, width: 14.0, height: 12.0 }, 2.0, "work pale");
        canvas.words((x + 20.0, 18.0), "", "pale: begins within this second");
    }
    let begin = lanes.iter().flat_map(|it| &it.events).filter_map(|it| it.time.as_deref());
    let begin = begin.min_by(|one, other| {
        let from = |it: &str| Instant::new(it).map_or(f64::MAX, |it| it.from);
        from(one).total_cmp(&from(other))
    });
    canvas.words((LEFT, 40.0), "soft", &format!("since {}", begin.map(readable).unwrap_or_default()));
    let step = tick(high - low);
    let last = ((high - low) / step - 1e-6).ceil().max(1.0) * step;
    let place = |seconds: f64| LEFT + 4.0 + seconds / last * (RIGHT - LEFT - 20.0);
    let top = 66.0;
    #[expect(clippy::cast_precision_loss, reason = "some rows")]
    let bottom = top + ROW * lanes.len() as f64;
    let mut y = top;
    for lane in lanes {
        ground(lane, y, canvas);
        y += ROW;
    }
    for it in (0..=10).map(|it| f64::from(it) * step).take_while(|it| *it < last + step / 2.0) {
        canvas.line((place(it), top - 4.0), (place(it), bottom), "tick");
        canvas.words((place(it), top - 8.0), "soft m", &label(it, step));
    }
    let mut y = top;
    for (lane, events) in lanes.iter().zip(timed) {
        for (at, (instant, it)) in events.iter().enumerate() {
            let (from, to) = (place(instant.from - low), place(instant.to - low));
            // It lasts until the next event; the last one is a mark.
            let next = events.get(at + 1).map(|it| place(it.0.from - low));
            let end = if matches!(it.what, Moment::Fails | Moment::Ends) {
                to + 9.0
            } else {
                next.unwrap_or(to + 9.0)
            };
            let bar = |x: f64, end: f64| Rect { x, y: y + 3.0, width: end - x, height: ROW - 9.0 };
            canvas.named(&title(lane, it), |canvas| {
                if instant.is_whole_second() && to - from > 2.0 {
                    canvas.rect(bar(from, to), 2.0, &format!("{} pale", class(it.what)));
                    if end > to {
                        canvas.rect(bar(to, end), 2.0, class(it.what));
                    }
                } else {
                    canvas.rect(bar(from, end.max(from + 3.0)), 2.0, class(it.what));
                }
            });
        }
        // The line about the wait says how long it was; the line that completes the setup says when it ended.
        let complete = events.iter().find(|it| it.1.what == Moment::SetupComplete).map(|it| it.0.to - low);
        let begins = events.iter().find(|it| it.1.what == Moment::SetupBegins).map(|it| it.0.from - low);
        if let (Some(span), Some(complete), Some(begins)) = (&lane.waited, complete, begins) {
            let joined = complete - span.complete;
            let (from, to) = (place((joined + span.waits).max(begins)), place(joined));
            if to > from + 1.0 {
                let words = format!("{}: waits {:.1} s for others to join", lane.name(), -span.waits);
                let bar = Rect { x: from, y: y + 3.0, width: to - from, height: ROW - 9.0 };
                canvas.named(&words, |canvas| canvas.rect(bar, 2.0, "waits"));
            }
        }
        if let Some(cause) = lane.cause() {
            let last = events.last().map_or(0.0, |it| it.0.to - low);
            let room = place(last) + 16.0 + length(cause) < RIGHT;
            let (x, class) = if room { (place(last) + 14.0, "b first") } else { (RIGHT - 6.0, "b first e") };
            canvas.words((x, y + 13.5), class, cause);
        }
        y += ROW;
    }
    y
}

/// Seconds from one tick to the next, of which there are ten at most.
pub(super) fn tick(span: f64) -> f64 {
    const STEPS: [f64; 16] =
        [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0];
    STEPS.into_iter().find(|it| span <= it * 8.0).unwrap_or_else(|| (span / 8.0 / 3600.0).ceil() * 3600.0)
}

/// A time since the first, in the unit of the ticks.
pub(super) fn label(seconds: f64, step: f64) -> String {
    match step {
        it if it < 0.1 => format!("{seconds:.2} s"),
        it if it < 1.0 => format!("{seconds:.1} s"),
        it if it < 60.0 => format!("{seconds:.0} s"),
        it if it < 3600.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3600.0),
    }
}

fn by_stage(lanes: &[Lane], canvas: &mut Canvas) -> f64 {
    let has = |what: Moment| lanes.iter().flat_map(|it| &it.events).any(|it| it.what == what);
    // The way of a job without trouble is always shown, so that what is missing is seen.
    let usual =
        |what: Moment| matches!(what, Moment::SetupBegins | Moment::SetupComplete | Moment::FirstWork);
    let stages: Vec<_> = STAGES.into_iter().filter(|it| usual(it.0) || has(it.0)).collect();
    #[expect(clippy::cast_precision_loss, reason = "six at most")]
    let (step, place) = {
        let step = (RIGHT - LEFT) / stages.len() as f64;
        (step, move |at: usize| LEFT + step * at as f64)
    };
    let mut ends = lanes.iter().flat_map(|it| &it.events).filter(|it| it.what == Moment::Ends);
    let destroys = ends.all(|it| it.text.is_empty());
    for (at, (what, name)) in stages.iter().enumerate() {
        let name = if *what == Moment::Ends && destroys { "comm destroyed" } else { name };
        canvas.fitted((place(at) + 4.0, 34.0), "b", name, step - 6.0);
    }
    let some = lanes.iter().flat_map(|it| &it.events).any(|it| it.time.is_some());
    let note = if some {
        "what each rank's lines show, from left to right; only some lines have a time"
    } else {
        "what each rank's lines show, from left to right; the lines have no times"
    };
    canvas.words((LEFT, 14.0), "soft", note);
    let mut y = 42.0;
    for lane in lanes {
        ground(lane, y, canvas);
        for (at, (what, _)) in stages.iter().enumerate() {
            let Some(it) = lane.events.iter().find(|it| it.what == *what) else { continue };
            canvas.named(&title(lane, it), |canvas| {
                let rect = Rect { x: place(at) + 2.0, y: y + 3.0, width: step - 6.0, height: ROW - 9.0 };
                canvas.rect(rect, 2.0, class(*what));
                // To the millisecond: `02:54:41.814`.
                let clock =
                    it.time.as_deref().and_then(|it| it.rsplit([' ', 'T']).next()).unwrap_or_default();
                let clock = clock.get(..12).unwrap_or(clock);
                let first = lane.failed_first() && *what == Moment::Fails;
                let text = if first { format!("first {clock}") } else { clock.to_owned() };
                if !text.is_empty() {
                    let light = matches!(what, Moment::SetupBegins | Moment::Waits);
                    let class = if light { "on light" } else { "on" };
                    canvas.words((place(at) + 8.0, y + 13.5), class, &fitting(text.trim(), step - 14.0));
                }
            });
        }
        if let Some(cause) = lane.cause() {
            let done = stages.iter().rposition(|(what, _)| lane.events.iter().any(|it| it.what == *what));
            let next = done.map_or(0, |it| it + 1);
            let (x, class) =
                if next < stages.len() { (place(next) + 8.0, "b first") } else { (RIGHT - 10.0, "on e") };
            canvas.words((x, y + 13.5), class, cause);
        }
        y += ROW;
    }
    y
}

/// Why the setup takes longer by NCCL's count than from its first line to its last.
pub(super) fn setup_note(doctor: &Doctor, lanes: &[Lane]) -> Option<String> {
    let timed = timed(lanes)?;
    let total = doctor.facts.communicators.iter().filter_map(|it| it.setup_seconds).max_by(f64::total_cmp)?;
    let span = |events: &Vec<(Instant, &Event)>| {
        let at = |what: Moment| events.iter().find(|it| it.1.what == what).map(|it| it.0);
        Some(at(Moment::SetupComplete)?.to - at(Moment::SetupBegins)?.from)
    };
    let drawn = timed.iter().filter_map(span).max_by(f64::total_cmp)?;
    // NCCL v2.28.9-1, src/init.cc, ncclCommInitRankFunc: the total counts from before the kernels are loaded, the line is printed after it.
    (total > drawn).then(|| {
        format!(
            "NCCL counts {total} s for the slowest setup: its count begins before it loads its kernels, and the line that begins the \
             setup here comes after that."
        )
    })
}
