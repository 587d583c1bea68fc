//! Pods that need each other are scheduled one by one.

use job::submitted::{PodTemplate, Submitted, SubmittedJob};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "no-gang-scheduling",
    title: "pods that need each other are scheduled one by one",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "Kubernetes starts each pod as soon as it finds a node for it. When nodes are scarce, some pods of the job hold their GPUs and \
          wait for the others until the rendezvous times out; two such jobs can block each other forever.",
    fix: "Submit it through a queue that admits all pods or none: Kueue (label `kueue.x-k8s.io/queue-name`), Volcano or the coscheduling \
          plugin; or as a JobSet or TrainJob with one of these.",
    references: &[
        "https://kueue.sigs.k8s.io/docs/concepts/workload/",
        "https://volcano.sh/en/docs/plugins/#gang",
        "https://github.com/kubernetes-sigs/scheduler-plugins/tree/master/pkg/coscheduling",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.jobs.iter().filter_map(finding).collect())
}

fn finding(job: &SubmittedJob<'_>) -> Option<Finding> {
    // Operators have their own settings for it, and clusters with operators usually have a queue.
    let plain = matches!(job.kind, "Job" | "StatefulSet" | "Deployment" | "ReplicaSet");
    if !plain || !job.nodes.is_multi() {
        return None;
    }
    let alone = |pod: &&PodTemplate<'_>| pod.gpus.is_some() && pod.count > 1 && !has_gang(job, pod);
    let pod = job.pods.iter().find(alone)?;
    let tree = &job.submission.tree;
    let (_, span) = tree.entry(job.root()?, "kind")?;
    let message =
        format!("{} pods of a {} need each other and are scheduled one by one", pod.count, job.kind);
    Some(Finding::at(job.file, &tree.node(span).span, message).confidence(Confidence::Likely))
}

fn has_gang(job: &SubmittedJob<'_>, pod: &PodTemplate<'_>) -> bool {
    let tree = &job.submission.tree;
    let scheduler = tree.get(pod.pod.spec, "schedulerName").and_then(|it| tree.text(it));
    let marks = ["kueue.x-k8s.io", "pod-group", "group-name", "run.ai", "yunikorn", "gang"];
    scheduler.is_some_and(|it| it != "default-scheduler")
        || job
            .root()
            .and_then(|it| tree.text(tree.get(it, "apiVersion")?))
            .is_some_and(|it| it.contains("volcano"))
        || job.labels(pod).iter().any(|label| marks.iter().any(|it| label.contains(it)))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    fn job(kind: &str, more: &str, limits: &str) -> String {
        format!(
            "apiVersion: batch/v1\nkind: {kind}\nmetadata:\n  name: a\n  labels: {{a: b{more}}}\nspec:\n  parallelism: 4\n  template:\n    spec:\n      \
             containers:\n      - name: a\n        resources: {{limits: {{{limits}}}}}\n"
        )
    }
    const EFA: &str = "nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4";

    #[test]
    fn fires_for_plain_kinds() {
        let found = findings(&RULE, &job("Job", "", EFA));
        assert_eq!(found[0].message, "4 pods of a Job need each other and are scheduled one by one");
        assert_eq!(found[0].evidence[0].at().line, 2);
    }

    #[test]
    fn quiet_with_a_queue_and_for_pods_that_do_not_need_each_other() {
        quiet(&RULE, &job("Job", ", kueue.x-k8s.io/queue-name: q", EFA));
        quiet(&RULE, &job("Job", "", EFA).replace("batch/v1", "batch.volcano.sh/v1alpha1"));
        quiet(&RULE, &job("Job", "", "nvidia.com/gpu: 1"));
        quiet(&RULE, &job("Job", "", EFA).replace("parallelism: 4", "parallelism: 1"));
        quiet(&RULE, &job("PyTorchJob", "", EFA));
    }
}
