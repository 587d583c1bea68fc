//! The page of `plumb expect`.

use std::io;

use forecast::Verdict;
use rules::Severity;

use super::chart::STYLE;
use super::page::{Page, Tone};
use super::{View, parts};
use crate::expect::{shown, time};
use crate::topo::svg::canvas::{Canvas, Picture, Rect, length};
use crate::{Expect, Style};

impl View for Expect {
    fn page(&self) -> Page {
        let mut page = Page::new("expect", self.schema);
        page.verdict = sentence(self);
        (page.word, page.tone) = match self.verdict {
            Some(Verdict::Normal) => ("normal".to_owned(), Tone::Good),
            Some(Verdict::Low) => ("low".to_owned(), Tone::Warning),
            Some(Verdict::TooGood) => ("too good to be true".to_owned(), Tone::Warning),
            None => (String::new(), Tone::Plain),
        };
        page.worst = (!matches!(self.verdict, None | Some(Verdict::Normal))).then_some(Severity::Error);
        page.about = vec![self.subject()];
        page.section("normal", "What is normal", |html| {
            html.picture("gauge", &gauge(self));
            let mut rows = vec![
                ("normal", format!("{} to {} GB/s bus bandwidth, {} expected", shown(self.low), shown(self.high), shown(self.expected))),
                ("a call", format!("{}, {} to {}; {} of it is latency", time(self.time_us), time(self.time_low_us), time(self.time_high_us), time(self.latency_us))),
                ("algorithm", self.algorithms.join(", ")),
                ("limited by", format!("{}: {} GB/s for very long messages", self.ceiling, shown(self.asymptote))),
                ("links", format!("carry {} GB/s at most", shown(self.wire))),
                ("why", self.reason.clone()),
            ];
            rows.extend(self.releases().map(|it| ("NCCL", it)));
            if self.groups_at_once > 1 {
                rows.push(("at once", format!("{} such groups on each machine at the same time", self.groups_at_once)));
            }
            if !self.calibrated {
                rows.push(("note", "no published measurement of such machines and networks backs these numbers, so the interval is wide".to_owned()));
            }
            parts::facts(html, &rows);
        });
        if !self.explanations.is_empty() {
            page.section("explanations", "What would explain it", |html| {
                parts::list(html, self.explanations.iter().map(String::as_str));
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

/// The answer, without the word that stands before it.
fn sentence(it: &Expect) -> String {
    let normal = format!("{} to {} GB/s", shown(it.low), shown(it.high));
    match (it.verdict, it.measured) {
        (Some(Verdict::Normal), Some(rate)) if rate > it.high => {
            format!("{rate} GB/s, more than expected: usual are {normal}")
        }
        (Some(Verdict::Normal), Some(rate)) => format!("{rate} GB/s, of {normal}"),
        (Some(Verdict::Low), Some(rate)) => format!("{rate} GB/s is less than this hardware gives: {normal}"),
        (Some(Verdict::TooGood), Some(rate)) => {
            format!("{rate} GB/s, and the links carry {} GB/s at most", shown(it.wire))
        }
        _ => it.headline(),
    }
}

/// The interval on a line from nothing to what the links carry, with what was measured.
fn gauge(it: &Expect) -> Picture {
    const WIDTH: f64 = 900.0;
    const LINE: Rect = Rect { x: 30.0, y: 46.0, width: 840.0, height: 22.0 };
    let end = [Some(it.high), Some(it.wire), it.measured].into_iter().flatten().fold(0.0, f64::max).max(1e-9);
    let at = |rate: f64| LINE.x + LINE.width * (rate / end).clamp(0.0, 1.0);
    let mut canvas = Canvas::default();
    canvas.rect(LINE, 4.0, "tint");
    let normal = format!("normal: {} to {} GB/s", shown(it.low), shown(it.high));
    canvas.named(&normal, |canvas| {
        canvas.rect(
            Rect { x: at(it.low), width: (at(it.high) - at(it.low)).max(2.0), ..LINE },
            0.0,
            "fill s2",
        );
    });
    canvas.line((at(it.expected), LINE.y), (at(it.expected), LINE.bottom()), "mark");
    let clamped = |x: f64, text: &str| {
        let half = length(text) / 2.0;
        x.clamp(LINE.x + half, LINE.right() - half)
    };
    let normal = format!("{} to {} GB/s", shown(it.low), shown(it.high));
    canvas.words(
        (clamped(f64::midpoint(at(it.low), at(it.high)), &normal), LINE.bottom() + 18.0),
        "m",
        &normal,
    );
    if it.wire < end * 1.001 && it.wire > it.high {
        let text = format!("links: {}", shown(it.wire));
        canvas.line((at(it.wire), LINE.y - 6.0), (at(it.wire), LINE.bottom() + 4.0), "edge");
        canvas.words((LINE.right(), LINE.bottom() + 18.0), "soft e", &text);
    }
    if let Some(measured) = it.measured {
        let text = format!("measured: {measured} GB/s");
        canvas.line((at(measured), LINE.y - 12.0), (at(measured), LINE.bottom() + 4.0), "line s1");
        canvas.words((clamped(at(measured), &text), LINE.y - 18.0), "h2 m", &text);
    }
    canvas.words((LINE.x, LINE.bottom() + 18.0), "soft", "0");
    let about = match it.measured {
        Some(measured) => format!("{measured} GB/s was measured; {normal} is normal."),
        None => format!("{normal} is normal."),
    };
    canvas.picture([WIDTH, LINE.bottom() + 30.0], ["The normal interval of the bus bandwidth", &about], STYLE)
}
