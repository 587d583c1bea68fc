//! `plumb topo --decide`: what NCCL decides for a job.

use std::io::{self, Write};

use evidence::plugin::aws_ofi;
use evidence::topology::Kind;
use fabric::machine::Gpu;
use fabric::{Collective, Machine, Settings, Version};
use forecast::{Cluster, NormalAt};
use job::{Description, Source, machine};
use nccl::{Job, NEWEST_PLUGIN, Prediction};
use report::Style;
use report::decide::{Decide, DecideParts, Speed, WhatIf};
use rules::decisions::slower;

use crate::args::{self, Colour, PageFormat};
use crate::{CLEAN, UNDECIDED, complain, doctor, input, topo, topo_page};

/// The sizes for which the effect of a setting is shown: a small message, a bucket of gradients, a large one.
const SIZES: [u64; 3] = [1 << 20, 64 << 20, 1 << 30];

pub(crate) fn run(args: &args::Topo, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let decide = match topo::read(args).and_then(|it| Asked::new(args, &it)).and_then(|it| it.answer(args)) {
        Ok(it) => it,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    match args.format {
        PageFormat::Html => topo_page::decided(args, &decide, out)?,
        PageFormat::Json => report::decide::json(&decide, out)?,
        PageFormat::Text if args.lines => report::decide::lines(&decide, out)?,
        PageFormat::Text => {
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
    /// The machine with every NIC.
    whole: Machine,
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
        let layout = job.layout.as_ref().map(|it| it.value).unwrap_or_default();
        let lacks = not_described(machine, layout.nodes);
        // NCCL's own XML may leave open what NCCL asks the driver and the network plugin for, and then has defaults for.
        let is_xml = matches!(job.machines[0].source, Source::Topology { kind: Kind::TopologyXml, .. });
        if let Some(it) = lacks.as_ref().filter(|_| !is_xml) {
            let Lack { what, add, .. } = it;
            return Err(format!("{}: {what}, and NCCL's decisions depend on it: add {add}", read.source));
        }
        let known = job.releases.of_plugin(&aws_ofi::PLUGIN).map(|it| it.value);
        let mut notes = Vec::new();
        if let Some(Lack { note, add, .. }) = lacks {
            notes.push(format!("{note}: add {add}."));
        }
        notes.extend(read.machine.notes.iter().cloned());
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
            whole: machine.clone(),
            layout,
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
                    let (before, then) = ((&decide, &prediction), answer(&after));
                    let mut what_if = report::decide::what_if(&args.what_if, before, (&then, &after));
                    if !what_if.changes.is_empty() {
                        what_if.expected = self.speeds([&prediction, &after], &settings, args.collective);
                    }
                    what_if
                }
                Err(reason) => WhatIf::refused(&args.what_if, reason),
            });
        }
        Ok(decide)
    }

    /// The bandwidth that is expected without and with settings; empty where plumb expects none.
    fn speeds(
        &self,
        predictions: [&Prediction; 2],
        after: &Settings,
        collective: Option<Collective>,
    ) -> Vec<Speed> {
        let collective = collective.unwrap_or(Collective::AllReduce);
        let between = predictions[0].communicator.n_nodes > 1;
        let table = |settings: &Settings, prediction: &Prediction| {
            let cluster = Cluster::of_layout(&self.whole, &self.layout, settings).ok();
            let share = used_share(prediction);
            let cluster = cluster.map(|it| if share < 1.0 { slower(&it, share, between) } else { it });
            cluster.map(|it| forecast::table(collective, &it, &SIZES)).unwrap_or_default()
        };
        let (before, after) = (table(&self.settings, predictions[0]), table(after, predictions[1]));
        let speed = |(one, other): (&NormalAt, &NormalAt)| Speed {
            collective: collective.name(),
            bytes: one.bytes,
            before: one.normal.expected,
            after: other.normal.expected,
        };
        before.iter().zip(&after).map(speed).collect()
    }
}

/// The share of the rings of the search that channels are made of: a limit of channels leaves some out, and the links that they use.
fn used_share(prediction: &Prediction) -> f64 {
    let rings = prediction.communicator.agreed.ring.channels.len();
    let used = rings.min(prediction.communicator.connected.channels.len());
    #[expect(clippy::cast_precision_loss, reason = "channels are few")]
    let share = used as f64 / rings.max(1) as f64;
    share
}

/// What a description lacks without which rings and their bandwidth would be invented.
struct Lack {
    what: &'static str,
    /// What it counts as, in a sentence.
    note: &'static str,
    /// The flags that give it.
    add: &'static str,
}

fn not_described(machine: &Machine, nodes: u32) -> Option<Lack> {
    let between = nodes > 1;
    if between && machine.nics.is_empty() {
        return Some(Lack {
            what: "no NIC is in this source",
            note: "No NIC is in this source, and the network counts as one of 10 Gbps",
            add: "--instance NAME",
        });
    }
    if between && machine.nics.iter().any(|it| it.rate.is_none()) {
        return Some(Lack {
            what: "the rate of the NICs is not in this source",
            note: "The rate of the NICs is not in this source and counts as 10 Gbps",
            add: "--nic-gbps GBPS or --instance NAME",
        });
    }
    let open = |it: &Gpu| it.link.is_none() && it.model.is_none();
    ((between || machine.nvlinks.is_empty()) && machine.gpus.iter().any(open)).then_some(Lack {
        what: "neither the PCIe links nor the model of the GPUs is in this source",
        note: "Neither the PCIe links nor the model of the GPUs is in this source; a link counts as Gen3 x16",
        add: "--gpu MODEL or --instance NAME",
    })
}
