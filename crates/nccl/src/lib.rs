//! What NCCL decides on a machine, by release and environment.
//!
//! ```text
//! Machine, Settings -> graph -> search -> detour -> Paths           the path between any two devices
//! Paths, Layout     -> Decisions -> transport, near_nics, losses    what ranks do with them
//! Decisions         -> Survey                                       all of it for one machine, as plain data
//! ```
//!
//! The files are named after what NCCL's own `src/graph` and `src/transport` decide. Paths are compared with the logs of
//! real NCCL line by line; see `cases/oracle-*`.

#![forbid(unsafe_code)]

mod decisions;
mod detour;
mod gpudirect;
mod graph;
mod losses;
mod nics;
mod path;
mod paths;
mod search;
mod survey;
mod transport;

pub use decisions::{Decisions, Undecidable};
pub use fabric::{Layout, PathType, Settings};
pub use gpudirect::GpuDirect;
pub use losses::Loss;
pub use nics::NearNics;
pub use path::Path;
pub use paths::{Device, Paths, TooLarge, VisibleDevice, VisibleDevices};
pub use survey::{Between, NicUse, Survey, SurveyedPath, TransportUse};
pub use transport::{Decision, Reason};
