//! Headers and rows of a matrix of `nvidia-smi topo`, line by line.

use super::paste::{self, Cell};
use crate::plain::{self, Heading};

/// The most words that a label has.
const LABEL: usize = 8;

/// A header, as far as it is in one line.
#[derive(Debug, Clone, Default)]
pub(super) struct Header {
    pub(super) label: String,
    pub(super) columns: Vec<Box<str>>,
    /// Before which column some are left out: `GPU0 GPU1 ... GPU7`.
    pub(super) gap: Option<usize>,
    pub(super) headings: Vec<Heading>,
    /// Whether the names alone show that this is a header.
    pub(super) certain: bool,
}

impl Header {
    pub(super) fn parse(words: &[String]) -> Option<Self> {
        let named =
            |word: &String| paste::device(word).filter(|it| it.starts_with("GPU")).map(Box::<str>::from);
        let (at, first) = words.iter().take(LABEL).enumerate().find_map(|(at, it)| Some((at, named(it)?)))?;
        let next = words.get(at + 1);
        if next.is_some_and(|it| paste::cell(it).is_some_and(|it| it != Cell::Elided)) {
            return None;
        }
        let rest = words.get(at + 1..).unwrap_or_default();
        let mut it = Self { columns: vec![first], ..Self::default() };
        it.label = label(words, at);
        let begun = it.extend(rest)?;
        let known = |it: &str| plain::is_matrix_device(it);
        let digits = |it: &str| it.contains(|it: char| it.is_ascii_digit());
        it.certain = if begun {
            it.columns.iter().all(|it| digits(it))
        } else {
            it.columns.len() > 1 && it.columns.iter().all(|it| known(it))
        };
        (begun || it.columns.iter().filter(|it| known(it)).count() > 1).then_some(it)
    }

    /// Takes names of columns and what is announced beside them. `None`: the words are something else. Whether anything beside
    /// the columns is announced.
    pub(super) fn extend(&mut self, words: &[String]) -> Option<bool> {
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let next = words.get(at + 1).map(String::as_str).unwrap_or_default();
            let after = words.get(at + 2).map(String::as_str).unwrap_or_default();
            let is = |it: &str, name: &str| it.eq_ignore_ascii_case(name);
            let affinity =
                is(next, "Affinity") || (!next.is_empty() && "Affinity".starts_with(next)) || next.is_empty();
            let (heading, length) = if is(word, "CPU") && affinity {
                (Heading::Cpus, 2)
            } else if is(word, "NUMA") && affinity {
                (Heading::Numa, 2)
            } else if is(word, "GPU") && is(next, "NUMA") && (is(after, "ID") || after.is_empty()) {
                (Heading::Other, 3)
            } else {
                match paste::cell(word) {
                    Some(Cell::Elided) => self.gap = self.gap.or(Some(self.columns.len())),
                    Some(_) => return None,
                    // What is beside the paths comes last.
                    None if !self.headings.is_empty() => {}
                    None if word.len() > 40 || word.contains(['=', '(', ')']) => return None,
                    None => self.columns.push(word.as_str().into()),
                }
                at += 1;
                continue;
            };
            self.headings.push(heading);
            at += length;
        }
        Some(!self.headings.is_empty())
    }

    /// The columns between those before and after a gap.
    pub(super) fn left_out(&self, gap: usize) -> Vec<Box<str>> {
        let parts = |at: Option<usize>| -> Option<(&str, usize)> {
            let name = self.columns.get(at?)?;
            let stem = name.trim_end_matches(|it: char| it.is_ascii_digit());
            Some((stem, name.get(stem.len()..)?.parse().ok()?))
        };
        match (parts(gap.checked_sub(1)), parts(Some(gap))) {
            (Some((stem, from)), Some((other, to)))
                if stem == other && to - from.min(to) < super::MOST_DEVICES =>
            {
                (from + 1..to).map(|it| format!("{stem}{it}").into()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether the words go on with names and headings after this header.
    pub(super) fn continues(&self, words: &[String]) -> bool {
        let first = words.first().map(String::as_str).unwrap_or_default();
        let begins = paste::device(first).is_some_and(|it| self.columns.iter().all(|known| **known != *it))
            || ["CPU", "NUMA"].contains(&first) && words.get(1).is_some_and(|it| it == "Affinity");
        begins && words.iter().all(|it| paste::cell(it).is_none())
    }
}

/// The words before a position.
fn label(words: &[String], at: usize) -> String {
    let glued = words
        .get(at)
        .and_then(|it| Some(it.strip_suffix(paste::device(it)?)?.to_owned()))
        .unwrap_or_default();
    let before = words.get(..at).unwrap_or_default().iter().cloned().chain([glued]);
    before.filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A row, as far as it is in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) label: String,
    pub(super) name: Box<str>,
    pub(super) cells: Vec<Cell>,
    pub(super) beside: Vec<String>,
    pub(super) number: u64,
}

impl Row {
    /// `columns` are names beside those that are known.
    pub(super) fn parse(words: &[String], columns: &[Box<str>], number: u64) -> Option<Self> {
        let named = |word: &String| {
            let own = columns.iter().find(|it| ***it == **word).map(|it| &**it);
            own.or_else(|| paste::device(word)).map(Box::<str>::from)
        };
        let is_cell =
            |at: usize| words.get(at).and_then(|it| paste::cell(it)).is_some_and(|it| it != Cell::Unknown);
        let at = (0..words.len().min(LABEL))
            .find(|at| words.get(*at).and_then(named).is_some() && is_cell(at + 1))?;
        let name = words.get(at).and_then(named)?;
        let mut row = Self { label: label(words, at), name, cells: Vec::new(), beside: Vec::new(), number };
        row.extend(words.get(at + 1..).unwrap_or_default(), columns.len());
        Some(row)
    }

    pub(super) fn extend(&mut self, words: &[String], columns: usize) {
        let mut words = words.iter().peekable();
        while self.beside.is_empty()
            && let Some(cell) = words.peek().and_then(|it| paste::cell(it))
        {
            // `N/A` beside the paths is a NUMA node that is not there.
            if cell == Cell::Unknown && columns != 0 && self.cells.len() >= columns {
                break;
            }
            self.cells.push(cell);
            words.next();
        }
        self.beside.extend(words.cloned());
    }

    pub(super) fn is_elided(&self) -> bool {
        self.cells.contains(&Cell::Elided)
    }

    /// The paths by column, and the word where a path is expected that is none.
    pub(super) fn paths(&self, header: &Header) -> (Vec<Box<str>>, Option<Box<str>>) {
        let wanted = header.columns.len();
        let text = |cell: &Cell| match cell {
            Cell::Path(it) => it.clone(),
            Cell::Peer(_) | Cell::Unknown | Cell::Elided => plain::UNKNOWN_PATH.into(),
        };
        let dots = self.cells.iter().position(|it| *it == Cell::Elided).unwrap_or(self.cells.len());
        let (before, after) = self.cells.split_at(dots);
        let mut paths: Vec<Box<str>> = before.iter().map(text).collect();
        // Where the header leaves out columns too, what follows is counted from the end.
        let after: Vec<Box<str>> = after.iter().filter(|it| **it != Cell::Elided).map(text).collect();
        if header.gap.is_some() && !after.is_empty() && paths.len() + after.len() <= wanted {
            paths.resize(wanted - after.len(), plain::UNKNOWN_PATH.into());
            paths.extend(after);
        }
        let stopped = self.beside.first().filter(|_| paths.len() < wanted && !self.is_elided());
        (paths, stopped.map(|it| it.as_str().into()))
    }
}
