//! `plumb expect`: is this number normal?

use std::fmt::Display;
use std::io::{self, Read as _, Write};
use std::path::Path;

use fabric::{Layout, Settings};
use forecast::{Cluster, Impossible, Verdict};
use job::cluster_file;
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
    let cluster = match cluster(&args.machines, &settings.effective(args.nccl)) {
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
    let expect = Expect::new(&cluster, expected);
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
    let (machine, mut layout) = match (args.instance, &args.cluster) {
        (Some(model), _) => {
            let machine = model.machine();
            let layout = Layout::whole(&machine);
            (machine, layout)
        }
        (None, Some(path)) => {
            let name = input::name(path);
            let text = read_text(path).map_err(Impossible)?;
            let read = cluster_file::read(&text, &name);
            let file = read.map_err(|error| Impossible(format!("{name}: {error}")))?;
            (file.machine.machine.value, file.layout.value)
        }
        (None, None) => {
            return Err(Impossible("give the machine with --instance NAME or --cluster FILE".to_owned()));
        }
    };
    if let Some((pods, gpus)) = args.pods {
        (layout.pods_per_node, layout.gpus_per_pod) = (pods, gpus);
    }
    layout.nodes = args.nodes.unwrap_or(layout.nodes);
    Cluster::of_layout(&machine, &layout, settings).map_err(|error| match &args.cluster {
        Some(path) => Impossible(format!("{}: {error}", input::name(path))),
        None => error,
    })
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
