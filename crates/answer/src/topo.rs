//! `plumb topo`: how a described machine is wired, which paths it offers, and what speed is normal.

use fabric::catalogue::Model;
use fabric::gpu::GpuModel;
use fabric::units::GigabitsPerSecond;
use fabric::{Collective, Settings, Transport, Version};
use forecast::Cluster;
use job::channel::{Connection, Selection};
use job::machine::{self, Resolved};
use job::{Description, Job, Known, LayoutFlags, Source};
use nccl::Decisions;
use report::topo::{Topo, TopoParts};
use serde_json::Value;

/// How much of a file is read: the topology is at the beginning of a log.
pub const MOST: u64 = 1 << 28;

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

/// The transport that NCCL takes for a connection inside a machine.
fn inside_machine(decisions: &Decisions, it: &Connection) -> Option<Transport> {
    let same = it.from.node == it.to.node;
    let decision = decisions.transport(it.from.local_rank.into(), it.to.local_rank.into());
    decision.filter(|_| same)?.transport
}
