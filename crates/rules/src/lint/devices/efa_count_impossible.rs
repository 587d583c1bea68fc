//! A pod requests more EFA interfaces than its machine has.

use fabric::catalogue::Model;
use job::submitted::{PodTemplate, Submitted, SubmittedJob};

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "efa-count-impossible",
    title: "a pod requests more EFA interfaces than its instance type has",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "A pod runs on one node. No node of this type has that many EFA interfaces, so the pod stays Pending.",
    fix: "Request the number of EFA interfaces that the instance type has.",
    references: &[
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html",
        "https://karpenter.sh/docs/reference/instance-types/",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.pods().filter_map(|(job, pod)| finding(job, pod)).collect())
}

fn finding(job: &SubmittedJob<'_>, pod: &PodTemplate<'_>) -> Option<Finding> {
    let (efa, span) = (pod.efa?.count?, pod.efa?.span());
    let most = pod.machines.most(Model::efa_nics).filter(|it| it.efa() && efa > u64::from(it.efa_nics()))?;
    if efa <= u64::from(most.most_efa_nics()) {
        return None;
    }
    let message = format!("the pod requests {efa} EFA interfaces, but {} has {}", most.name, most.efa_nics());
    let share = pod.nvidia_gpus().and_then(|it| it.count).filter(|it| *it < u64::from(most.gpus));
    let right = share.map_or(u64::from(most.efa_nics()), |gpus| {
        (u64::from(most.efa_nics()) * gpus).checked_div(u64::from(most.gpus)).unwrap_or(1).max(1)
    });
    let finding = Finding::at(job.file, &span, message)
        .label(format!("at most {}", most.efa_nics()))
        .fix(format!("Write `vpc.amazonaws.com/efa: {right}`."));
    Some(match &pod.machines.span {
        Some(types) => finding.also_at(types, pod.machines.names()),
        None => finding,
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::devices::testing::{job, pod};
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn fires_above_what_the_type_has() {
        let found =
            findings(&RULE, &job(2, "p6-b300.48xlarge", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 17"));
        assert_eq!(found[0].message, "the pod requests 17 EFA interfaces, but p6-b300.48xlarge has 16");
        assert_eq!(found[0].fix.as_deref(), Some("Write `vpc.amazonaws.com/efa: 16`."));
        assert_eq!(
            findings(&RULE, &pod("p4d.24xlarge", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 8")).len(),
            1
        );
    }

    #[test]
    fn quiet_where_they_fit_or_nothing_is_known() {
        for (instance, efa) in [
            ("p4d.24xlarge", 4),
            ("p5.48xlarge", 32),
            ("p5en.48xlarge", 16),
            ("p6e-gb200.36xlarge", 8),
            ("", 64),
            ("trn1.32xlarge", 8),
        ] {
            quiet(&RULE, &job(2, instance, &format!("nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: {efa}")));
        }
        quiet(&RULE, &job(2, "p4d.24xlarge", "nvidia.com/gpu: 8"));
    }

    #[test]
    fn of_several_types_the_largest_counts() {
        let text = job(2, "", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 32").replace(
            "          containers:",
            "          affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: \
             node.kubernetes.io/instance-type, operator: In, values: [p5.48xlarge, p4d.24xlarge]}]}]}}}\n          containers:",
        );
        quiet(&RULE, &text);
        assert_eq!(findings(&RULE, &text.replace("efa: 32", "efa: 33")).len(), 1);
    }
}
