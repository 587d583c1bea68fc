//! `plumb expect`: is this number normal?

use std::fmt::Display;
use std::io::{self, Read as _, Write};
use std::path::Path;

use fabric::{Layout, Settings};
use forecast::{Cluster, Impossible, Verdict};
use job::{Description, LayoutFlags};
use report::{Expect, Style};

use crate::args::{self, Colour, ListFormat};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input};

/// The largest cluster file that is read.
const LONGEST: u64 = 1 << 20;

pub(crate) fn run(args: &args::Expect, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let mut settings = job::Settings::default();
    for (name, value) in &args.env {
        settings.add_flag("--env", name, value);
    }
    let described = cluster(&args.machines, &settings.effective(args.nccl)).and_then(|it| {
        let it = it.of_release(args.nccl, args.plugin);
        match (args.group, args.parallel) {
            (Some(group), Some(parallel)) => it.of_group(parallel, group),
            _ => Ok(it),
        }
    });
    let cluster = match described {
        Ok(it) => it,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    let Some(expected) = forecast::expect(args.collective, &cluster, args.size, args.measured) else {
        complain("error: a collective needs at least two ranks: give more --nodes or GPUs");
        return Ok(UNDECIDED);
    };
    let expect = Expect::new(&cluster, expected).of_group(args.group);
    match args.format {
        ListFormat::Text => {
            expect.text(
                Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: false },
                out,
            )?;
        }
        ListFormat::Json => expect.json(out)?,
    }
    Ok(if matches!(expect.verdict, None | Some(Verdict::Normal)) { CLEAN } else { FINDINGS })
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
    let job = description.job(&LayoutFlags {
        nodes: args.nodes,
        pods: args.pods.map(|(pods, gpus)| Layout::new(pods, gpus)),
        ..LayoutFlags::default()
    });
    let layout = job.layout.map(|it| it.value).unwrap_or_default();
    Cluster::of_layout(&description.machine.machine.value, &layout, settings).map_err(|error| {
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
    let named = |reason: &dyn Display| format!("{}: {reason}", input::name(path));
    let mut bytes = Vec::new();
    let read = input::open_whole(path).and_then(|it| it.take(LONGEST + 1).read_to_end(&mut bytes));
    if read.map_err(|error| named(&error))? as u64 > LONGEST {
        return Err(named(&"is longer than 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| named(&"is not UTF-8"))
}
