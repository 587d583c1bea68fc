//! `plumb validate`: is this fleet fit to train?

use std::io::{self, Write};
use std::path::Path;

use ::validate::Limits;
use ::validate::replay::Replay;
use ::validate::simulate::Spec;
use job::Job;
use report::{Style, Validate};

use crate::args::{self, Colour};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, fleet, input, output};

pub(crate) fn run(args: &args::Validate, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    if !output::spares(args.svg.iter(), &input::files(&args.replay), false) {
        return Ok(UNDECIDED);
    }
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
    let style = Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: args.verbose };
    fleet::write(&validate, args.format, style, out)?;
    if let Some(path) = &args.svg {
        picture(&validate, path)?;
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
    let job = Job::of_case_on(&inputs.case, &job::Hardware::new(args.instance, None, None));
    Some(fleet::judged(&replay, &inputs.case, &job))
}

/// `--svg FILE`: a fleet that needed no pairs has no matrix.
fn picture(validate: &Validate, path: &Path) -> io::Result<()> {
    if validate.matrix.is_none() {
        complain(&format!("note: {}: not written, no pairs were measured", path.display()));
        return Ok(());
    }
    output::write_file(path, |mut out| validate.svg(&mut out))
}
