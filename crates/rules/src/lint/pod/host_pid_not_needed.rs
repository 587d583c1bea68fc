//! `hostPID` in a job that uses GPUs.

use job::submitted::Submitted;

use super::flag;
use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "host-pid-not-needed",
    title: "hostPID in a job that uses GPUs",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "With hostPID the pod sees all processes of the node, their commands and, as root, their environment with its secrets, and can \
          kill them. NCCL does not need it: it also identifies processes by their PID namespace.",
    fix: "Remove `hostPID: true`. A profiler or debugger that needs it belongs in a pod of its own.",
    references: &["https://kubernetes.io/docs/concepts/security/pod-security-standards/"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    // A DaemonSet manages nodes.
    for it in submitted.gpu_containers().filter(|it| it.job.kind != "DaemonSet") {
        if let Some(on) = flag(it.pod, "hostPID") {
            let message = "hostPID shows all processes of the node to the pod; ranks do not need it";
            // With one GPU there is no communication: someone inspects the node.
            let jobs = it.job.kind == "Deployment" || it.job.nodes.pods < 2;
            let single = it.gpus == 1 && jobs;
            let finding = Finding::at(it.job.file, &on.span, message);
            findings.push(if single { finding.severity(Severity::Info) } else { finding });
        }
    }
    findings.dedup_by(|a, b| a.evidence.first() == b.evidence.first());
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::testing::{findings, quiet};

    fn pod(kind: &str, resource: &str, on: &str) -> String {
        format!(
            "kind: {kind}\nspec:\n  hostPID: {on}\n  containers:\n  - name: a\n    resources: {{limits: {{{resource}: 8}}}}\n  - name: b\n    resources: {{limits: {{{resource}: 8}}}}\n"
        )
    }

    #[test]
    fn a_job_sees_the_processes_of_its_node() {
        let found = findings(&RULE, &pod("Job", "nvidia.com/gpu", "true"));
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].message,
            "hostPID shows all processes of the node to the pod; ranks do not need it"
        );
    }

    #[test]
    fn with_one_gpu_it_is_only_told() {
        let pod = "kind: Pod\nspec:\n  hostPID: true\n  containers:\n  - name: a\n    resources: {limits: {nvidia.com/gpu: 1}}\n";
        assert_eq!(findings(&RULE, pod)[0].severity, Some(Severity::Info));
    }

    #[test]
    fn quiet_elsewhere() {
        quiet(&RULE, &pod("Job", "nvidia.com/gpu", "false"));
        quiet(&RULE, &pod("Job", "cpu", "true"));
        quiet(&RULE, &pod("DaemonSet", "nvidia.com/gpu", "true"));
    }
}
