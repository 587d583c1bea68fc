//! Requests for huge pages that Kubernetes rejects.

use evidence::submission::ResourceKind;
use job::submitted::{ContainerTemplate, Submitted};

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "hugepages-refused",
    title: "a request for huge pages that Kubernetes rejects",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "A container that requests huge pages must also request memory or CPU, and a whole number of pages. Otherwise Kubernetes rejects the pod.",
    fix: "Add `memory` to the limits next to `hugepages-2Mi`, and request a multiple of 2Mi.",
    references: &[
        "https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/",
        "https://github.com/kubernetes/kubernetes/pull/98515",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    const PAGE: u64 = 2 << 20;
    let mut findings = Vec::new();
    for (job, pod) in submitted.pods() {
        for ContainerTemplate { container, .. } in &pod.containers {
            let all = || container.limits.iter().chain(&container.requests);
            let Some(pages) = all().find(|it| it.kind == ResourceKind::HugePages) else { continue };
            if !all().any(|it| matches!(&*it.name, "memory" | "cpu")) {
                let message = format!("{} without memory or cpu: Kubernetes rejects the pod", pages.name);
                findings.push(Finding::at(job.file, &pages.span(), message).label("no memory next to it"));
            }
            for odd in all().filter(|it| &*it.name == "hugepages-2Mi") {
                let bytes = odd.quantity.and_then(evidence::submission::Quantity::whole);
                if bytes.is_some_and(|it| it % PAGE != 0) {
                    let message = "hugepages-2Mi is not a multiple of 2Mi: Kubernetes rejects the pod";
                    findings.push(Finding::at(job.file, &odd.span(), message));
                }
            }
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::devices::testing::job;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn fires_without_memory_and_with_parts_of_pages() {
        let found = findings(&RULE, &job(2, "", "nvidia.com/gpu: 8\nhugepages-2Mi: 5120Mi"));
        assert_eq!(found[0].message, "hugepages-2Mi without memory or cpu: Kubernetes rejects the pod");
        let found = findings(&RULE, &job(2, "", "memory: 1Gi\nhugepages-2Mi: 3Mi"));
        assert_eq!(found[0].message, "hugepages-2Mi is not a multiple of 2Mi: Kubernetes rejects the pod");
        assert_eq!(findings(&RULE, &job(2, "", "memory: 1Gi\nhugepages-2Mi: 5120")).len(), 1);
    }

    #[test]
    fn quiet_with_memory_and_without_pages() {
        quiet(&RULE, &job(2, "", "hugepages-2Mi: 5120Mi\nmemory: 32000Mi"));
        quiet(&RULE, &job(2, "", "hugepages-2Mi: 5Gi\ncpu: 8"));
        quiet(&RULE, &job(2, "", "nvidia.com/gpu: 8"));
    }
}
