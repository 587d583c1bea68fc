//! `plumb topo --decide`: what NCCL decides for a job, in words, in NCCL's own lines and as JSON. Schema `plumb.decide/1`.

mod assemble;
mod check;
mod check_text;
pub(crate) mod crossing;
mod limit;
mod model;
mod spans;
pub(crate) mod text;
mod what_if;

use std::io::{self, Write};

pub use assemble::DecideParts;
pub use check::{Check, CommunicatorCheck, KindCount, Verdict};
pub use check_text::check_text;
pub use model::{
    Cell, Change, Channels, Crossing, Decide, Graph, GraphChannel, Limit, Range, Ranges, Setting, Speed,
    Tuner, Unheeded, Use, WhatIf,
};
pub use text::{lines, text, what_if_text};
pub use what_if::what_if;

/// Writes the answer as JSON.
pub fn json(decide: &Decide, out: &mut impl Write) -> io::Result<()> {
    crate::json::write_json(decide, out)
}

/// Writes the answer of `--check` as JSON.
pub fn check_json(check: &Check, out: &mut impl Write) -> io::Result<()> {
    crate::json::write_json(check, out)
}
