//! A job requests EFA and does not select an instance type.

use fabric::catalogue::{self, Model};
use job::submitted::{PodTemplate, Submitted, SubmittedJob};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "instance-type-missing",
    title: "EFA is requested without selecting an instance type",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "The scheduler accepts any node with enough GPUs and EFA interfaces. In a cluster with several instance types the pods of one \
          job may land on different ones: the slowest limits the job, and p4d and p4de cannot use EFA with other types at all.",
    fix: "Add `nodeSelector: {node.kubernetes.io/instance-type: ...}` to the pods. If the cluster has only one type, give it to plumb \
          with --instance.",
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
        "each pod requests {gpus} GPUs and {efa} EFA interfaces on any node that has them: {} instance types do, from {} to {}",
        types.len(),
        first.name,
        last.name
    );
    Some(Finding::at(job.file, &span, message).confidence(Confidence::Possible))
}

/// Whether something else selects the nodes: a selector of another kind, affinity, a queue with flavors.
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
            found[0].message.starts_with("each pod requests 8 GPUs and 4 EFA interfaces on any node"),
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
