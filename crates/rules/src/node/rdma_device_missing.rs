//! RDMA devices that should be there are not, or their ports are down.

use evidence::Source;
use evidence::node::{NodeState, RdmaPort};
use fabric::machine::NicKind;

use super::facts::{count, list, model, ports, title};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-rdma-device-missing",
    title: "a network device of the node is missing or its port is down",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::Devices],
    why: "NCCL spreads its traffic over all NICs next to the GPUs. A node with fewer is slower than the others, and all wait for it; without any, \
          it falls back to TCP or the job does not start.",
    fix: "EFA: attach all interfaces in the launch template (one per network card, type efa or efa-only), load the module `efa`, and check `fi_info \
          -p efa`. InfiniBand and RoCE: check cable and switch port (`ibstat`, `ip link`), and reset or replace the card.",
    references: &[
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html",
        "https://docs.nvidia.com/networking/display/mlnxofedv24010331/infiniband+network",
    ],
    checks: &[Check::Node(check)],
};

fn check(state: &NodeState) -> Checked {
    let ports = ports(state)?;
    let down: Vec<&RdmaPort> =
        ports.iter().filter(|it| it.state.as_deref().is_some_and(|it| it != "ACTIVE")).collect();
    let of_kind = |kind: &str| ports.iter().filter(|it| it.kind == kind).count();
    let expected = model(state).filter(|it| it.nics > 0 && it.network != NicKind::Ethernet);
    let mut found = Vec::new();
    let mut short = false;
    if let Some(model) = expected {
        let wanted = usize::try_from(model.nics).unwrap_or(usize::MAX);
        let (here, called) = match model.network {
            NicKind::Efa => (of_kind("efa"), "EFA devices"),
            _ => (
                ports.iter().filter(|it| it.kind != "efa" && !down.contains(it)).count(),
                "active RDMA ports",
            ),
        };
        if here < wanted {
            short = true;
            let message = format!("the node has {here} of the {wanted} {called} of a {}", title(model));
            let finding = Finding::new(Confidence::Certain, message);
            // A pod may be given some of the devices, and an instance may be started with fewer.
            let chosen = state.in_container() && here > 0;
            found.push(if chosen {
                finding.severity(Severity::Warning).confidence(Confidence::Possible)
            } else {
                finding
            });
        }
    }
    if !down.is_empty() {
        let names: Vec<String> = down.iter().map(|it| said(it)).collect();
        let names = list(&names, 4);
        let message = match down.len() {
            1 => format!("the port of {names} is not active"),
            _ => format!("the ports of {names} are not active"),
        };
        let finding = down
            .iter()
            .fold(Finding::new(Confidence::Certain, message), |it, port| it.about_nic(&port.device));
        // Cards for storage often have an unused port: only what the machine should have is a fault.
        let enough = (expected.is_some() && !short) || count(state) == 0;
        found.push(finding.severity(if enough { Severity::Info } else { Severity::Warning }));
    }
    Ok(found)
}

fn said(port: &RdmaPort) -> String {
    let state = port.state.as_deref().unwrap_or_default().to_lowercase();
    match &port.physical {
        Some(physical) => format!("{} port {} ({state}, {physical})", port.device, port.port),
        None => format!("{} port {} ({state})", port.device, port.port),
    }
}
