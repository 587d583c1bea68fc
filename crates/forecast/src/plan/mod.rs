//! Which layout is best: all layouts of a job that are possible, the fastest that fits, and why the others are slower.
//!
//! A [`Space`] holds what may vary, cut into [`Cell`]s; a [`Search`] predicts every layout of a cell with
//! [`training::Predictor`](crate::training::Predictor), so that callers can give cells to threads. What cells [`Found`] is merged in
//! any order to the same result, from which [`Plan`] makes the answer. [`groups`] says which ranks and links the groups of a
//! layout use, [`JobFile`] writes it down.

mod answer;
mod fixed;
mod front;
pub mod groups;
mod job_file;
mod reason;
mod search;
mod space;

pub use answer::{Choice, Other, Plan, Slower};
pub use fixed::{Axis, Fixed};
pub use front::Front;
pub use job_file::JobFile;
pub use reason::{Reason, reasons};
pub use search::{AS_FAST, Candidate, Found, Search};
pub use space::{Cell, Empty, Space};
