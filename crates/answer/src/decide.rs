//! `plumb topo --decide`: what NCCL decides for a job on a described machine.

use evidence::plugin::aws_ofi;
use evidence::topology::Kind;
use fabric::machine::Gpu;
use fabric::{Collective, Machine, Settings, Version};
use forecast::{Cluster, NormalAt};
use job::{Description, Job, Source, machine};
use nccl::{Decisions, NEWEST_PLUGIN, Prediction};
use report::decide::{Decide, DecideParts, Speed, WhatIf};
use report::topo::channels::{self, Ranks};
use report::topo::{TopoFamily, TopoOverlay};
use rules::decisions::slower;

/// The sizes for which the effect of a setting is shown: a small message, a bucket of gradients, a large one.
const SIZES: [u64; 3] = [1 << 20, 64 << 20, 1 << 30];

/// A job whose decisions are asked for.
#[derive(Debug)]
pub struct Asked {
    /// The machine as NCCL sees it.
    pub seen: Machine,
    /// The machine with every NIC.
    whole: Machine,
    /// The job on it.
    pub layout: fabric::Layout,
    /// Its settings.
    pub settings: Settings,
    /// The release of aws-ofi-nccl.
    pub plugin: Version,
    source: String,
    /// What is assumed of the machine.
    pub notes: Vec<String>,
    /// The name of the file that describes the machine, for errors.
    file: Option<String>,
}

/// What is asked of the decisions.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The rank whose lines are shown.
    pub rank: u64,
    /// Settings to try, all together.
    pub what_if: &'a [(String, String)],
    /// The only collective.
    pub collective: Option<Collective>,
}

impl Asked {
    /// Of a completed description and the job that flags describe on it. `file` is named in errors.
    pub fn new(
        job: &Job,
        read: &Description,
        plugin: Option<Version>,
        file: Option<String>,
    ) -> Result<Self, String> {
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
            plugin: plugin.or(known).unwrap_or(NEWEST_PLUGIN),
            source: read.source.clone(),
            notes,
            file,
        })
    }

    /// The decisions with some settings.
    pub fn predict(&self, settings: &Settings) -> Result<Prediction, String> {
        let mut job = nccl::Job::new(&self.seen, &self.layout, settings);
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

    fn with(&self, what_if: &[(String, String)]) -> Settings {
        what_if.iter().fold(self.settings.clone(), |all, (name, value)| all.with(name, value))
    }

    /// The answer.
    pub fn answer(&self, question: Question<'_>) -> Result<Decide, String> {
        let Question { rank, what_if, collective } = question;
        let ranks = self.layout.ranks();
        if rank >= ranks {
            return Err(format!("there is no rank {rank}: the job has {ranks}, counted from 0"));
        }
        let prediction = self.predict(&self.settings)?;
        let answer = |prediction: &Prediction| {
            let mut decide = Decide::new(DecideParts {
                machine: &self.seen,
                source: &self.source,
                prediction,
                plugin: Some(self.plugin),
                rank,
                notes: &self.notes(prediction),
            });
            if let Some(collective) = collective {
                decide.choices.retain(|it| it.collective == collective.name());
            }
            decide
        };
        let mut decide = answer(&prediction);
        if !what_if.is_empty() {
            let settings = self.with(what_if);
            decide.what_if = Some(match self.predict(&settings) {
                Ok(after) => {
                    let (before, then) = ((&decide, &prediction), answer(&after));
                    let mut found = report::decide::what_if(what_if, before, (&then, &after));
                    if !found.changes.is_empty() {
                        found.expected = self.speeds([&prediction, &after], &settings, collective);
                    }
                    found
                }
                Err(reason) => WhatIf::refused(what_if, reason),
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

    /// The rings and trees of all channels, of a what-if without and with its settings; an error for more ranks than the answer lists.
    pub fn drawn(&self, what_if: &[(String, String)]) -> Result<Vec<TopoOverlay>, String> {
        let all = self.layout.ranks();
        if all > Decide::RANKS as u64 {
            return Err(format!("the job has {all} ranks; plumb draws them for up to {}", Decide::RANKS));
        }
        // A ring of one rank goes nowhere.
        if all < 2 {
            return Ok(Vec::new());
        }
        let each = u32::try_from(self.layout.ranks_per_node()).unwrap_or(u32::MAX);
        let now = State::new(self, &self.settings)?;
        let then = if what_if.is_empty() { None } else { State::new(self, &self.with(what_if)).ok() };
        let inside = |state: &State, from: u32, to: u32| {
            let decision = state.decisions.as_ref()?.transport(from.into(), to.into())?;
            decision.transport.as_ref().map(TopoFamily::from)
        };
        let inside_now = |from: u32, to: u32| inside(&now, from, to);
        let of_now = Ranks { machine: &self.seen, each, inside: &inside_now };
        let Some(then) = then else { return Ok(channels::predicted(&now.prediction, &of_now)) };
        let inside_then = |from: u32, to: u32| inside(&then, from, to);
        let of_then = Ranks { inside: &inside_then, ..of_now };
        Ok(channels::compared((&now.prediction, &of_now), (&then.prediction, &of_then)))
    }
}

/// What NCCL does with some settings.
struct State {
    prediction: Prediction,
    decisions: Option<Decisions>,
}

impl State {
    fn new(asked: &Asked, settings: &Settings) -> Result<Self, String> {
        let decisions = Decisions::new(&asked.seen, settings, &asked.layout).ok();
        Ok(Self { prediction: asked.predict(settings)?, decisions })
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
