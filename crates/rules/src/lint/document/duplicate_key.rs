//! A key that appears twice.

use std::collections::BTreeMap;

use evidence::submission::{Kind, Submission};
use evidence::yaml::{Kind as Value, NodeId};
use job::submitted::Submitted;

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "duplicate-key",
    title: "a key appears twice in one mapping",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "YAML forbids it, and parsers differ: most use the last value and silently drop the others, Kubernetes with strict validation \
          rejects the object. The usual case is two `env:` or two `resources:` in a container: one of them is lost.",
    fix: "Merge the two, or remove one.",
    references: &[
        "https://yaml.org/spec/1.2.2/#mapping",
        "https://kubernetes.io/docs/reference/using-api/api-concepts/#setting-the-field-validation-level",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let files = submitted.files.iter().enumerate();
    Ok(files
        .filter(|it| matches!(it.1.kind, Kind::Kubernetes | Kind::DeepSpeed))
        .flat_map(|(at, it)| of_file(at, it))
        .collect())
}

fn of_file(at: usize, file: &Submission) -> Vec<Finding> {
    let tree = &file.tree;
    let mut findings = Vec::new();
    let mut open: Vec<NodeId> = tree.documents.clone();
    let mut seen = std::collections::BTreeSet::new();
    while let Some(node) = open.pop() {
        // A node that several aliases refer to is visited once.
        if !seen.insert(node) {
            continue;
        }
        match &tree.node(node).kind {
            Value::Sequence(items) => open.extend(items),
            Value::Mapping(entries) => {
                let mut first: BTreeMap<&str, (NodeId, NodeId)> = BTreeMap::new();
                for (key, value) in entries {
                    open.push(*value);
                    let Some(name) = tree.text(*key).filter(|it| *it != "<<") else { continue };
                    if let Some((before, other)) = first.insert(name, (*key, *value)) {
                        let message = format!("`{name}` appears twice in one mapping");
                        let finding = Finding::at(at, &tree.node(*key).span, message)
                            .label("again")
                            .also_at(&tree.node(before).span, "first here");
                        // Nothing is lost if both values are the same.
                        let same = tree.text(*value).is_some() && tree.text(*value) == tree.text(other);
                        findings.push(if same { finding.severity(Severity::Info) } else { finding });
                    }
                }
            }
            Value::Scalar { .. } => {}
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn the_second_is_named_and_the_first_shown() {
        let text = "kind: Pod\nspec:\n  containers:\n  - name: a\n    env: []\n    image: x\n    env: []\n";
        let found = findings(&RULE, text);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].evidence[0].at().line, found[0].evidence[1].at().line), (7, 5));
    }

    #[test]
    fn twice_the_same_is_only_worth_knowing() {
        let text =
            "kind: Pod\nspec:\n  restartPolicy: Never\n  containers: [{name: a}]\n  restartPolicy: Never\n";
        assert_eq!(findings(&RULE, text)[0].severity, Some(Severity::Info));
        assert_eq!(findings(&RULE, &text.replacen("Never", "Always", 1))[0].severity, None);
    }

    #[test]
    fn equal_keys_of_different_mappings_and_merges_are_right() {
        quiet(
            &RULE,
            "a: &a {x: 1}\nb: &b {x: 2}\nkind: Pod\nspec:\n  <<: *a\n  containers:\n  - {name: a}\n  - {name: b}\n",
        );
    }

    #[test]
    fn other_files_are_left_alone() {
        quiet(&RULE, "a: 1\na: 2\n");
    }
}
