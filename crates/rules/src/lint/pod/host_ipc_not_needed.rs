//! `hostIPC` although the GPUs are in one pod.

use job::submitted::Submitted;

use super::{flag, shm};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "host-ipc-not-needed",
    title: "hostIPC although the GPUs are in one pod",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "With hostIPC the pod can read and write the shared memory, semaphores and queues of every process on the node. The GPUs of one \
          container reach each other without it. It does not connect pods either: for peer-to-peer or shared memory between pods NCCL \
          also needs the same host identity and the same /dev/shm.",
    fix: "Remove `hostIPC: true` and mount an emptyDir with `medium: Memory` at /dev/shm.",
    references: &[
        "https://kubernetes.io/docs/concepts/security/pod-security-standards/",
        "https://github.com/NVIDIA/nccl/blob/v2.27.3-1/src/misc/utils.cc",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for it in submitted.gpu_containers() {
        let Some(on) = flag(it.pod, "hostIPC") else { continue };
        // The pods are connected on purpose.
        if submitted.is_set_in_file(it.job.file, "NCCL_HOSTID") {
            continue;
        }
        findings.push(match shm(it.pod, it.container) {
            Some((mount, _)) => Finding::at(
                it.job.file,
                &on.span,
                "hostIPC gives the pod the shared memory of the node, but the pod has its own at /dev/shm",
            )
            .also_at(&mount.span, "the ranks need only this"),
            None => {
                let message = "hostIPC gives the pod the shared memory of the node; its only use here is a /dev/shm above 64 MiB";
                Finding::at(it.job.file, &on.span, message).severity(Severity::Info).confidence(Confidence::Likely)
            }
        });
    }
    findings.dedup_by(|a, b| a.evidence.first() == b.evidence.first());
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::testing::{findings, quiet};

    fn pod(more: &str) -> String {
        format!(
            "kind: Pod\nspec:\n{more}  containers:\n  - name: train\n    resources:\n      limits: {{nvidia.com/gpu: 8}}\n    volumeMounts:\n    - {{name: dshm, mountPath: /dev/shm}}\n"
        )
    }

    #[test]
    fn beside_its_own_shared_memory() {
        let found = findings(&RULE, &pod("  hostIPC: true\n"));
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].severity, found[0].evidence[0].at().line, found[0].evidence.len()),
            (None, 3, 2)
        );
        assert!(found[0].message.starts_with("hostIPC gives the pod the shared memory of the node"));
    }

    #[test]
    fn instead_of_shared_memory_it_is_only_told() {
        let found = findings(&RULE, &pod("  hostIPC: true\n").replace("/dev/shm", "/data"));
        assert_eq!(found[0].severity, Some(Severity::Info));
    }

    #[test]
    fn quiet_elsewhere() {
        quiet(&RULE, &pod(""));
        quiet(&RULE, &pod("  hostIPC: false\n"));
        quiet(&RULE, &pod("  hostIPC: true\n").replace("nvidia.com/gpu: 8", "cpu: 1"));
        quiet(
            &RULE,
            &format!("{}    env:\n    - {{name: NCCL_HOSTID, value: a}}\n", pod("  hostIPC: true\n")),
        );
    }
}
