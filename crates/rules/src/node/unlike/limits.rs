//! Nodes with other limits.

use evidence::Source;
use evidence::node::{Limit, NodeState};

use super::super::facts::bytes;
use super::super::odd::{self, Attribute, Value};
use super::hardware::approximate;
use crate::{Check, Checked, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "nodes-differ-limits",
    title: "nodes have smaller limits or less shared memory than the rest",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::SeveralNodes],
    why: "What fits on most nodes fails on one: registering memory (memlock), shared memory of ranks and data loaders (/dev/shm), sockets and threads \
          (open files, processes). The others then wait for the rank that failed.",
    fix: "Set the limits of the majority where jobs are started on the nodes that differ: /etc/security/limits.conf, the unit of slurmd or sshd \
          (LimitMEMLOCK, LimitNOFILE), the pod's or container's settings; `mount -o remount,size=50% /dev/shm`.",
    references: &["https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"],
    checks: &[Check::Nodes(check)],
};

pub(super) static ATTRIBUTES: &[Attribute] = &[
    Attribute {
        what: "/dev/shm",
        severity: Severity::Error,
        expected: None,
        value: |it| of_bytes(it.memory.shm_bytes?),
    },
    Attribute {
        what: "memlock",
        severity: Severity::Error,
        expected: None,
        value: |it| limit(it.limits.memlock?.soft, bytes),
    },
    Attribute {
        what: "open files",
        severity: Severity::Warning,
        expected: None,
        value: |it| hard(it.limits.open_files?),
    },
    Attribute {
        what: "processes",
        severity: Severity::Warning,
        expected: None,
        value: |it| limit(it.limits.processes?.soft, |it| it.to_string()),
    },
    Attribute { what: "huge pages", severity: Severity::Info, expected: None, value: hugepages },
    Attribute { what: "CPUs of the control group", severity: Severity::Warning, expected: None, value: cpus },
    Attribute {
        what: "memory of the control group",
        severity: Severity::Warning,
        expected: None,
        value: memory,
    },
];

fn check(states: &[NodeState]) -> Checked {
    odd::check(&RULE, ATTRIBUTES, states)
}

#[expect(clippy::unnecessary_wraps, reason = "the form of all values")]
fn of_bytes(amount: u64) -> Option<Value> {
    Some(Value::Amount(approximate(amount), bytes(amount)))
}

#[expect(clippy::unnecessary_wraps, reason = "the form of all values")]
fn limit(value: Option<u64>, said: fn(u64) -> String) -> Option<Value> {
    Some(match value {
        Some(value) => Value::Amount(approximate(value), said(value)),
        None => Value::Amount(f64::INFINITY, "unlimited".to_owned()),
    })
}

/// NCCL raises the soft limit to the hard one itself.
fn hard(it: Limit) -> Option<Value> {
    limit(it.hard, |it| it.to_string())
}

fn hugepages(state: &NodeState) -> Option<Value> {
    state.memory.total_bytes?;
    let all = state.memory.hugepages.iter().map(|it| it.page_bytes.saturating_mul(it.total));
    of_bytes(all.fold(0, u64::saturating_add))
}

fn cpus(state: &NodeState) -> Option<Value> {
    state.cpu.online?;
    Some(match state.cpu.cgroup.cpus {
        Some(cpus) => Value::Amount(cpus, format!("{cpus:.1}")),
        None => Value::Amount(f64::INFINITY, "unlimited".to_owned()),
    })
}

fn memory(state: &NodeState) -> Option<Value> {
    state.memory.total_bytes?;
    limit(state.cpu.cgroup.memory_bytes, bytes)
}
