//! What NCCL, its network plugins and libfabric can print, and what the codes in those messages mean.
//!
//! ```text
//! data/*.csv (made by tools/messages from the sources of each release) -> Entry: one wording at one place of the source
//! data/families.toml (written by hand)                                 -> Family: what the wordings of one message mean
//! data/values/*.csv (written by hand)                                  -> Value: what a CUDA error, an errno, a status means
//! ```
//!
//! This crate knows texts, not logs: `evidence` says what was printed by whom, `rules` judge it, `explain` shows it.

#![forbid(unsafe_code)]

pub mod family;
pub mod values;
