//! A device is requested without a limit.

use evidence::submission::resource::is_extended;
use evidence::submission::{Resource, ResourceKind, Submission};
use evidence::yaml::{Kind, NodeId, Tree};
use job::submitted::{ContainerTemplate, Submitted};

use crate::{Check, Checked, Edit, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "gpu-request-without-limit",
    title: "a device is requested without a limit",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "Kubernetes reads the number of devices from `limits`. It rejects a request without a limit, because devices cannot be overcommitted.",
    fix: "Move it to `limits`, or write the same number in both.",
    references: &[
        "https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/",
        "kubernetes pkg/apis/core/validation/validation.go (ValidateResourceRequirements)",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for (job, pod) in submitted.pods() {
        for template in &pod.containers {
            let container = template.container;
            let counted = |it: &&Resource| is_extended(&it.name) || it.kind == ResourceKind::HugePages;
            let limited = |it: &Resource| container.limits.iter().any(|limit| limit.name == it.name);
            let missing: Vec<&Resource> =
                container.requests.iter().filter(counted).filter(|it| !limited(it)).collect();
            // A merged mapping may hold the limit.
            let tree = &job.submission.tree;
            let merged = template.resources.is_some_and(|it| tree.get(it, "<<").is_some());
            if merged || container.limits.iter().any(|it| &*it.name == "<<") {
                continue;
            }
            let mut edit = addition(job.submission, template, &missing);
            for request in missing {
                let message =
                    format!("{} is requested without a limit: Kubernetes rejects the pod", request.name);
                let fix = format!("Write `{}` under `limits`, with the same number.", request.name);
                let mut finding = Finding::at(job.file, &request.span(), message).label("no limit").fix(fix);
                finding.edits.extend(edit.take());
                findings.push(finding);
            }
        }
    }
    Ok(findings)
}

/// Inserts all missing limits before the first limit, or a mapping `limits` before `requests`.
fn addition(
    submission: &Submission,
    template: &ContainerTemplate<'_>,
    missing: &[&Resource],
) -> Option<Edit> {
    let text = &*submission.text;
    let tree = &submission.tree;
    let first = missing.first()?;
    let lines: Option<Vec<&str>> = missing.iter().map(|it| text.get(it.span().range)).collect();
    let lines = lines?;
    if lines.iter().any(|it| it.contains(['\n', '&', '*'])) {
        return None;
    }
    indent(text, first.key.range.start)?;
    let resources = template.resources?;
    if let Some(limit) = template.container.limits.first() {
        let indent = indent(text, limit.key.range.start)?;
        let at = limit.key.range.start;
        let between = format!("\n{indent}");
        let text = lines.join(&between) + &between;
        return Some(Edit { range: at..at, text });
    }
    if tree.get(resources, "limits").is_some() {
        return None;
    }
    let (key, _) = block_entry(tree, resources, "requests")?;
    let at = tree.node(key).span.range.start;
    let (outer, inner) = (indent(text, at)?, indent(text, first.key.range.start)?);
    let body = lines.join(&format!("\n{inner}"));
    Some(Edit { range: at..at, text: format!("limits:\n{inner}{body}\n{outer}") })
}

fn block_entry(tree: &Tree, node: NodeId, name: &str) -> Option<(NodeId, NodeId)> {
    tree.entry(node, name).filter(|it| matches!(tree.node(it.1).kind, Kind::Mapping(_)))
}

/// The indentation of a key, if nothing else precedes it on its line.
fn indent(text: &str, at: usize) -> Option<&str> {
    let before = text.get(..at)?;
    let line = before.rfind('\n').map_or(0, |it| it + 1);
    before.get(line..).filter(|it| !it.is_empty() && it.bytes().all(|it| it == b' '))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, fixed, quiet};

    fn pod(resources: &str) -> String {
        format!("kind: Pod\nspec:\n  containers:\n  - name: a\n    resources:\n{resources}    image: x\n")
    }

    #[test]
    fn fires_and_adds_limits() {
        let text = pod(
            "      requests:\n        cpu: 1 # one\n        nvidia.com/gpu: 8 # all\n        vpc.amazonaws.com/efa: \"4\"\n",
        );
        let found = findings(&RULE, &text);
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[0].message,
            "nvidia.com/gpu is requested without a limit: Kubernetes rejects the pod"
        );
        let after = fixed(&RULE, &text);
        let limits = "      limits:\n        nvidia.com/gpu: 8\n        vpc.amazonaws.com/efa: \"4\"\n      requests:\n";
        assert_eq!(after, text.replace("      requests:\n", limits));
    }

    #[test]
    fn limits_that_are_there_are_kept() {
        let text = pod(
            "      limits:\n        # much\n        memory: 1Gi\n      requests:\n        nvidia.com/gpu: 8\n",
        );
        let after = fixed(&RULE, &text);
        assert_eq!(after, text.replace("memory: 1Gi", "nvidia.com/gpu: 8\n        memory: 1Gi"));
    }

    #[test]
    fn what_is_written_in_one_line_is_left_to_a_person() {
        let text = pod("      requests: {nvidia.com/gpu: 8}\n");
        let found = findings(&RULE, &text);
        assert!(found.len() == 1 && found[0].edits.is_empty());
    }

    #[test]
    fn quiet_where_limits_are_merged() {
        quiet(
            &RULE,
            &pod("      <<: *all\n      requests:\n        nvidia.com/gpu: 8\n")
                .replace("kind:", "x: &all {limits: {nvidia.com/gpu: 8}}\nkind:"),
        );
    }

    #[test]
    fn quiet_with_limits_and_for_cpu() {
        quiet(
            &RULE,
            &pod(
                "      limits:\n        nvidia.com/gpu: 8\n      requests:\n        cpu: 4\n        memory: 1Gi\n",
            ),
        );
        quiet(
            &RULE,
            &pod("      limits:\n        nvidia.com/gpu: 8\n      requests:\n        nvidia.com/gpu: 8\n"),
        );
    }
}
