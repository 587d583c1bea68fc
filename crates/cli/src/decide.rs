//! `plumb topo --decide`: what NCCL decides for a job.

use std::io::{self, Write};

use evidence::plugin::aws_ofi;
use fabric::{Machine, Settings, Version};
use job::{Description, machine};
use nccl::{Job, NEWEST_PLUGIN, Prediction};
use report::Style;
use report::decide::{Decide, DecideParts, WhatIf};

use crate::args::{self, Colour, ListFormat};
use crate::{CLEAN, UNDECIDED, complain, doctor, input, topo};

pub(crate) fn run(args: &args::Topo, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let decide = match topo::read(args).and_then(|it| Asked::new(args, &it)).and_then(|it| it.answer(args)) {
        Ok(it) => it,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    match args.format {
        ListFormat::Json => report::decide::json(&decide, out)?,
        ListFormat::Text if args.lines => report::decide::lines(&decide, out)?,
        ListFormat::Text => {
            let changes = decide.what_if.is_some();
            let style =
                Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: args.verbose };
            if changes {
                report::decide::what_if_text(&decide, style, out)?;
            } else {
                report::decide::text(&decide, style, out)?;
            }
        }
    }
    Ok(CLEAN)
}

/// A job whose decisions are asked for.
pub(crate) struct Asked {
    /// The machine as NCCL sees it.
    pub(crate) seen: Machine,
    pub(crate) layout: fabric::Layout,
    pub(crate) settings: Settings,
    pub(crate) plugin: Version,
    source: String,
    notes: Vec<String>,
    /// The name of the file that describes the machine, for errors.
    file: Option<String>,
}

impl Asked {
    pub(crate) fn new(args: &args::Topo, read: &Description) -> Result<Self, String> {
        let job = topo::job(args, read)?;
        let machine = &job.machines[0].value;
        if machine.hidden.wiring || (machine.hidden.nvlink && machine.gpus.len() > 1) {
            let what = if machine.hidden.wiring {
                "how the GPUs are wired"
            } else {
                "whether NVLink connects the GPUs"
            };
            let add =
                if machine.hidden.wiring { "--instance NAME" } else { "--instance NAME or --gpu MODEL" };
            return Err(format!(
                "{}: {what} is not in this source, and NCCL's decisions depend on it: add {add}",
                read.source
            ));
        }
        let known = job.releases.of_plugin(&aws_ofi::PLUGIN).map(|it| it.value);
        let mut notes = Vec::new();
        if !read.machine.wired {
            notes.push("The wiring of this machine is not published: rings and NICs may differ.".to_owned());
        }
        if machine.gpus.iter().any(|it| it.compute.is_none()) {
            notes.push(
                "The model of the GPUs is not known and counts as an A100: give it with --gpu.".to_owned(),
            );
        }
        Ok(Self {
            seen: machine::seen_by_nccl(machine),
            layout: job.layout.as_ref().map(|it| it.value).unwrap_or_default(),
            settings: job.effective_settings(),
            plugin: args.plugin.or(known).unwrap_or(NEWEST_PLUGIN),
            source: read.source.clone(),
            notes,
            file: args.file.as_ref().or(args.cluster.as_ref()).map(|it| input::name(it)),
        })
    }

    pub(crate) fn predict(&self, settings: &Settings) -> Result<Prediction, String> {
        let mut job = Job::new(&self.seen, &self.layout, settings);
        job.plugin = Some(self.plugin);
        Prediction::new(&job).map_err(|error| match &self.file {
            Some(name) => format!("{name}: {error}"),
            None => error.to_string(),
        })
    }

    /// What the prediction assumes.
    fn notes(&self, prediction: &Prediction) -> Vec<String> {
        let mut notes = self.notes.clone();
        if prediction.communicator.node_paths.iter().any(|it| it.machines() > 1) {
            notes.push(
                "The machines are taken to be in one NVLink domain with IMEX running; NCCL_MNNVL_ENABLE=0 \
                 shows them without."
                    .to_owned(),
            );
        }
        notes
    }

    fn answer(&self, args: &args::Topo) -> Result<Decide, String> {
        let ranks = self.layout.ranks();
        if args.rank >= ranks {
            return Err(format!("there is no rank {}: the job has {ranks}, counted from 0", args.rank));
        }
        let prediction = self.predict(&self.settings)?;
        let answer = |prediction: &Prediction| {
            let mut decide = Decide::new(DecideParts {
                machine: &self.seen,
                source: &self.source,
                prediction,
                plugin: Some(self.plugin),
                rank: args.rank,
                notes: &self.notes(prediction),
            });
            if let Some(collective) = args.collective {
                decide.choices.retain(|it| it.collective == collective.name());
            }
            decide
        };
        let mut decide = answer(&prediction);
        if !args.what_if.is_empty() {
            let settings =
                args.what_if.iter().fold(self.settings.clone(), |all, (name, value)| all.with(name, value));
            decide.what_if = Some(match self.predict(&settings) {
                Ok(after) => {
                    report::decide::what_if(&args.what_if, (&decide, &prediction), (&answer(&after), &after))
                }
                Err(reason) => WhatIf::refused(&args.what_if, reason),
            });
        }
        Ok(decide)
    }
}
