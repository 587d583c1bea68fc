//! `plumb expect`: is this number normal?

use std::io::{self, Write};
use std::path::Path;

use answer::expect::{Asked as Question, LONGEST};
use fabric::Settings;
use forecast::{Cluster, Impossible, Verdict};
use job::Description;
use report::Style;

use crate::args::{self, Asked, Colour, FailOn, PageFormat};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input, page};

pub(crate) fn run(args: &args::Expect, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let collective = match &args.collective {
        Asked::Collective(collective) => *collective,
        Asked::Page(path) => return again(path, args, out),
    };
    let question = Question {
        collective,
        size: args.size,
        measured: args.measured,
        group: args.group.zip(args.parallel),
        nccl: args.nccl,
        plugin: args.plugin,
        env: &args.env,
    };
    let described = cluster(&args.machines, &question.settings()).map_err(|it| it.to_string());
    let expect = match described.and_then(|it| question.answer(it)) {
        Ok(it) => it,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    match args.format {
        PageFormat::Text => {
            expect.text(
                Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: false },
                out,
            )?;
        }
        PageFormat::Json => expect.json(out)?,
        PageFormat::Html => report::html::write(&expect, out)?,
    }
    Ok(if matches!(expect.verdict, None | Some(Verdict::Normal)) { CLEAN } else { FINDINGS })
}

/// An earlier answer.
fn again(path: &Path, args: &args::Expect, out: &mut impl Write) -> io::Result<u8> {
    match page::only(&[path.to_path_buf()], "expect") {
        Some(read) => page::show(read, page::Form::new(args.format, false), FailOn::Error, out),
        None => {
            complain(&format!(
                "error: {}: is neither a collective nor a page of plumb expect",
                input::name(path)
            ));
            Ok(UNDECIDED)
        }
    }
}

/// The cluster that the arguments describe.
pub(crate) fn cluster(args: &args::Machines, settings: &Settings) -> Result<Cluster, Impossible> {
    let description = match (args.instance, &args.cluster) {
        (Some(model), _) => Description::of_flag(model),
        (None, Some(path)) => of_cluster_file(path).map_err(Impossible)?,
        (None, None) => {
            return Err(Impossible("give the machine with --instance NAME or --cluster FILE".to_owned()));
        }
    };
    answer::expect::cluster(&description, args.nodes, args.pods, settings).map_err(|error| {
        match &args.cluster {
            Some(path) => Impossible(format!("{}: {error}", input::name(path))),
            None => error,
        }
    })
}

/// The machine and layout of a cluster file; the error names the file.
pub(crate) fn of_cluster_file(path: &Path) -> Result<Description, String> {
    let name = input::name(path);
    Description::of_cluster_file(&read_text(path)?, &name).map_err(|error| format!("{name}: {error}"))
}

/// The text of a cluster file; the error names the file.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let source = input::open_whole(path).map_err(|error| error.to_string());
    let page = |text: String| match report::html::command_of(text.as_bytes()) {
        Some(wrote) => Err(format!("is a report of plumb {wrote}, not a job file or a cluster file")),
        None => Ok(text),
    };
    source
        .and_then(|it| answer::text(it, LONGEST))
        .and_then(page)
        .map_err(|reason| format!("{}: {reason}", input::name(path)))
}
