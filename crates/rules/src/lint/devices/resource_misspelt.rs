//! A resource name that no device plugin offers.

use evidence::submission::{Resource, ResourceKind};
use job::submitted::{ContainerTemplate, Submitted, SubmittedJob};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "resource-misspelt",
    title: "a resource name that no device plugin offers",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "Kubernetes rejects an unknown resource name without a domain. With a domain it accepts any name, but no node offers it and the \
          pod stays Pending.",
    fix: "Write `nvidia.com/gpu` for GPUs and `vpc.amazonaws.com/efa` for EFA interfaces.",
    references: &[
        "https://kubernetes.io/docs/tasks/configure-pod-container/extended-resource/",
        "https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/",
        "https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for (job, pod) in submitted.pods() {
        for ContainerTemplate { container, .. } in &pod.containers {
            for list in [&container.limits, &container.requests] {
                findings.extend(list.iter().filter_map(|it| finding(job, it, list)));
            }
        }
    }
    Ok(findings)
}

fn finding(job: &SubmittedJob<'_>, resource: &Resource, list: &[Resource]) -> Option<Finding> {
    let name = &*resource.name;
    // Templates are filled in later.
    if name.is_empty() || name.contains(['$', '{', '<', '%']) {
        return None;
    }
    if resource.kind == ResourceKind::Unknown {
        let message =
            format!("Kubernetes knows no resource `{name}`, and the name of a device needs a domain and `/`");
        return Some(Finding::at(job.file, &resource.key, message));
    }
    let meant = resource.kind.proper_name().filter(|_| resource.kind.is_misspelt())?;
    let slash = if name.contains('/') {
        "no device plugin offers it, and the pod stays Pending"
    } else {
        "Kubernetes rejects it"
    };
    let message = format!("`{name}` is not `{meant}`: {slash}");
    let mut finding = Finding::at(job.file, &resource.key, message)
        .label(format!("did you mean `{meant}`?"))
        .fix(format!("Write `{meant}` instead of `{name}`."));
    if name.contains('/') {
        finding = finding.confidence(Confidence::Likely);
    }
    // The name may be quoted, and a mapping has each name once.
    let range = resource.key.range.clone();
    let source = job.submission.text.get(range.clone())?;
    let twice = list.iter().filter(|it| it.kind.proper_name() == Some(meant)).count() > 1;
    match source.find(name) {
        Some(at) if !twice => {
            let start = range.start + at;
            Some(finding.edit(start..start + name.len(), meant))
        }
        _ => Some(finding),
    }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, fixed, quiet};

    const TRAIN_JOB: &str = "kind: TrainJob\nspec:\n  trainer:\n    numNodes: 16\n    resourcesPerNode:\n      limits:\n        nvidia.com: \"1\"   # one GPU\n        'vpc.amazonaws.com': \"1\"\n";

    #[test]
    fn fires_where_the_slash_is_missing() {
        let found = findings(&RULE, TRAIN_JOB);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].message, "`nvidia.com` is not `nvidia.com/gpu`: Kubernetes rejects it");
        assert_eq!((found[0].evidence[0].at().line, found[1].evidence[0].at().line), (7, 8));
    }

    #[test]
    fn the_name_alone_is_changed() {
        let after = fixed(&RULE, TRAIN_JOB);
        assert_eq!(
            after,
            TRAIN_JOB
                .replace("nvidia.com:", "nvidia.com/gpu:")
                .replace("'vpc.amazonaws.com'", "'vpc.amazonaws.com/efa'")
        );
    }

    #[test]
    fn near_names_are_meant() {
        let pod = |name: &str| {
            format!(
                "kind: Pod\nspec:\n  containers:\n  - name: a\n    resources:\n      limits: {{{name}: 8}}\n"
            )
        };
        for name in ["nvidia.com/gpus", "nvidia.com/GPU", "vpc.amazonaws.com/efas", "amazonaws.com/efa"] {
            assert_eq!(findings(&RULE, &pod(name)).len(), 1, "{name}");
        }
        let found = findings(&RULE, &pod("gpus"));
        assert!(found[0].message.contains("no resource") && found[0].edits.is_empty());
        for name in [
            "nvidia.com/gpu",
            "cpu",
            "nvidia.com/mig-1g.5gb",
            "amd.com/gpu",
            "hugepages-2Mi",
            "rdma/ib",
            "\"{{ .gpu }}\"",
        ] {
            quiet(&RULE, &pod(name));
        }
    }

    #[test]
    fn a_name_that_is_there_already_is_not_written_twice() {
        let text = "kind: Pod\nspec:\n  containers:\n  - name: a\n    resources:\n      limits:\n        nvidia.com/gpu: 8\n        nvidia.com/gpus: 8\n";
        let found = findings(&RULE, text);
        assert!(found.len() == 1 && found[0].edits.is_empty());
    }
}
