//! Layouts as rows of a table. Columns in which no row differs from the usual are left out.

use std::io::{self, Write};

use super::{Layout, Offload};
use crate::expect::shown;
use crate::text::wrap;

/// A row.
pub(super) struct Row<'a> {
    pub(super) layout: &'a Layout,
    /// Its time over that of the best.
    pub(super) ratio: f64,
    pub(super) why: &'a str,
}

pub(crate) struct Column {
    pub(crate) head: &'static str,
    /// Shown even if no row differs.
    always: bool,
    usual: &'static str,
    pub(crate) cell: fn(&Layout) -> String,
}

fn offload(it: Offload) -> &'static str {
    match (it.params, it.optimizer) {
        (true, true) => "both",
        (true, false) => "params",
        (false, true) => "optim",
        (false, false) => "none",
    }
}

const COLUMNS: [Column; 10] = [
    Column { head: "tp", always: true, usual: "1", cell: |it| it.tp.to_string() },
    Column { head: "pp", always: true, usual: "1", cell: |it| it.pp.to_string() },
    Column { head: "vpp", always: false, usual: "1", cell: |it| it.vpp.to_string() },
    Column { head: "cp", always: false, usual: "1", cell: |it| it.cp.to_string() },
    Column { head: "ep", always: false, usual: "1", cell: |it| it.ep.to_string() },
    Column { head: "dp", always: true, usual: "1", cell: |it| it.dp.to_string() },
    Column { head: "zero", always: false, usual: "0", cell: |it| it.zero.to_string() },
    Column { head: "offload", always: false, usual: "none", cell: |it| offload(it.offload).to_owned() },
    Column { head: "micro", always: true, usual: "1", cell: |it| it.micro_batch.to_string() },
    Column { head: "recompute", always: false, usual: "none", cell: |it| it.recompute.to_owned() },
];

/// Columns in which something differs from the usual.
pub(crate) fn columns(all: &[&Layout]) -> Vec<&'static Column> {
    COLUMNS
        .iter()
        .filter(|column| column.always || all.iter().any(|it| (column.cell)(it) != column.usual))
        .collect()
}

/// `+12 %`, `+0.3 %`.
pub(crate) fn slower(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0);
    if percent.abs() < 0.95 { format!("{percent:+.1} %") } else { format!("{percent:+.0} %") }
}

/// Writes all rows; `all` decides the columns, so that several tables have the same.
pub(super) fn write(
    title: &str,
    all: &[&Layout],
    rows: &[Row<'_>],
    width: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let shown_columns = columns(all);
    let widths: Vec<usize> = shown_columns
        .iter()
        .map(|column| all.iter().map(|it| (column.cell)(it).len()).max().unwrap_or(0).max(column.head.len()))
        .collect();
    let join = |cells: Vec<String>| {
        let cells = cells.into_iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        cells.collect::<Vec<_>>().join(" ")
    };
    let head = join(shown_columns.iter().map(|it| it.head.to_owned()).collect());
    let why = rows.iter().any(|it| !it.why.is_empty());
    writeln!(out, "\n  {title}")?;
    let line = format!(
        "  {head} {:>9} {:>7} {:>6}  {}",
        "per step",
        "slower",
        "GiB",
        if why { "why it loses" } else { "" }
    );
    writeln!(out, "{}", line.trim_end())?;
    for row in rows {
        let cells = join(shown_columns.iter().map(|it| (it.cell)(row.layout)).collect());
        let time = row.layout.time.to_string();
        let percent = if (row.ratio - 1.0).abs() < 5e-5 { String::new() } else { slower(row.ratio) };
        let start = format!("  {cells} {time:>9} {percent:>7} {:>6}  ", shown(row.layout.memory_gib));
        let indent = start.chars().count();
        let lines =
            if row.why.is_empty() { Vec::new() } else { wrap(row.why, width.saturating_sub(indent).max(24)) };
        let first = lines.first().map_or("", String::as_str);
        writeln!(out, "{}", format!("{start}{first}").trim_end())?;
        for line in lines.iter().skip(1) {
            writeln!(out, "{:indent$}{line}", "")?;
        }
    }
    Ok(())
}
