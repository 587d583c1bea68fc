//! From decisions to numbers: the bandwidth that is normal.

#![forbid(unsafe_code)]

mod algorithm;
mod cluster;
pub mod constants;
mod expected;
mod judge;
mod normal;
mod rings;

pub use algorithm::{Algorithm, Ceiling};
pub use cluster::{Allowed, Between, Cluster, Impossible, Inside};
pub use expected::{Expected, expect};
pub use judge::{Judgement, Verdict, describe, judge};
pub use normal::{Normal, NormalAt, normal, table};
