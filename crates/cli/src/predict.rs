//! `plumb predict`: what does a training job take here?

pub(crate) mod from;
pub(crate) mod inputs;
mod measured;
mod timeline;

use std::io::{self, Write};

use forecast::training::{Broken, Job};
use report::html::PredictPage;
use report::{Drawing, FromLog, Predict, Style};

use crate::args::{self, Colour, FailOn, PageFormat};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input, output, page};

pub(crate) fn run(args: &args::Predict, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    if !output::spares(args.timeline.iter().chain(&args.svg), &args.inputs.files(), false) {
        return Ok(UNDECIDED);
    }
    if let Some(read) = page::only(&args.inputs.job, "predict") {
        return page::show(read, page::Form::new(args.format, false), FailOn::Error, out);
    }
    let refused = |reason: &str| {
        complain(&format!("error: {reason}"));
        Ok(UNDECIDED)
    };
    let (job, from) = match inputs::read(&args.inputs) {
        Ok((described, from)) => (described.job, from),
        Err(reason) => return refused(&reason),
    };
    let predict = match predict(args, &job, from) {
        Ok(it) => it,
        Err(reason) => return refused(&reason),
    };
    if let Err(reason) = timeline::draw(args, &job)? {
        return refused(&reason);
    }
    match args.format {
        PageFormat::Text => predict
            .text(Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: false }, out)?,
        PageFormat::Json => predict.json(out)?,
        PageFormat::Html => {
            let drawing = Drawing::new(&job).ok();
            report::html::write(&PredictPage { predict: &predict, drawing: drawing.as_ref() }, out)?;
        }
    }
    Ok(if predict.fits { CLEAN } else { FINDINGS })
}

fn predict(args: &args::Predict, job: &Job, from: Option<FromLog>) -> Result<Predict, String> {
    // Changes with a comma between them are one what-if.
    let changed = |change: &String| {
        let changed = change.split(',').try_fold(job.clone(), |job, it| job.with(it));
        Ok((change.clone(), changed.map_err(|error| format!("--what-if {error}"))?))
    };
    let others: Result<Vec<(String, Job)>, String> = args.what_if.iter().map(changed).collect();
    let predict = Predict::new(job, &others?, args.price_per_hour).map_err(|broken| {
        let hint = match broken {
            Broken::Divides { of: "GPUs", .. } => ": --nodes N changes the number of GPUs",
            _ => "",
        };
        match args.inputs.first() {
            Some(path) => format!("{}: {broken}{hint}", input::name(path)),
            None => format!("{broken}{hint}"),
        }
    })?;
    let mut predict = match from {
        Some(from) => predict.from_log(from),
        None => predict,
    };
    report::Redactor::secrets().predict(&mut predict);
    Ok(predict)
}
