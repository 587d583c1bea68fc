//! The request for a device differs from its limit.

use evidence::submission::ResourceKind;
use evidence::submission::resource::is_extended;
use job::submitted::{ContainerTemplate, Submitted};

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "requests-unlike-limits",
    title: "request and limit of a device or of huge pages differ",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "Devices and huge pages cannot be overcommitted. Kubernetes rejects a pod whose request for them differs from the limit.",
    fix: "Write the same number under `requests` and `limits`, or remove the request: it defaults to the limit.",
    references: &[
        "https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/",
        "https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/",
        "kubernetes pkg/apis/core/validation/validation.go (ValidateResourceRequirements)",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for (job, pod) in submitted.pods() {
        for ContainerTemplate { container, .. } in &pod.containers {
            let counted = |it: &&evidence::submission::Resource| {
                is_extended(&it.name) || it.kind == ResourceKind::HugePages
            };
            for request in container.requests.iter().filter(counted) {
                let Some(limit) = container.limits.iter().find(|it| it.name == request.name) else {
                    continue;
                };
                let (Some(asked), Some(most)) = (request.quantity, limit.quantity) else { continue };
                if asked == most {
                    continue;
                }
                let text = |it: &evidence::submission::Resource| {
                    job.submission.text.get(it.value.range.clone()).unwrap_or_default().trim().to_owned()
                };
                let (asked, most) = (text(request), text(limit));
                let plain = |it: &str| it.trim_matches(['"', '\'']).to_owned();
                let message = format!(
                    "{} has request {} and limit {}: Kubernetes rejects the pod",
                    request.name,
                    plain(&asked),
                    plain(&most)
                );
                let finding = Finding::at(job.file, &request.span(), message)
                    .label(format!("requests {}", plain(&asked)))
                    .also_at(&limit.span(), format!("limit {}", plain(&most)))
                    .fix(format!(
                        "Write `{}: {most}` under `requests` too, or remove it there.",
                        request.name
                    ));
                // An alias refers to a value that others may share.
                let between = job.submission.text.get(request.key.range.end..request.value.range.start);
                let here = between.is_some_and(|it| it.bytes().all(|it| matches!(it, b':' | b' ')));
                findings.push(if here { finding.edit(request.value.range.clone(), most) } else { finding });
            }
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, fixed, quiet};

    fn pod(requests: &str) -> String {
        format!(
            "kind: Pod\nspec:\n  containers:\n  - name: a\n    resources:\n      requests:\n{requests}      limits:\n        \
             nvidia.com/gpu: 8\n        hugepages-2Mi: 5120Mi\n        memory: 32000Mi\n"
        )
    }

    #[test]
    fn fires_and_makes_them_equal() {
        let text = pod("        nvidia.com/gpu: 4 # half\n        hugepages-2Mi: 1Gi\n        memory: 1Gi\n");
        let found = findings(&RULE, &text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].message, "nvidia.com/gpu has request 4 and limit 8: Kubernetes rejects the pod");
        assert_eq!(found[0].evidence.len(), 2);
        assert!(
            fixed(&RULE, &text)
                .contains("nvidia.com/gpu: 8 # half\n        hugepages-2Mi: 5120Mi\n        memory: 1Gi")
        );
    }

    #[test]
    fn an_alias_is_left_to_a_person() {
        let text = format!("x: &few 4\n{}", pod("        nvidia.com/gpu: *few\n"));
        let found = findings(&RULE, &text);
        assert!(found.len() == 1 && found[0].edits.is_empty());
    }

    #[test]
    fn quiet_where_they_are_equal_or_may_differ() {
        quiet(
            &RULE,
            &pod("        nvidia.com/gpu: \"8\"\n        hugepages-2Mi: 5Gi\n        memory: 1Gi\n"),
        );
        quiet(&RULE, &pod("        cpu: 8\n"));
        quiet(&RULE, &pod("        nvidia.com/gpu: $GPUS\n"));
    }
}
