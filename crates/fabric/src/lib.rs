//! The vocabulary of GPU interconnects: versions, units, transports, and the
//! catalogue of hardware, variables and words as data.
//!
//! Nothing here reads a file or knows a log format. Every number from outside
//! stands in `data/` with its source.

pub mod glossary;
pub mod instance;
pub mod machine;
pub mod transport;
pub mod units;
pub mod variable;
mod version;

pub use machine::Machine;
pub use transport::{P2pKind, Transport};
pub use version::Version;
