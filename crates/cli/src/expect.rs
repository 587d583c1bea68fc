//! `plumb expect`: is this number normal?

use std::fmt::Display;
use std::io::{self, Read as _, Write};
use std::path::Path;

use forecast::{Cluster, Impossible};
use nccl::Settings;
use report::{Expect, Style};

use crate::args::{self, Colour, ListFormat};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input};

/// More than anyone writes into a description.
const LONGEST: u64 = 1 << 20;

pub(crate) fn run(args: &args::Expect, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let mut settings = Settings::new(args.nccl.unwrap_or(Settings::NEWEST));
    for (name, value) in &args.env {
        settings = settings.with(name, value);
    }
    let cluster = match cluster(&args.machines, &settings) {
        Ok(it) => it,
        Err(Impossible(reason)) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    let Some(normal) = forecast::normal(args.collective, &cluster, args.size) else {
        complain("error: one rank has nobody to talk to: give more --nodes or GPUs");
        return Ok(UNDECIDED);
    };
    let judgement = args
        .measured
        .map(|measured| (measured, forecast::judge(args.collective, &cluster, args.size, measured, &normal)));
    let expect = Expect::new(args.collective, &cluster, args.size, &normal, judgement);
    match args.format {
        ListFormat::Text => {
            expect.text(
                Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: false },
                out,
            )?;
        }
        ListFormat::Json => expect.json(out)?,
    }
    Ok(if matches!(expect.verdict.as_deref(), None | Some("normal")) { CLEAN } else { FINDINGS })
}

/// The cluster that the arguments describe.
pub(crate) fn cluster(args: &args::Machines, settings: &Settings) -> Result<Cluster, Impossible> {
    let mut cluster = match (&args.instance, &args.cluster) {
        (Some(model), _) => Cluster::of_machine(&model.machine(), args.nodes.unwrap_or(1), settings)?,
        (None, Some(path)) => {
            let text = read_text(path).map_err(Impossible)?;
            let read = forecast::read(&text, settings);
            let mut cluster = read.map_err(|it| Impossible(format!("{}: {}", input::name(path), it.0)))?;
            if let Some(nodes) = args.nodes {
                cluster.nodes = nodes;
            }
            cluster
        }
        (None, None) => {
            return Err(Impossible("say which machine: --instance NAME or --cluster FILE".to_owned()));
        }
    };
    if let Some((pods, gpus)) = args.pods {
        (cluster.pods, cluster.gpus) = (pods, gpus);
    }
    cluster.checked()
}

/// A description of a cluster; the error names the file.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let named = |reason: &dyn Display| format!("{}: {reason}", input::name(path));
    let mut bytes = Vec::new();
    let read = input::open_whole(path).and_then(|it| it.take(LONGEST + 1).read_to_end(&mut bytes));
    if read.map_err(|error| named(&error))? as u64 > LONGEST {
        return Err(named(&"is longer than 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| named(&"is not UTF-8"))
}
