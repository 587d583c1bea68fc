//! What a training job takes: the time of a step, where it goes, and memory.
//!
//! A [`Model`] on a [`Cluster`], spread as a [`Run`] says, is predicted by a [`Predictor`]. Computation is added up by operator
//! (`compute`), communication by group of ranks (`comm`), both are put into the schedule of the framework (`schedule`, `zero`,
//! `offload`), and memory is counted for the GPU that needs most (`memory`). What hardware and software reach is data
//! (`data/training.toml`).

pub mod change;
mod check;
mod comm;
mod compute;
pub mod constants;
mod hardware;
mod job;
mod measured;
mod memory;
mod model;
pub mod models;
mod offload;
mod predict;
mod run;
mod schedule;
mod step;
mod timeline;
mod zero;

pub use check::Broken;
pub use hardware::{Cluster, Gpu, Inter, Intra};
pub use job::{Job, JobError};
pub use measured::{Curve, Measured};
pub use model::{Experts, Model};
pub use predict::{Calibration, Predictor};
pub use run::{Framework, Libraries, ModelCode, Offload, Precision, Recompute, Run};
pub use schedule::pipeline_layout;
pub use step::{Breakdown, Kind, Memory, Part, Seconds, Step};
pub use timeline::{PassSpan, Span, StageTimeline, Timeline, TooMany};
