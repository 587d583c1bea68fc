//! p4d or p4de in one job with other types.

use fabric::catalogue::Model;
use job::submitted::{PodTemplate, Submitted, SubmittedJob};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "mixed-instance-types",
    title: "p4d or p4de together with other instance types in one job",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "EFA between p4d or p4de and any other instance type is not supported: ranks on the two cannot reach each other.",
    fix: "Use one instance type for all GPU pods of the job.",
    references: &["https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.jobs.iter().filter_map(finding).collect())
}

fn is_p4(instance: &Model) -> bool {
    instance.efa_is_limited()
}

fn finding(job: &SubmittedJob<'_>) -> Option<Finding> {
    let pods: Vec<&PodTemplate<'_>> = job.pods.iter().filter(|it| it.nvidia_gpus().is_some()).collect();
    if !pods.iter().any(|it| job.is_networked(it)) {
        return None;
    }
    let find = |p4: bool| {
        pods.iter()
            .find_map(|pod| Some((*pod, pod.machines.known.iter().find(|it| is_p4(it) == p4 && it.efa())?)))
    };
    let ((p4_pod, p4), (pod, other)) = (find(true)?, find(false)?);
    let span = pod.machines.span.as_ref().or(p4_pod.machines.span.as_ref())?;
    // Pods pinned to different types certainly differ; from a list the scheduler may pick one type for all.
    let pinned =
        p4_pod.machines.known.iter().all(|it| is_p4(it)) && pod.machines.known.iter().all(|it| !is_p4(it));
    let (how, severity, confidence) = if pinned {
        ("run", Severity::Error, Confidence::Certain)
    } else {
        ("may run", Severity::Warning, Confidence::Possible)
    };
    let message = format!(
        "pods of one job {how} on {} and on {}, which cannot use EFA with each other",
        p4.name, other.name
    );
    let finding = Finding::at(job.file, span, message)
        .label(pod.machines.names())
        .severity(severity)
        .confidence(confidence);
    Some(match p4_pod.machines.span.as_ref().filter(|it| *it != span) {
        Some(p4_place) => finding.also_at(p4_place, p4_pod.machines.names()),
        None => finding,
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::testing::{findings, quiet};

    fn job(master: &str, worker: &str) -> String {
        let pod = |role: &str, instance: &str| {
            format!(
                "    {role}:\n      replicas: 1\n      template:\n        spec:\n          affinity:\n            nodeAffinity:\n              \
                 requiredDuringSchedulingIgnoredDuringExecution:\n                nodeSelectorTerms:\n                - matchExpressions:\n                  \
                 - {{key: node.kubernetes.io/instance-type, operator: In, values: [{instance}]}}\n          containers:\n          - name: pytorch\n            \
                 resources: {{limits: {{nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4}}}}\n"
            )
        };
        format!(
            "kind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n{}{}",
            pod("Master", master),
            pod("Worker", worker)
        )
    }

    #[test]
    fn fires_with_both_places() {
        let found = findings(&RULE, &job("p4d.24xlarge", "p5.48xlarge"));
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].message,
            "pods of one job run on p4d.24xlarge and on p5.48xlarge, which cannot use EFA with each other"
        );
        assert_eq!((found[0].severity, found[0].evidence.len()), (Some(Severity::Error), 2));
        let list = "p4d.24xlarge, p5.48xlarge";
        assert_eq!(findings(&RULE, &job(list, list))[0].severity, Some(Severity::Warning));
    }

    #[test]
    fn quiet_with_one_type_and_with_types_that_talk() {
        quiet(&RULE, &job("p4d.24xlarge", "p4d.24xlarge"));
        quiet(&RULE, &job("p4d.24xlarge", "p4de.24xlarge"));
        quiet(&RULE, &job("p5.48xlarge", "p5e.48xlarge"));
        quiet(&RULE, &job("p4d.24xlarge", "x9.huge"));
        quiet(
            &RULE,
            &job("p4d.24xlarge", "p5.48xlarge")
                .replace("nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4", "cpu: 4"),
        );
    }
}
