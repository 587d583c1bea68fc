//! A variable set twice in one container.

use evidence::submission::Written;
use job::submitted::Submitted;

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "duplicate-variable",
    title: "a variable set twice in one container",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "Kubernetes uses the last one; the first has no effect.",
    fix: "Keep one of them.",
    references: &[
        "https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#environment-variables",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut found = Vec::new();
    for (file, submission) in submitted.files.iter().enumerate() {
        // Sorted by container and name, the later one after the earlier.
        let mut env: Vec<_> = submission.settings.iter().filter(|it| it.written == Written::Env).collect();
        env.sort_by_key(|it| (it.owner, it.name.clone(), it.span.range.start));
        for pair in env.windows(2) {
            let [first, last] = pair else { continue };
            let same = first.owner == last.owner && first.name == last.name && first.span != last.span;
            if let (true, Some(a), Some(b)) = (same, &first.value, &last.value)
                && a != b
            {
                let name = &last.name;
                let message = format!("{name} is set twice: Kubernetes uses the later value");
                found.push(
                    Finding::at(file, &first.span, message)
                        .label("has no effect")
                        .also_at(&last.span, "used")
                        .fix(format!("Keep one {name}.")),
                );
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::settings::testing::pod;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn two_values_are_shown_with_both_places() {
        let found = findings(&RULE, &pod(&[("NCCL_DEBUG", "INFO"), ("A", "1"), ("NCCL_DEBUG", "WARN")]));
        assert_eq!((found.len(), found[0].evidence.len()), (1, 2));
        assert_eq!(found[0].message, "NCCL_DEBUG is set twice: Kubernetes uses the later value");
    }

    #[test]
    fn the_same_value_and_other_containers_are_left_alone() {
        quiet(&RULE, &pod(&[("A", "1"), ("A", "1")]));
        quiet(
            &RULE,
            "kind: Pod\nspec:\n  containers:\n  - env: [{name: A, value: x}]\n  - env: [{name: A, value: y}]\n",
        );
    }
}
