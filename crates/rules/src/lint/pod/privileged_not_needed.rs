//! A privileged container although a device plugin provides the devices.

use evidence::submission::{Pod, VolumeSource};
use job::submitted::Submitted;

use super::{called, counted};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "privileged-not-needed",
    title: "a privileged container although a device plugin provides the devices",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "A privileged container sees every device of the node, regardless of its limits: aws-ofi-nccl then opens all EFA interfaces, \
          including those of other pods, and NCCL uses NICs that belong to others. It can also write to the disks, load kernel modules \
          and escape from the container. NCCL and EFA do not need it: the device plugin mounts /dev/infiniband/uverbs* in the container.",
    fix: "Remove `privileged: true`. If memory cannot be locked, add `capabilities: {add: [IPC_LOCK]}` instead.",
    references: &[
        "https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html",
        "https://kubernetes.io/docs/concepts/security/pod-security-standards/",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for it in submitted.gpu_containers() {
        let Some(span) = &it.container.privileged else { continue };
        let machines = &it.template.machines;
        let most = machines.known.iter().map(|it| it.efa_nics()).max();
        let (message, asked) = if let Some(efa) = it.efa {
            let count = efa.count.unwrap_or_default();
            let all = most.filter(|it| u64::from(*it) > count);
            let all = all.map_or_else(
                || "every EFA interface of the node".to_owned(),
                |it| format!("all {it} of the node"),
            );
            (
                format!("{} requests {count} EFA but is privileged and sees {all}", called(it.container)),
                efa.resource,
            )
        } else {
            // Other kinds of RDMA may need it.
            if reaches_devices(it.pod) {
                continue;
            }
            let message = format!(
                "{} requests {} but is privileged and sees every device of the node",
                called(it.container),
                counted(it.gpus)
            );
            (message, it.resource)
        };
        let finding =
            Finding::at(it.job.file, span, message).also_at(&asked.span(), "a device plugin provides this");
        findings.push(if it.efa.is_some() {
            // No device plugin provides GDRCopy; mounting it needs privileges.
            if host_paths(it.pod).any(|it| it.starts_with("/dev/gdr")) { finding.severity(Severity::Info) } else { finding }
        } else {
            finding.severity(Severity::Info).confidence(Confidence::Likely).why(
                "A privileged container sees every device of the node, including the GPUs of other pods, and can write to the disks, load kernel modules and escape from the container. NCCL does not need it if a device plugin provides the devices.",
            )
        });
    }
    Ok(findings)
}

/// Whether a pod uses devices or parts of the node that no device plugin provides.
fn reaches_devices(pod: &Pod) -> bool {
    let parts = ["/dev", "/sys", "/proc", "/run", "/var/run", "/lib/modules"];
    host_paths(pod)
        .any(|path| path == "/" || (path != "/dev/shm" && parts.iter().any(|it| path.starts_with(it))))
}

fn host_paths(pod: &Pod) -> impl Iterator<Item = &str> {
    pod.volumes.iter().filter_map(|it| match &it.source {
        VolumeSource::HostPath(path) => Some(&**path),
        VolumeSource::EmptyDir { .. } | VolumeSource::Other => None,
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::testing::{findings, quiet};

    fn pod(devices: &str, more: &str) -> String {
        format!(
            "kind: Pod\nspec:\n  nodeSelector: {{node.kubernetes.io/instance-type: p4d.24xlarge}}\n  containers:\n  - name: train\n\
             \x20   resources:\n      limits: {{{devices}}}\n{more}"
        )
    }
    const PRIVILEGED: &str = "    securityContext:\n      privileged: true\n";

    #[test]
    fn it_sees_all_interfaces() {
        let found = findings(&RULE, &pod("nvidia.com/gpu: 1, vpc.amazonaws.com/efa: 1", PRIVILEGED));
        assert_eq!(
            found[0].message,
            "container `train` requests 1 EFA but is privileged and sees all 4 of the node"
        );
        assert_eq!((found[0].severity, found[0].evidence[0].at().line), (None, 9));
        let found = findings(&RULE, &pod("nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4", PRIVILEGED));
        assert!(found[0].message.ends_with("sees every EFA interface of the node"));
        assert_eq!(findings(&RULE, &pod("nvidia.com/gpu: 8", PRIVILEGED))[0].severity, Some(Severity::Info));
    }

    #[test]
    fn quiet_elsewhere() {
        quiet(&RULE, &pod("nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4", ""));
        quiet(&RULE, &pod("nvidia.com/gpu: 8", "    securityContext: {privileged: false}\n"));
        quiet(&RULE, &pod("cpu: 1", PRIVILEGED));
        let own = format!("{PRIVILEGED}  volumes:\n  - name: ib\n    hostPath: {{path: /dev/infiniband}}\n");
        quiet(&RULE, &pod("nvidia.com/gpu: 8", &own));
        let copy = own.replace("/dev/infiniband", "/dev/gdrdrv");
        let found = findings(&RULE, &pod("nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4", &copy));
        assert_eq!(found[0].severity, Some(Severity::Info));
    }
}
