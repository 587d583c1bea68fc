//! What NCCL decides on a machine, by release and environment.
//!
//! ```text
//! Machine, Settings -> graph -> search -> detour -> Paths     the way between any two devices
//! Paths, Layout     -> Job -> transport, near_nics, losses    what ranks do with them
//! ```
//!
//! The files are named after what NCCL's own `src/graph` and `src/transport` decide. Paths are compared with the logs of
//! real NCCL line by line; see `cases/oracle-*`.

#![forbid(unsafe_code)]

mod detour;
mod gpudirect;
mod graph;
mod job;
mod layout;
mod losses;
mod nics;
mod path_type;
mod paths;
mod search;
mod settings;
mod transport;

pub use gpudirect::GpuDirect;
pub use job::Job;
pub use layout::{Layout, Unfit};
pub use losses::Loss;
pub use nics::NearNics;
pub use path_type::{Path, PathType};
pub use paths::{Device, Paths, Scope, Seat, TooLarge};
pub use settings::{Level, Network, Origin, Settings};
pub use transport::{Decision, Reason};
