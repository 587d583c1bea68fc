//! A pod requests more EFA interfaces than belong to its GPUs.

use job::submitted::{PodTemplate, Submitted, SubmittedJob};

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "efa-count-wasteful",
    title: "more EFA interfaces than belong to the GPUs of the pod",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "An EFA interface belongs to one pod at a time. Interfaces that a pod takes beyond its share are missing for the other GPUs of \
          the node, whose pods then stay Pending; and they are attached to other PCIe switches than the pod's GPUs.",
    fix: "Request the share of the EFA interfaces that belongs to the GPUs, or request all GPUs.",
    references: &[
        "aws-ofi-nccl topology/p4d-24xl-topo.xml",
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.pods().filter_map(|(job, pod)| finding(job, pod)).collect())
}

fn finding(job: &SubmittedJob<'_>, pod: &PodTemplate<'_>) -> Option<Finding> {
    let (efa, gpus, span) = (pod.efa?.count?, pod.nvidia_gpus()?.count?, pod.efa?.span());
    if job.nodes.single && job.nodes.at_least() <= 1 {
        let message =
            format!("the job requests {efa} EFA interfaces and has one node, so it does not use them");
        return Some(
            Finding::at(job.file, &span, message)
                .fix("Remove `vpc.amazonaws.com/efa`: GPUs of one pod communicate over NVLink or PCIe.")
                .why("Inside a pod NCCL uses NVLink, PCIe or shared memory. The EFA interfaces that the pod holds are missing for other pods."),
        );
    }
    // With several possible machines there is no single share to compare with.
    let [instance] = pod.machines.known.as_slice() else { return None };
    let (all_gpus, all_nics) = (u64::from(instance.gpus), u64::from(instance.efa_nics()));
    if !pod.machines.all(|it| it.efa_nics() > 1) || gpus >= all_gpus || efa > all_nics {
        return None;
    }
    let share = all_nics.checked_mul(gpus)?.div_ceil(all_gpus);
    if efa <= share {
        return None;
    }
    let fit = all_nics / efa;
    let message = format!(
        "the pod requests {efa} of the {all_nics} EFA interfaces of {} and {gpus} of its {all_gpus} GPUs, to which {share} belong",
        instance.name
    );
    let severity =
        if job.nodes.is_multi() && fit * gpus < all_gpus { Severity::Warning } else { Severity::Info };
    let left = all_gpus.saturating_sub(fit * gpus);
    let why = format!("{} Here {left} GPUs of every node have no EFA interface left.", RULE.why);
    let finding = Finding::at(job.file, &span, message)
        .label(format!("{share} for {gpus} GPUs"))
        .severity(severity)
        .fix(format!(
            "Write `vpc.amazonaws.com/efa: {share}`, or request all {all_gpus} GPUs and all {all_nics} EFA interfaces."
        ));
    Some(if left > 0 { finding.why(why) } else { finding })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::devices::testing::{job, pod};
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn fires_with_the_share() {
        let found = findings(&RULE, &job(2, "p4d.24xlarge", "nvidia.com/gpu: 4\nvpc.amazonaws.com/efa: 4"));
        assert_eq!(
            found[0].message,
            "the pod requests 4 of the 4 EFA interfaces of p4d.24xlarge and 4 of its 8 GPUs, to which 2 belong"
        );
        assert_eq!(found[0].severity, Some(Severity::Warning));
        let found = findings(&RULE, &pod("p4d.24xlarge", "nvidia.com/gpu: 4\nvpc.amazonaws.com/efa: 4"));
        assert_eq!(found[0].severity, Some(Severity::Info));
    }

    #[test]
    fn one_node_needs_none() {
        let text = pod("", "nvidia.com/gpu: 4\nvpc.amazonaws.com/efa: 4")
            .replace("    image:", "    env: [{name: PET_NNODES, value: \"1\"}]\n    image:");
        assert!(findings(&RULE, &text)[0].message.contains("has one node"));
    }

    #[test]
    fn quiet_with_a_share_and_without_a_type() {
        quiet(&RULE, &job(2, "p4d.24xlarge", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 4"));
        quiet(&RULE, &job(2, "p4d.24xlarge", "nvidia.com/gpu: 4\nvpc.amazonaws.com/efa: 2"));
        quiet(&RULE, &job(2, "p4d.24xlarge", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 1"));
        quiet(&RULE, &job(2, "p5.48xlarge", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 4"));
        quiet(&RULE, &job(2, "", "nvidia.com/gpu: 4\nvpc.amazonaws.com/efa: 4"));
        quiet(&RULE, &job(2, "g5.8xlarge", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 1"));
    }
}
