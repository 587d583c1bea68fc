//! From bytes to answers, without files, threads or a clock: what `plumb doctor`, `lint`, `topo`, `expect` and `compare` do between
//! their inputs and what is shown.
//!
//! The binary gives it the files of a disk and the page (`tools/page`) those that were dropped on it, by one contract ([`Files`]), so
//! that both give the same answer.

#![forbid(unsafe_code)]

pub mod archive;
pub mod compare;
pub mod context;
pub mod decide;
pub mod doctor;
mod excerpts;
pub mod expect;
mod files;
pub mod flags;
pub mod fleet;
pub mod lint;
pub mod packed;
pub mod read;
pub mod run;
pub mod topo;

pub use files::{Files, Source, beginning, lines, text, whole};
pub use read::{Inputs, Unreadable};
