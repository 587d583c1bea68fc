//! `plumb validate`: is this fleet fit to train?

use std::io::{self, Write};

use ::validate::Limits;
use ::validate::replay::Replay;
use ::validate::simulate::Spec;
use report::{Style, Validate};

use crate::args::{self, Colour, ListFormat};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input};

pub(crate) fn run(args: &args::Validate, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let validate = match &args.simulate {
        Some(spec) => match Spec::read(spec) {
            Ok(spec) => Validate::simulated(&spec, Limits::default()),
            Err(reason) => {
                complain(&format!("error: --simulate {reason}"));
                return Ok(UNDECIDED);
            }
        },
        None => match replayed(args) {
            Some(it) => it,
            None => return Ok(UNDECIDED),
        },
    };
    match args.format {
        ListFormat::Text => validate.text(
            Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: args.verbose },
            out,
        )?,
        ListFormat::Json => validate.json(out)?,
    }
    Ok(match () {
        () if validate.is_go() => CLEAN,
        () if validate.is_no_go() => FINDINGS,
        () => UNDECIDED,
    })
}

fn replayed(args: &args::Validate) -> Option<Validate> {
    let inputs = input::read(&args.replay);
    for it in &inputs.left_out {
        complain(&format!("note: {}: {}", it.name, it.reason));
    }
    for it in &inputs.unreadable {
        complain(&format!("error: {}: {}", it.name, it.reason));
    }
    let replay = Replay::new(&inputs.case.tests);
    if replay.sets.is_empty() {
        let given: Vec<String> = args.replay.iter().take(3).map(|it| input::name(it)).collect();
        complain(&format!(
            "error: {}: no run of nccl-tests that names its machines\nhint: nccl-tests prints them below `# Using devices`; keep its whole output, one file for each run",
            given.join(", ")
        ));
        return None;
    }
    let files = inputs.case.sources.files.len();
    Some(Validate::replayed(&replay, files))
}
