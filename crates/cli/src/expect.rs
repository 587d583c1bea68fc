//! `plumb expect`: is this number normal?

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use forecast::{Cluster, Impossible};
use nccl::Settings;
use report::{Expect, Style};

use crate::args::{self, Colour, ListFormat};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor};

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
        (Some(name), _) => Cluster::of_machine(&forecast::known(name)?, args.nodes.unwrap_or(1), settings)?,
        (None, Some(path)) => {
            let text = read_text(path).map_err(Impossible)?;
            let read = forecast::read(&text, settings);
            let mut cluster = read.map_err(|it| Impossible(format!("{}: {}", path.display(), it.0)))?;
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
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    String::from_utf8(bytes).map_err(|_| format!("{}: is not UTF-8", path.display()))
}
