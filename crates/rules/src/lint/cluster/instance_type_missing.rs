//! EFA is asked for, and nothing says on which machines.

use fabric::catalogue::{self, Model};
use job::submitted::{PodTemplate, Submitted, SubmittedJob};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(super) static RULE: Rule = Rule {
    id: "instance-type-missing",
    title: "EFA is asked for and nothing says which instance type",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "Any node with enough GPUs and EFA interfaces will do for the scheduler. In a cluster with several types the pods of one job may get \
          different ones; the slowest sets the pace, and p4d and p4de do not talk EFA with others at all.",
    fix: "Add `nodeSelector: {node.kubernetes.io/instance-type: ...}` to the pods, or say the type with --instance where the cluster has one only.",
    references: &[
        "https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/",
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.pods().filter_map(|(job, pod)| finding(job, pod)).collect())
}

fn finding(job: &SubmittedJob<'_>, pod: &PodTemplate<'_>) -> Option<Finding> {
    let (gpus, efa, span) = (pod.nvidia_gpus()?.count?, pod.efa?.count?, pod.efa?.span());
    // A `TrainJob` without a pod leaves it to its runtime.
    if pod.pod.partial || !job.nodes.is_multi() || !pod.machines.known.is_empty() || chosen(job, pod) {
        return None;
    }
    let fits = |it: &&Model| u64::from(it.gpus) >= gpus && u64::from(it.efa_nics()) >= efa;
    let types: Vec<&Model> = catalogue::all().iter().filter(fits).collect();
    let (first, last) = (types.first()?, types.last()?);
    let shape = |it: &Model| (it.gpus, it.efa_nics(), it.instance.and_then(|it| it.efa_version));
    let alike = |it: &&Model| shape(it) == shape(first);
    if types.iter().all(alike) {
        return None;
    }
    let message = format!(
        "{gpus} GPUs and {efa} EFA interfaces a pod, on any node that has them: {} instance types do, from {} to {}",
        types.len(),
        first.name,
        last.name
    );
    Some(Finding::at(job.file, &span, message).confidence(Confidence::Possible))
}

/// Whether anything else chooses the nodes: a selector of another kind, affinity, a queue with flavors.
fn chosen(job: &SubmittedJob<'_>, pod: &PodTemplate<'_>) -> bool {
    let tree = &job.submission.tree;
    let fields = ["nodeSelector", "affinity", "nodeName", "schedulerName"];
    fields.iter().any(|it| tree.get(pod.pod.spec, it).is_some())
        || job.labels(pod).iter().any(|it| it.contains("kueue.x-k8s.io/") || it.contains("run.ai/"))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::devices::testing::{job, job_with};
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn fires_where_many_types_would_do() {
        let found = findings(&RULE, &job(2, "", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 4"));
        assert!(
            found[0].message.starts_with("8 GPUs and 4 EFA interfaces a pod, on any node"),
            "{}",
            found[0].message
        );
    }

    #[test]
    fn quiet_where_something_chooses() {
        quiet(&RULE, &job(2, "p4d.24xlarge", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 4"));
        quiet(
            &RULE,
            &job_with(
                2,
                "",
                "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 4",
                "nodeSelector: {karpenter.sh/nodepool: p5}",
            ),
        );
        // Two types have so many, and they are alike.
        quiet(&RULE, &job(2, "", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 32"));
        quiet(&RULE, &job(2, "", "nvidia.com/gpu: 8"));
        quiet(&RULE, &job(1, "", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 4"));
    }
}
