//! A small limit on locked memory.

use evidence::node::NodeState;
use evidence::{Missing, Source};

use super::facts::{bytes, ports};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-memlock-low",
    title: "the limit on locked memory is too small for RDMA",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::Limits, Source::Devices],
    why: "RDMA devices lock the memory of their buffers. With a small limit, registering memory fails, and the job with it at its first collective.",
    fix: "Set memlock to unlimited where jobs are started: /etc/security/limits.conf (soft and hard), LimitMEMLOCK=infinity of slurmd, sshd or the \
          container runtime, `docker run --ulimit memlock=-1`; on Kubernetes add the capability IPC_LOCK.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html",
        "https://github.com/awslabs/awsome-distributed-training/tree/main/4.validation_and_observability/2.gpu-cluster-healthcheck",
    ],
    checks: &[Check::Node(check)],
};

/// What AWS's health check asks for on machines with EFA (`2.gpu-cluster-healthcheck`, check 2).
const ENOUGH: u64 = 16 << 30;

fn check(state: &NodeState) -> Checked {
    let limit = state.limits.memlock.ok_or(Missing(Source::Limits))?;
    let rdma = ports(state)?;
    let Some(soft) = limit.soft.filter(|it| *it < ENOUGH) else { return Ok(Vec::new()) };
    if rdma.is_empty() {
        return Ok(Vec::new());
    }
    let message = format!("memlock is {} where {} or unlimited is needed", bytes(soft), bytes(ENOUGH));
    let finding = Finding::new(Confidence::Certain, message);
    Ok(vec![if state.limits.ipc_lock == Some(true) {
        let why = "This process may lock any amount of memory (CAP_IPC_LOCK), so the limit does not bind it. Programs of ordinary users that are \
                   started the same way are bound by it.";
        finding.severity(Severity::Info).why(why)
    } else {
        finding
    }])
}
