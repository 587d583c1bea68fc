//! `nvidia-smi topo -p2p r|w|n|a|p`: which pairs of GPUs may reach each other's memory. It says nothing about the wiring.

use std::collections::BTreeMap;

use super::Trouble;

/// A matrix of `topo -p2p`.
#[derive(Debug)]
pub(super) struct Peers {
    pub(super) line: u64,
    pub(super) columns: Vec<Box<str>>,
    pub(super) rows: Vec<PeerRow>,
}

/// A row of the matrix.
#[derive(Debug)]
pub(super) struct PeerRow {
    pub(super) name: Box<str>,
    /// The status for each column.
    pub(super) statuses: Vec<Option<Box<str>>>,
}

/// As the legend of `nvidia-smi topo -p2p` has it.
fn meaning(status: &str) -> &'static str {
    match status {
        "OK" => "possible",
        "CNS" => "chipset not supported",
        "GNS" => "GPU not supported",
        "TNS" => "topology not supported",
        "NS" => "not supported",
        "DR" => "disabled by a registry key",
        _ => "unknown",
    }
}

impl Peers {
    /// The pairs of each status, each pair once.
    fn pairs(&self) -> BTreeMap<&str, Vec<(&str, &str)>> {
        let mut all: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        let mut seen = std::collections::BTreeSet::new();
        for PeerRow { name: row, statuses } in &self.rows {
            for (column, status) in self.columns.iter().zip(statuses) {
                let pair = if row < column { (&**row, &**column) } else { (&**column, &**row) };
                if let Some(status) = status
                    && row != column
                    && seen.insert(pair)
                {
                    all.entry(status).or_default().push(pair);
                }
            }
        }
        all
    }

    /// `OK (possible) for 28 pairs`, `GNS (GPU not supported) for GPU0-GPU1`
    fn summary(&self) -> String {
        let each = self.pairs().into_iter().map(|(status, pairs)| {
            let which = match pairs.as_slice() {
                [(a, b)] => format!("{a} and {b}"),
                many => format!("{} pairs of GPUs", many.len()),
            };
            format!("{status} ({}) for {which}", meaning(status))
        });
        each.collect::<Vec<_>>().join(", ")
    }

    /// What it says beside a matrix of paths.
    pub(super) fn note(&self) -> String {
        let refused = self.pairs().keys().any(|it| *it != "OK" && *it != "U");
        let then =
            if refused { " NCCL uses shared memory or the network where P2P is not possible." } else { "" };
        format!("P2P by `nvidia-smi topo -p2p` (line {}): {}.{then}", self.line, self.summary())
    }

    /// Why it is no description of a machine.
    pub(super) fn alone(&self) -> Trouble {
        let gpus = self.columns.iter().filter(|it| it.starts_with("GPU")).count();
        Trouble::says_too_little(
            self.line,
            format!(
                "this is `nvidia-smi topo -p2p`: which of the {gpus} GPUs can use P2P, not how they are wired. It says {}",
                self.summary()
            ),
            "Give the output of `nvidia-smi topo -m`, or name the machine with --instance",
        )
    }
}
