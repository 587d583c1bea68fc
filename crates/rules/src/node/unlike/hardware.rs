//! Nodes with other devices.

use evidence::Source;
use evidence::node::{Gpu, NodeState};

use super::super::facts::{bytes, count, expected_gpus};
use super::super::nvlink_down;
use super::super::odd::{self, Attribute, Value};
use crate::{Check, Checked, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "nodes-differ-hardware",
    title: "nodes have other GPUs, NICs or processors than the rest",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::SeveralNodes],
    why: "A job starts the same number of ranks on every node. A node with fewer GPUs hangs it at its start; one with fewer or slower devices slows \
          all others, which wait for it.",
    fix: "Take the nodes named here out of the job, or repair them: `plumb node` on such a node says what is missing.",
    references: &["https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"],
    checks: &[Check::Nodes(check)],
};

pub(super) static ATTRIBUTES: &[Attribute] = &[
    Attribute {
        what: "GPUs",
        severity: Severity::Error,
        expected: Some(|it| expected_gpus(it).map(Value::text)),
        value: gpus,
    },
    Attribute { what: "GPU model", severity: Severity::Warning, expected: None, value: gpu_model },
    Attribute {
        what: "memory of GPUs",
        severity: Severity::Error,
        expected: Some(expected_gpu_memory),
        value: gpu_memory,
    },
    Attribute {
        what: "NVLinks up per GPU",
        severity: Severity::Error,
        expected: Some(expected_nvlinks),
        value: nvlinks,
    },
    Attribute { what: "machine", severity: Severity::Warning, expected: None, value: machine },
    Attribute {
        what: "CPU",
        severity: Severity::Info,
        expected: None,
        value: |it| it.cpu.model.as_ref().map(Value::text),
    },
    Attribute {
        what: "CPUs",
        severity: Severity::Warning,
        expected: None,
        value: |it| amount(it.cpu.online?),
    },
    Attribute {
        what: "NUMA nodes",
        severity: Severity::Info,
        expected: None,
        value: |it| some(it.cpu.numa.len()),
    },
    Attribute {
        what: "memory",
        severity: Severity::Warning,
        expected: None,
        value: |it| it.memory.total_bytes.map(|it| Value::Amount(approximate(it), bytes(it))),
    },
];

fn check(states: &[NodeState]) -> Checked {
    odd::check(&RULE, ATTRIBUTES, states)
}

/// Those that the driver lists, else those on the bus.
fn gpus(state: &NodeState) -> Option<Value> {
    match (&state.gpus, state.pci.gpus) {
        (Some(gpus), _) => Some(Value::text(gpus.iter().filter(|it| it.problem.is_none()).count())),
        (None, Some(_)) => Some(Value::text(count(state))),
        (None, None) => None,
    }
}

fn gpu_model(state: &NodeState) -> Option<Value> {
    let gpus = state.gpus.as_ref().or(state.kernel_gpus.as_ref())?;
    let mut names: Vec<&str> = gpus.iter().filter_map(|it| it.name.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| Value::text(names.join(" and ")))
}

/// That of the GPU with the least: a job that fits the others does not fit it.
fn gpu_memory(state: &NodeState) -> Option<Value> {
    let least = state.gpus.as_ref()?.iter().filter_map(|it| it.memory_bytes).min()?;
    Some(Value::Amount(approximate(least), bytes(least)))
}

/// What GPUs of this name have. The machine does not say it: some are sold with either of two sizes.
fn expected_gpu_memory(state: &NodeState) -> Option<Value> {
    let of_model = |it: &Gpu| Some(fabric::gpu::find(it.name.as_deref()?)?.memory?.0);
    let least = state.gpus.as_ref()?.iter().filter_map(of_model).min_by(f64::total_cmp)?;
    Some(Value::Amount(least * approximate(1 << 30), format!("{least} GiB")))
}

fn nvlinks(state: &NodeState) -> Option<Value> {
    let least = state.gpus.as_ref()?.iter().filter_map(|it| it.nvlink.as_ref()).map(|it| it.up).min()?;
    Some(Value::text(least))
}

/// What the model of the GPUs has, where all its links are always connected.
fn expected_nvlinks(state: &NodeState) -> Option<Value> {
    nvlink_down::expected(state.gpus.as_ref()?).map(Value::text)
}

fn machine(state: &NodeState) -> Option<Value> {
    state.machine.named.as_ref().or(state.machine.product.as_ref()).map(Value::text)
}

fn some(count: usize) -> Option<Value> {
    (count > 0).then(|| Value::text(count))
}

#[expect(clippy::unnecessary_wraps, reason = "the form of all values")]
fn amount(count: u32) -> Option<Value> {
    Some(Value::Amount(f64::from(count), count.to_string()))
}

#[expect(clippy::cast_precision_loss, reason = "compared within a few per cent")]
pub(in crate::node) fn approximate(bytes: u64) -> f64 {
    bytes as f64
}
