//! `shareProcessNamespace` for GPUs.

use job::submitted::Submitted;

use super::flag;
use crate::{Check, Checked, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(super) static RULE: Rule = Rule {
    id: "share-process-namespace-not-needed",
    title: "shareProcessNamespace in a pod with GPUs",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "It shows the processes of each container to all others of the pod, with their environment and, through /proc, their files. It \
          plays no part in how NCCL connects GPUs. The container's own process is no longer number 1, which some images and signal \
          handlers count on.",
    fix: "Remove `shareProcessNamespace: true`, unless a container of the pod watches or stops the others.",
    references: &["https://kubernetes.io/docs/tasks/configure-pod-container/share-process-namespace/"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    // Between several containers it may well be wanted.
    for it in submitted.gpu_containers().filter(|it| it.pod.containers.len() == 1) {
        if let Some(on) = flag(it.pod, "shareProcessNamespace") {
            let message = "shareProcessNamespace in a pod of one container: there is nobody to share with, and NCCL does not ask for it";
            findings.push(Finding::at(it.job.file, &on.span, message));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    const POD: &str = "kind: Pod\nspec:\n  shareProcessNamespace: true\n  containers:\n  - name: a\n    resources: {limits: {nvidia.com/gpu: 8}}\n";

    #[test]
    fn one_container_shares_with_nobody() {
        let found = findings(&RULE, POD);
        assert!(found[0].message.starts_with("shareProcessNamespace in a pod of one container"));
        assert_eq!(found[0].evidence[0].at().line, 3);
    }

    #[test]
    fn quiet_elsewhere() {
        quiet(&RULE, &POD.replace("true", "false"));
        quiet(&RULE, &POD.replace("nvidia.com/gpu", "cpu"));
        quiet(&RULE, &format!("{POD}  - name: watcher\n"));
    }
}
