//! A `/dev/shm` that is too small for the ranks that share it.

use fabric::catalogue::Inside;
use job::submitted::Submitted;

use super::{called, counted, shm_limit, source};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// Shared memory that NCCL uses per channel and direction: the buffers of LL (512 KiB), LL128 (4.69 MiB) and Simple
/// (4 MiB); `src/init.cc` and `src/transport/shm.cc` of NCCL 2.27.
const CHANNEL_MIB: f64 = 9.2;
const MIB: f64 = 1_048_576.0;

pub(super) static RULE: Rule = Rule {
    id: "shm-small",
    title: "/dev/shm too small for the ranks",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "All ranks of the container share /dev/shm. Where GPUs have no peer-to-peer path, NCCL keeps about 9.2 MiB per channel and \
          direction there (unless it uses CUDA host memory) and fails with `No space left on device`; data loader workers pass whole \
          batches through it and die with a bus error.",
    fix: "Raise `sizeLimit` to 1Gi or more, or remove it: then the memory limit of the container applies. Only memory in use counts.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory",
        "https://kubernetes.io/docs/concepts/storage/volumes/#emptydir",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for it in submitted.gpu_containers() {
        let Some((bytes, span)) = shm_limit(it.pod, it.container) else { continue };
        let file = it.job.submission;
        let tiny = it.gpus >= 2 && bytes < 128.0 * MIB;
        let small = it.gpus >= 4 && bytes < 1024.0 * MIB;
        if !(tiny || small) {
            continue;
        }
        // With NVLink NCCL uses little of it; data loaders still use it.
        let machines = &it.template.machines;
        let linked = machines.all(|it| matches!(it.inside, Inside::NvSwitch | Inside::NvLinkMesh));
        let severity = match (tiny, linked) {
            (true, false) => Severity::Error,
            (true, true) | (false, false) => Severity::Warning,
            (false, true) => Severity::Info,
        };
        let message = format!(
            "/dev/shm has {} for {} in {}: without peer-to-peer access, two channels of NCCL alone need about {:.0} MiB",
            source(file, span),
            counted(it.gpus),
            called(it.container),
            needed(it.gpus)
        );
        findings.push(
            Finding::at(it.job.file, span, message)
                .label("shared by all ranks of the container")
                .also_at(&it.resource.span(), "one rank per GPU")
                .severity(severity)
                .confidence(Confidence::Likely),
        );
    }
    Ok(findings)
}

/// Two channels, both directions, every rank.
#[expect(clippy::cast_precision_loss, reason = "GPUs of a pod are few")]
fn needed(ranks: u64) -> f64 {
    ranks as f64 * 2.0 * 2.0 * CHANNEL_MIB
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::testing::{findings, quiet};

    fn pod(gpus: u32, limit: &str, more: &str) -> String {
        format!(
            "kind: Pod\nspec:\n{more}  containers:\n  - name: train\n    resources:\n      limits: {{nvidia.com/gpu: {gpus}}}\n    volumeMounts:\n\
             \x20   - {{name: dshm, mountPath: /dev/shm}}\n  volumes:\n  - name: dshm\n    emptyDir:\n      medium: Memory\n{limit}"
        )
    }

    #[test]
    fn a_small_limit() {
        let found = findings(&RULE, &pod(8, "      sizeLimit: 64Mi\n", ""));
        assert_eq!(
            found[0].message,
            "/dev/shm has 64Mi for 8 GPUs in container `train`: without peer-to-peer access, two channels of NCCL alone need about 294 MiB"
        );
        assert_eq!((found[0].severity, found[0].evidence[0].at().line), (Some(Severity::Error), 13));
        let found = findings(&RULE, &pod(4, "      sizeLimit: \"512Mi\"\n", ""));
        assert_eq!(found[0].severity, Some(Severity::Warning));
        let nvlink = "  nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}\n";
        assert_eq!(
            findings(&RULE, &pod(8, "      sizeLimit: 512Mi\n", nvlink))[0].severity,
            Some(Severity::Info)
        );
    }

    #[test]
    fn quiet_where_it_is_enough() {
        quiet(&RULE, &pod(8, "      sizeLimit: 1Gi\n", ""));
        quiet(&RULE, &pod(8, "", ""));
        quiet(&RULE, &pod(2, "      sizeLimit: 512Mi\n", ""));
    }

    #[test]
    fn quiet_where_it_does_not_apply() {
        quiet(&RULE, &pod(1, "      sizeLimit: 64Mi\n", ""));
        quiet(&RULE, &pod(8, "      sizeLimit: 64Mi\n", "").replace("/dev/shm", "/tmp"));
        quiet(&RULE, &pod(8, "      sizeLimit: \"{{ .Values.shm }}\"\n", ""));
    }
}
