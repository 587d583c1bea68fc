//! Pods of one job need the same port of a node.

use evidence::yaml::Tree;
use job::submitted::{GpuContainer, Submitted};

use super::{counted, flag, unique};
use crate::{Check, Checked, Finding, Role, Rule, Severity};

/// The port that the operator adds to the container `pytorch` of every replica without one (`PyTorchJobDefaultPort`,
/// Kubeflow training-operator 1.9).
const PYTORCHJOB_PORT: u64 = 23456;

pub(super) static RULE: Rule = Rule {
    id: "host-network-port-clash",
    title: "pods of one job need the same port of a node",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "With hostNetwork a container port is a port of the node. The scheduler does not place a second pod with the same port on a \
          node: the others stay Pending (`didn't have free ports`) or get a node each, whose other GPUs are idle.",
    fix: "Remove `hostNetwork`, or use one pod with all GPUs of the node and one process per GPU.",
    references: &[
        "https://kubernetes.io/docs/concepts/security/pod-security-standards/",
        "https://github.com/kubeflow/trainer/blob/v1.9.0/pkg/apis/kubeflow.org/v1/pytorch_defaults.go",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings: Vec<Finding> = Vec::new();
    for it in submitted.gpu_containers() {
        let Some(on) = flag(it.pod, "hostNetwork") else { continue };
        let file = it.job.submission;
        let pods = it.job.nodes.pods;
        let machines = &it.template.machines;
        let smallest = machines.known.iter().min_by_key(|it| it.gpus);
        let Some(instance) = smallest.filter(|node| u64::from(node.gpus) >= it.gpus.saturating_mul(2)) else {
            continue;
        };
        let Some(port) = port(&file.tree, &it) else { continue };
        if pods < 2 || it.job.kind == "DaemonSet" {
            continue;
        }
        let message = format!(
            "hostNetwork makes {port} a port of the node: of {pods} pods with {} each, only one fits on a {} with {}",
            counted(it.gpus),
            instance.name,
            instance.gpus
        );
        let finding = Finding::at(it.job.file, &on.span, message)
            .also_at(&it.resource.span(), "part of the GPUs of a node");
        findings.push(finding);
    }
    Ok(unique(findings, |it| (it.file(), it.message.clone())))
}

/// A port that every pod of the template has.
fn port(tree: &Tree, at: &GpuContainer<'_>) -> Option<u64> {
    let ports = tree.get(at.container.node, "ports").map(|it| tree.items(it)).unwrap_or_default();
    let own = ports.iter().find_map(|it| tree.get(*it, "containerPort").and_then(|it| tree.integer(it)));
    let operator = at.job.kind == "PyTorchJob" && at.container.name.as_deref() == Some("pytorch");
    own.or(operator.then_some(PYTORCHJOB_PORT))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    fn job(gpus: u32, replicas: u32, more: &str) -> String {
        format!(
            "kind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: {replicas}\n      template:\n        spec:\n\
             \x20         nodeSelector: {{node.kubernetes.io/instance-type: p4d.24xlarge}}\n          hostNetwork: true\n          containers:\n\
             \x20         - name: pytorch\n            resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}\n{more}"
        )
    }

    #[test]
    fn one_pod_a_node() {
        let found = findings(&RULE, &job(1, 4, ""));
        assert_eq!(
            found[0].message,
            "hostNetwork makes 23456 a port of the node: of 4 pods with 1 GPU each, only one fits on a p4d.24xlarge with 8"
        );
        let found = findings(&RULE, &job(4, 2, "            ports: [{containerPort: 29500}]\n"));
        assert!(found[0].message.starts_with("hostNetwork makes 29500"));
    }

    #[test]
    fn quiet_elsewhere() {
        quiet(&RULE, &job(8, 4, ""));
        quiet(&RULE, &job(1, 1, ""));
        quiet(&RULE, &job(1, 4, "").replace("hostNetwork: true", "hostNetwork: false"));
        quiet(&RULE, &job(1, 4, "").replace("p4d.24xlarge", "unknown.type"));
        // Only rank 0 listens; nothing tells the scheduler of a port.
        quiet(&RULE, &job(1, 4, "").replace("PyTorchJob", "JobSet"));
    }
}
