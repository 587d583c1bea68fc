//! A pod requests all GPUs of a machine and only some of its EFA interfaces.

use job::submitted::{PodTemplate, Submitted, SubmittedJob};

use super::cost::{Costs, slower};
use crate::training::How;
use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "efa-count-low",
    title: "all GPUs of a machine, but not all of its EFA interfaces",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "The pod has all GPUs of the node, so no other pod can use the remaining EFA interfaces. The bandwidth between nodes is \
          proportional to the number of interfaces.",
    fix: "Request all EFA interfaces of the instance type.",
    references: &[
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html",
        "https://github.com/awslabs/awsome-distributed-ai micro-benchmarks/nccl-tests/kubernetes/nccl-tests.yaml",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut costs = Costs::default();
    Ok(submitted.pods().filter_map(|(job, pod)| finding(job, pod, &mut costs)).collect())
}

fn finding(job: &SubmittedJob<'_>, pod: &PodTemplate<'_>, costs: &mut Costs) -> Option<Finding> {
    let (efa, gpus, span) = (pod.efa?.count?, pod.nvidia_gpus()?.count?, pod.efa?.span());
    if !job.is_networked(pod)
        || !pod.machines.all(|it| efa < u64::from(it.efa_nics()) && gpus == u64::from(it.gpus))
    {
        return None;
    }
    let least = pod.machines.known.iter().min_by_key(|it| it.efa_nics())?;
    let message = format!(
        "the pod requests {efa} of the {} EFA interfaces of {}, and all {gpus} GPUs",
        least.efa_nics(),
        least.name
    );
    let mut finding = Finding::at(job.file, &span, message)
        .label(format!("{} has {}", least.name, least.efa_nics()))
        .fix(format!("Write `vpc.amazonaws.com/efa: {}`.", least.efa_nics()));
    if let Some(cost) = costs.with_nics(least, job.nodes.at_least(), efa) {
        finding = finding.why(format!("{} {cost}", RULE.why));
        let how = How::Nics { used: u32::try_from(efa).ok()?, of: least.efa_nics() };
        finding.slower = slower(least, job.nodes.at_least(), how);
    }
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::devices::testing::job;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn fires_with_what_it_costs() {
        let found = findings(&RULE, &job(4, "p5.48xlarge", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 4"));
        assert_eq!(
            found[0].message,
            "the pod requests 4 of the 32 EFA interfaces of p5.48xlarge, and all 8 GPUs"
        );
        assert!(found[0].why.as_ref().is_some_and(|it| it.contains("times less")), "{:?}", found[0].why);
    }

    #[test]
    fn quiet_with_all_of_them_and_with_some_gpus() {
        quiet(&RULE, &job(4, "p4d.24xlarge", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 4"));
        quiet(&RULE, &job(4, "p5.48xlarge", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 4"));
        quiet(&RULE, &job(4, "p5.48xlarge", "nvidia.com/gpu: 8"));
        quiet(&RULE, &job(4, "", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 4"));
        quiet(&RULE, &job(4, "p5.48xlarge", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: $EFA"));
    }
}
