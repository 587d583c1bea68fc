//! The job: what runs where, with which settings, and the source of each value.
//!
//! ```text
//! logs, tables                              -> evidence::Case       -> Job
//! catalogue, cluster file, live node, flags -> Description          -> Job
//! manifests, scripts                        -> evidence::Submission -> submitted::Submitted
//! ```
//!
//! A question such as "which machine is this", "how many nodes", "how many GPUs does this pod request" or "what is
//! `NCCL_IB_DISABLE` here" has one answer, given here once and used by every command. A value carries its [`Source`]; two
//! sources that disagree are both kept, as a [`Conflict`].

#![forbid(unsafe_code)]

pub mod channel;
pub mod cluster_file;
pub mod culprit;
mod description;
pub mod failure;
pub mod finished;
mod hardware;
pub mod inside;
pub mod invariants;
pub mod known;
pub mod launch;
mod logged;
pub mod machine;
pub mod outcome;
pub mod rank;
pub mod recorder;
mod releases;
pub mod settings;
pub mod size;
pub mod submitted;
pub mod training;
mod variables;
pub mod watchdog;
pub mod whose;

#[cfg(test)]
mod testing;

use fabric::catalogue::Model;
use fabric::instance::Instance;
use fabric::{Layout, Machine};

pub use culprit::{FailureKind, FirstFailure};
pub use description::{Description, LayoutFlags};
pub use hardware::Hardware;
pub use invariants::{Invariant, Violation};
pub use known::{Conflict, Known, Source};
pub use launch::PastedLaunch;
pub use outcome::{Outcome, Setup, State};
pub use rank::{GpuIds, Rank};
pub use releases::{PluginRelease, Releases, Stack};
pub use settings::{Scope, Setter, Settings, Variable};
pub use size::Size;

/// What runs where, with which settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Job {
    /// Its machines, as far as they differ; one represents all that are like it.
    pub machines: Vec<Known<Machine>>,
    /// What its sources call the machine, whether the catalogue has it or not.
    pub machine_name: Option<Known<Box<str>>>,
    /// The catalogue's entry of the first machine, where a source names one.
    pub model: Option<Known<&'static Model>>,
    /// The model of its GPUs, where a flag names it.
    pub gpu: Option<Known<&'static fabric::gpu::GpuModel>>,
    /// Whether it is known which device of the first machine is below which switch.
    pub wired: bool,
    /// How its ranks lie on them, where all machines have equally many.
    pub layout: Option<Known<Layout>>,
    /// How many ranks, nodes and hosts it has.
    pub size: Size,
    /// The ranks whose lines were read.
    pub ranks: Vec<Rank>,
    /// Its environment variables.
    pub settings: Settings,
    /// The software it runs.
    pub releases: Releases,
    /// The commands that start its ranks, as they are pasted beside a log.
    pub launches: Vec<PastedLaunch>,
    /// How it ended.
    pub outcome: Outcome,
    /// The earliest failure, where something failed.
    pub first_failure: Option<FirstFailure>,
    /// What its sources disagree about.
    pub conflicts: Vec<Conflict>,
    /// Where its lines contradict what holds in every job.
    pub violations: Vec<Violation>,
}

impl Job {
    /// What NCCL sees of the settings.
    pub fn effective_settings(&self) -> fabric::Settings {
        self.settings.effective(self.releases.nccl.as_ref().map(|it| it.value))
    }

    /// Whether it runs on AMD's GPUs, with RCCL.
    pub fn is_on_amd(&self) -> bool {
        self.releases.stack.as_ref().is_some_and(|it| it.value == Stack::Amd)
    }

    /// The AWS instance type of its machine, where it is one.
    pub fn instance(&self) -> Option<&'static Instance> {
        self.model()?.instance
    }

    /// The catalogue's entry of its machine.
    pub fn model(&self) -> Option<&'static Model> {
        self.model.as_ref().map(|it| it.value)
    }
}
