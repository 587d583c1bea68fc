//! `plumb predict --timeline FILE` and `--svg FILE`: one predicted step as a trace and as a picture.

use std::io;

use forecast::training::Job;
use report::Drawing;

use crate::{args, output};

/// Draws the step into the files that were asked for.
pub(super) fn draw(args: &args::Predict, job: &Job) -> io::Result<Result<(), String>> {
    if args.timeline.is_none() && args.svg.is_none() {
        return Ok(Ok(()));
    }
    let drawing = match Drawing::new(job) {
        Ok(drawing) => drawing,
        Err(reason) => return Ok(Err(reason.to_string())),
    };
    if let Some(path) = &args.timeline {
        output::write_file(path, |mut out| drawing.trace(&mut out))?;
    }
    if let Some(path) = &args.svg {
        output::write_file(path, |mut out| drawing.svg(&mut out))?;
    }
    Ok(Ok(()))
}
