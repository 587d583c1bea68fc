//! What `plumb topo --write-topo-file` and `--write-cluster` answer. Schema `plumb.written/1`.

use std::io::{self, Write};

use anstyle::Style as Ansi;
use forecast::Cluster;
use serde::Serialize;

use crate::Style;
use crate::json::write_json;
use crate::text::{clean, padded, wrap};
use crate::topo::words::number;

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Written {
    /// `plumb.written/1`.
    pub schema: &'static str,
    /// Its name.
    pub file: String,
    /// `topology` or `cluster`.
    pub kind: &'static str,
    /// What it contains.
    pub summary: String,
    /// How to use it.
    pub usage: String,
    /// Where the machine's description comes from.
    pub source: String,
    /// What is left out or assumed.
    pub notes: Vec<String>,
}

impl Written {
    /// Writes the answer as JSON.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        write_json(self, out)
    }

    /// Writes the answer for people.
    pub fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let room = style.width.clamp(40, 160).saturating_sub(8);
        let head = format!("{}: {}", clean(&self.file), clean(&self.summary));
        for line in wrap(&head, room + 8) {
            writeln!(out, "{}", style.paint(&line, Ansi::new().bold()))?;
        }
        let rows = [("from", &self.source), ("use", &self.usage)];
        for (label, text) in rows.into_iter().chain(self.notes.iter().map(|it| ("note", it))) {
            for (at, line) in wrap(&clean(text), room).iter().enumerate() {
                let label = if at == 0 { label } else { "" };
                writeln!(out, "  {} {line}", style.paint(&padded(label, 5), Ansi::new().dimmed()))?;
            }
        }
        Ok(())
    }
}

/// What is expected of a described machine and of its cluster file, where that differs: a sentence.
pub fn differing_expectation(described: &Cluster, file: &Cluster) -> Option<String> {
    let sizes = [1 << 20, 64 << 20, 1 << 30];
    let of = |it: &Cluster| forecast::table(fabric::Collective::AllReduce, it, &sizes);
    let (described, file) = (of(described), of(file));
    let apart = |a: f64, b: f64| (a - b).abs() > 0.02 * a.max(b);
    let pairs = described.iter().zip(&file);
    let (a, b) = pairs.rev().find(|(a, b)| apart(a.normal.expected, b.normal.expected))?;
    Some(format!(
        "A cluster file has no wiring: with it plumb expects {} GB/s of an all_reduce of {}, with this description {} GB/s.",
        number(b.normal.expected),
        crate::text::bytes(a.bytes),
        number(a.normal.expected)
    ))
}
