//! `nvidia-smi topo -m`, line by line.
//!
//! ```text
//!         GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
//! GPU0     X      NV12    PXB     0-23,48-71      0               N/A
//! GPU1    NV12     X      PXB     0-23,48-71      0               N/A
//! NIC0    PXB     PXB      X
//!
//! NIC Legend:
//!   NIC0: mlx5_0
//! ```
//!
//! What the lines mean together, [`crate::topology`] finds out.

use crate::source::{Quote, Spot};

/// A matrix of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyMatrix {
    /// The names of the columns: `GPU0`, `NIC0`, `mlx5_0`.
    pub columns: Vec<Box<str>>,
    /// The rows.
    pub rows: Vec<MatrixRow>,
    /// The names of the NICs.
    pub legend: Vec<LegendEntry>,
    /// The header line.
    pub quote: Quote,
    /// Whether NVLink would not show: `nvidia-smi topo -mp`, whose legend does not explain `NV#`.
    pub hides_nvlink: bool,
    /// What the header says of the words beside the paths.
    headings: Vec<Heading>,
}

/// In the place of a path that is not there.
pub(crate) const UNKNOWN_PATH: &str = "?";

/// A row of a matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixRow {
    /// `GPU0`
    pub name: Box<str>,
    /// One path for each column.
    pub paths: Vec<Box<str>>,
    /// What is beside the paths.
    pub beside: Beside,
}

/// `NIC0: mlx5_0`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegendEntry {
    /// `NIC0`
    pub column: Box<str>,
    /// `mlx5_0`
    pub device: Box<str>,
}

/// The path from a GPU to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuPath<'a> {
    /// `GPU0`
    pub from: &'a str,
    /// `GPU1`
    pub to: &'a str,
    /// `NV12`
    pub path: &'a str,
}

impl GpuPath<'_> {
    /// Whether it is NVLink.
    pub fn is_nvlink(&self) -> bool {
        self.path.starts_with("NV")
    }
}

/// What a row has beside the paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beside {
    /// `0-23,48-71`
    pub cpus: Option<Box<str>>,
    /// `0`
    pub numa: Option<u32>,
    /// The word where a path is expected that is not a path.
    pub stopped_at: Option<Box<str>>,
    /// Whether words are missing that the header announces.
    pub cut: bool,
    /// Where the row is.
    pub spot: Spot,
}

/// What a header announces beside the paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heading {
    Cpus,
    Numa,
    Other,
}

impl TopologyMatrix {
    /// How many GPUs have a row.
    pub fn n_gpus(&self) -> usize {
        self.rows.iter().filter(|it| it.name.starts_with("GPU")).count()
    }

    /// The paths between different GPUs, each pair once as far as rows were given.
    pub fn gpu_paths(&self) -> impl Iterator<Item = GpuPath<'_>> {
        self.rows.iter().filter(|row| row.name.starts_with("GPU")).flat_map(move |row| {
            let pairs = self.columns.iter().zip(&row.paths);
            pairs
                .filter(|(column, path)| {
                    column.starts_with("GPU") && !["X", UNKNOWN_PATH].contains(&&***path)
                })
                .map(|(column, path)| GpuPath { from: &row.name, to: column, path })
        })
    }

    /// Whether a line is a device and at least one path.
    pub(crate) fn is_cells(text: &str) -> bool {
        let mut words = text.split_whitespace();
        words.next().is_some_and(is_device) && words.next().is_some_and(is_path)
    }

    /// Begins a matrix, if the line is a header.
    pub(crate) fn begin(text: &str, quote: impl FnOnce() -> Quote) -> Option<Self> {
        let (columns, headings) = header(text)?;
        Some(Self::new(columns, headings, quote()))
    }

    pub(crate) fn new(columns: Vec<Box<str>>, headings: Vec<Heading>, quote: Quote) -> Self {
        Self { columns, rows: Vec::new(), legend: Vec::new(), quote, hides_nvlink: false, headings }
    }

    /// Adds a row whose paths are known; `rest` is what stands beside them.
    pub(crate) fn push_row(
        &mut self,
        name: &str,
        paths: Vec<Box<str>>,
        rest: &[String],
        stopped_at: Option<Box<str>>,
        spot: Spot,
    ) {
        let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        let beside = self.beside(name, &rest, stopped_at, spot);
        self.rows.push(MatrixRow { name: name.into(), paths, beside });
    }

    /// Gives a column the name that the legend has for it.
    pub(crate) fn name_column(&mut self, column: &str, device: &str) {
        if self.columns.iter().any(|it| **it == *column) && self.legend.iter().all(|it| &*it.column != column)
        {
            self.legend.push(LegendEntry { column: column.into(), device: device.into() });
        }
    }

    /// Takes a row. Whether the line is one.
    pub(crate) fn take_row(&mut self, text: &str, spot: Spot) -> bool {
        let mut words = text.split_whitespace().peekable();
        let Some(name) =
            words.next().filter(|it| is_device(it) || self.columns.iter().any(|column| **column == **it))
        else {
            return false;
        };
        let mut paths: Vec<Box<str>> = Vec::new();
        while paths.len() < self.columns.len()
            && let Some(path) = words.next_if(|it| is_path(it))
        {
            paths.push(path.into());
        }
        if paths.is_empty() {
            return false;
        }
        let rest: Vec<&str> = words.collect();
        let stopped_at =
            rest.first().filter(|_| paths.len() < self.columns.len()).map(|it| Box::<str>::from(*it));
        let beside = self.beside(name, &rest, stopped_at, spot);
        self.rows.push(MatrixRow { name: name.into(), paths, beside });
        true
    }

    fn beside(&self, name: &str, rest: &[&str], stopped_at: Option<Box<str>>, spot: Spot) -> Beside {
        // Rows of NICs have nothing beside their paths.
        let cut = name.starts_with("GPU") && rest.len() < self.headings.len();
        let word = |heading| {
            let at = self.headings.iter().position(|it| *it == heading).filter(|_| !cut)?;
            rest.get(at).copied().filter(|it| it.starts_with(|it: char| it.is_ascii_digit()))
        };
        let cpus = word(Heading::Cpus).map(Into::into);
        // Grace lists the nodes of GPU memory after its own: `0,2-17`.
        let numa = word(Heading::Numa).and_then(|it| it.split(',').next()?.parse().ok());
        Beside { cpus, numa, stopped_at, cut, spot }
    }

    /// Takes a line of the legend of NICs. Whether the line is one.
    pub(crate) fn take_legend(&mut self, text: &str) -> bool {
        let Some(entry) = legend(text) else { return false };
        self.name_column(&entry.column, &entry.device);
        true
    }

    /// Takes a line of the legend of paths, in the order in which `nvidia-smi` prints them.
    fn take_meaning(&mut self, text: &str) {
        let has_links = || self.gpu_paths().any(|it| it.is_nvlink());
        match text.split_whitespace().next() {
            Some("PIX") if text.contains(" = ") => self.hides_nvlink = !has_links(),
            Some("NV#") => self.hides_nvlink = false,
            _ => {}
        }
    }
}

pub(super) fn is_row(line: &[u8]) -> bool {
    let inner = line.trim_ascii_start();
    // A header begins with GPU0, with or without ANSI underlining.
    if inner.starts_with(b"\x1b[4mGPU")
        || inner.starts_with(b"[4mGPU")
        || DEVICES.iter().any(|it| inner.starts_with(it.as_bytes()))
    {
        let text = String::from_utf8_lossy(inner.get(..inner.len().min(2000)).unwrap_or_default());
        let text = plain(&text);
        return header(&text).is_some() || TopologyMatrix::is_cells(&text) || legend(&text).is_some();
    }
    LEGEND.iter().any(|it| inner.starts_with(it.as_bytes()))
}

/// What names of devices begin with, before a digit or `bond`.
static DEVICES: &[&str] = &[
    "GPU", "NIC", "mlx5_", "mlx5_ib", "mlx5_an", "mlx4_", "rdmap", "efa_", "irdma", "bnxt_re", "ibp", "ibs",
    "roce", "rocep", "hfi1_",
];

static LEGEND: &[&str] = &[
    "X    = Self",
    "SYS  = Connection",
    "NODE = Connection",
    "PHB  = Connection",
    "PXB  = Connection",
    "PIX  = Connection",
    "NV#  = Connection",
    "Legend:",
    "NIC Legend:",
];

pub(super) fn take(matrices: &mut Vec<TopologyMatrix>, open: &mut bool, line: &str, quote: &Quote) {
    let text = plain(line);
    let spot = quote.spot;
    if let Some(matrix) = TopologyMatrix::begin(&text, || quote.clone()) {
        matrices.push(matrix);
        *open = true;
    } else if let Some(matrix) = matrices.last_mut()
        && !(*open && matrix.take_row(&text, spot))
        && !matrix.take_legend(&text)
    {
        matrix.take_meaning(&text);
    }
}

/// Without ANSI codes, also those that lost their escape byte.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            for c in chars.by_ref() {
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
        } else {
            out.push(c);
        }
    }
    if out.contains("[4mGPU") { out.replace("[4mGPU", " GPU").replace("[0m", " ") } else { out }
}

/// The columns, and what is announced beside them.
fn header(text: &str) -> Option<(Vec<Box<str>>, Vec<Heading>)> {
    // A pasted text can end after the first word beside the paths.
    let cut = || text.trim_end().strip_suffix(" CPU").map(str::len);
    let at = text.find("CPU Aff").or_else(|| text.find("NUMA Aff")).or_else(cut);
    let (devices, beside) = text.split_at(at.unwrap_or(text.len()));
    let columns: Vec<Box<str>> = devices.split_whitespace().map(Into::into).collect();
    let first = columns.first().is_some_and(|it| numbered(it, "GPU"));
    let devices = if beside.is_empty() {
        // Nothing shows that this is a table: known names only.
        columns.len() >= 2 && columns.iter().all(|it| is_device(it))
    } else {
        columns.iter().all(|it| it.contains(|it: char| it.is_ascii_digit()) && !is_path(it))
    };
    (first && devices).then(|| (columns, headings(beside)))
}

/// `CPU Affinity    NUMA Affinity   GPU NUMA ID`
fn headings(text: &str) -> Vec<Heading> {
    let mut found: Vec<(usize, Heading)> =
        [("CPU Affinity", Heading::Cpus), ("NUMA Affinity", Heading::Numa), ("GPU NUMA ID", Heading::Other)]
            .into_iter()
            .filter_map(|(name, heading)| Some((text.find(name)?, heading)))
            .collect();
    found.sort_by_key(|it| it.0);
    found.into_iter().map(|it| it.1).collect()
}

/// Whether a word is the name of a device, as a header has it.
pub(crate) fn is_device(word: &str) -> bool {
    DEVICES.iter().any(|it| numbered(word, it))
}

/// Whether a word is `prefix` and a number, or its substitute.
fn numbered(word: &str, prefix: &str) -> bool {
    word.strip_prefix(prefix)
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()) || rest.starts_with("bond"))
}

/// `NIC0: mlx5_0`
fn legend(text: &str) -> Option<LegendEntry> {
    let (column, device) = text.trim().split_once(": ")?;
    let device = device.trim();
    (numbered(column, "NIC") && !device.is_empty() && !device.contains(char::is_whitespace))
        .then(|| LegendEntry { column: column.into(), device: device.into() })
}

fn is_path(word: &str) -> bool {
    matches!(word, "X" | "SYS" | "NODE" | "PHB" | "PXB" | "PIX" | "PSB" | "SOC")
        || word
            .strip_prefix("NV")
            .is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{LegendEntry, TopologyMatrix, is_row, take};
    use crate::source::{Quote, Spot};

    fn matrix(text: &str) -> TopologyMatrix {
        let (mut matrices, mut open) = (Vec::new(), false);
        for line in text.lines().filter(|it| is_row(it.as_bytes())) {
            take(&mut matrices, &mut open, line, &Quote::new(Spot { region: 0, line: 0 }, line.as_bytes()));
        }
        matrices.remove(0)
    }

    #[test]
    fn reads_a_matrix() {
        let text = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\n\
                    GPU0\t X \tNV12\tPXB\t0-23\t0\n\
                    GPU1\tNV12\t X \tSYS\t0-23\t0\n\
                    NIC0\tPXB\tSYS\t X \n\n\
                    NIC Legend:\n\n  NIC0: mlx5_0\n";
        let matrix = matrix(text);
        assert_eq!((matrix.n_gpus(), matrix.columns.len(), matrix.rows.len()), (2, 3, 3));
        assert_eq!(matrix.gpu_paths().map(|it| it.path).collect::<Vec<_>>(), ["NV12", "NV12"]);
        assert_eq!(
            (matrix.rows[0].beside.cpus.as_deref(), matrix.rows[0].beside.numa),
            (Some("0-23"), Some(0))
        );
        assert_eq!(*matrix.legend, [LegendEntry { column: "NIC0".into(), device: "mlx5_0".into() }]);
    }

    #[test]
    fn one_gpu_is_a_matrix_too() {
        let text =
            "\t\x1b[4mGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \t0-15\t0\t\tN/A\n";
        let matrix = matrix(text);
        assert_eq!(*matrix.columns, ["GPU0".into()]);
        assert_eq!(matrix.rows[0].beside.cpus.as_deref(), Some("0-15"));
    }

    #[test]
    fn a_row_may_be_cut() {
        let matrix = matrix("GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X NV1 0-3\nGPU1 NV1 N/A 0-3 0\n");
        assert!(matrix.rows[0].beside.cut && matrix.rows[0].beside.cpus.is_none());
        assert_eq!(matrix.rows[1].beside.stopped_at.as_deref(), Some("N/A"));
    }

    #[test]
    fn other_lines_are_no_rows() {
        for line in ["GPU 0 is hot", "GPU memory usage", "GPU0: 80 %", "NIC group 0", "NIC0: link is down"] {
            assert!(!is_row(line.as_bytes()), "{line}");
        }
    }
}
