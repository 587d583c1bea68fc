//! Measures collectives: plan, results, statistics, fit and comparison as plain data, and the engines that run them.
//!
//! The data builds anywhere. The engines, host memory and NCCL, need Linux and the feature `engines`.

mod change;
mod compare;
mod data;
#[cfg(all(target_os = "linux", feature = "engines"))]
pub mod engines;
mod failure;
mod fit;
mod layout;
mod plan;
mod read;
pub mod record;
mod run;
pub mod statistics;

pub use change::{Change, Drift, Times, Verdict, change};
pub use compare::{Comparison, Difference, Incomparable, Line, What, compare};
pub use data::{DataType, EngineKind, Operation};
pub use failure::{Cause, Exchange, Failure};
pub use fit::{CEILING, FLOOR, Fit, Point, Regime, Regimes, fit};
pub use layout::{Layout, works_in_place};
pub use plan::{
    Average, LEAST_ITERATIONS, LEAST_SECONDS, Plan, Series, Sizes, Step, has_root, reduces, shown_operation,
};
pub use read::read;
pub use record::Record;
pub use run::{Device, Element, Oversubscribed, Row, Run, Segments, Timing, Wrong};
