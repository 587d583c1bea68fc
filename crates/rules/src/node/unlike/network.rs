//! Nodes with another network.

use std::collections::BTreeSet;

use evidence::Source;
use evidence::node::{Interface, NodeState};
use fabric::machine::NicKind;

use super::super::facts::{list, model};
use super::super::odd::{self, Attribute, Value};
use crate::{Check, Checked, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "nodes-differ-network",
    title: "nodes have other network devices, rates or MTUs than the rest",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::SeveralNodes],
    why: "A node with fewer or slower ports slows the whole job. With different MTUs large packets between two nodes are lost: small messages \
          pass, and the job hangs at its first large one.",
    fix: "Give all nodes the same devices and the same MTU (`ip link set DEVICE mtu BYTES`; 9001 inside AWS, 9000 on most others), and check the cables \
          and switch ports of those that differ (`ip link`, `ethtool DEVICE`).",
    references: &[
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/network_mtu.html",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ],
    checks: &[Check::Nodes(check)],
};

pub(super) static ATTRIBUTES: &[Attribute] = &[
    Attribute {
        what: "active RDMA ports",
        severity: Severity::Error,
        expected: Some(expected_ports),
        value: ports,
    },
    Attribute { what: "rates of RDMA ports", severity: Severity::Warning, expected: None, value: port_rates },
    Attribute { what: "MTU", severity: Severity::Error, expected: None, value: mtu },
    Attribute {
        what: "physical interfaces down",
        severity: Severity::Warning,
        expected: Some(none_down),
        value: interfaces_down,
    },
    Attribute { what: "physical interfaces", severity: Severity::Warning, expected: None, value: interfaces },
    Attribute { what: "rates of interfaces", severity: Severity::Warning, expected: None, value: rates },
];

fn check(states: &[NodeState]) -> Checked {
    odd::check(&RULE, ATTRIBUTES, states)
}

fn ports(state: &NodeState) -> Option<Value> {
    let (active, down): (Vec<_>, Vec<_>) =
        state.rdma.as_ref()?.iter().partition(|it| it.state.as_deref().is_none_or(|it| it == "ACTIVE"));
    Some(count(active.len(), down.iter().map(|it| &it.device)))
}

/// The devices of the machine in the catalogue. Those of storage or of management that it does not list make the number another one,
/// and then nothing is known.
fn expected_ports(state: &NodeState) -> Option<Value> {
    let model = model(state).filter(|it| it.nics > 0 && it.network != NicKind::Ethernet)?;
    Some(count(usize::try_from(model.nics).ok()?, std::iter::empty()))
}

/// A number of devices that are up, with those that are not.
fn count<'a>(up: usize, down: impl Iterator<Item = &'a String>) -> Value {
    let down: Vec<String> = down.cloned().collect();
    let remark = if down.is_empty() { String::new() } else { format!("{} down", list(&down, 3)) };
    Value::Count(up, remark)
}

fn port_rates(state: &NodeState) -> Option<Value> {
    set(state.rdma.as_ref()?.iter().filter_map(|it| it.gbps), "Gbit/s")
}

/// Interfaces that carry traffic: those with a device behind them, or all where there is none, as in a container.
fn used(state: &NodeState) -> Option<Vec<&Interface>> {
    let up: Vec<&Interface> =
        state.interfaces.as_ref()?.iter().filter(|it| it.state.as_deref() == Some("up")).collect();
    let physical: Vec<&Interface> = up.iter().copied().filter(|it| it.physical).collect();
    Some(if physical.is_empty() { up } else { physical })
}

/// `None` where there is none, as in a container with a network of its own.
fn physical(state: &NodeState) -> Option<Vec<&Interface>> {
    let all: Vec<&Interface> = state.interfaces.as_ref()?.iter().filter(|it| it.physical).collect();
    (!all.is_empty()).then_some(all)
}

fn interfaces_down(state: &NodeState) -> Option<Value> {
    let mut down = physical(state)?;
    down.retain(|it| it.state.as_deref().is_some_and(|it| it.ends_with("down")));
    let names: Vec<String> = down.iter().map(|it| it.name.clone()).collect();
    Some(Value::Count(down.len(), list(&names, 3)))
}

/// Unused ports are down on all nodes; where they are up on some, they are used.
#[expect(clippy::unnecessary_wraps, reason = "the form of all values")]
fn none_down(_: &NodeState) -> Option<Value> {
    Some(Value::Count(0, String::new()))
}

/// EC2 adds network interfaces to an instance as containers need addresses: their number says nothing there.
fn interfaces(state: &NodeState) -> Option<Value> {
    let varies = state.machine.vendor.as_deref() == Some("Amazon EC2");
    (!varies).then_some(Value::Count(physical(state)?.len(), String::new()))
}

fn mtu(state: &NodeState) -> Option<Value> {
    let all: BTreeSet<u32> = used(state)?.iter().filter_map(|it| it.mtu).collect();
    let all: Vec<String> = all.into_iter().map(|it| it.to_string()).collect();
    (!all.is_empty()).then(|| Value::text(all.join(" and ")))
}

fn rates(state: &NodeState) -> Option<Value> {
    set(used(state)?.iter().filter_map(|it| it.gbps), "Gbit/s")
}

fn set(rates: impl Iterator<Item = f64>, unit: &str) -> Option<Value> {
    let mut all: Vec<f64> = rates.collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    (!all.is_empty()).then(|| Value::text(format!("{} {unit}", all.join(" and "))))
}
