//! Manifests, batch scripts and environments that are right from the start: what `plumb manifest` and `plumb env` write.
//!
//! ```text
//! Request -> Plan (checked, with the hardware's numbers) -> text of one kind
//! ```
//!
//! The text is YAML or a script with short comments that say why. Counts come from the catalogue; what a person gave is checked or
//! quoted, never pasted.

#![forbid(unsafe_code)]

pub mod environment;
mod hardware;
mod job;
mod jobset;
mod mpijob;
mod plan;
mod pod;
mod program;
mod pytorchjob;
mod sbatch;
mod text;
mod trainjob;

use fabric::catalogue::Model;

use plan::Plan;

/// What is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Kubeflow Trainer v2: a `TrainJob` and the runtime it refers to.
    TrainJob,
    /// Kubeflow training operator: a `PyTorchJob`.
    PyTorchJob,
    /// Kubeflow MPI operator: an `MPIJob` of `v2beta1`.
    MpiJob,
    /// A `JobSet`.
    JobSet,
    /// Nothing but Kubernetes: an indexed `Job` and a headless `Service`.
    Job,
    /// A script for Slurm.
    Sbatch,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::TrainJob, Self::PyTorchJob, Self::MpiJob, Self::JobSet, Self::Job, Self::Sbatch];

    /// `trainjob`, `pytorchjob`, `mpijob`, `jobset`, `job`, `sbatch`.
    pub fn name(self) -> &'static str {
        match self {
            Self::TrainJob => "trainjob",
            Self::PyTorchJob => "pytorchjob",
            Self::MpiJob => "mpijob",
            Self::JobSet => "jobset",
            Self::Job => "job",
            Self::Sbatch => "sbatch",
        }
    }

    /// The kind of this name, in any case.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name().eq_ignore_ascii_case(name))
    }
}

/// What a person asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What is submitted.
    pub kind: Kind,
    /// The machine, from [`fabric::catalogue::resolve`].
    pub machine: &'static Model,
    /// How many nodes, which is how many pods.
    pub nodes: u32,
    /// GPUs of a pod; all of the machine's where none is said.
    pub gpus: Option<u32>,
    /// The container image. A script for Slurm can do without.
    pub image: Option<String>,
    /// The name of the job.
    pub name: Option<String>,
    /// The namespace, or none to take the one of the person who applies it.
    pub namespace: Option<String>,
    /// The availability zone, or none for any one.
    pub zone: Option<String>,
    /// The queue of Kueue, which starts all pods or none; for Slurm the partition.
    pub queue: Option<String>,
    /// nccl-tests instead of training. A command then replaces `all_reduce_perf` with its usual sizes.
    pub nccl_tests: bool,
    /// The program and its arguments, as they are given: `train.py --steps 100`.
    pub command: Vec<String>,
}

impl Request {
    /// A request of a kind for some machines; everything else is left open.
    pub fn new(kind: Kind, machine: &'static Model, nodes: u32) -> Self {
        Self {
            kind,
            machine,
            nodes,
            gpus: None,
            image: None,
            name: None,
            namespace: None,
            zone: None,
            queue: None,
            nccl_tests: false,
            command: Vec::new(),
        }
    }
}

/// Writes the manifest. The error is a sentence for the person who asked.
pub fn write(request: &Request) -> Result<String, String> {
    let plan = Plan::new(request)?;
    match request.kind {
        Kind::TrainJob => trainjob::write(&plan),
        Kind::PyTorchJob => pytorchjob::write(&plan),
        Kind::MpiJob => mpijob::write(&plan),
        Kind::JobSet => jobset::write(&plan),
        Kind::Job => job::write(&plan),
        Kind::Sbatch => sbatch::write(&plan),
    }
}
