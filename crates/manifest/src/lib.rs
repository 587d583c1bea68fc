//! Generates manifests, batch scripts and environments for `plumb manifest` and `plumb env`.
//!
//! ```text
//! Request -> Plan (checked, with the numbers of the hardware) -> text of one kind
//! ```
//!
//! The text is YAML or a script with short comments that say why. Counts come from the catalogue; user input is checked or quoted, never
//! pasted.

#![forbid(unsafe_code)]

pub mod bind;
pub mod cluster_file;
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
pub mod topology_file;
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
    /// Plain Kubernetes: an indexed `Job` and a headless `Service`.
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

/// The options of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What is submitted.
    pub kind: Kind,
    /// The machine, from [`fabric::catalogue::resolve`].
    pub machine: &'static Model,
    /// The number of nodes, which is the number of pods.
    pub nodes: u32,
    /// GPUs per pod; `None` for all GPUs of the machine.
    pub gpus: Option<u32>,
    /// The container image. Optional in a Slurm script.
    pub image: Option<String>,
    /// The name of the job.
    pub name: Option<String>,
    /// The namespace, or `None` for the current one of `kubectl`.
    pub namespace: Option<String>,
    /// The availability zone, or `None` for any single zone.
    pub zone: Option<String>,
    /// The Kueue queue, which starts all pods or none; for Slurm the partition.
    pub queue: Option<String>,
    /// nccl-tests instead of training. A command then replaces `all_reduce_perf` with its usual sizes.
    pub nccl_tests: bool,
    /// The program and its arguments, as given: `train.py --steps 100`.
    pub command: Vec<String>,
    /// Variables that the program itself needs, each with its value and why.
    pub variables: Vec<Variable>,
}

/// A variable of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: &'static str,
    /// Why the program needs it, as a sentence.
    pub why: &'static str,
}

impl Request {
    /// A request for a kind and machines, without the optional fields.
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
            variables: Vec::new(),
        }
    }
}

/// Writes the manifest. The error is a sentence for the user.
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

/// Writes an Indexed Job whose pods wait, one per node, so that programs can be started in them with `kubectl exec`. They
/// end after as many seconds, and the job is deleted a minute later. The command of the request is not used.
pub fn write_waiting(request: &Request, seconds: u32) -> Result<String, String> {
    let waiting =
        Request { kind: Kind::Job, command: vec!["sleep".to_owned()], nccl_tests: false, ..request.clone() };
    let plan = Plan::new(&waiting)?;
    Ok(job::waiting(&plan, seconds))
}
