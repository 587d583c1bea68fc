//! What NCCL, its network plugins and libfabric can print, and what the codes in those messages mean.
//!
//! ```text
//! data/*.tsv (made by tools/messages from the sources of each release) -> Entry: one wording at one place of the source
//! data/families.toml (written by hand)                                 -> Family: what the wordings of one message mean
//! data/values/*.csv (written by hand)                                  -> Value: what a CUDA error, an errno, a status means
//! ```
//!
//! This crate knows texts, not logs: `evidence` says what was printed by whom, `rules` judge it, `explain` shows it.

#![forbid(unsafe_code)]

mod component;
mod entry;
pub mod family;
mod known;
mod matcher;
mod nearest;
pub mod values;

pub use component::component;
pub use entry::{Entry, Hole, Level, Outcome, Part, Product, Shape, all};
pub use known::{Known, look_up};
pub use matcher::{Filled, Hint, Match, find, prepare};
pub use nearest::nearest;
