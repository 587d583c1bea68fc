//! The job: what runs where, with which settings, and who says so.
//!
//! ```text
//! logs, tables          -> evidence::Case         \
//! manifests, scripts    -> evidence::Submission    > Job -> nccl, forecast, rules, manifest
//! catalogue, cluster file, live node, flags       /
//! ```
//!
//! A question such as "which machine is this", "how many nodes", "how many GPUs does this pod ask for" or "what is
//! `NCCL_IB_DISABLE` here" has one answer, given here once and used by every command. A value carries its [`Source`]; two
//! sources that disagree are both kept, as a [`Conflict`].

#![forbid(unsafe_code)]

pub mod channel;
pub mod cluster_file;
pub mod known;
pub mod machine;
mod releases;
pub mod settings;

use fabric::{Layout, Machine};

pub use known::{Conflict, Known, Source};
pub use releases::Releases;
pub use settings::{Scope, Setter, Settings, Variable};

/// What runs where, with which settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Job {
    /// Its machines, as far as they differ; one stands for all that are like it.
    pub machines: Vec<Known<Machine>>,
    /// How its ranks lie on them.
    pub layout: Option<Known<Layout>>,
    /// Its environment variables.
    pub settings: Settings,
    /// The software it runs.
    pub releases: Releases,
    /// What its sources disagree about.
    pub conflicts: Vec<Conflict>,
}

impl Job {
    /// What NCCL sees of the settings.
    pub fn effective_settings(&self) -> fabric::Settings {
        self.settings.effective(self.releases.nccl.as_ref().map(|it| it.value))
    }
}
