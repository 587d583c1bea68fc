//! `shareProcessNamespace` in a pod with GPUs.

use job::submitted::Submitted;

use super::flag;
use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "share-process-namespace-not-needed",
    title: "shareProcessNamespace in a pod with GPUs",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "Every container of the pod sees the processes of the others, with their environment and, through /proc, their files. NCCL does \
          not use it to connect GPUs. The container's main process is no longer PID 1, which some images and signal handlers expect.",
    fix: "Remove `shareProcessNamespace: true`, unless a container of the pod monitors or stops the others.",
    references: &["https://kubernetes.io/docs/tasks/configure-pod-container/share-process-namespace/"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    // With several containers it may be intended.
    for it in submitted.gpu_containers().filter(|it| it.pod.containers.len() == 1) {
        if let Some(on) = flag(it.pod, "shareProcessNamespace") {
            let message =
                "shareProcessNamespace in a pod with one container has no use, and NCCL does not need it";
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
        assert!(found[0].message.starts_with("shareProcessNamespace in a pod with one container"));
        assert_eq!(found[0].evidence[0].at().line, 3);
    }

    #[test]
    fn quiet_elsewhere() {
        quiet(&RULE, &POD.replace("true", "false"));
        quiet(&RULE, &POD.replace("nvidia.com/gpu", "cpu"));
        quiet(&RULE, &format!("{POD}  - name: watcher\n"));
    }
}
