//! A pod with several GPUs and the default `/dev/shm` of 64 MiB.

use evidence::submission::{Container, VolumeSource};
use fabric::catalogue::Inside;
use job::submitted::Submitted;

use super::{called, command, counted, flag, is_whole, shm};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "shm-missing",
    title: "several GPUs with the default /dev/shm of 64 MiB",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "Without a mount, /dev/shm of a container has 64 MiB. Data loader workers pass their batches through it and die with a bus \
          error. Where GPUs have no peer-to-peer path, NCCL keeps about 9.2 MiB per channel and direction there (unless it uses CUDA \
          host memory) and fails with `No space left on device`.",
    fix: "Under `volumes`: `- {name: dshm, emptyDir: {medium: Memory}}`. Under `volumeMounts` of the container: `- {name: dshm, \
          mountPath: /dev/shm}`. Data stored there counts against the memory limit of the container.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory",
        "https://github.com/pytorch/pytorch/issues/5040",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    // A mount in a TrainJob may be meant for the runtime in the same files.
    let overridden = submitted.pods().any(|(job, pod)| {
        job.kind == "TrainJob" && pod.pod.containers.iter().any(|it| shm(pod.pod, it).is_some())
    });
    for it in submitted.gpu_containers() {
        let runtime = it.job.kind.ends_with("TrainingRuntime");
        let dev = it.container.mounts.iter().any(|it| it.path.trim_end_matches('/') == "/dev");
        // With `hostIPC` it is the /dev/shm of the node.
        let other = dev || flag(it.pod, "hostIPC").is_some() || shm(it.pod, it.container).is_some();
        if it.gpus < 2 || other || !is_whole(it.job) || (runtime && overridden) {
            continue;
        }
        let file = it.job.submission;
        let command = command(&file.tree, it.container);
        if only_shows(it.container, &command) {
            continue;
        }
        let message = format!(
            "{} requests {} and mounts nothing at /dev/shm: it gets 64 MiB",
            called(it.container),
            counted(it.gpus)
        );
        let mut finding = Finding::at(it.job.file, &it.resource.span(), message)
            .label("no mount at /dev/shm")
            .confidence(Confidence::Likely);
        // Benchmarks load no data; only GPUs without a peer-to-peer path need it there. A job may add the mount to a runtime.
        let machines = &it.template.machines;
        let apart = machines.known.iter().any(|it| it.inside == Inside::Pcie);
        if runtime || (is_benchmark(it.container, &command) && !apart) {
            finding = finding.severity(Severity::Info).confidence(Confidence::Possible);
        }
        let in_memory = |it: &&evidence::submission::Volume| {
            matches!(it.source, VolumeSource::EmptyDir { memory: true, .. })
        };
        let unused = it.pod.volumes.iter().filter(in_memory).find(|volume| {
            !it.pod.containers.iter().any(|it| it.mounts.iter().any(|mount| mount.volume == volume.name))
        });
        if let Some(volume) = unused {
            finding = finding.also_at(&volume.span, "in memory, but no container mounts it").fix(format!(
                "Under `volumeMounts` of the container: `- {{name: {}, mountPath: /dev/shm}}`.",
                volume.name
            ));
        }
        findings.push(finding);
    }
    Ok(findings)
}

/// A container that only reserves or lists GPUs.
fn only_shows(container: &Container, command: &str) -> bool {
    let program = command.trim().rsplit(' ').find(|it| !it.starts_with('-')).unwrap_or_default();
    let image = container.image.as_ref().and_then(|it| it.text.rsplit('/').next()).unwrap_or_default();
    let holds = matches!(image.split([':', '@']).next(), Some("pause" | "busybox"));
    holds || matches!(program.rsplit('/').next(), Some("nvidia-smi" | "rocm-smi"))
}

/// Whether name, image or command is that of a GPU benchmark.
fn is_benchmark(container: &Container, command: &str) -> bool {
    let image = container.image.as_ref().map(|it| &*it.text).unwrap_or_default();
    let name = container.name.as_deref().unwrap_or_default();
    let tests = ["nccl-test", "rccl-test", "gpu-burn", "dcgm"];
    let named = |it: &&str| tests.iter().any(|test| it.contains(test));
    [name, image, command].iter().any(named) || command.contains("_perf ")
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::testing::{findings, quiet};

    fn pod(gpus: u32, more: &str) -> String {
        format!(
            "kind: Pod\nspec:\n  containers:\n  - name: train\n    resources:\n      limits: {{nvidia.com/gpu: {gpus}}}\n{more}"
        )
    }

    #[test]
    fn several_gpus_without_a_mount() {
        let found = findings(&RULE, &pod(8, ""));
        assert_eq!(
            found[0].message,
            "container `train` requests 8 GPUs and mounts nothing at /dev/shm: it gets 64 MiB"
        );
        assert_eq!(found[0].evidence[0].at().line, 6);
        let found = findings(&RULE, &pod(4, "  volumes:\n  - name: dshm\n    emptyDir: {medium: Memory}\n"));
        assert!(found[0].fix.as_deref().unwrap().contains("name: dshm"), "{found:?}");
        assert_eq!(found[0].evidence.len(), 2);
    }

    #[test]
    fn nccl_tests_may_do_without() {
        let tests = pod(8, "").replace("name: train", "name: nccl-tests");
        assert_eq!(findings(&RULE, &tests)[0].severity, Some(Severity::Info));
        let apart = "  nodeSelector: {node.kubernetes.io/instance-type: g6e.12xlarge}\n";
        assert_eq!(findings(&RULE, &format!("{tests}{apart}"))[0].severity, None);
        let runtime = pod(8, "").replace("kind: Pod", "kind: ClusterTrainingRuntime");
        assert_eq!(findings(&RULE, &runtime)[0].severity, Some(Severity::Info));
    }

    #[test]
    fn quiet_where_there_is_shared_memory() {
        quiet(
            &RULE,
            &pod(
                8,
                "    volumeMounts:\n    - {name: shmem, mountPath: /dev/shm/}\n  volumes:\n  - name: shmem\n    hostPath: {path: /dev/shm}\n",
            ),
        );
        quiet(&RULE, &pod(8, "  hostIPC: true\n"));
    }

    #[test]
    fn quiet_where_it_does_not_apply() {
        quiet(&RULE, &pod(1, ""));
        quiet(&RULE, &pod(0, ""));
        quiet(&RULE, &pod(8, "    command: [/usr/bin/nvidia-smi, -L]\n"));
        quiet(&RULE, &pod(8, "    image: registry.k8s.io/pause:3.9\n"));
        // The operator of Ray mounts one itself.
        quiet(&RULE, &pod(8, "").replace("kind: Pod", "kind: RayCluster"));
        quiet(
            &RULE,
            "kind: TrainJob\nspec:\n  podTemplateOverrides:\n  - spec:\n      containers:\n      - name: node\n        resources: {limits: {nvidia.com/gpu: 8}}\n",
        );
    }
}
