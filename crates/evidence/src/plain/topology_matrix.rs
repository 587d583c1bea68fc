//! `nvidia-smi topo -m`, as far as rules about logs need it.
//!
//! ```text
//!         GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
//! GPU0     X      NV12    PXB     0-23,48-71      0               N/A
//! GPU1    NV12     X      PXB     0-23,48-71      0               N/A
//! ```

use crate::source::Quote;

/// A matrix of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyMatrix {
    /// The names of the columns: `GPU0`, `NIC0`, `mlx5_0`.
    pub columns: Vec<Box<str>>,
    /// The rows: a name and one path for each column.
    pub rows: Vec<(Box<str>, Vec<Box<str>>)>,
    /// The header line.
    pub quote: Quote,
}

impl TopologyMatrix {
    /// How many GPUs have a row.
    pub fn n_gpus(&self) -> usize {
        self.rows.iter().filter(|it| it.0.starts_with("GPU")).count()
    }

    /// The paths between different GPUs, each pair once as far as rows were given.
    pub fn gpu_paths(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.rows.iter().enumerate().filter(|(_, row)| row.0.starts_with("GPU")).flat_map(move |(_, row)| {
            let pairs = self.columns.iter().zip(&row.1);
            pairs
                .filter(|(column, path)| column.starts_with("GPU") && &***path != "X")
                .map(|(column, path)| (&*row.0, &**column, &**path))
        })
    }
}

pub(super) fn is_row(line: &[u8]) -> bool {
    let inner = line.trim_ascii_start();
    // A header begins with GPU0, with or without ANSI underlining.
    if inner.starts_with(b"GPU")
        || inner.starts_with(b"NIC")
        || inner.starts_with(b"mlx5_")
        || inner.starts_with(b"\x1b[4mGPU")
    {
        let text = String::from_utf8_lossy(inner.get(..inner.len().min(2000)).unwrap_or_default());
        return header(&text).is_some() || row(&text).is_some();
    }
    LEGEND.iter().any(|it| inner.starts_with(it.as_bytes()))
}

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

pub(super) fn take(matrices: &mut Vec<TopologyMatrix>, open: &mut bool, quote: Quote) {
    let text = plain(&quote.text);
    if let Some(columns) = header(&text) {
        matrices.push(TopologyMatrix { columns, rows: Vec::new(), quote });
        *open = true;
    } else if let (true, Some(matrix), Some((name, cells))) = (*open, matrices.last_mut(), row(&text)) {
        let cells = cells.into_iter().take(matrix.columns.len()).collect();
        matrix.rows.push((name, cells));
    }
}

/// Without ANSI codes.
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
    out
}

fn header(text: &str) -> Option<Vec<Box<str>>> {
    let text = plain(text);
    let columns: Vec<Box<str>> =
        text.split_whitespace().take_while(|it| is_device(it)).map(Into::into).collect();
    (columns.len() >= 2 && columns.first().is_some_and(|it| it.starts_with("GPU"))).then_some(columns)
}

fn is_device(word: &str) -> bool {
    ["GPU", "NIC", "mlx5_", "rdmap", "efa_", "irdma"].iter().any(|it| {
        word.strip_prefix(it)
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()) || rest.starts_with("bond"))
    })
}

fn row(text: &str) -> Option<(Box<str>, Vec<Box<str>>)> {
    let text = plain(text);
    let mut words = text.split_whitespace();
    let name = words.next().filter(|it| is_device(it))?;
    let cells: Vec<Box<str>> = words.take_while(|it| is_path(it)).map(Into::into).collect();
    (!cells.is_empty()).then(|| (name.into(), cells))
}

fn is_path(word: &str) -> bool {
    matches!(word, "X" | "SYS" | "NODE" | "PHB" | "PXB" | "PIX" | "PSB" | "SOC")
        || word
            .strip_prefix("NV")
            .is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{is_row, take};
    use crate::source::{Quote, Spot};

    #[test]
    fn reads_a_matrix() {
        let text = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\n\
                    GPU0\t X \tNV12\tPXB\t0-23\t0\n\
                    GPU1\tNV12\t X \tSYS\t0-23\t0\n\
                    NIC0\tPXB\tSYS\t X \n";
        let (mut matrices, mut open) = (Vec::new(), false);
        for line in text.lines() {
            assert!(is_row(line.as_bytes()), "{line}");
            take(&mut matrices, &mut open, Quote::new(Spot { region: 0, line: 0 }, line.as_bytes()));
        }
        let matrix = &matrices[0];
        assert_eq!((matrix.n_gpus(), matrix.columns.len(), matrix.rows.len()), (2, 3, 3));
        assert_eq!(matrix.gpu_paths().map(|it| it.2).collect::<Vec<_>>(), ["NV12", "NV12"]);
    }

    #[test]
    fn other_lines_are_no_rows() {
        for line in ["GPU 0 is hot", "GPU memory usage", "GPU0: 80 %", "NIC group 0"] {
            assert!(!is_row(line.as_bytes()), "{line}");
        }
    }
}
