//! Rules about the state of a node, and about nodes that differ from each other.
//!
//! [`judge`] asks whether one node is as it should be, by the catalogue and by what its parts report. [`compare`] names the nodes of a fleet
//! that are unlike the others. Both are pure: they read what `plumb node` recorded, here or on another machine.

pub(crate) mod driver_not_working;
pub(crate) mod ecc_uncorrected;
mod facts;
pub(crate) mod gdr_module_missing;
pub(crate) mod gpu_missing;
pub(crate) mod gpu_pcie_narrow;
pub(crate) mod gpu_power_capped;
pub(crate) mod gpu_throttled;
mod grown;
pub(crate) mod imex_off;
pub(crate) mod kernel_xid;
pub(crate) mod limits_low;
pub(crate) mod memlock_low;
pub(crate) mod mig_on;
pub(crate) mod nvlink_down;
mod odd;
pub(crate) mod pci_redirected;
pub(crate) mod pcie_errors;
pub(crate) mod plugin_missing;
pub(crate) mod port_errors;
pub(crate) mod rdma_device_missing;
pub(crate) mod rdma_rate_low;
pub(crate) mod shm_small;
pub(crate) mod unlike;
pub(crate) mod untuned;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use evidence::Source;
use evidence::node::NodeState;

use crate::{Found, Rule, Severity, Unchecked, all};

pub use grown::{Growth, grown};
pub use odd::{Group, Odd, compare};

/// The rules of this family.
pub(crate) static RULES: &[&Rule] = &[
    &driver_not_working::RULE,
    &ecc_uncorrected::RULE,
    &gdr_module_missing::RULE,
    &gpu_missing::RULE,
    &gpu_pcie_narrow::RULE,
    &gpu_power_capped::RULE,
    &gpu_throttled::RULE,
    &grown::RULE,
    &imex_off::RULE,
    &kernel_xid::RULE,
    &limits_low::RULE,
    &memlock_low::RULE,
    &mig_on::RULE,
    &nvlink_down::RULE,
    &pcie_errors::RULE,
    &pci_redirected::RULE,
    &plugin_missing::RULE,
    &port_errors::RULE,
    &rdma_device_missing::RULE,
    &rdma_rate_low::RULE,
    &shm_small::RULE,
    &unlike::hardware::RULE,
    &unlike::limits::RULE,
    &unlike::network::RULE,
    &unlike::settings::RULE,
    &unlike::software::RULE,
    &untuned::RULE,
];

/// What the rules say about one node.
#[derive(Debug, Clone)]
pub struct Judged {
    /// The worst first.
    pub findings: Vec<Found>,
    /// Rules that could not be checked.
    pub unchecked: Vec<Unchecked>,
}

/// Whether a node is fit to train.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fitness {
    /// Nothing worse than a note.
    Fit,
    /// It will run, slower or with a risk.
    Warnings,
    /// It could not be seen whether its GPUs and networks are well.
    Unknown,
    /// A job on it fails, hangs or wastes most of the hardware.
    NotFit,
}

impl Judged {
    /// Whether no GPU was seen, and nothing says that there should be one or none.
    pub fn expects_nothing(&self) -> bool {
        self.unchecked.iter().any(|it| it.missing.0 == Source::ExpectedGpus)
    }

    /// Whether the node is fit to train.
    pub fn fitness(&self) -> Fitness {
        let worst = self.findings.iter().map(Found::severity).max();
        // What is not seen of GPUs and devices may hide anything; other sources only add to it.
        let blind = |it: &Unchecked| {
            matches!(it.missing.0, Source::GpuDriver | Source::Devices | Source::ExpectedGpus)
        };
        match worst {
            Some(Severity::Error) => Fitness::NotFit,
            _ if self.unchecked.iter().any(blind) => Fitness::Unknown,
            Some(Severity::Warning) => Fitness::Warnings,
            _ => Fitness::Fit,
        }
    }
}

/// Runs every rule about a single node.
pub fn judge(state: &NodeState) -> Judged {
    let mut judged = Judged { findings: Vec::new(), unchecked: Vec::new() };
    for rule in all() {
        match rule.node().map(|check| check(state)) {
            None => {}
            Some(Ok(found)) => {
                judged.findings.extend(found.into_iter().map(|finding| Found { rule, finding }));
            }
            Some(Err(missing)) => judged.unchecked.push(Unchecked { rule, missing }),
        }
    }
    sort(&mut judged.findings);
    judged
}

/// Runs every rule that compares nodes. Fewer than two nodes give nothing.
pub fn judge_together(states: &[NodeState]) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for rule in all() {
        let checked = rule.nodes().and_then(|check| check(states).ok()).unwrap_or_default();
        found.extend(checked.into_iter().map(|finding| Found { rule, finding }));
    }
    sort(&mut found);
    found
}

fn sort(findings: &mut [Found]) {
    findings.sort_by_key(|it| (Reverse(it.severity()), Reverse(it.finding.confidence), it.rule.id));
}
