//! `nvidia-smi topo -m` in any text: finds the header, its rows and the legend, and passes them to `wiring`.

use super::{Kind, Topology, Trouble, check_size, count, lines, wiring};
use crate::plain::{self, TopologyMatrix};
use crate::source::{Quote, Spot};
use crate::strip;

/// A line without what a terminal, a launcher, a container runtime or Markdown put around it.
pub(super) fn bare(line: &[u8]) -> String {
    let line = line.get(..line.len().min(LONGEST)).unwrap_or_default();
    let line = strip::unwrap(line, strip::Marks::default());
    let text = String::from_utf8_lossy(plain::matrix_line(&line)).into_owned();
    text.trim_matches(['>', '`', '|', ' ', '\t', '\r']).to_owned()
}

/// More than the longest header has.
const LONGEST: usize = 1 << 18;

pub(super) fn is_header(text: &str) -> bool {
    text.starts_with("GPU") && TopologyMatrix::begin(text, || quote(0)).is_some()
}

pub(super) fn is_row(text: &str) -> bool {
    text.starts_with("GPU") && TopologyMatrix::is_cells(text)
}

/// Reads the matrix whose header is line `start`.
pub(super) fn read(text: &[u8], start: u64) -> Result<Topology, Trouble> {
    let mut matrix: Option<TopologyMatrix> = None;
    let mut notes = Vec::new();
    let (mut mig, mut others) = (Vec::new(), Vec::new());
    for (number, line) in lines(text).skip_while(|it| it.0 < start) {
        let line = bare(line);
        let spot = quote(number).spot;
        let Some(known) = &mut matrix else {
            matrix = TopologyMatrix::begin(&line, || quote(number));
            if let Some(matrix) = &matrix {
                let gpus = matrix.columns.iter().filter(|it| it.starts_with("GPU")).count();
                check_size(gpus, "GPUs", start)?;
                check_size(matrix.columns.len() - gpus, "NICs", start)?;
            }
            continue;
        };
        if is_header(&line) {
            others.push(number);
        } else if line.starts_with("MIG") {
            mig.push(number);
        } else if others.is_empty() && !known.take_row(&line, spot) {
            known.take_legend(&line);
        }
    }
    let Some(matrix) = matrix else { return Err(Trouble::at(start, "no header of a matrix")) };
    let (machine, found) = wiring::machine(&matrix, &|spot| u64::from(spot.line) + 1)?;
    notes.extend(found);
    if let Some(line) = mig.first() {
        notes.push(format!("MIG devices are left out ({} from line {line} on).", count(mig.len(), "line")));
    }
    if let Some(line) = others.first() {
        notes.push(format!(
            "{} further down (from line {line}): only the first is read; give each machine its own file.",
            if others.len() == 1 {
                "Another matrix".to_owned()
            } else {
                format!("{} matrices", others.len())
            }
        ));
    }
    Ok(Topology { kind: Kind::Matrix, machine, graphs: Vec::new(), paths: Vec::new(), line: start, notes })
}

fn quote(number: u64) -> Quote {
    let line = u32::try_from(number.saturating_sub(1)).unwrap_or(u32::MAX);
    Quote { spot: Spot { region: 0, line }, text: "".into() }
}
