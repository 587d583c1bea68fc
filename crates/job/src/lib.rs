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

pub mod known;
pub mod settings;
pub mod submitted;

pub use known::{Conflict, Known, Source};
pub use settings::{Scope, Setter, Settings, Variable};
