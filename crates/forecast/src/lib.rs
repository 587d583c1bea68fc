//! From decisions to numbers: the bandwidth that is normal.

#![forbid(unsafe_code)]

mod algorithm;
mod cluster;
pub mod constants;
mod decided;
mod expected;
mod judge;
mod model;
mod normal;
mod regime;
mod rings;
mod shape;
pub mod training;
mod wire;

pub use algorithm::{Algorithm, Ceiling};
pub use cluster::{Allowed, Between, Cluster, Impossible, Inside};
pub use decided::Origin;
pub use expected::{Expected, expect};
pub use judge::{Judgement, Verdict, describe, judge};
pub use model::Model;
pub use normal::{Normal, NormalAt, normal, table};
pub use shape::Shape;
pub use wire::Wire;
