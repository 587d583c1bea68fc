//! The step as a trace of Chrome and Perfetto: complete events (`X`) in microseconds, one process per pipeline stage, one thread per
//! track.

use std::io::{self, Write};

use forecast::training::{PassSpan, Span};
use serde_json::{Value, json};

use super::drawing::{Drawing, Track};
use crate::expect::rounded;

pub(super) fn write(drawing: &Drawing, out: &mut impl Write) -> io::Result<()> {
    let about = json!({
        "job": drawing.job,
        "step_time_s": rounded(drawing.step.time.0),
        "interval_s": [rounded(drawing.step.interval.0.0), rounded(drawing.step.interval.1.0)],
        "stages": drawing.timeline.stages_there,
        "made_by": "plumb predict",
    });
    write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{about},\"traceEvents\":[")?;
    let mut first = true;
    let mut event = |value: Value| {
        let comma = if first { "" } else { "," };
        first = false;
        write!(out, "{comma}\n{value}")
    };
    for stage in &drawing.timeline.stages {
        let process = stage.stage + 1;
        event(named("process_name", process, None, &drawing.stage_name(stage.stage)))?;
        for track in Track::ALL {
            let used = track == Track::Compute || stage.spans.iter().any(|it| Track::of(it.kind) == track);
            if used {
                event(named("thread_name", process, Some(track), track.name()))?;
            }
        }
        for pass in &stage.passes {
            event(of_pass(process, pass))?;
        }
        for span in &stage.spans {
            event(of_span(process, span))?;
        }
    }
    writeln!(out, "\n]}}")
}

/// Metadata: the name of a process or of a thread.
fn named(what: &str, process: u32, track: Option<Track>, name: &str) -> Value {
    json!({ "ph": "M", "name": what, "pid": process, "tid": track.map_or(0, thread), "args": { "name": name } })
}

fn of_pass(process: u32, pass: &PassSpan) -> Value {
    let direction = if pass.backward { "backward" } else { "forward" };
    json!({
        "ph": "X",
        "name": format!("{direction} {}", pass.micro_batch),
        "cat": "pass",
        "pid": process,
        "tid": thread(Track::Compute),
        "ts": microseconds(pass.start.0),
        "dur": microseconds(pass.length.0),
        "args": { "micro_batch": pass.micro_batch, "piece": pass.piece },
    })
}

fn of_span(process: u32, span: &Span) -> Value {
    json!({
        "ph": "X",
        "name": span.kind.describe(),
        "cat": span.kind.key(),
        "pid": process,
        "tid": thread(Track::of(span.kind)),
        "ts": microseconds(span.start.0),
        "dur": microseconds(span.length.0),
        "args": { "hidden": span.hidden },
    })
}

fn thread(track: Track) -> usize {
    Track::ALL.iter().position(|it| *it == track).unwrap_or_default() + 1
}

/// To the nanosecond.
fn microseconds(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e3
}
