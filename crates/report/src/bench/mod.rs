//! `plumb bench`: the record of a run as nccl-tests' table, in words, as JSON and as pictures.

pub(crate) mod compare;
mod failure;
mod nccl_tests;
mod plot;
pub(crate) mod summary;
mod svg;
mod table;
mod time;

pub use compare::{comparison_json, comparison_text, incomparable, sentence};
pub use failure::failure;
pub use nccl_tests::nccl_tests;
pub use plot::plot;
pub use summary::summary;
pub use svg::svg;
pub use table::{footer, header, row};

use std::io::{self, Write};

use bench::Record;

/// Writes it for programs: schema `plumb.bench/1`.
pub fn json(record: &Record, out: &mut impl Write) -> io::Result<()> {
    crate::json::write_json(record, out)
}
