//! From decisions to numbers: the bandwidth that is normal.

#![forbid(unsafe_code)]

mod algorithm;
mod candidate;
mod cluster;
mod constant;
pub mod constants;
mod decided;
mod digits;
mod expected;
mod group;
mod judge;
mod model;
mod normal;
pub mod plan;
mod regime;
mod release;
mod rings;
mod seen;
mod shape;
pub mod training;
mod wire;

pub use algorithm::{Algorithm, Ceiling};
pub use cluster::{Allowed, Between, Cluster, Impossible, Inside};
pub use decided::Origin;
pub use digits::{rounded, shown};
pub use expected::{Expected, expect};
pub use group::{Dimension, Parallel};
pub use judge::{Judgement, Verdict, describe, judge, verdict};
pub use model::Model;
pub use normal::{Normal, NormalAt, Possible, normal, table};
pub use shape::Shape;
pub use wire::Wire;
