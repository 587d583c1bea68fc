//! NVLink between machines without IMEX.

use evidence::node::NodeState;
use evidence::{Missing, Source};

use super::facts::{model, title};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-imex-off",
    title: "IMEX does not run on a node of an NVLink domain",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::Devices, Source::HostProcesses],
    why: "NVLink between machines (NVL72) needs NVIDIA's IMEX service on every machine and an IMEX channel in every container. Without it NCCL leaves \
          NVLink for the network between machines, or stops with an error.",
    fix: "`systemctl enable --now nvidia-imex` on all machines of the domain, with all of them in /etc/nvidia-imex/nodes_config.cfg; `nvidia-imex-ctl \
          -N` shows them. On Kubernetes use a ComputeDomain of the NVIDIA DRA driver.",
    references: &[
        "https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/overview.html",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-mnnvl-enable",
    ],
    checks: &[Check::Node(check)],
};

fn check(state: &NodeState) -> Checked {
    let Some(channels) = state.pci.imex_channels else { return Err(Missing(Source::Devices)) };
    let Some(model) = model(state).filter(|it| it.domain > 1) else { return Ok(Vec::new()) };
    if state.in_container() {
        // The service is not visible here, and the channel is what counts.
        let message = format!(
            "this container on a {} has no IMEX channel in /dev/nvidia-caps-imex-channels",
            title(model)
        );
        let finding = Finding::new(Confidence::Certain, message).severity(Severity::Warning);
        return Ok((channels == 0).then_some(finding).into_iter().collect());
    }
    match state.runs("nvidia-imex") {
        None => Err(Missing(Source::HostProcesses)),
        Some(true) => Ok(Vec::new()),
        Some(false) => {
            let message = format!(
                "a {} joins {} machines by NVLink, but nvidia-imex does not run",
                title(model),
                model.domain
            );
            Ok(vec![Finding::new(Confidence::Certain, message)])
        }
    }
}
