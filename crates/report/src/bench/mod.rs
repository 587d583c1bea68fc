//! `plumb bench`: what was measured, as nccl-tests' table, in words, as JSON and as pictures.

mod compare;
mod model;
mod nccl_tests;
mod plot;
mod summary;
mod svg;
mod table;
mod time;

pub use compare::{Comparison, Line, compare, read};
pub use model::{
    Bench, BenchConfig, BenchCrowded, BenchDevice, BenchExpected, BenchFit, BenchMeasure, BenchRow,
    BenchWrong, Context,
};
pub use nccl_tests::nccl_tests;
pub use plot::plot;
pub use summary::summary;
pub use svg::svg;
pub use table::{footer, header, row};

use std::io::{self, Write};

/// Writes it for programs: schema `plumb.bench/1`.
pub fn json(bench: &Bench, out: &mut impl Write) -> io::Result<()> {
    crate::json::write_json(bench, out)
}
