//! Pods of a multi-node job run on machines with EFA and do not request it.

use evidence::submission::VolumeSource;
use fabric::catalogue::Model;
use job::submitted::{PodTemplate, Submitted, SubmittedJob};

use super::cost::{Costs, slower};
use crate::training::How;
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "efa-resource-missing",
    title: "pods of a multi-node job on EFA machines do not request EFA",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "A pod sees only the EFA devices that it requests. Without any, aws-ofi-nccl finds no provider and NCCL uses TCP.",
    fix: "Add `vpc.amazonaws.com/efa` to the limits of the container with the GPUs, with the number that the instance type has.",
    references: &[
        "https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html",
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut costs = Costs::default();
    Ok(submitted.pods().filter_map(|(job, pod)| finding(submitted, job, pod, &mut costs)).collect())
}

fn finding(
    submitted: &Submitted<'_>,
    job: &SubmittedJob<'_>,
    pod: &PodTemplate<'_>,
    costs: &mut Costs,
) -> Option<Finding> {
    let span = pod.nvidia_gpus()?.span();
    if pod.efa.is_some() || pod.claims || !job.nodes.is_multi() || !pod.machines.all(Model::efa) {
        return None;
    }
    if on_purpose(submitted, job, pod) {
        return None;
    }
    let best = pod.machines.most(Model::efa_nics)?;
    let pods = job.nodes.at_least();
    let each = if best.efa_nics() == 1 {
        "1 EFA interface".to_owned()
    } else {
        format!("{} EFA interfaces", best.efa_nics())
    };
    let message = format!(
        "{pods} GPU pods run on {}, which has {each}, but request none: NCCL uses TCP",
        pod.machines.names()
    );
    // Without GPUDirect RDMA, and even more without RDMA, TCP loses less.
    let severity = if pod.machines.all(|it| it.gpudirect == Some(true)) {
        Severity::Error
    } else if pod.machines.all(|it| it.instance.is_some_and(|it| it.rdma_read == Some(true))) {
        Severity::Warning
    } else {
        Severity::Info
    };
    let share = pod.nvidia_gpus().and_then(|it| it.count).map_or(u64::from(best.efa_nics()), |it| {
        (u64::from(best.efa_nics()) * it)
            .checked_div(u64::from(best.gpus))
            .unwrap_or(1)
            .clamp(1, u64::from(best.efa_nics()))
    });
    let mut finding = Finding::at(job.file, &span, message)
        .label("no vpc.amazonaws.com/efa next to it")
        .severity(severity)
        .confidence(Confidence::Likely)
        .fix(format!("Add `vpc.amazonaws.com/efa: {share}` to these limits."));
    if let Some(cost) = costs.over_tcp(best, pods) {
        finding = finding.why(format!("{} {cost}", RULE.why));
        let gpus = pod.nvidia_gpus().and_then(|it| it.count);
        let nodes = gpus.map(|it| pods.saturating_mul(it).div_ceil(u64::from(best.gpus.max(1))));
        finding.slower = nodes.filter(|it| *it > 1).and_then(|it| slower(best, it, How::Tcp));
    }
    Some(match &pod.machines.span {
        Some(types) => finding.also_at(types, pod.machines.names()),
        None => finding,
    })
}

/// Whether the pod reaches EFA by other means, or opts out of EFA.
fn on_purpose(submitted: &Submitted<'_>, job: &SubmittedJob<'_>, pod: &PodTemplate<'_>) -> bool {
    let is = |name: &str, values: &[&str]| {
        submitted.setting_of_job(job, name).is_some_and(|it| values.contains(&it.to_lowercase().as_str()))
    };
    let no_efa = is("NCCL_NET", &["socket"])
        || is("NCCL_NET_PLUGIN", &["none"])
        || is("FI_PROVIDER", &["tcp", "sockets"]);
    let Some(pod) = pod.whole() else { return no_efa };
    let mounted = |it: &evidence::submission::Volume| matches!(&it.source, VolumeSource::HostPath(path) if path.starts_with("/dev/infiniband") || &**path == "/dev");
    // A privileged container sees every device of the node.
    no_efa || pod.containers.iter().any(|it| it.privileged.is_some()) || pod.volumes.iter().any(mounted)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::devices::testing::{job, job_with, pod};
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn fires_on_several_nodes() {
        let found = findings(&RULE, &job(2, "p5.48xlarge", "nvidia.com/gpu: 8"));
        assert_eq!(
            found[0].message,
            "2 GPU pods run on p5.48xlarge, which has 32 EFA interfaces, but request none: NCCL uses TCP"
        );
        assert_eq!(found[0].fix.as_deref(), Some("Add `vpc.amazonaws.com/efa: 32` to these limits."));
        assert!(found[0].why.as_ref().is_some_and(|it| it.contains("times less")), "{:?}", found[0].why);
        let found = findings(&RULE, &job(2, "g6e.12xlarge", "nvidia.com/gpu: 4"));
        assert_eq!(found[0].severity, Some(Severity::Warning));
        let found = findings(&RULE, &job(2, "g5.12xlarge", "nvidia.com/gpu: 4"));
        assert_eq!(found[0].severity, Some(Severity::Info));
    }

    #[test]
    fn quiet_where_efa_is_there_or_not_wanted() {
        quiet(&RULE, &job(2, "p5.48xlarge", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 32"));
        quiet(&RULE, &job(2, "p5.48xlarge", "nvidia.com/gpu: 8\nvpc.amazonaws.com: 32"));
        quiet(&RULE, &job_with(2, "p5.48xlarge", "nvidia.com/gpu: 8", "resourceClaims:\n- name: efa"));
        quiet(
            &RULE,
            &job_with(
                2,
                "p5.48xlarge",
                "nvidia.com/gpu: 8",
                "volumes:\n- name: ib\n  hostPath: {path: /dev/infiniband}",
            ),
        );
    }

    #[test]
    fn quiet_where_it_does_not_apply() {
        quiet(&RULE, &job(1, "p5.48xlarge", "nvidia.com/gpu: 8"));
        quiet(&RULE, &job(2, "", "nvidia.com/gpu: 8"));
        quiet(&RULE, &job(2, "g5.xlarge", "nvidia.com/gpu: 1"));
        quiet(&RULE, &job(2, "p5.48xlarge", "cpu: 8"));
        quiet(&RULE, &pod("p5.48xlarge", "nvidia.com/gpu: 8"));
        // Eight replicas of a service are not a job.
        let service = job(8, "p5.48xlarge", "nvidia.com/gpu: 8").replace("PyTorchJob", "Deployment");
        quiet(&RULE, &service);
    }
}
