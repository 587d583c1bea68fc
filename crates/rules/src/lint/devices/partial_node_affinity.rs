//! A pod requests some GPUs of a machine and some of its EFA interfaces: nothing aligns them.

use fabric::catalogue::Model;
use job::submitted::{PodTemplate, Submitted, SubmittedJob};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "partial-node-affinity",
    title: "part of the GPUs of a machine with EFA: the nearest interfaces are not guaranteed",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "Two device plugins allocate GPUs and EFA interfaces, and they may not coordinate. A GPU whose interface is attached to another \
          PCIe switch loses GPUDirect RDMA: on p4d with one GPU per pod, 11.4 GB/s with the nearest interface and 6.0 GB/s with another. \
          The EFA device plugin aligns them on EKS AMIs with AL2023; the DRA driver does so everywhere.",
    fix: "Request all GPUs and EFA interfaces of the machine, or claim both with the DRA driver for EFA (EKS 1.34 and later).",
    references: &[
        "https://docs.aws.amazon.com/eks/latest/userguide/device-management-efa.html",
        "https://dranet.dev (EKS example: two pods with one A100 and one EFA each)",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.pods().filter_map(|(job, pod)| finding(job, pod)).collect())
}

fn finding(job: &SubmittedJob<'_>, pod: &PodTemplate<'_>) -> Option<Finding> {
    let (gpus, span) = (pod.nvidia_gpus()?.count?, pod.nvidia_gpus()?.span());
    let partial = |it: &Model| it.gpudirect == Some(true) && it.efa_nics() > 1 && gpus < u64::from(it.gpus);
    if pod.efa.is_none() || pod.claims || !job.is_networked(pod) || !pod.machines.all(partial) {
        return None;
    }
    let instance = pod.machines.most(|it| it.gpus)?;
    // All interfaces include the nearest ones.
    if pod.efa.and_then(|it| it.count).is_none_or(|it| it >= u64::from(instance.efa_nics())) {
        return None;
    }
    let message = format!(
        "the pod requests {gpus} of the {} GPUs of {} and {} of its {} EFA interfaces: nothing ensures that it gets the nearest ones",
        instance.gpus,
        instance.name,
        pod.efa?.count?,
        instance.efa_nics()
    );
    Some(Finding::at(job.file, &span, message).confidence(Confidence::Possible))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::devices::testing::{job, job_with};
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn fires_with_a_part_of_a_machine() {
        let found = findings(&RULE, &job(4, "p4d.24xlarge", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 1"));
        assert_eq!(
            found[0].message,
            "the pod requests 1 of the 8 GPUs of p4d.24xlarge and 1 of its 4 EFA interfaces: nothing ensures that it gets the nearest ones"
        );
    }

    #[test]
    fn quiet_with_whole_machines_claims_and_one_interface() {
        quiet(&RULE, &job(4, "p4d.24xlarge", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 4"));
        quiet(&RULE, &job(4, "p4d.24xlarge", "nvidia.com/gpu: 4"));
        quiet(&RULE, &job(4, "g6e.12xlarge", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 1"));
        quiet(&RULE, &job(4, "", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 1"));
        let claims = "resourceClaims:\n- name: efa";
        quiet(&RULE, &job_with(4, "p4d.24xlarge", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 1", claims));
    }
}
