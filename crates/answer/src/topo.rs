//! `plumb topo`: how a described machine is wired, which paths it offers, and what speed is normal.

use std::collections::BTreeSet;

use fabric::catalogue::Model;
use fabric::gpu::GpuModel;
use fabric::units::GigabitsPerSecond;
use fabric::{Collective, Settings, Transport, Version};
use forecast::Cluster;
use job::channel::{self, Channel, Connection, Selection, Shape};
use job::machine::{self, Resolved};
use job::{Description, Job, Known, LayoutFlags, Source};
use nccl::Decisions;
use report::topo::{Topo, TopoOverlay, TopoParts, channels};
use serde_json::Value;

use crate::decide;

/// How much of a file is read: the topology is at the beginning of a log.
pub const MOST: u64 = 1 << 28;

/// NCCL has no more channels: `MAXCHANNELS` in `src/include/device.h` of v2.27.
const MOST_CHANNELS: u32 = 64;

/// The rings and trees that a page offers, and where they are from or why there are none.
#[derive(Debug, Clone, Default)]
pub struct Rings {
    /// Each with the channels that have it.
    pub overlays: Vec<TopoOverlay>,
    /// Sentences.
    pub about: Vec<String>,
}

/// What flags say about a machine and the job on it.
#[derive(Debug, Default)]
pub struct Asked<'a> {
    /// The machine's type, for what a file does not say.
    pub instance: Option<&'static Model>,
    /// The GPU model.
    pub gpu: Option<&'static GpuModel>,
    /// The rate of each NIC in Gbit/s.
    pub nic_gbps: Option<f64>,
    /// The job on the machine.
    pub layout: LayoutFlags,
    /// The release of NCCL.
    pub nccl: Option<Version>,
    /// Variables of the job.
    pub env: &'a [(String, String)],
    /// The collective of the table of bandwidth.
    pub collective: Option<Collective>,
    /// The ring or tree that is drawn.
    pub selection: Option<Selection>,
}

impl Asked<'_> {
    /// Reads a description of a machine or a log.
    pub fn of_text(&self, name: &str, text: &[u8]) -> Result<Description, String> {
        Description::of_text(name, text, self.instance, self.selection)
    }

    /// Adds what the flags say.
    pub fn complete(&self, mut read: Description) -> Description {
        if let Some(model) = self.gpu {
            read.machine.set_gpu_model(model);
        }
        if let Some(gbps) = self.nic_gbps {
            for nic in &mut read.machine.machine.value.nics {
                nic.rate = nic.rate.or(Some(GigabitsPerSecond(gbps)));
            }
        }
        read.machine.deduce_generation();
        if let Some(version) = self.nccl {
            read.releases.nccl = Some(Known::new(version, Source::Flag("--nccl")));
        }
        for (name, value) in self.env {
            read.settings.add_flag("--env", name, value);
        }
        read
    }

    /// The job on a machine, which must have GPUs.
    pub fn job(&self, read: &Description) -> Result<Job, String> {
        let found = &read.machine.machine.value;
        if found.gpus.is_empty() {
            let reasons = read.machine.notes.iter().chain(&found.unknown).map(String::as_str);
            let reasons: Vec<&str> = std::iter::once("").chain(reasons).collect();
            return Err(format!("{}: no GPU found{}", read.source, reasons.join("\n  - ")));
        }
        Ok(read.job(&self.layout))
    }

    /// All rings and trees of a completed description: those of the file, otherwise those that NCCL would build.
    pub fn rings(&self, read: &Description, file: Option<(&str, &[u8])>, plugin: Option<Version>) -> Rings {
        if let Some((name, text)) = file {
            let overlays = self.seen(read, name, text);
            if !overlays.is_empty() {
                return Rings { overlays, about: vec![format!("Rings and trees as in {name}.")] };
            }
        }
        self.predicted(read, plugin).unwrap_or_else(|reason| Rings {
            about: vec![format!("Rings and trees are not drawn: {reason}.")],
            ..Rings::default()
        })
    }

    /// All rings and trees that a log or NCCL's graph XML shows.
    fn seen(&self, read: &Description, name: &str, text: &[u8]) -> Vec<TopoOverlay> {
        let case = evidence::read_texts([(name, text)]);
        let machine = &read.machine.machine.value;
        let find = |selection: Selection| {
            channel::of_case(&case, machine, selection)
                .or_else(|_| channel::of_graphs(&read.graphs, selection))
                .ok()
        };
        let all = |shape: Shape| (0..MOST_CHANNELS).map(move |number| Selection { shape, number });
        let mut found: Vec<Channel> =
            [Shape::Ring, Shape::Tree].into_iter().flat_map(|shape| all(shape).map_while(find)).collect();
        // What the log does not say about connections inside a machine follows from its paths.
        if let Some(decisions) = self.job(read).ok().and_then(|it| decisions(&it)) {
            for it in found.iter_mut().flat_map(|it| &mut it.connections) {
                it.transport = it.transport.take().or_else(|| inside_machine(&decisions, it));
            }
        }
        channels::known(&found)
    }

    fn predicted(&self, read: &Description, plugin: Option<Version>) -> Result<Rings, String> {
        let asked = decide::Asked::new(&self.job(read)?, read, plugin, None)?;
        let overlays = asked.drawn(&[])?;
        let about = if overlays.is_empty() {
            "There are no rings and trees: the job has one rank.".to_owned()
        } else {
            format!("Rings and trees as NCCL {} is predicted to build them.", asked.settings.version)
        };
        // The page has the notes of the machine already.
        let known: BTreeSet<&String> = read.machine.notes.iter().collect();
        let notes = asked.notes.iter().filter(|it| !known.contains(it)).cloned();
        Ok(Rings { overlays, about: std::iter::once(about).chain(notes).collect() })
    }

    /// The answer about a completed description. `file` is named in errors; `price` is a job file that the layout costs time.
    pub fn answer(
        &self,
        read: Description,
        file: Option<&str>,
        price: Option<&Price<'_>>,
    ) -> Result<Topo, String> {
        let job = self.job(&read)?;
        let Description { machine: Resolved { notes, .. }, source, mut channel, graphs, .. } = read;
        let machine = &job.machines[0].value;
        let (seen, settings) = (machine::seen_by_nccl(machine), job.effective_settings());
        let layout = job.layout.as_ref().map(|it| it.value).unwrap_or_default();
        let decisions = Decisions::new(&seen, &settings, &layout).map_err(|error| match file {
            Some(name) => format!("{name}: {error}"),
            None => error.to_string(),
        })?;
        for it in channel.iter_mut().flat_map(|it| &mut it.connections) {
            it.transport = it.transport.take().or_else(|| inside_machine(&decisions, it));
        }
        let collective = self.collective.unwrap_or(Collective::AllReduce);
        let sizes: Vec<u64> = match self.collective {
            Some(_) => (10..=34).step_by(2).map(|it| 1 << it).collect(),
            None => [20, 24, 28, 30, 33].map(|it| 1 << it).into(),
        };
        let cluster = Cluster::of_layout(machine, &layout, &settings);
        let price = price.map(|it| it.of(&job, cluster.as_ref().ok())).transpose()?.flatten();
        Ok(Topo::new(TopoParts {
            price,
            job: &job,
            source,
            seen_by_nccl: &seen,
            survey: &decisions.survey(&seen),
            normal: cluster.map(|it| forecast::table(collective, &it, &sizes)),
            collective,
            channel: channel.as_ref(),
            graphs: &graphs,
            notes,
        }))
    }
}

/// A training job whose time the layout costs.
#[derive(Debug)]
pub struct Price<'a> {
    /// The name of its job file.
    pub name: &'a str,
    /// The tables of the file.
    pub job: &'a Value,
    /// What a node costs in an hour.
    pub per_hour: Option<f64>,
}

impl Price<'_> {
    /// What the layout costs against one pod with all GPUs and NCCL's defaults.
    fn of(&self, job: &Job, here: Option<&Cluster>) -> Result<Option<report::Price>, String> {
        let name = self.name;
        let (Some(here), Some(machine)) = (here, job.machines.first()) else {
            return Err(format!("{name}: the paths of this machine are not known"));
        };
        let gpus = here.pods.saturating_mul(here.gpus);
        let best =
            Cluster::of_machine(&machine.value, here.nodes, &Settings::new(job.effective_settings().version));
        let best = best.and_then(|it| it.with_pods(1, gpus)).map_err(|error| format!("{name}: {error}"))?;
        let price = rules::training::of_layout(self.job, job.model().map(|it| it.name), &best, here);
        let price = price.map_err(|error| format!("{name}: {error}"))?;
        Ok(price.map(|it| report::Price::with_money(&it, self.per_hour)))
    }
}

fn decisions(job: &Job) -> Option<Decisions> {
    let layout = job.layout.as_ref().map(|it| it.value).unwrap_or_default();
    let seen = machine::seen_by_nccl(&job.machines.first()?.value);
    Decisions::new(&seen, &job.effective_settings(), &layout).ok()
}

/// The transport that NCCL takes for a connection inside a machine.
fn inside_machine(decisions: &Decisions, it: &Connection) -> Option<Transport> {
    let same = it.from.node == it.to.node;
    let decision = decisions.transport(it.from.local_rank.into(), it.to.local_rank.into());
    decision.filter(|_| same)?.transport
}
