//! What NCCL decides on a machine, by release and environment.

mod gpudirect;
mod graph;
mod nics;
mod path_type;
mod paths;
mod search;
mod settings;

pub use gpudirect::GpuDirect;
pub use path_type::{Path, PathType};
pub use paths::{Device, Paths, Seat, TooLarge};
pub use settings::{Level, Network, Origin, Settings};
