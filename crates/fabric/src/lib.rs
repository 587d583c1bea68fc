//! The vocabulary of GPU interconnects: versions, units, transports, and the catalogue of hardware, variables and terms as data.
//!
//! Nothing here reads a file or knows a log format. Every external number is in `data/` with its source.

#![forbid(unsafe_code)]

mod assembly;
pub mod catalogue;
pub mod collective;
mod cpus;
pub mod glossary;
pub mod gpu;
mod grouped;
pub mod image;
pub mod instance;
pub mod layout;
pub mod link;
pub mod machine;
pub mod path;
pub mod settings;
pub mod support;
pub mod transport;
pub mod units;
pub mod variable;
mod version;

pub use collective::Collective;
pub use cpus::CpuSet;
pub use gpu::GpuClass;
pub use layout::{Layout, Placement, RankPlace};
pub use machine::Machine;
pub use path::PathType;
pub use settings::{Network, Settings};
pub use transport::{P2pKind, Transport};
pub use version::Version;
