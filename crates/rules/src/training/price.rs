//! What a problem costs a training job: the predicted step with it against the one without it.

use fabric::machine::NicKind;
use forecast::training::{Calibration, Inter, Intra, Job, Predictor};
use forecast::{Between, Cluster, Inside};
use serde_json::Value;

use super::paths::inside;
use super::{Described, Logged, Measured, NoJob};

/// What a problem costs in every step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Seconds of each step.
    pub seconds: f64,
    /// The step as it is.
    pub step: f64,
    /// Whether the step was measured; the part of it that the problem costs is predicted in any case.
    pub measured: bool,
    /// The whole run, where its steps are known.
    pub run: Option<WholeRun>,
    /// Nodes of the job.
    pub nodes: u32,
}

/// The run that a problem slows down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WholeRun {
    /// How many steps it has.
    pub steps: f64,
    /// How long it takes, with its start.
    pub seconds: f64,
}

impl Price {
    /// The part of the step that it costs.
    pub fn share(&self) -> f64 {
        self.seconds / self.step
    }

    /// The part of the whole run that it costs. The start of a run takes as long with the problem as without it.
    pub fn share_of_run(&self) -> Option<f64> {
        self.run.map(|it| self.seconds * it.steps / it.seconds)
    }

    /// What it costs, by the price of a node and hour: in all steps of the run where these are known, otherwise in an hour of steps.
    pub fn money(&self, per_hour: f64) -> f64 {
        let hours = self.run.map_or(self.share(), |it| self.seconds * it.steps / 3600.0);
        hours * f64::from(self.nodes) * per_hour
    }
}

/// How a submitted job is slower than its machines allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slower {
    /// The machine.
    pub machine: &'static str,
    /// How many of them.
    pub nodes: u32,
    /// What is wrong with the layout or the network.
    pub how: How,
}

/// What is wrong with a submitted job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// TCP instead of EFA.
    Tcp,
    /// Some of its NICs.
    Nics {
        /// How many the pod has.
        used: u32,
        /// How many there are.
        of: u32,
    },
    /// Several pods on a machine.
    Pods {
        /// Pods of a machine.
        pods: u32,
        /// GPUs of each.
        gpus: u32,
    },
}

/// What a submitted job loses, with the training job of a job file. The file may leave out the machines.
pub(crate) fn of_submitted(file: &Value, slower: &Slower) -> Option<Price> {
    let mut logged = Logged::default();
    let machine = &file["cluster"];
    if machine["instance"].is_null() && machine["gpu"].is_null() {
        logged.set("cluster.instance", slower.machine.into());
    }
    if machine["nodes"].is_null() {
        logged.set("cluster.nodes", slower.nodes.into());
    }
    let job = logged.job(file).ok()?.job;
    let (mut problem, mut repaired) = (job.clone(), job.clone());
    match slower.how {
        How::Tcp => problem = job.with("network=tcp").ok()?,
        How::Nics { used, of } => {
            let inter = job.cluster.inter?;
            let nics = u64::from(inter.nics) * u64::from(used) / u64::from(of.max(1));
            problem.cluster.inter = Some(Inter { nics: u32::try_from(nics).ok()?.max(1), ..inter });
        }
        How::Pods { pods, gpus } => {
            (problem.cluster.pods, problem.cluster.gpus) = (pods, gpus);
            (repaired.cluster.pods, repaired.cluster.gpus) = (1, pods.checked_mul(gpus)?);
        }
    }
    Priced { offered: job.clone(), job, measured: None }.price(&problem, &repaired)
}

/// What a layout and settings cost the training job of a job file: `here` against `best`, on the same machines.
pub fn of_layout(
    file: &Value,
    machine: Option<&'static str>,
    best: &Cluster,
    here: &Cluster,
) -> Result<Option<Price>, NoJob> {
    let mut logged = Logged::default();
    let own = &file["cluster"];
    if let Some(name) = machine.filter(|_| own["instance"].is_null() && own["gpu"].is_null()) {
        logged.set("cluster.instance", name.into());
    }
    logged.set("cluster.nodes", here.nodes.into());
    let offered = logged.job(file)?.job;
    let on = |cluster: &Cluster| {
        let mut job = offered.clone();
        (job.cluster.pods, job.cluster.gpus) = (cluster.pods, cluster.gpus);
        if let Inside::Pci { peer_to_peer } = cluster.inside {
            job.cluster.intra =
                inside(&Job { cluster: over_pci(&offered), ..offered.clone() }, !peer_to_peer);
        }
        match (&cluster.between, &mut job.cluster.inter) {
            (Some(between), _) if between.kind == NicKind::Ethernet => {
                job = job.with("network=tcp").unwrap_or(job);
            }
            (Some(between), Some(inter)) => inter.gpudirect = between.gpudirect,
            _ => {}
        }
        job
    };
    let priced = Priced { job: offered.clone(), offered: offered.clone(), measured: None };
    Ok(priced.price(&on(here), &on(best)))
}

/// A part of a step below this is not told apart from nothing.
const LEAST: f64 = 0.001;

/// A job that is known well enough to say what a problem costs.
#[derive(Debug, Clone)]
pub(crate) struct Priced {
    job: Job,
    offered: Job,
    measured: Option<Measured>,
}

impl Priced {
    /// The job of a log and a job file; none where they do not say enough.
    pub(crate) fn of(logged: &Logged, file: &Value) -> Option<Self> {
        let Described { job, offered, .. } = logged.job(file).ok()?;
        seconds(&job)?;
        Some(Self { job, offered, measured: logged.measured.clone() })
    }

    /// GPUs of a node that exchange data as `now` says, not as the machine offers.
    pub(crate) fn inside(&self, now: &Inside) -> Option<Price> {
        let Inside::Pci { peer_to_peer } = now else { return None };
        let mut problem = self.job.clone();
        // Through the PCI Express links, whatever joins the GPUs besides.
        problem.cluster.intra =
            inside(&Job { cluster: over_pci(&self.offered), ..self.offered.clone() }, !peer_to_peer);
        let mut repaired = self.job.clone();
        repaired.cluster.intra = self.offered.cluster.intra;
        self.price(&problem, &repaired)
    }

    /// Nodes that are joined as `now` says, not as `best` does.
    pub(crate) fn across(&self, best: &Between, now: &Between) -> Option<Price> {
        let offered = self.offered.cluster.inter?;
        let mut repaired = self.job.clone();
        repaired.cluster.inter = Some(Inter { gpudirect: best.gpudirect, ..offered });
        let problem = if now.kind == NicKind::Ethernet && best.kind != NicKind::Ethernet {
            repaired.with("network=tcp").ok()?
        } else {
            let mut problem = repaired.clone();
            // The catalogue counts interfaces, NCCL devices: the part of them that is used is the same.
            let nics = u64::from(offered.nics) * u64::from(now.nics) / u64::from(best.nics.max(1));
            let nics = u32::try_from(nics).ok()?.max(1);
            problem.cluster.inter = Some(Inter { nics, gpudirect: now.gpudirect, ..offered });
            problem
        };
        self.price(&problem, &repaired)
    }

    /// GPUs of `nodes` machines in pods of one GPU, instead of one pod with all.
    pub(crate) fn apart(&self, nodes: u32, gpus: u32) -> Option<Price> {
        let mut problem = self.job.clone();
        (problem.cluster.nodes, problem.cluster.pods, problem.cluster.gpus) = (nodes, gpus, 1);
        let mut repaired = problem.clone();
        (repaired.cluster.pods, repaired.cluster.gpus) = (1, gpus);
        repaired.cluster.intra = self.offered.cluster.intra;
        self.price(&problem, &repaired)
    }

    /// Links of which NCCL's rings use this share: those between nodes, or those inside a node.
    pub(crate) fn rings(&self, share: f64, between_nodes: bool) -> Option<Price> {
        let mut problem = self.job.clone();
        match (&mut problem.cluster.inter, &mut problem.cluster.intra) {
            (Some(inter), _) if between_nodes => inter.rate.0 *= share,
            (None, _) if between_nodes => return None,
            (_, Intra::NvLink { bandwidth, .. } | Intra::Pci { bandwidth } | Intra::Host { bandwidth }) => {
                bandwidth.0 *= share;
            }
        }
        self.price(&problem, &self.job)
    }

    /// One CPU thread for the optimizer of each rank, instead of its share of the cores.
    pub(crate) fn one_thread(&self) -> Option<Price> {
        let cluster = &self.job.cluster;
        let ranks = u32::try_from(cluster.on_node()).ok()?.max(1);
        // Two hardware threads of a core share its units.
        let cores = cluster.cpus? / 2 / ranks;
        let with = |threads: u32| {
            let mut job = self.job.clone();
            job.run.omp_threads = Some(threads.max(1));
            job
        };
        self.price(&with(1), &with(cores))
    }

    fn price(&self, problem: &Job, repaired: &Job) -> Option<Price> {
        let (with, without) = (seconds(problem)?, seconds(repaired)?);
        let share = 1.0 - without / with;
        if !share.is_finite() || share < LEAST {
            return None;
        }
        let step = self.measured.as_ref().map_or(with, |it| it.seconds);
        Some(Price {
            seconds: share * step,
            step,
            measured: self.measured.is_some(),
            run: self.run(step),
            nodes: self.job.cluster.nodes,
        })
    }

    /// The whole run, as measured or else as planned, with steps of `step` seconds.
    fn run(&self, step: f64) -> Option<WholeRun> {
        #[allow(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
        let planned = self.job.steps? as f64;
        Some(match self.measured.as_ref().and_then(|it| it.run) {
            // A run that began at a checkpoint has fewer steps than are planned.
            Some(seconds) => WholeRun { steps: planned.min(seconds / step), seconds },
            None => WholeRun { steps: planned, seconds: planned * step + self.job.startup.0 },
        })
    }
}

/// A cluster whose GPUs are joined by PCI Express.
fn over_pci(job: &Job) -> forecast::training::Cluster {
    let link = match job.cluster.intra {
        Intra::NvLink { .. } => Intra::Pci { bandwidth: job.cluster.host_link },
        other => other,
    };
    forecast::training::Cluster { intra: link, ..job.cluster }
}

/// The predicted time of a step; none where the layout is impossible.
fn seconds(job: &Job) -> Option<f64> {
    let calibration = Calibration::published();
    let step = Predictor::new(&calibration, &job.model, &job.cluster).step(&job.run).ok()?;
    Some(step.time.0).filter(|it| it.is_finite() && *it > 0.0)
}
