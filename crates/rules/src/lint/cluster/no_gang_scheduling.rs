//! Pods that need each other, started one by one.

use crate::lint::Context;
use crate::lint::devices::ask::{Ask, asks};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(super) static RULE: Rule = Rule {
    id: "no-gang-scheduling",
    title: "pods that need each other are scheduled one by one",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "Kubernetes starts each pod as soon as it finds a node for it. When nodes are short, some pods of the job hold their GPUs and wait for \
          the others until the rendezvous times out; two such jobs can block each other for ever.",
    fix: "Submit it through a queue that admits all pods or none: Kueue (label `kueue.x-k8s.io/queue-name`), Volcano or the coscheduling \
          plugin; or as a JobSet or TrainJob under one of these.",
    references: &[
        "https://kueue.sigs.k8s.io/docs/concepts/workload/",
        "https://volcano.sh/en/docs/plugins/#gang",
        "https://github.com/kubernetes-sigs/scheduler-plugins/tree/master/pkg/coscheduling",
    ],
    checks: &[Check::Submission(check)],
};

fn check(context: &Context<'_>) -> Checked {
    let mut findings: Vec<Finding> = Vec::new();
    let mut done = Vec::new();
    for ask in asks(context) {
        // Operators have settings of their own for it, and clusters that have them mostly a queue.
        let plain = matches!(ask.kind, "Job" | "StatefulSet" | "Deployment" | "ReplicaSet");
        if !plain || !ask.wants_gpus() || !ask.is_multi_node() || ask.pods < 2 || has_gang(&ask) {
            continue;
        }
        if done.contains(&(ask.file, ask.root)) {
            continue;
        }
        done.push((ask.file, ask.root));
        let tree = &ask.submission.tree;
        let Some((_, place)) = tree.entry(ask.root, "kind") else { continue };
        let message =
            format!("{} pods of a {} need each other and are scheduled one by one", ask.pods, ask.kind);
        findings.push(Finding::at(ask.file, &tree.node(place).span, message).confidence(Confidence::Likely));
    }
    Ok(findings)
}

fn has_gang(ask: &Ask<'_>) -> bool {
    let tree = &ask.submission.tree;
    let scheduler = ask.pod.and_then(|it| tree.get(it.spec, "schedulerName")).and_then(|it| tree.text(it));
    let marks = ["kueue.x-k8s.io", "pod-group", "group-name", "run.ai", "yunikorn", "gang"];
    scheduler.is_some_and(|it| it != "default-scheduler")
        || tree
            .get(ask.root, "apiVersion")
            .and_then(|it| tree.text(it))
            .is_some_and(|it| it.contains("volcano"))
        || ask.labels().iter().any(|label| marks.iter().any(|it| label.contains(it)))
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
