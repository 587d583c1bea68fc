//! The paths between devices as a matrix with NCCL's names.

use std::collections::BTreeMap;

use anstyle::{AnsiColor, Style as Ansi};

use fabric::PathType;

use super::words::{names, number};
use super::{Topo, TopoPath, tree};
use crate::text::{clean, cut, padded, width};

/// More devices than this are shown in groups.
const FEW: usize = 16;
/// Above this the matrix is left out.
const MOST: usize = 256;
/// Names of devices are cut to this.
const NAME: usize = 16;

/// A path's name, with what it means. Best first.
const KINDS: [(PathType, &str); 11] = [
    (PathType::Loc, "the device itself"),
    (PathType::Nvl, "over NVLink"),
    (PathType::Nvb, "over NVLink, through another GPU"),
    (PathType::C2c, "over the chip-to-chip link between GPU and CPU"),
    (PathType::Pix, "through one PCIe switch"),
    (PathType::Pxb, "through several PCIe switches, not through the CPU"),
    (PathType::P2c, "through the chip-to-chip link and PCIe"),
    (PathType::Pxn, "over NVLink to the GPU next to the NIC"),
    (PathType::Phb, "through the CPU, inside a NUMA node"),
    (PathType::Sys, "between NUMA nodes"),
    (PathType::Dis, "no connection"),
];

/// A piece of text and its colour.
pub(super) type Piece = (String, Ansi);

/// The rank of a path: 0 is the best.
fn place(kind: PathType) -> usize {
    KINDS.iter().position(|it| it.0 == kind).unwrap_or(KINDS.len())
}

/// From green to red.
pub(super) fn colour(kind: PathType) -> Ansi {
    let colour = |it: AnsiColor| Ansi::new().fg_color(Some(it.into()));
    match kind {
        PathType::Nvl => colour(AnsiColor::Green).bold(),
        PathType::Loc | PathType::Nvb | PathType::C2c | PathType::Pix => colour(AnsiColor::Green),
        PathType::Pxb | PathType::P2c | PathType::Pxn => colour(AnsiColor::Cyan),
        PathType::Phb => colour(AnsiColor::Yellow),
        PathType::Sys | PathType::Dis => colour(AnsiColor::Red),
        PathType::Net => Ansi::new().dimmed(),
    }
}

/// The matrices of GPUs with GPUs and of GPUs with NICs, as lines of coloured pieces.
pub(super) fn matrix(topo: &Topo, room: usize) -> Vec<Vec<Piece>> {
    let paths = Paths::of(topo);
    let mut gpus = tree::gpus(topo);
    let mut nics = tree::nics(topo);
    for path in &topo.paths {
        // Include devices that are not in the drawing.
        for name in [path.from.as_str(), path.to.as_str()] {
            let known = gpus.contains(&name) || nics.contains(&name);
            if !known && gpus.len() + nics.len() <= MOST {
                if name.starts_with("GPU") { gpus.push(name) } else { nics.push(name) }
            }
        }
    }
    if topo.paths.is_empty() || gpus.len() > MOST || nics.len() > MOST {
        return Vec::new();
    }
    nics.retain(|it| gpus.iter().any(|gpu| paths.get(gpu, it).is_some()));
    // Many are shown in groups, which follow the drawing; of few the GPUs are in the order of `nvidia-smi`.
    if gpus.len() + nics.len() <= FEW {
        gpus.sort_by_key(|it| by_number(it));
    }
    let many = gpus.len() + nics.len() > FEW;
    let mut lines = Vec::new();
    // Where the source hides NVLink, no path between GPUs is known.
    if gpus.len() > 1 && topo.paths.iter().any(|it| gpus.contains(&it.to.as_str())) {
        lines.extend(Block::new(&paths, &gpus, &gpus).lines(room, many));
    }
    if !nics.is_empty() {
        if !lines.is_empty() {
            lines.push(Vec::new());
        }
        lines.extend(Block::new(&paths, &gpus, &nics).lines(room, many));
    }
    lines
}

/// `GPU10` after `GPU9`.
pub(crate) fn by_number(name: &str) -> (&str, u64) {
    let bare = name.trim_end_matches(|it: char| it.is_ascii_digit());
    (bare, name.get(bare.len()..).and_then(|it| it.parse().ok()).unwrap_or(0))
}

/// A path type in the matrix, and what it means.
pub(crate) struct Meaning {
    pub(crate) kind: PathType,
    pub(crate) text: String,
}

/// The names in the matrix, best first.
pub(crate) fn meanings(topo: &Topo) -> Vec<Meaning> {
    let mut kinds: BTreeMap<usize, Vec<&TopoPath>> = BTreeMap::new();
    for path in topo.paths.iter().filter(|it| it.from != it.to) {
        kinds.entry(place(path.kind)).or_default().push(path);
    }
    let meaning = |(at, paths): (usize, Vec<&TopoPath>)| {
        let kind = paths[0].kind;
        let mut text = KINDS.get(at).map_or_else(String::new, |it| it.1.to_owned());
        let bandwidths = || paths.iter().filter_map(|it| it.bandwidth).filter(|it| it.is_finite());
        if let (Some(low), Some(high)) = (bandwidths().reduce(f64::min), bandwidths().reduce(f64::max)) {
            let (low, high) = (number(low), number(high));
            let range = if low == high { low } else { format!("{low} to {high}") };
            text.push_str(&format!(", {range} GB/s"));
        }
        let mut other: Vec<&str> = paths
            .iter()
            .map(|it| it.smi.as_str())
            .filter(|it| *it != kind.name() && !it.is_empty())
            .collect();
        other.sort_unstable();
        other.dedup();
        if !other.is_empty() {
            text.push_str(&format!("; {} in nvidia-smi", names(&other)));
        }
        Meaning { kind, text: text.trim_start_matches([',', ';', ' ']).to_owned() }
    };
    kinds.into_iter().map(meaning).collect()
}

struct Paths<'a>(BTreeMap<(&'a str, &'a str), &'a TopoPath>);

impl<'a> Paths<'a> {
    fn of(topo: &'a Topo) -> Self {
        Self(topo.paths.iter().map(|it| ((it.from.as_str(), it.to.as_str()), it)).collect())
    }

    /// A pair may be listed once, in either direction.
    fn get(&self, from: &'a str, to: &'a str) -> Option<&'a TopoPath> {
        self.0.get(&(from, to)).or_else(|| self.0.get(&(to, from))).copied()
    }
}

struct Block<'a> {
    rows: Vec<&'a str>,
    columns: Vec<&'a str>,
    cells: Vec<Vec<Option<&'a TopoPath>>>,
    /// Whether rows and columns are the same devices.
    square: bool,
}

impl<'a> Block<'a> {
    fn new(paths: &Paths<'a>, rows: &[&'a str], columns: &[&'a str]) -> Self {
        let cell = |from: &'a str, to: &'a str| paths.get(from, to).filter(|_| from != to);
        let row = |from: &&'a str| columns.iter().map(|to| cell(from, to)).collect();
        let cells = rows.iter().map(row).collect();
        Self { rows: rows.to_vec(), columns: columns.to_vec(), cells, square: rows == columns }
    }

    /// The text of a cell. A path type with several bandwidths includes the bandwidth.
    fn cell(&self, row: usize, column: usize, with_bandwidth: bool) -> Piece {
        if self.square && row == column {
            return ("-".to_owned(), Ansi::new().dimmed());
        }
        let Some(path) = self.cells[row][column] else { return ("?".to_owned(), Ansi::new().dimmed()) };
        let text = match path.bandwidth.filter(|_| with_bandwidth) {
            Some(it) => format!("{} {}", path.kind, number(it)),
            None => path.kind.name().to_owned(),
        };
        (cut(&text, NAME), colour(path.kind))
    }

    fn has_several_bandwidths(&self) -> bool {
        let mut seen: BTreeMap<usize, f64> = BTreeMap::new();
        self.cells.iter().flatten().flatten().any(|it| {
            let bandwidth = it.bandwidth.unwrap_or(0.0);
            (*seen.entry(place(it.kind)).or_insert(bandwidth) - bandwidth).abs() > 0.05
        })
    }

    fn lines(&self, room: usize, many: bool) -> Vec<Vec<Piece>> {
        let alone: Vec<Vec<usize>> = (0..self.rows.len()).map(|it| vec![it]).collect();
        let columns: Vec<Vec<usize>> = (0..self.columns.len()).map(|it| vec![it]).collect();
        let with = self.has_several_bandwidths();
        if !many {
            for with in [with, false] {
                let table = Table::new(self, &alone, &columns, with);
                if table.width() <= room {
                    return table.lines(room);
                }
            }
        }
        let rows = self.row_groups();
        let columns = if self.square { rows.clone() } else { self.column_groups() };
        let table = Table::new(self, &rows, &columns, with);
        if table.width() <= room {
            table.lines(room)
        } else {
            Table::new(self, &rows, &columns, false).lines(room)
        }
    }

    fn same(one: Option<&TopoPath>, other: Option<&TopoPath>) -> bool {
        match (one, other) {
            (Some(a), Some(b)) => a.kind == b.kind && a.bandwidth == b.bandwidth,
            (None, None) => true,
            _ => false,
        }
    }

    /// Rows that are equal, ignoring the cells between two of them.
    fn row_groups(&self) -> Vec<Vec<usize>> {
        groups(self.rows.len(), |a, b| {
            (0..self.columns.len()).all(|column| {
                let each_other = self.square && (column == a || column == b);
                each_other || Self::same(self.cells[a][column], self.cells[b][column])
            })
        })
    }

    fn column_groups(&self) -> Vec<Vec<usize>> {
        groups(self.columns.len(), |a, b| self.cells.iter().all(|it| Self::same(it[a], it[b])))
    }
}

/// Joins each with the first it is equal to.
fn groups(count: usize, equal: impl Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for it in 0..count {
        match groups.iter_mut().find(|group| equal(group[0], it)) {
            Some(group) => group.push(it),
            None => groups.push(vec![it]),
        }
    }
    groups
}

/// A block with its texts, ready to be laid out.
struct Table {
    rows: Vec<String>,
    columns: Vec<String>,
    cells: Vec<Vec<Piece>>,
}

impl Table {
    fn new(block: &Block<'_>, rows: &[Vec<usize>], columns: &[Vec<usize>], with_bandwidth: bool) -> Self {
        let label = |all: &[&str], group: &Vec<usize>| {
            let list: Vec<&str> = group.iter().map(|it| all[*it]).collect();
            let joined = names(&list);
            if width(&joined) <= NAME || list.len() == 1 {
                return cut(&joined, NAME);
            }
            let first = clean(list[0]);
            let more = format!(" +{}", list.len() - 1);
            format!("{}{more}", cut(&first, NAME - width(&more)))
        };
        let cell = |row: &Vec<usize>, column: &Vec<usize>| {
            // The cell of a group with itself is that of its first and second member.
            let (row, column) = match (row.as_slice(), column.as_slice()) {
                ([a, b, ..], [c, ..]) if block.square && a == c => (*a, *b),
                (a, b) => (a[0], b[0]),
            };
            block.cell(row, column, with_bandwidth)
        };
        Self {
            rows: rows.iter().map(|it| label(&block.rows, it)).collect(),
            columns: columns.iter().map(|it| label(&block.columns, it)).collect(),
            cells: rows.iter().map(|row| columns.iter().map(|it| cell(row, it)).collect()).collect(),
        }
    }

    fn first_width(&self) -> usize {
        self.rows.iter().map(|it| width(it)).max().unwrap_or(0)
    }

    fn column_width(&self, column: usize) -> usize {
        let cells = self.cells.iter().map(|it| width(&it[column].0)).max().unwrap_or(0);
        cells.max(width(&self.columns[column]))
    }

    fn width(&self) -> usize {
        let columns = (0..self.columns.len()).map(|it| self.column_width(it) + 2);
        self.first_width() + columns.sum::<usize>()
    }

    /// As many columns as fit, then the next ones below.
    fn lines(&self, room: usize) -> Vec<Vec<Piece>> {
        let first = self.first_width();
        let mut lines = Vec::new();
        let mut start = 0;
        while start < self.columns.len() {
            let mut end = start;
            let mut used = first;
            while end < self.columns.len() && (end == start || used + self.column_width(end) + 2 <= room) {
                used += self.column_width(end) + 2;
                end += 1;
            }
            if start > 0 {
                lines.push(Vec::new());
            }
            let pad = |text: &str, column: usize| format!("  {}", padded(text, self.column_width(column)));
            let mut head = vec![(" ".repeat(first), Ansi::new())];
            head.extend((start..end).map(|it| (pad(&self.columns[it], it), Ansi::new().bold())));
            lines.push(head);
            for (name, cells) in self.rows.iter().zip(&self.cells) {
                let mut line = vec![(padded(name, first), Ansi::new().bold())];
                line.extend((start..end).map(|it| (pad(&cells[it].0, it), cells[it].1)));
                lines.push(line);
            }
            start = end;
        }
        lines
    }
}
