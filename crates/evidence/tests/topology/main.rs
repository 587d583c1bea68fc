//! Topologies of every kind, read from recordings, and read from what is cut, odd or hostile.

mod logs;
mod matrices;
mod random;
mod troubles;
mod xml;

use std::fmt::Write as _;

use evidence::topology::{self, Topology, Trouble};
use fabric::Machine;
use fabric::machine::{NvEnd, Place};

fn case(name: &str) -> Vec<u8> {
    let path = format!("{}/../../cases/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|it| panic!("{path}: {it}"))
}

fn data(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/topology/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|it| panic!("{path}: {it}"))
}

fn read(text: impl AsRef<[u8]>) -> Topology {
    topology::read(text.as_ref()).unwrap_or_else(|it| panic!("{it}"))
}

fn each<T>(all: impl Iterator<Item = T>, line: impl Fn(T) -> String) -> String {
    all.map(line).collect::<Vec<_>>().concat()
}

fn trouble(text: impl AsRef<[u8]>) -> Trouble {
    topology::read(text.as_ref()).expect_err("trouble")
}

/// The word of the matrix for two devices of a machine. `PHB` stands for `NODE` too.
fn path(machine: &Machine, a: Place, b: Place) -> &'static str {
    let (above_a, above_b) = (machine.bridges_above(a), machine.bridges_above(b));
    match above_a.iter().find(|it| above_b.contains(it)) {
        Some(common) if above_a.first() == Some(common) && above_b.first() == Some(common) => "PIX",
        Some(_) => "PXB",
        None if machine.socket_of(a) == machine.socket_of(b) => "PHB",
        None => "SYS",
    }
}

/// The matrix of a machine: GPUs by index, then NICs.
fn matrix(machine: &Machine) -> Vec<Vec<String>> {
    let mut gpus: Vec<usize> = (0..machine.gpus.len()).collect();
    gpus.sort_by_key(|it| machine.gpus[*it].index);
    let places: Vec<(Option<usize>, Place)> = gpus
        .iter()
        .map(|it| (Some(*it), machine.gpus[*it].at))
        .chain(machine.nics.iter().map(|it| (None, it.at)))
        .collect();
    let links = |from: usize, to: NvEnd| {
        machine.nvlinks.iter().filter(|it| it.from == from && it.to == to).map(|it| it.count).sum::<u32>()
    };
    let cell = |a: usize, b: usize| {
        if a == b {
            return "X".to_owned();
        }
        if let (Some(a), Some(b)) = (places[a].0, places[b].0) {
            let direct = links(a, NvEnd::Gpu(b));
            let n = if direct > 0 { direct } else { links(a, NvEnd::Switch).min(links(b, NvEnd::Switch)) };
            if n > 0 {
                return format!("NV{n}");
            }
        }
        path(machine, places[a].1, places[b].1).to_owned()
    };
    (0..places.len()).map(|a| (0..places.len()).map(|b| cell(a, b)).collect()).collect()
}

/// A matrix as `nvidia-smi` prints it.
fn print(cells: &[Vec<String>], n_gpus: usize, numa: &[usize]) -> String {
    let name = |it: usize| if it < n_gpus { format!("GPU{it}") } else { format!("NIC{}", it - n_gpus) };
    let mut text = String::new();
    for it in 0..cells.len() {
        let _ = write!(text, "\t{}", name(it));
    }
    text.push_str("\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n");
    for (at, row) in cells.iter().enumerate() {
        let _ = write!(text, "{}", name(at));
        for cell in row {
            let _ = write!(text, "\t{}", if cell == "X" { " X " } else { cell });
        }
        if at < n_gpus {
            let _ = write!(text, "\t{0}-{0}\t{0}\t\tN/A", numa[at]);
        }
        text.push('\n');
    }
    if cells.len() > n_gpus {
        text.push_str("\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n");
        for it in n_gpus..cells.len() {
            let _ = writeln!(text, "  NIC{0}: mlx5_{0}", it - n_gpus);
        }
    }
    text
}
