//! One result, written for a person or a program.
//!
//! Everything is put into [`Doctor`] first, with owned texts; every format is
//! written from that, and [`redact`] changes it once for all of them.

pub mod explain;
mod json;
mod junit;
mod model;
mod picture;
mod redact;
mod sarif;
mod text;

pub use json::json;
pub use junit::junit;
pub use model::{
    Check, Communicator, Doctor, Edge, Entity, Environment, Evidence, Facts, Finding, FirstFailure, Input, Job, NodePair, NotChecked, Options,
    Rank, Ring, Stack, Test, Training, TreePlace, Verdict,
};
pub use redact::redact;
pub use sarif::sarif;
pub use text::{Style, text};
