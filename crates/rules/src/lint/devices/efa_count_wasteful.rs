//! More EFA interfaces than the GPUs of a pod can use.

use job::submitted::{PodTemplate, Submitted, SubmittedJob};

use crate::{Check, Checked, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(super) static RULE: Rule = Rule {
    id: "efa-count-wasteful",
    title: "more EFA interfaces than belong to the GPUs of the pod",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "EFA interfaces are given to one pod at a time. Those that a pod takes beyond its share are missing for the other GPUs of the node, \
          whose pods then wait; and they hang at other PCIe switches than the pod's GPUs.",
    fix: "Ask for the share of the EFA interfaces that goes with the GPUs, or for all GPUs.",
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
        let message = format!("{efa} EFA interfaces for a job of one node, which does not use them");
        return Some(
            Finding::at(job.file, &span, message)
                .fix("Remove `vpc.amazonaws.com/efa`: GPUs of one pod talk over NVLink or PCIe.")
                .why("Inside a pod NCCL uses NVLink, PCIe or shared memory. EFA interfaces held by it are missing for other pods."),
        );
    }
    // With more than one machine in question, or one GPU of one, there is no share to speak of.
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
        "{efa} of the {all_nics} EFA interfaces of {} with {gpus} of its {all_gpus} GPUs; {share} belong to them",
        instance.name
    );
    let severity =
        if job.nodes.is_multi() && fit * gpus < all_gpus { Severity::Warning } else { Severity::Info };
    let left = all_gpus.saturating_sub(fit * gpus);
    let why = format!("{} Here {left} GPUs of every node are left without EFA.", RULE.why);
    let finding = Finding::at(job.file, &span, message)
        .label(format!("{share} for {gpus} GPUs"))
        .severity(severity)
        .fix(format!(
            "Write `vpc.amazonaws.com/efa: {share}`, or ask for all {all_gpus} GPUs with all {all_nics} EFA interfaces."
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
            "4 of the 4 EFA interfaces of p4d.24xlarge with 4 of its 8 GPUs; 2 belong to them"
        );
        assert_eq!(found[0].severity, Some(Severity::Warning));
        let found = findings(&RULE, &pod("p4d.24xlarge", "nvidia.com/gpu: 4\nvpc.amazonaws.com/efa: 4"));
        assert_eq!(found[0].severity, Some(Severity::Info));
    }

    #[test]
    fn one_node_needs_none() {
        let text = pod("", "nvidia.com/gpu: 4\nvpc.amazonaws.com/efa: 4")
            .replace("    image:", "    env: [{name: PET_NNODES, value: \"1\"}]\n    image:");
        assert!(findings(&RULE, &text)[0].message.contains("a job of one node"));
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
