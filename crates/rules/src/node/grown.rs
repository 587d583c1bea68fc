//! Counters of errors that grew between two states of one node.

use std::collections::BTreeMap;

use evidence::node::NodeState;
use evidence::{Missing, Source};

use super::facts::list;
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-errors-grew",
    title: "counters of errors of a node grew between two recordings",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::SeveralNodes],
    why: "A counter that grows while a job runs shows a link that repeats or loses packets now. The collective waits for every repeated packet, and a \
          link that loses many breaks the connection.",
    fix: "Look at the device that is named: clean, reseat or replace its cable and transceiver, compare with the counters of the switch port, and take \
          the node out until they stay.",
    references: &[
        "https://docs.nvidia.com/networking/display/ufmenterpriseumv6120/appendix+%E2%80%93+supported+port+counters+and+events",
    ],
    checks: &[Check::Nodes(check)],
};

/// A counter that grew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth {
    /// `mlx5_3`, `GPU2`
    pub device: String,
    /// `symbol_error`
    pub counter: String,
    /// Its value at first.
    pub before: u64,
    /// Its value now.
    pub after: u64,
}

/// The counters of errors that grew from one state of a node to a later one.
pub fn grown(before: &NodeState, after: &NodeState) -> Vec<Growth> {
    let (old, new) = (counters(before), counters(after));
    let growth = |((device, counter), after): (&(String, String), &u64)| {
        let before = old.get(&(device.clone(), counter.clone())).copied().unwrap_or(0);
        (before < *after).then(|| Growth {
            device: device.clone(),
            counter: counter.clone(),
            before,
            after: *after,
        })
    };
    new.iter().filter_map(growth).collect()
}

fn counters(state: &NodeState) -> BTreeMap<(String, String), u64> {
    let mut all = BTreeMap::new();
    for port in state.rdma.iter().flatten() {
        for (name, count) in &port.errors {
            all.insert((port.device.clone(), name.clone()), *count);
        }
    }
    for gpu in state.gpus.iter().flatten() {
        let links = gpu.nvlink.clone().unwrap_or_default();
        for (name, count) in [
            ("NVLink replays", links.replay_errors),
            ("NVLink recoveries", links.recovery_errors),
            ("uncorrected memory errors", gpu.ecc.and_then(|it| it.volatile_uncorrected)),
        ] {
            all.insert((format!("GPU{}", gpu.index), name.to_owned()), count.unwrap_or(0));
        }
    }
    all
}

fn check(states: &[NodeState]) -> Checked {
    let mut found = Vec::new();
    let mut pairs = 0;
    for (at, after) in states.iter().enumerate() {
        let earlier = states.get(..at).unwrap_or_default();
        let Some(before) = earlier.iter().rev().find(|it| it.host == after.host) else { continue };
        pairs += 1;
        let grown = grown(before, after);
        if grown.is_empty() {
            continue;
        }
        let said: Vec<String> = grown
            .iter()
            .map(|it| format!("{} {} from {} to {}", it.device, it.counter, it.before, it.after))
            .collect();
        let message = format!("counters of errors grew on {}: {}", after.host, list(&said, 3));
        found.push(Finding::new(Confidence::Certain, message).about_host(&after.host));
    }
    if pairs == 0 && states.len() < 2 { Err(Missing(Source::SeveralNodes)) } else { Ok(found) }
}
