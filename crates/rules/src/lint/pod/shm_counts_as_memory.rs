//! A `/dev/shm` larger than the memory limit it counts against.

use job::submitted::Submitted;

use super::{called, shm_limit, source};
use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "shm-counts-as-memory",
    title: "/dev/shm larger than the memory limit of the container",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "An emptyDir with `medium: Memory` is not separate memory: data written there counts against the memory limit of the container \
          that wrote it, together with the memory of its processes. The container is killed (OOMKilled, exit code 137) before /dev/shm \
          is full.",
    fix: "Raise the memory limit above `sizeLimit` plus what the processes need, or lower `sizeLimit`.",
    references: &["https://kubernetes.io/docs/concepts/storage/volumes/#emptydir"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for it in submitted.gpu_containers() {
        let Some((bytes, span)) = shm_limit(it.pod, it.container) else { continue };
        let file = it.job.submission;
        let Some(limit) = it.container.limits.iter().find(|it| &*it.name == "memory") else { continue };
        if limit.quantity.is_none_or(|it| bytes <= it.0) {
            continue;
        }
        let message = format!(
            "/dev/shm may grow to {}, but {} has a memory limit of {}",
            source(file, span),
            called(it.container),
            source(file, &limit.value)
        );
        findings.push(
            Finding::at(it.job.file, span, message).also_at(&limit.span(), "the limit it counts against"),
        );
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    fn pod(memory: &str, limit: &str) -> String {
        format!(
            "kind: Pod\nspec:\n  containers:\n  - name: train\n    resources:\n      limits:\n        nvidia.com/gpu: 8\n{memory}    volumeMounts:\n\
             \x20   - {{name: dshm, mountPath: /dev/shm}}\n  volumes:\n  - name: dshm\n    emptyDir: {{medium: Memory{limit}}}\n"
        )
    }

    #[test]
    fn more_than_there_is() {
        let found = findings(&RULE, &pod("        memory: 32Gi\n", ", sizeLimit: 64Gi"));
        assert_eq!(
            found[0].message,
            "/dev/shm may grow to 64Gi, but container `train` has a memory limit of 32Gi"
        );
        assert_eq!((found[0].evidence[0].at().line, found[0].evidence[1].at().line), (13, 8));
    }

    #[test]
    fn quiet_elsewhere() {
        quiet(&RULE, &pod("        memory: 64Gi\n", ", sizeLimit: 64Gi"));
        quiet(&RULE, &pod("        memory: 32Gi\n", ""));
        quiet(&RULE, &pod("", ", sizeLimit: 64Gi"));
        quiet(&RULE, &pod("        memory: 32Gi\n", ", sizeLimit: 64Gi").replace("/dev/shm", "/scratch"));
    }
}
