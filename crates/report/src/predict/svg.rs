//! The step as a picture: time to the right, stages and what they do from top to bottom. One file that needs nothing else.

use forecast::training::{Kind, PassSpan, Seconds, Span};

use super::drawing::{Drawing, Track};
use crate::expect::rounded;
use crate::text::wrap;
use crate::topo::svg::canvas::{Canvas, Picture, Rect, length};

const STYLE: &str = concat!(include_str!("timeline.css"), include_str!("kinds.css"));
const WIDTH: f64 = 1200.0;
const LEFT: f64 = 184.0;
const RIGHT: f64 = 24.0;
/// The row of passes.
const PASSES: f64 = 22.0;
/// The row of one track.
const ROW: f64 = 18.0;
/// The row of all tracks together, below the passes of a pipeline stage.
const THIN: f64 = 8.0;
/// Narrower ones are joined with their neighbours.
const NARROW: f64 = 0.4;

pub(super) fn picture(drawing: &Drawing, with_head: bool) -> Picture {
    let step = &drawing.step;
    let mut canvas = Canvas::default();
    let title = format!("{} per step", step.time);
    let mut y = 0.0;
    if with_head {
        canvas.words((24.0, 36.0), "h1", &title);
        let interval = format!("between {} and {}", step.interval.0, step.interval.1);
        canvas.words((36.0 + 14.0 * length(&title) / 7.0, 36.0), "soft", &interval);
        y = 58.0;
        for line in wrap(&drawing.job, 165) {
            canvas.words((24.0, y), "soft", &line);
            y += 16.0;
        }
    }
    y = legend(drawing, y + 8.0, &mut canvas);
    let plot = Plot { end: step.time.0.max(f64::MIN_POSITIVE), top: y + 36.0 };
    let rows = rows(drawing);
    let bottom = plot.top + rows.iter().map(|it| it.height + it.gap).sum::<f64>();
    plot.axis(bottom, &mut canvas);
    let mut y = plot.top;
    for row in &rows {
        y += row.gap;
        row.draw(&plot, y, &mut canvas);
        y += row.height;
    }
    let mut height = bottom + 24.0;
    let narrow = |it: &PassSpan| plot.x(it.start.0 + it.length.0) - plot.x(it.start.0) < NARROW;
    if drawing.timeline.stages.iter().any(|it| it.passes.iter().any(narrow)) {
        canvas.words((24.0, height), "soft", "passes that are too short to be seen are drawn as one block");
        height += 20.0;
    }
    let shown = drawing.timeline.stages.len();
    if shown < drawing.timeline.stages_there as usize {
        let text = format!("{shown} of {} stages are shown", drawing.timeline.stages_there);
        canvas.words((24.0, height), "soft", &text);
        height += 20.0;
    }
    canvas.picture([WIDTH, height], [&title, &drawing.job], STYLE)
}

/// The kinds of the step with their colour and time; where it ends.
fn legend(drawing: &Drawing, top: f64, canvas: &mut Canvas) -> f64 {
    let (mut x, mut y) = (24.0, top + 10.0);
    let mut entry = |class: &str, text: &str| {
        let wide = 34.0 + length(text);
        if x + wide > WIDTH - RIGHT {
            (x, y) = (24.0, y + 20.0);
        }
        canvas.rect(Rect { x, y: y - 10.0, width: 14.0, height: 12.0 }, 2.0, class);
        canvas.words((x + 20.0, y), "", text);
        x += wide;
    };
    entry("f", "forward pass");
    entry("b", "backward pass");
    for kind in Kind::ALL.into_iter().filter(|it| *it != Kind::Bubble) {
        let part = drawing.step.breakdown[kind];
        // Rounded as in the answer, so that both write the same digits.
        let [exposed, hidden] = [part.exposed, part.hidden].map(|it| Seconds(rounded(it.0)));
        let beside = if hidden.0 > 0.0 { format!(" (hidden {hidden})") } else { String::new() };
        if exposed.0 > 0.0 || hidden.0 > 0.0 {
            entry(&format!("kind {}", kind.key()), &format!("{} {exposed}{beside}", kind.describe()));
        }
    }
    let bubble = Seconds(rounded(drawing.step.breakdown[Kind::Bubble].exposed.0));
    if bubble.0 > 0.0 {
        entry("idle", &format!("pipeline bubble {bubble}"));
    }
    y
}

/// Where times are.
struct Plot {
    end: f64,
    top: f64,
}

impl Plot {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (seconds / self.end).clamp(0.0, 1.0)
    }

    fn rect(&self, start: Seconds, length: Seconds, y: f64, height: f64) -> Rect {
        let x = self.x(start.0);
        Rect { x, y, width: self.x(start.0 + length.0) - x, height }
    }

    /// Lines at round times.
    fn axis(&self, bottom: f64, canvas: &mut Canvas) {
        let rough = self.end / 11.0;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|it| it * decade).into_iter().find(|it| *it >= rough);
        let step = step.unwrap_or(rough);
        let mut number = 0.0;
        while number * step <= self.end * 1.0001 {
            let x = self.x(number * step);
            canvas.line((x, self.top - 6.0), (x, bottom + 4.0), "grid");
            canvas.words((x, self.top - 10.0), "soft m", &round(number * step, step));
            number += 1.0;
        }
    }
}

/// A time on the axis, with the digits that its step has.
fn round(seconds: f64, step: f64) -> String {
    let (value, step, unit) = match step {
        it if it >= 0.1 => (seconds, step, "s"),
        it if it >= 1e-4 => (seconds * 1e3, step * 1e3, "ms"),
        _ => (seconds * 1e6, step * 1e6, "us"),
    };
    if step >= 1.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

/// One row of the picture.
struct Row<'a> {
    label: String,
    class: &'static str,
    height: f64,
    /// The space above it.
    gap: f64,
    passes: &'a [PassSpan],
    spans: Vec<&'a Span>,
}

fn rows(drawing: &Drawing) -> Vec<Row<'_>> {
    let piped = drawing.timeline.stages_there > 1;
    let mut rows = Vec::new();
    for stage in &drawing.timeline.stages {
        rows.push(Row {
            label: if piped { drawing.stage_name(stage.stage) } else { "micro-batches".to_owned() },
            class: "h2",
            height: PASSES,
            gap: if piped { 7.0 } else { 4.0 },
            passes: &stage.passes,
            spans: Vec::new(),
        });
        if piped {
            rows.push(Row::of("", THIN, 1.0, stage.spans.iter().filter(|it| !it.hidden).collect()));
            continue;
        }
        for track in Track::ALL {
            let spans: Vec<&Span> = stage.spans.iter().filter(|it| Track::of(it.kind) == track).collect();
            if !spans.is_empty() {
                rows.push(Row::of(track.name(), ROW, 4.0, spans));
            }
        }
    }
    rows
}

impl<'a> Row<'a> {
    fn of(label: &str, height: f64, gap: f64, spans: Vec<&'a Span>) -> Self {
        Self { label: label.to_owned(), class: "soft", height, gap, passes: &[], spans }
    }
}

impl Row<'_> {
    fn draw(&self, plot: &Plot, y: f64, canvas: &mut Canvas) {
        let lane = Rect { x: LEFT, y, width: WIDTH - LEFT - RIGHT, height: self.height };
        canvas.rect(lane, 0.0, "lane");
        if !self.label.is_empty() {
            canvas.words(
                (LEFT - 10.0, y + self.height / 2.0 + 4.0),
                &format!("{} e", self.class),
                &self.label,
            );
        }
        self.draw_passes(plot, y, canvas);
        self.draw_spans(plot, y, canvas);
    }

    fn draw_passes(&self, plot: &Plot, y: f64, canvas: &mut Canvas) {
        // Passes that are too narrow to be seen are one block.
        let mut narrow: Option<Rect> = None;
        for pass in self.passes {
            let rect = plot.rect(pass.start, pass.length, y, self.height);
            if rect.width < NARROW {
                let known = narrow.filter(|it| rect.x - it.right() < NARROW);
                if let Some(other) = narrow.filter(|_| known.is_none()) {
                    canvas.rect(other, 0.0, "many");
                }
                narrow = Some(known.map_or(rect, |it| Rect { width: rect.right() - it.x, ..it }));
                continue;
            }
            let word = if pass.backward { "backward" } else { "forward" };
            let piece = if pass.piece > 0 { format!(", piece {}", pass.piece) } else { String::new() };
            let title = format!("{word} {}{piece}: {}", pass.micro_batch, pass.length);
            canvas.named(&title, |canvas| {
                let class = if pass.backward { "b" } else { "f" };
                let late = if pass.piece % 2 == 1 { " late" } else { "" };
                canvas.rect(rect, 0.0, &format!("{class}{late}"));
                let number = pass.micro_batch.to_string();
                let long = format!("{word} {number}");
                let place = (rect.centre(), y + self.height / 2.0 + 3.5);
                if length(&long) < rect.width {
                    canvas.words(place, "n", &long);
                } else if length(&number) < rect.width {
                    canvas.words(place, "n", &number);
                }
            });
        }
        if let Some(rect) = narrow {
            canvas.rect(rect, 0.0, "many");
        }
    }

    fn draw_spans(&self, plot: &Plot, y: f64, canvas: &mut Canvas) {
        let mut last: Option<(&Span, Rect)> = None;
        for span in &self.spans {
            let rect = plot.rect(span.start, span.length, y, self.height);
            let joins = |other: &(&Span, Rect)| {
                let alike = other.0.kind == span.kind && other.0.hidden == span.hidden;
                alike && rect.x >= other.1.x && rect.x - other.1.right() < NARROW
            };
            last = match last {
                Some(other) if joins(&other) => {
                    Some((span, Rect { width: rect.right() - other.1.x, ..other.1 }))
                }
                other => {
                    paint(other, canvas);
                    Some((span, rect))
                }
            };
        }
        paint(last, canvas);
    }
}

fn paint(it: Option<(&Span, Rect)>, canvas: &mut Canvas) {
    let Some((span, rect)) = it else { return };
    // A hundredth of a pixel is nothing to see.
    if rect.width < 0.02 {
        return;
    }
    let hidden = if span.hidden { " hidden" } else { "" };
    canvas.rect(
        Rect { width: rect.width.max(0.1), ..rect },
        0.0,
        &format!("kind {}{hidden}", span.kind.key()),
    );
}
