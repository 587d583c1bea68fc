//! A matrix with every path that its rows show, each once: what a row has lost may be in the rows of the others.

use std::collections::BTreeMap;

use super::{Trouble, count, nvlinks};
use crate::plain::{MatrixRow, TopologyMatrix, UNKNOWN_PATH};
use crate::source::Spot;

/// What the matrix says about a pair, old names and new ones alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Relation {
    /// One switch.
    Pix,
    /// Several switches.
    Pxb,
    /// One host bridge, or several of one NUMA node: to NCCL they are the same.
    Phb,
    /// Two NUMA nodes.
    Sys,
    /// That many NVLinks.
    NvLinks(u32),
}

impl Relation {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "PIX" | "PSB" => Self::Pix,
            "PXB" => Self::Pxb,
            "PHB" | "NODE" => Self::Phb,
            "SYS" | "SOC" => Self::Sys,
            _ => Self::NvLinks(text.strip_prefix("NV")?.parse().ok()?),
        })
    }
}

/// A matrix that is symmetric, with a path for every two GPUs.
#[derive(Debug)]
pub(super) struct Table {
    names: Vec<Box<str>>,
    /// By row and column; `None` on the diagonal and where no row shows it, which is never so between two GPUs.
    relations: Vec<Vec<Option<Relation>>>,
    /// The row of each device.
    rows: Vec<Option<usize>>,
}

impl Table {
    pub(super) fn check(
        matrix: &TopologyMatrix,
        line: &dyn Fn(Spot) -> u64,
        notes: &mut Vec<String>,
    ) -> Result<Self, Trouble> {
        let header = line(matrix.quote.spot);
        let mut names: Vec<Box<str>> = matrix.columns.clone();
        let mut column: BTreeMap<Box<str>, usize> = names.iter().cloned().zip(0..).collect();
        if column.len() < names.len() {
            return Err(Trouble::at(header, "the header names a device twice"));
        }
        let mut rows = vec![None; names.len()];
        let mut nameless = Vec::new();
        for (at, MatrixRow { name, paths, beside }) in matrix.rows.iter().enumerate() {
            let here = line(beside.spot);
            let place = *column.entry(name.clone()).or_insert_with(|| {
                names.push(name.clone());
                nameless.push(name.clone());
                rows.push(None);
                names.len() - 1
            });
            if rows.get_mut(place).and_then(|it| it.replace(at)).is_some() {
                return Err(Trouble::at(
                    here,
                    format!("{name} has a second row that differs: the rows of two matrices are mixed"),
                ));
            }
            if let Some(word) = beside.stopped_at.as_deref() {
                let (found, wanted) = (paths.len(), matrix.columns.len());
                let text = format!("the row of {name} has {found} of {wanted} paths, then `{word}`");
                return Err(Trouble::at(here, text));
            }
            if beside.cut && paths.len() >= matrix.columns.len() {
                notes.push(format!("Line {here}: the row of {name} ends before its NUMA node."));
            }
        }
        if !nameless.is_empty() {
            notes.push(format!("{} a row but no column: the header is cut.", has(&nameless)));
        }
        let size = names.len();
        let mut table = Self { names, relations: vec![vec![None; size]; size], rows };
        table.fill(matrix, line)?;
        table.complete(matrix, header, notes)?;
        Ok(table)
    }

    fn fill(&mut self, matrix: &TopologyMatrix, line: &dyn Fn(Spot) -> u64) -> Result<(), Trouble> {
        let line_of = |row: usize| matrix.rows.get(row).map_or(0, |it| line(it.beside.spot));
        let path = |row: usize, column: usize| {
            let paths = &matrix.rows.get(row)?.paths;
            let is_last = column + 1 == paths.len() && paths.len() < matrix.columns.len();
            Some((paths.get(column).filter(|it| ***it != *UNKNOWN_PATH)?, is_last))
        };
        for (a, row) in self.rows.iter().enumerate() {
            let Some(row) = *row else { continue };
            for b in 0..matrix.columns.len() {
                let (name, other) = (self.name(a), self.name(b));
                let Some((text, may_be_cut)) = path(row, b) else { continue };
                if (&**text == "X") != (a == b) {
                    let problem = format!("{name} to {other} is `{text}`; `X` means the device itself");
                    return Err(Trouble::at(line_of(row), problem));
                }
                let back = self.rows.get(b).copied().flatten();
                let mirrored = back.and_then(|it| path(it, a));
                let (here, there) = (Relation::parse(text), mirrored.and_then(|it| Relation::parse(it.0)));
                // `NV1` at the end of a row may be what is left of `NV12`.
                let is_part = |part: &str, whole: &str, cut: bool| {
                    cut && whole.len() > part.len() && whole.starts_with(part)
                };
                let mut said = here;
                if let Some((mirrored, mirror_cut)) = mirrored
                    && here != there
                {
                    if is_part(mirrored, text, mirror_cut) {
                        said = here;
                    } else if is_part(text, mirrored, may_be_cut) {
                        said = there;
                    } else {
                        return Err(Trouble::at(
                            line_of(row),
                            format!(
                                "{name} to {other} is {text} in the row of {name} and {mirrored} in the row of {other} (line {})",
                                back.map_or(0, line_of)
                            ),
                        ));
                    }
                }
                self.relations.get_mut(a).and_then(|it| it.get_mut(b)).into_iter().for_each(|it| *it = said);
                self.relations.get_mut(b).and_then(|it| it.get_mut(a)).into_iter().for_each(|it| *it = said);
            }
        }
        Ok(())
    }

    /// Says what was taken from the other half of the matrix, and what `NVSwitch`es imply. An error if paths of GPUs remain open.
    fn complete(
        &mut self,
        matrix: &TopologyMatrix,
        header: u64,
        notes: &mut Vec<String>,
    ) -> Result<(), Trouble> {
        let lost: Vec<Box<str>> =
            self.names.iter().zip(&self.rows).filter(|it| it.1.is_none()).map(|it| it.0.clone()).collect();
        let short = matrix.rows.iter().filter(|it| {
            it.paths.len() < matrix.columns.len() || it.paths.iter().any(|it| **it == *UNKNOWN_PATH)
        });
        let short: Vec<Box<str>> = short.map(|it| it.name.clone()).collect();
        if !lost.is_empty() || !short.is_empty() {
            let mut parts = Vec::new();
            if !lost.is_empty() {
                let rows = if lost.len() == 1 { "row" } else { "rows" };
                parts.push(format!(
                    "the {rows} of {} {} missing",
                    listed(&lost),
                    if lost.len() == 1 { "is" } else { "are" }
                ));
            }
            if !short.is_empty() {
                let rows = if short.len() == 1 { "row" } else { "rows" };
                parts.push(format!(
                    "the {rows} of {} {} cut",
                    listed(&short),
                    if short.len() == 1 { "is" } else { "are" }
                ));
            }
            let text = parts.join(", ");
            let text: String =
                text.chars().take(1).flat_map(char::to_uppercase).chain(text.chars().skip(1)).collect();
            notes.push(format!(
                "{text}: their paths are taken from the rows of the other devices, as a matrix is symmetric."
            ));
        }
        let open = self.open_pairs();
        let Some(&(a, b)) = open.first() else { return Ok(()) };
        for &(a, b) in &open {
            let Some(links) = self.through_switch(a, b) else { continue };
            for (from, to) in [(a, b), (b, a)] {
                self.relations
                    .get_mut(from)
                    .and_then(|it| it.get_mut(to))
                    .into_iter()
                    .for_each(|it| *it = Some(Relation::NvLinks(links)));
            }
        }
        let still = self.open_pairs();
        if still.is_empty() {
            notes.push(format!(
                "{} in no row: NVSwitches connect these GPUs, as one has more NVLinks than a GPU has ports, and so all others too.",
                if open.len() == 1 { "1 path between GPUs is".to_owned() } else { format!("{} paths between GPUs are", open.len()) }
            ));
            return Ok(());
        }
        let (a, b) = still.first().copied().unwrap_or((a, b));
        let more = if still.len() == 1 {
            String::new()
        } else {
            format!(" (and {} more)", count(still.len() - 1, "pair"))
        };
        Err(Trouble::at(
            header,
            format!(
                "the matrix is cut: no row shows the path from {} to {}{more}",
                self.name(a),
                self.name(b)
            ),
        ))
    }

    /// Pairs of GPUs without a path.
    fn open_pairs(&self) -> Vec<(usize, usize)> {
        let gpus: Vec<usize> = (0..self.names.len()).filter(|it| self.is_gpu(*it)).collect();
        let pairs = gpus.iter().flat_map(|a| gpus.iter().filter(move |b| a < *b).map(move |b| (*a, *b)));
        pairs.filter(|(a, b)| self.relation(*a, *b).is_none()).collect()
    }

    /// The NVLinks of two GPUs that are both joined to a third one by switches.
    fn through_switch(&self, a: usize, b: usize) -> Option<u32> {
        let links = |from: usize, to: usize| match self.relation(from, to) {
            Some(Relation::NvLinks(n)) => Some(n),
            _ => None,
        };
        let switched = |gpu: usize| {
            let all = (0..self.names.len()).filter_map(|it| links(gpu, it));
            all.fold(0_u32, u32::saturating_add) > nvlinks::most()
        };
        let third = (0..self.names.len())
            .find(|it| switched(*it) && links(*it, a).is_some() && links(*it, b).is_some())?;
        Some(links(third, a)?.min(links(third, b)?))
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn name(&self, device: usize) -> &str {
        self.names.get(device).map_or("", |it| it)
    }

    pub(super) fn is_gpu(&self, device: usize) -> bool {
        self.name(device).starts_with("GPU")
    }

    pub(super) fn row<'a>(&self, device: usize, matrix: &'a TopologyMatrix) -> Option<&'a MatrixRow> {
        matrix.rows.get(self.rows.get(device).copied().flatten()?)
    }

    pub(super) fn relation(&self, a: usize, b: usize) -> Option<Relation> {
        self.relations.get(a)?.get(b).copied().flatten()
    }

    pub(super) fn has_nvlinks(&self) -> bool {
        self.relations.iter().flatten().any(|it| matches!(it, Some(Relation::NvLinks(_))))
    }

    /// Groups devices that are this near, directly or through others: the smallest member represents its group.
    pub(super) fn groups(&self, near: Relation) -> Vec<usize> {
        let mut group: Vec<Option<usize>> = vec![None; self.names.len()];
        for first in 0..self.names.len() {
            let mut open = vec![first];
            while let Some(device) = open.pop() {
                let Some(slot) = group.get_mut(device).filter(|it| it.is_none()) else { continue };
                *slot = Some(first);
                open.extend((0..self.names.len()).filter(|it| {
                    group.get(*it) == Some(&None) && self.relation(device, *it).is_some_and(|it| it <= near)
                }));
            }
        }
        group.into_iter().enumerate().map(|(at, it)| it.unwrap_or(at)).collect()
    }
}

/// `GPU0, GPU1 and 6 more`
fn listed(names: &[Box<str>]) -> String {
    const MOST: usize = 12;
    let shown = names.get(..names.len().min(MOST)).unwrap_or_default().join(", ");
    if names.len() > MOST { format!("{shown} and {} more", names.len() - MOST) } else { shown }
}

fn has(names: &[Box<str>]) -> String {
    format!("{} {}", listed(names), if names.len() == 1 { "has" } else { "have" })
}
