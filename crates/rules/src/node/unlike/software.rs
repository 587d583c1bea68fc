//! Nodes with other releases.

use std::collections::BTreeSet;

use evidence::Source;
use evidence::node::{LibraryKind, NodeState};

use super::super::odd::{self, Attribute, Value};
use crate::{Check, Checked, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "nodes-differ-software",
    title: "nodes have other releases of driver, NCCL or plugin than the rest",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::SeveralNodes],
    why: "Ranks with different releases of NCCL or of its network plugin refuse each other or hang, as their protocols differ. Another driver, kernel or \
          libfabric on one node runs, but with other speed and other faults.",
    fix: "Install the release of the majority on the nodes that differ, from one image, or take them out of the job. In containers the image decides \
          on NCCL and plugin: use one tag or digest for all nodes.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        "NCCL src/init.cc (initTransportsRank compares versions)",
    ],
    checks: &[Check::Nodes(check)],
};

pub(super) static ATTRIBUTES: &[Attribute] = &[
    Attribute {
        what: "NCCL",
        severity: Severity::Error,
        expected: None,
        value: |it| libraries(it, LibraryKind::Nccl),
    },
    Attribute {
        what: "aws-ofi-nccl",
        severity: Severity::Error,
        expected: None,
        value: |it| libraries(it, LibraryKind::AwsOfiNccl),
    },
    Attribute {
        what: "network plugin",
        severity: Severity::Warning,
        expected: None,
        value: |it| libraries(it, LibraryKind::NetPlugin),
    },
    Attribute {
        what: "libfabric",
        severity: Severity::Warning,
        expected: None,
        value: |it| libraries(it, LibraryKind::Libfabric),
    },
    Attribute {
        what: "driver",
        severity: Severity::Warning,
        expected: None,
        value: |it| it.driver.as_ref()?.version.as_ref().map(Value::text),
    },
    Attribute {
        what: "CUDA of the driver",
        severity: Severity::Info,
        expected: None,
        value: |it| it.driver.as_ref()?.cuda.as_ref().map(Value::text),
    },
    Attribute {
        what: "kernel",
        severity: Severity::Info,
        expected: None,
        value: |it| it.system.kernel.as_ref().map(Value::text),
    },
    Attribute {
        what: "distribution",
        severity: Severity::Info,
        expected: None,
        value: |it| it.system.distribution.as_ref().map(Value::text),
    },
    Attribute { what: "GPUDirect modules", severity: Severity::Warning, expected: None, value: modules },
    Attribute { what: "NIC firmware", severity: Severity::Info, expected: None, value: firmware },
    Attribute {
        what: "plumb",
        severity: Severity::Warning,
        expected: None,
        value: |it| it.plumb.as_ref().map(Value::text),
    },
];

fn check(states: &[NodeState]) -> Checked {
    odd::check(&RULE, ATTRIBUTES, states)
}

/// The releases found, or that there is none. Where no node has any, all are alike.
#[expect(clippy::unnecessary_wraps, reason = "the form of all values")]
fn libraries(state: &NodeState, kind: LibraryKind) -> Option<Value> {
    let all: BTreeSet<&str> =
        state.libraries_of(kind).map(|it| it.version.as_deref().unwrap_or("unknown release")).collect();
    if all.is_empty() {
        return Some(Value::text("none"));
    }
    Some(Value::text(all.into_iter().collect::<Vec<_>>().join(" and ")))
}

fn modules(state: &NodeState) -> Option<Value> {
    let modules = state.modules.as_ref()?;
    let names = ["nvidia_peermem", "nv_peer_mem", "gdrdrv", "efa", "mlx5_ib"];
    let loaded: Vec<&str> =
        names.into_iter().filter(|it| modules.iter().any(|module| module.name == *it)).collect();
    Some(if loaded.is_empty() { Value::text("none") } else { Value::text(loaded.join(" and ")) })
}

fn firmware(state: &NodeState) -> Option<Value> {
    let all: BTreeSet<&str> = state.rdma.as_ref()?.iter().filter_map(|it| it.firmware.as_deref()).collect();
    (!all.is_empty()).then(|| Value::text(all.into_iter().collect::<Vec<_>>().join(" and ")))
}
