//! Collectives over host memory, for ranks that are processes.

mod data;
mod error;
mod link;
mod watch;

pub use data::{DataType, Element, Operation, bf16, f16};
pub use error::{Cause, Error};
