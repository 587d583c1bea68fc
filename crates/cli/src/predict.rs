//! `plumb predict`: what does a training job take here?

mod inputs;
mod measured;

use std::io::{self, Write};

use forecast::training::{Broken, Job};
use report::{Predict, Style};

use crate::args::{self, Colour, ListFormat};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input};

pub(crate) fn run(args: &args::Predict, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let predict = match predict(args) {
        Ok(it) => it,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    match args.format {
        ListFormat::Text => predict
            .text(Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: false }, out)?,
        ListFormat::Json => predict.json(out)?,
    }
    Ok(if predict.fits { CLEAN } else { FINDINGS })
}

fn predict(args: &args::Predict) -> Result<Predict, String> {
    let job = inputs::read(args)?;
    let changed = |change: &String| {
        let job = job.with(change).map_err(|error| format!("--what-if {error}"))?;
        Ok((change.clone(), job))
    };
    let others: Result<Vec<(String, Job)>, String> = args.what_if.iter().map(changed).collect();
    Predict::new(&job, &others?, args.price_per_hour).map_err(|broken| {
        let hint = match broken {
            Broken::Divides { of: "GPUs", .. } => ": --nodes N changes the number of GPUs",
            _ => "",
        };
        match args.job.first() {
            Some(path) => format!("{}: {broken}{hint}", input::name(path)),
            None => format!("{broken}{hint}"),
        }
    })
}
