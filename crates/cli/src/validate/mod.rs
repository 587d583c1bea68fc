//! `plumb validate`: is this fleet fit to train?

mod args;
#[cfg(target_os = "linux")]
mod dry_run;
#[cfg(target_os = "linux")]
mod expected;
#[cfg(target_os = "linux")]
mod fleet;
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "results are only read there"))]
mod folder;
#[cfg(target_os = "linux")]
mod live;
#[cfg(target_os = "linux")]
mod measure;
#[cfg(target_os = "linux")]
mod nccl_logs;
mod node;
#[cfg(target_os = "linux")]
mod parts;
#[cfg(target_os = "linux")]
mod progress;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ::validate::Limits;
use ::validate::replay::Replay;
use ::validate::simulate::Spec;
use job::Job;
use report::{Beside, Style};

pub(crate) use args::Validate;

use crate::args::{Colour, FailOn};
use crate::fleet::Format;
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input, output, page};

pub(crate) fn run(args: &Validate, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    if !output::spares(args.svg.iter(), &input::files(&args.replay), false) {
        return Ok(UNDECIDED);
    }
    // Not after half an hour of measurements.
    if let Some(Err(error)) = args.svg.as_deref().map(output::can_write) {
        complain(&format!("error: {error}"));
        return Ok(UNDECIDED);
    }
    if args.health.is_asked() {
        if let Some(flag) = fleet_flag(args) {
            complain(&format!(
                "error: --mode healthcheck and --exit-style check the machine that plumb runs on: they do not go with {flag}"
            ));
            return Ok(UNDECIDED);
        }
        return crate::node::healthcheck(args.health, args.instance, out);
    }
    if args.resume.is_some() && args.health.gpus.is_some() {
        complain(
            "error: --gpus does not go with --resume: a validation is continued with what it began with",
        );
        return Ok(UNDECIDED);
    }
    if let Some(path) = &args.page {
        return again(path, args, out);
    }
    let validate = if let Some(spec) = &args.simulate {
        match Spec::read(spec) {
            Ok(spec) => report::Validate::simulated(&spec, Limits::default()),
            Err(reason) => {
                complain(&format!("error: --simulate {reason}"));
                return Ok(UNDECIDED);
            }
        }
    } else if args.replay.is_empty() {
        #[cfg(target_os = "linux")]
        return live::run(args, colour, out);
        #[cfg(not(target_os = "linux"))]
        {
            complain(
                "error: plumb measures on Linux only; on this system it judges results: plumb validate --replay PATH",
            );
            return Ok(UNDECIDED);
        }
    } else {
        match replayed(args) {
            Some(it) => it,
            None => return Ok(UNDECIDED),
        }
    };
    show(&validate, args, colour, out)
}

/// `1 machine`, `16 machines`.
#[cfg(target_os = "linux")]
fn machines(count: usize) -> String {
    if count == 1 { "1 machine".to_owned() } else { format!("{count} machines") }
}

/// The flag that names machines, if one does.
fn fleet_flag(args: &Validate) -> Option<&'static str> {
    let given = [
        (args.hosts.is_some(), "--hosts"),
        (args.slurm, "--slurm"),
        (args.kubernetes, "--kubernetes"),
        (args.resume.is_some(), "--resume"),
        (!args.replay.is_empty(), "--replay"),
        (args.simulate.is_some(), "--simulate"),
        (args.page.is_some(), "a page"),
    ];
    given.iter().find(|it| it.0).map(|it| it.1)
}

/// Shows a page of an earlier answer.
fn again(path: &PathBuf, args: &Validate, out: &mut impl Write) -> io::Result<u8> {
    let form = match args.format {
        Format::Text => page::Form::Text { verbose: args.verbose },
        Format::Json => page::Form::Json,
        Format::Html => page::Form::Html,
        Format::Junit => {
            complain("error: a report is shown again as text, json or html");
            return Ok(UNDECIDED);
        }
    };
    match page::only(std::slice::from_ref(path), "validate") {
        Some(read) => page::show(read, form, FailOn::Error, out),
        None => {
            complain(&format!(
                "error: {}: is not a page of plumb validate\nhint: --hosts LIST|FILE names machines, --replay PATH results",
                input::name(path)
            ));
            Ok(UNDECIDED)
        }
    }
}

/// Writes the answer; its verdict is the exit code.
fn show(
    validate: &report::Validate,
    args: &Validate,
    colour: Colour,
    out: &mut impl Write,
) -> io::Result<u8> {
    let style = Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: args.verbose };
    crate::fleet::write(validate, args.format, style, out)?;
    if let Some(path) = &args.svg {
        picture(validate, path)?;
    }
    Ok(match () {
        () if validate.is_go() => CLEAN,
        () if validate.is_no_go() => FINDINGS,
        () => UNDECIDED,
    })
}

fn replayed(args: &Validate) -> Option<report::Validate> {
    if let [path] = &args.replay[..]
        && folder::is_journal(path)
    {
        if args.least.is_some() {
            complain(
                "error: --least does not go with --replay of a results folder: the validation recorded what it needs",
            );
            return None;
        }
        return match folder::read(path) {
            Ok(run) => {
                let beside = Beside {
                    nodes: node::judge(&run),
                    unmeasured: node::unmeasured(&run),
                    gpus: node::gpus(&run),
                    ended: None,
                    results: Some(input::name(path)),
                };
                Some(report::Validate::live(&run, &beside))
            }
            Err(reason) => {
                complain(&format!("error: {reason}"));
                None
            }
        };
    }
    if let Some(reason) = page::among_logs(&args.replay) {
        complain(&format!("error: {reason}"));
        return None;
    }
    let inputs = input::read(&args.replay);
    for it in &inputs.left_out {
        complain(&format!("note: {}: {}", it.name, it.reason));
    }
    for it in &inputs.unreadable {
        complain(&format!("error: {}: {}", it.name, it.reason));
    }
    let replay = Replay::new(&inputs.case);
    if replay.sets.is_empty() {
        // What cannot be read has been said.
        if inputs.case.sources.files.is_empty() && !inputs.unreadable.is_empty() {
            return None;
        }
        if let Some(first) = replay.incomplete.first() {
            let more = replay.incomplete.len() - 1;
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            complain(&format!("error: {}{more}: the output of nccl-tests is incomplete", first.name));
            return None;
        }
        let given: Vec<String> = args.replay.iter().take(3).map(|it| input::name(it)).collect();
        complain(&format!(
            "error: {}: no run of nccl-tests that names its machines\nhint: nccl-tests prints them below `# Using devices`; keep its whole output, one file for each run",
            given.join(", ")
        ));
        return None;
    }
    let job = Job::of_case_on(&inputs.case, &job::Hardware::new(args.instance, None, None));
    Some(answer::fleet::judged(&replay, &inputs.case, &job, args.least))
}

/// `--svg FILE`: a fleet that needed no pairs has no matrix.
fn picture(validate: &report::Validate, path: &Path) -> io::Result<()> {
    if validate.matrix.is_none() {
        complain(&format!("note: {}: not written, no pairs were measured", path.display()));
        return Ok(());
    }
    output::write_file(path, |mut out| validate.svg(&mut out))
}
