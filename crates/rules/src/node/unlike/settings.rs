//! Nodes with other settings of their GPUs and processors.

use std::collections::BTreeSet;

use evidence::Source;
use evidence::node::{Gpu, NodeState};

use super::super::odd::{self, Attribute, Value};
use crate::{Check, Checked, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "nodes-differ-settings",
    title: "GPUs or processors of nodes have other settings than the rest",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::SeveralNodes],
    why: "All ranks wait for the slowest GPU. A node with a lower power limit or lower clocks, with MIG or with ECC set differently slows or breaks the \
          job, while every test of a node alone may pass.",
    fix: "Set what the majority has: `nvidia-smi -pl` (power limit), `nvidia-smi -rgc` (clocks back to normal), `nvidia-smi -mig 0`, `nvidia-smi -e 1`, \
          `cpupower frequency-set -g performance`.",
    references: &["https://docs.nvidia.com/deploy/nvidia-smi/index.html"],
    checks: &[Check::Nodes(check)],
};

pub(super) static ATTRIBUTES: &[Attribute] = &[
    Attribute {
        what: "MIG",
        severity: Severity::Error,
        expected: None,
        value: |it| gpus(it, |gpu| gpu.mig.map(on_off)),
    },
    Attribute {
        what: "power limit",
        severity: Severity::Warning,
        expected: None,
        value: |it| gpus(it, |gpu| gpu.power_limit_w.map(|it| format!("{it:.0} W"))),
    },
    Attribute {
        what: "highest clock",
        severity: Severity::Warning,
        expected: None,
        value: |it| gpus(it, |gpu| gpu.sm_max_mhz.map(|it| format!("{it} MHz"))),
    },
    Attribute {
        what: "ECC",
        severity: Severity::Warning,
        expected: None,
        value: |it| gpus(it, |gpu| gpu.ecc?.enabled.map(on_off)),
    },
    Attribute {
        what: "compute mode",
        severity: Severity::Warning,
        expected: None,
        value: |it| gpus(it, |gpu| gpu.compute_mode.clone()),
    },
    Attribute {
        what: "VBIOS",
        severity: Severity::Info,
        expected: None,
        value: |it| gpus(it, |gpu| gpu.vbios.clone()),
    },
    Attribute { what: "CPU governor", severity: Severity::Warning, expected: None, value: governor },
    Attribute { what: "IOMMU", severity: Severity::Info, expected: None, value: iommu },
];

fn check(states: &[NodeState]) -> Checked {
    odd::check(&RULE, ATTRIBUTES, states)
}

/// The values of all GPUs of a node, each once.
fn gpus(state: &NodeState, value: fn(&Gpu) -> Option<String>) -> Option<Value> {
    let all: BTreeSet<String> = state.gpus.as_ref()?.iter().filter_map(value).collect();
    (!all.is_empty()).then(|| Value::text(all.into_iter().collect::<Vec<_>>().join(" and ")))
}

fn on_off(it: bool) -> String {
    if it { "on" } else { "off" }.to_owned()
}

fn governor(state: &NodeState) -> Option<Value> {
    (!state.cpu.governors.is_empty()).then(|| Value::text(state.cpu.governors.join(" and ")))
}

fn iommu(state: &NodeState) -> Option<Value> {
    let kinds = state.pci.iommu.as_ref()?;
    Some(if kinds.is_empty() { Value::text("none") } else { Value::text(kinds.join(" and ")) })
}
