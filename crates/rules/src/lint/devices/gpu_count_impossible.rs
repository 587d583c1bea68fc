//! A pod requests more GPUs than its machine has.

use job::submitted::Submitted;

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "gpu-count-impossible",
    title: "a pod requests more GPUs than its instance type has",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "A pod runs on one node. No node of this type has that many GPUs, so the pod stays Pending.",
    fix: "Request at most the GPUs of one machine, and start more pods.",
    references: &[
        "https://karpenter.sh/docs/reference/instance-types/",
        "https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for (job, pod) in submitted.pods() {
        let Some(requested) = pod.nvidia_gpus() else { continue };
        let Some(gpus) = requested.count else { continue };
        let Some(most) = pod.machines.most(|it| it.gpus).filter(|it| gpus > u64::from(it.gpus)) else {
            continue;
        };
        let message = format!("the pod requests {gpus} GPUs, but {} has {}", most.name, most.gpus);
        let fix = format!("Request {} GPUs per pod and start more pods, or choose a larger type.", most.gpus);
        let finding = Finding::at(job.file, &requested.span(), message)
            .label(format!("at most {}", most.gpus))
            .fix(fix);
        findings.push(match &pod.machines.span {
            Some(machine) => finding.also_at(machine, pod.machines.names()),
            None => finding,
        });
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::Given;
    use crate::lint::devices::testing::pod;
    use crate::lint::testing::{findings, findings_given, quiet};

    #[test]
    fn fires_with_both_places() {
        let found = findings(&RULE, &pod("g6e.12xlarge", "nvidia.com/gpu: 8"));
        assert_eq!(found[0].message, "the pod requests 8 GPUs, but g6e.12xlarge has 4");
        assert_eq!(found[0].evidence.len(), 2);
        let given = Given { instance: fabric::catalogue::find("g5.xlarge"), ..Given::default() };
        assert_eq!(findings_given(&RULE, &pod("", "nvidia.com/gpu: 2"), &given).len(), 1);
    }

    #[test]
    fn quiet_where_they_fit_or_nothing_is_known() {
        quiet(&RULE, &pod("p5.48xlarge", "nvidia.com/gpu: 8"));
        quiet(&RULE, &pod("ml.p5.48xlarge", "nvidia.com/gpu: 8"));
        quiet(&RULE, &pod("", "nvidia.com/gpu: 16"));
        quiet(&RULE, &pod("x9.huge", "nvidia.com/gpu: 16"));
        quiet(&RULE, &pod("g5.xlarge", "nvidia.com/gpu: $GPUS"));
        quiet(&RULE, &pod("g5.xlarge", "cpu: 16"));
    }
}
