//! Counters of errors of network ports.

use evidence::Source;
use evidence::node::NodeState;

use super::facts::{list, ports};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-port-errors",
    title: "network ports of the node have counted errors",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::Devices],
    why: "The counters run since the port was started, so that old errors stay in them: what counts is whether they grow during a run.",
    fix: "Record `plumb node --format json` before and after a run, and give both files to `plumb node`: it names the counters that grew.",
    references: &[
        "https://docs.nvidia.com/networking/display/ufmenterpriseumv6120/appendix+%E2%80%93+supported+port+counters+and+events",
        "https://github.com/amzn/amzn-drivers/tree/master/kernel/linux/efa",
    ],
    checks: &[Check::Node(check)],
};

fn check(state: &NodeState) -> Checked {
    let mut said = Vec::new();
    let mut nics = Vec::new();
    for port in ports(state)?.iter().filter(|it| !it.errors.is_empty()) {
        let counters: Vec<String> =
            port.errors.iter().map(|(name, count)| format!("{name} {count}")).collect();
        said.push(format!("{} ({})", port.device, list(&counters, 2)));
        nics.push(&port.device);
    }
    if said.is_empty() {
        return Ok(Vec::new());
    }
    let finding =
        Finding::new(Confidence::Certain, format!("errors counted since the start by {}", list(&said, 3)));
    Ok(vec![nics.into_iter().fold(finding, Finding::about_nic)])
}
