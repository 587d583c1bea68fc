//! `nvidia-smi topo -m` in any text: finds headers, rows and legends, and passes them to `wiring`.
//!
//! A line is its words (`paste`), from the first that names a device on: what a launcher, a comment sign or a table put before it
//! is its label. Rows may come in any order, be cut, or go on in the next line; columns and rows find each other by name, and
//! the `X` of each row shows whether they do so rightly.

use std::borrow::Cow;

use super::paste::{self, Cell};
use super::peers::{self, Peers};
use super::rows::{Header, Row};
use super::{Kind, Topology, Trouble, check_size, count, lines, wiring};
use crate::plain::{Heading, TopologyMatrix};
use crate::source::{Quote, Spot};
use crate::strip::{self, Marks};

/// More than the longest header has.
const LONGEST: usize = 1 << 18;
/// How many lines after a header of unknown names the first row may be.
const NEAR: usize = 6;
/// The most matrices of a text that are looked at.
const MATRICES: usize = 256;

/// The words of a line, without what a container runtime put around it. A line that was made of several is several again.
fn words(line: &[u8], marks: Marks) -> Vec<Vec<String>> {
    let line = line.get(..line.len().min(LONGEST)).unwrap_or_default();
    let line = strip::unwrap(line, marks);
    let text = String::from_utf8_lossy(&line);
    let joined = ["<br", "\\n"].iter().any(|it| text.contains(it));
    if !joined {
        return vec![paste::words(&text)];
    }
    let text = text.replace("<br>", "\n").replace("<br/>", "\n").replace("<br />", "\n").replace("\\n", "\n");
    text.lines().map(paste::words).collect()
}

/// A matrix as far as it was found.
#[derive(Debug)]
struct Draft {
    header: Header,
    number: u64,
    rows: Vec<Row>,
    legend: Vec<(Box<str>, Box<str>)>,
    /// Which paths the legend explains.
    explained: Vec<Box<str>>,
    /// The option of `nvidia-smi topo` above it.
    option: Option<Box<str>>,
    mig: Vec<u64>,
    /// Rows that are left out: a line of `...`.
    elided: bool,
}

impl Draft {
    fn new(header: Header, number: u64, option: Option<Box<str>>) -> Self {
        let (rows, legend, explained, mig) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { header, number, rows, legend, explained, option, mig, elided: false }
    }

    /// Whether it is one of `topo -p2p`.
    fn is_of_peers(&self) -> bool {
        let mut cells = self.rows.iter().flat_map(|it| &it.cells);
        cells.any(|it| matches!(it, Cell::Peer(_)))
            && !self
                .rows
                .iter()
                .flat_map(|it| &it.cells)
                .any(|it| matches!(it, Cell::Path(it) if &**it != "X"))
    }

    /// Whether it is one of `topo -mp`, which shows PCI Express where NVLink is.
    fn hides_nvlink(&self) -> bool {
        let links = |it: &Cell| matches!(it, Cell::Path(it) if it.starts_with("NV"));
        if self.rows.iter().flat_map(|it| &it.cells).any(links) {
            return false;
        }
        let explains = |name: &str| self.explained.iter().any(|it| &**it == name);
        if explains("NV#") {
            return false;
        }
        matches!(self.option.as_deref(), Some("-mp" | "--matrix_pci")) || (explains("SYS") && explains("PIX"))
    }

    /// Takes a line after the header.
    fn take(&mut self, words: &[String], number: u64) {
        let first = words.first().map(String::as_str).unwrap_or_default();
        if let Some(row) = Row::parse(words, &self.header.columns, number) {
            let known = self.rows.iter().find(|it| it.name == row.name);
            if known.is_none_or(|it| (&it.cells, &it.beside) != (&row.cells, &row.beside)) {
                self.rows.push(row);
            }
            return;
        }
        if self.rows.is_empty() && self.header.continues(words) {
            self.header.extend(words);
            return;
        }
        if first.starts_with("MIG") {
            self.mig.push(number);
            return;
        }
        if words.iter().any(|it| paste::cell(it) == Some(Cell::Elided)) && words.len() <= 2 {
            self.elided = true;
            return;
        }
        if let Some(at) = words.iter().position(|it| it == "=") {
            let name = at.checked_sub(1).and_then(|it| words.get(it));
            self.explained.extend(name.map(|it| it.as_str().into()));
            return;
        }
        let column = words.iter().position(|it| {
            it.strip_suffix(':').is_some_and(|it| it.starts_with("NIC") && paste::device(it).is_some())
        });
        if let Some(at) = column
            && let (Some(column), Some(device)) = (words.get(at), words.get(at + 1))
        {
            self.legend.push((column.trim_end_matches(':').into(), device.as_str().into()));
            return;
        }
        // The rest of a row that was wrapped.
        let columns = self.header.columns.len();
        if let Some(row) = self.rows.last_mut().filter(|it| !it.is_elided() && it.number + 1 == number) {
            let goes_on = row.beside.is_empty()
                && row.cells.len() < columns
                && paste::cell(first).is_some_and(|it| it != Cell::Elided);
            let beside = row.cells.len() == columns
                && row.beside.len() < self.header.headings.len()
                && first.starts_with(|it: char| it.is_ascii_digit())
                && row.name.starts_with("GPU");
            if goes_on || beside {
                row.extend(words, columns);
                row.number = number;
            }
        }
    }

    /// The matrix, and what is unusual about its lines.
    fn finish(&self, ends_early: bool) -> Result<(TopologyMatrix, Vec<String>), Trouble> {
        let mut notes = Vec::new();
        let mut header = self.named_by_rows(&mut notes)?;
        if let Some(gap) = header.gap {
            let left_out = header.left_out(gap);
            notes.push(if gap == header.columns.len() {
                "The header ends with `...`: there may be more devices than are shown.".to_owned()
            } else {
                format!("The header leaves out {} with `...`.", left_out.join(", "))
            });
            header.to_mut().columns.splice(gap..gap, left_out);
        }
        let mut matrix =
            TopologyMatrix::new(header.columns.clone(), header.headings.clone(), quote(self.number));
        for (at, row) in self.rows.iter().enumerate() {
            let (mut paths, stopped) = row.paths(&header);
            // A column `CPU` is not a device of the matrix.
            if paths.len() > header.columns.len() {
                if header.headings != [Heading::Cpus] {
                    let (found, wanted) = (paths.len(), header.columns.len());
                    return Err(Trouble::at(
                        row.number,
                        format!("the row of {} has {found} paths, the header {wanted} columns", row.name),
                    ));
                }
                paths.truncate(header.columns.len());
            }
            // The text ends inside this row, so its last word may be a part of one.
            let cut = paths.len() < header.columns.len()
                || row.beside.is_empty() && !header.headings.is_empty() && row.name.starts_with("GPU");
            if ends_early && at + 1 == self.rows.len() && cut && !row.is_elided() {
                paths.pop();
            }
            matrix.push_row(&row.name, paths, &row.beside, stopped, spot(row.number));
        }
        for (column, device) in &self.legend {
            matrix.name_column(column, device);
        }
        matrix.hides_nvlink = self.hides_nvlink();
        if let Some(line) = self.mig.first() {
            notes.push(format!(
                "MIG devices are left out ({} from line {line} on).",
                count(self.mig.len(), "line")
            ));
        }
        Ok((matrix, notes))
    }

    /// The header; if it is cut or missing, with the names of the rows, where each row's `X` confirms its place.
    fn named_by_rows(&self, notes: &mut Vec<String>) -> Result<Cow<'_, Header>, Trouble> {
        let columns = self.header.columns.len();
        let wide = self.rows.iter().map(|it| it.cells.len()).max().unwrap_or(0);
        let by_diagonal = !self.rows.is_empty()
            && self.rows.len() == wide
            && self.rows.iter().enumerate().all(|(at, it)| it.cells.get(at) == Some(&Cell::Path("X".into())));
        let cut = wide > columns && self.header.headings.is_empty();
        if !cut || !by_diagonal {
            if columns == 0 {
                return Err(Trouble::at(
                    self.number,
                    "a row of `nvidia-smi topo -m` without the header line above the rows",
                ));
            }
            return Ok(Cow::Borrowed(&self.header));
        }
        let missing = if columns == 0 { "is missing" } else { "is cut" };
        notes.push(format!(
            "The header {missing}: the columns are named after the rows, whose `X` stands in this order."
        ));
        let columns = self.rows.iter().map(|it| it.name.clone()).collect();
        Ok(Cow::Owned(Header { columns, ..Header::default() }))
    }
}

/// What a line of other text begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// A matrix: a header with rows, or a row that has lost it.
    Matrix,
    /// A header with nothing below it, which may be a list of GPUs.
    Header,
}

/// What a line of other text begins, where the rest of the text is at `after`.
pub(super) fn start(text: &[u8], line: &[u8], after: usize, marks: Marks) -> Option<Start> {
    let numbered = |at: usize| line.get(at + "GPU".len()).is_some_and(u8::is_ascii_digit);
    if !memchr::memmem::find_iter(line, b"GPU").any(numbered) {
        return None;
    }
    let follows = |header: &Header| {
        let next = text.get(after..).unwrap_or_default().split(|it| *it == b'\n').take(NEAR);
        let rows = [line].into_iter().chain(next).flat_map(|it| words(it, marks));
        rows.into_iter().any(|it| Row::parse(&it, &header.columns, 0).is_some())
    };
    let found = words(line, marks).into_iter().filter_map(|here| match Header::parse(&here) {
        Some(header) if follows(&header) => Some(Start::Matrix),
        Some(header) if header.certain => Some(Start::Header),
        _ => is_lone_row(&here).then_some(Start::Matrix),
    });
    found.min_by_key(|it| *it != Start::Matrix)
}

/// A row with an `X`, which words in a sentence would not have.
fn is_lone_row(words: &[String]) -> bool {
    let row = Row::parse(words, &[], 0).filter(|it| it.name.starts_with("GPU"));
    row.is_some_and(|it| it.cells.len() > 1 && it.cells.contains(&Cell::Path("X".into())))
}

/// Reads the matrices from line `start` on; the first is the machine.
pub(super) fn read(text: &[u8], start: u64, marks: Marks) -> Result<Topology, Trouble> {
    let drafts = drafts(text, start, marks)?;
    let (peers, paths): (Vec<Draft>, Vec<Draft>) = drafts.into_iter().partition(Draft::is_of_peers);
    let peers: Vec<Peers> = peers.iter().map(peers_of).collect();
    // A matrix that shows NVLink says more than one that hides it.
    let gpus = |it: &Draft| it.header.columns.iter().filter(|it| it.starts_with("GPU")).count();
    let first = paths.first();
    let better = paths.iter().find(|it| {
        first.is_some_and(|first| first.hides_nvlink() && gpus(first) == gpus(it))
            && !it.hides_nvlink()
            && !it.rows.is_empty()
    });
    let Some(chosen) = better.or(first) else {
        return Err(peers.first().map_or_else(|| Trouble::at(start, "no header of a matrix"), Peers::alone));
    };
    if chosen.rows.is_empty() {
        let text = format!(
            "the header names {}, but the rows below it are missing",
            chosen.header.columns.join(", ")
        );
        return Err(Trouble::at(chosen.number, text));
    }
    let ends_early = text.last() != Some(&b'\n') && chosen.number == paths.last().map_or(0, |it| it.number);
    let (matrix, mut notes) = chosen.finish(ends_early)?;
    let (machine, found) = wiring::machine(&matrix, &|spot| u64::from(spot.line) + 1)?;
    notes.splice(0..0, found);
    let others: Vec<&Draft> =
        paths.iter().filter(|it| it.number != chosen.number && !it.rows.is_empty()).collect();
    let same = |it: &&&Draft| {
        let cells =
            |it: &Draft| it.rows.iter().map(|it| (it.name.clone(), it.cells.clone())).collect::<Vec<_>>();
        it.header.columns == chosen.header.columns && cells(it) == cells(chosen)
    };
    let (same, others): (Vec<&Draft>, Vec<&Draft>) = others.iter().partition(|it| same(it));
    if let Some(line) = same.first().map(|it| it.number) {
        notes.push(format!("The same matrix is there {} more (from line {line}).", times(same.len())));
    }
    if let Some(line) = others.first().map(|it| it.number) {
        let what = if others.len() == 1 {
            "Another matrix".to_owned()
        } else {
            format!("{} other matrices", others.len())
        };
        let which = if better.is_some() { "the one that shows NVLink" } else { "only the first" };
        notes.push(format!(
            "{what} in the text (line {line}): {which} is read; give each machine its own file."
        ));
    }
    notes.extend(peers.iter().map(Peers::note));
    let (graphs, paths) = (Vec::new(), Vec::new());
    Ok(Topology { kind: Kind::Matrix, machine, graphs, paths, line: chosen.number, notes })
}

fn times(n: usize) -> String {
    if n == 1 { "once".to_owned() } else { format!("{n} times") }
}

fn peers_of(draft: &Draft) -> Peers {
    let status = |it: &Cell| match it {
        Cell::Peer(it) => Some(it.clone()),
        _ => None,
    };
    let row = |row: &Row| peers::PeerRow {
        name: row.name.clone(),
        statuses: row.cells.iter().map(status).collect(),
    };
    Peers {
        line: draft.number,
        columns: draft.header.columns.clone(),
        rows: draft.rows.iter().map(row).collect(),
    }
}

fn drafts(text: &[u8], start: u64, marks: Marks) -> Result<Vec<Draft>, Trouble> {
    let mut drafts: Vec<Draft> = Vec::new();
    let mut option = None;
    for (number, line) in lines(text) {
        if let Some(found) = option_of(line) {
            option = Some(found);
        }
        if number < start {
            continue;
        }
        for words in words(line, marks).iter().filter(|it| !it.is_empty()) {
            take(&mut drafts, words, number, start, &mut option)?;
        }
    }
    // Ranks that print at once: a header whose rows went to an equal one.
    if drafts.iter().any(|it| !it.rows.is_empty()) {
        drafts.retain(|it| !it.rows.is_empty());
    }
    Ok(drafts)
}

/// Takes a line: a header begins a matrix, everything else goes to the last one, or to that with its label.
fn take(
    drafts: &mut Vec<Draft>,
    words: &[String],
    number: u64,
    start: u64,
    option: &mut Option<Box<str>>,
) -> Result<(), Trouble> {
    let header = Header::parse(words).filter(|it| it.certain || number == start || drafts.is_empty());
    if let Some(header) = header
        && !drafts.last().is_some_and(|it| it.rows.is_empty() && it.header.continues(words))
        && drafts.len() < MATRICES
    {
        let gpus = header.columns.iter().filter(|it| it.starts_with("GPU")).count();
        check_size(gpus, "GPUs", number)?;
        check_size(header.columns.len() - gpus, "NICs", number)?;
        drafts.push(Draft::new(header, number, option.take()));
        return Ok(());
    }
    if drafts.is_empty() {
        drafts.push(Draft::new(Header::default(), number, option.take()));
    }
    let row = Row::parse(words, &[], number);
    let own = row
        .and_then(|row| drafts.iter().rposition(|it| !row.label.is_empty() && it.header.label == row.label));
    let last = drafts.len() - 1;
    if let Some(draft) = drafts.get_mut(own.unwrap_or(last)) {
        draft.take(words, number);
    }
    Ok(())
}

/// The option in `nvidia-smi topo -mp`.
fn option_of(line: &[u8]) -> Option<Box<str>> {
    let at = memchr::memmem::find(line, b"nvidia-smi topo ")?;
    let rest = String::from_utf8_lossy(line.get(at + "nvidia-smi topo ".len()..)?).into_owned();
    let option = rest.split_whitespace().next()?.trim_matches(['`', '"', '\'', ')', ':']);
    option.starts_with('-').then(|| option.into())
}

fn spot(number: u64) -> Spot {
    Spot { region: 0, line: u32::try_from(number.saturating_sub(1)).unwrap_or(u32::MAX) }
}

fn quote(number: u64) -> Quote {
    Quote { spot: spot(number), text: "".into() }
}
