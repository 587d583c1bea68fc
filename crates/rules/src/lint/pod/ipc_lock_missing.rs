//! RDMA without the capability to lock memory.

use evidence::submission::{Container, Resource};
use job::submitted::{ContainerTemplate, Submitted};

use super::{called, command, is_whole};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "ipc-lock-missing",
    title: "RDMA without IPC_LOCK",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "Buffers of an RDMA device are locked in memory. Without the capability IPC_LOCK, the locked-memory limit of the container \
          runtime (`ulimit -l`) applies. If it is unlimited, nothing is missing: AWS's own nccl-tests manifest for EKS has no IPC_LOCK. \
          If the runtime has the systemd default (8 MiB, 64 KiB on older systems), registration fails with `Cannot allocate memory`.",
    fix: "Check `ulimit -l` inside a container on these nodes. If it is not `unlimited`, add `securityContext: {capabilities: {add: \
          [IPC_LOCK]}}` to the container or raise `LimitMEMLOCK` of the container runtime.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#infiniband",
        "https://github.com/aws-samples/awsome-distributed-training/blob/main/micro-benchmarks/nccl-tests/kubernetes/nccl-tests.yaml",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for (job, pod) in submitted.pods().filter(|(job, _)| is_whole(job)) {
        for ContainerTemplate { container, efa, .. } in &pod.containers {
            let locks = |it: &str| matches!(it.trim_start_matches("CAP_"), "IPC_LOCK" | "SYS_ADMIN" | "ALL");
            let allowed =
                container.privileged.is_some() || container.capabilities.iter().any(|it| locks(&it.text));
            let Some(device) = efa.map(|it| it.resource).or_else(|| rdma(container)) else { continue };
            if allowed || command(&job.submission.tree, container).contains("ulimit -l") {
                continue;
            }
            let message = format!(
                "{} requests {} without IPC_LOCK: whether its buffers can be locked depends on the nodes",
                called(container),
                device.name
            );
            findings.push(
                Finding::at(job.file, &device.span(), message)
                    .label("needs locked memory")
                    .confidence(Confidence::Possible),
            );
            // The pods of a job are alike, so one finding is enough.
            break;
        }
    }
    findings.dedup_by(|a, b| a.file() == b.file() && a.message == b.message);
    Ok(findings)
}

/// An RDMA device of another device plugin: `rdma/hca`, `nvidia.com/rdma_shared`, `openshift.io/rdma0`.
fn rdma(container: &Container) -> Option<&Resource> {
    let is_rdma = |it: &&Resource| {
        it.name.contains('/')
            && it.name.to_ascii_lowercase().contains("rdma")
            && it.quantity.is_some_and(|it| it.0 > 0.0)
    };
    container.limits.iter().chain(&container.requests).find(is_rdma)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    fn pod(device: &str, more: &str) -> String {
        format!(
            "kind: Pod\nspec:\n  containers:\n  - name: train\n    resources:\n      limits: {{nvidia.com/gpu: 8{device}}}\n{more}"
        )
    }

    #[test]
    fn a_device_without_the_capability() {
        let found = findings(&RULE, &pod(", rdma/hca: 1", ""));
        assert_eq!(
            found[0].message,
            "container `train` requests rdma/hca without IPC_LOCK: whether its buffers can be locked depends on the nodes"
        );
        assert_eq!(findings(&RULE, &pod(", vpc.amazonaws.com/efa: 32", "")).len(), 1);
    }

    #[test]
    fn quiet_elsewhere() {
        quiet(&RULE, &pod("", ""));
        quiet(&RULE, &pod(", rdma/hca: 1", "    securityContext: {capabilities: {add: [IPC_LOCK]}}\n"));
        quiet(&RULE, &pod(", rdma/hca: 1", "    securityContext: {privileged: true}\n"));
        quiet(&RULE, &pod(", rdma/hca: 1", "    command: [sh, -c, ulimit -l unlimited; train]\n"));
    }
}
