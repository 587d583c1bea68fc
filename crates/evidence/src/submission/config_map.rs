//! Variables that a container takes from a `ConfigMap` of the same file by `envFrom`.

use std::collections::BTreeMap;

use super::{Owner, Setting, Submission, Written};
use crate::yaml::{Kind, NodeId, Span, Tree};

/// The most variables taken from maps: names may be repeated without end.
const MOST: usize = 100_000;

/// Adds the entries of every `ConfigMap` that a container names. The same entry may belong to several containers.
pub(super) fn read(submission: &mut Submission) {
    let tree = &submission.tree;
    // Of several maps of one name the first counts.
    let maps: BTreeMap<&str, NodeId> = submission
        .objects
        .iter()
        .rev()
        .filter(|it| &*it.kind == "ConfigMap")
        .filter_map(|it| Some((it.name.as_deref()?, tree.get(it.root, "data")?)))
        .collect();
    let mut found = Vec::new();
    for (workload, at) in submission.workloads.iter().zip(0..) {
        for (pod, pod_index) in workload.pods.iter().zip(0..) {
            for (container, index) in pod.containers.iter().zip(0..).filter(|it| it.0.env_from) {
                let owner = Owner { workload: at, pod: pod_index, container: index };
                let named = tree.get(container.node, "envFrom").map(|it| tree.items(it)).unwrap_or_default();
                for item in named {
                    // A prefix makes other names of them.
                    let name = tree.at(*item, &["configMapRef", "name"]).and_then(|it| tree.text(it));
                    let plain = tree.get(*item, "prefix").is_none();
                    let data = name.filter(|_| plain).and_then(|it| maps.get(it)).copied();
                    let room = MOST.saturating_sub(found.len());
                    found.extend(data.into_iter().flat_map(|it| entries(tree, it, owner)).take(room));
                }
            }
        }
    }
    submission.settings.extend(found);
}

fn entries(tree: &Tree, data: NodeId, owner: Owner) -> impl Iterator<Item = Setting> {
    tree.entries(data).iter().filter_map(move |(key, value)| {
        let name = tree.text(*key)?;
        // Such maps contain files beside variables.
        let one_line = matches!(&tree.node(*value).kind, Kind::Scalar { text, .. } if !text.contains('\n'));
        let (key, value_span) = (&tree.node(*key).span, &tree.node(*value).span);
        one_line.then(|| Setting {
            name: name.into(),
            value: tree.text(*value).map(Into::into),
            name_span: key.clone(),
            value_span: Some(value_span.clone()),
            span: Span { range: key.range.start..value_span.range.end.max(key.range.end), ..key.clone() },
            owner: Some(owner),
            written: Written::Entry,
        })
    })
}

#[cfg(test)]
mod tests {
    use crate::submission::{Submission, Written};

    const TEXT: &str = "kind: Pod\nspec:\n  containers:\n  - name: a\n    envFrom:\n    - configMapRef: {name: nccl}\n    - secretRef: {name: keys}\n  - name: b\n\
        ---\nkind: ConfigMap\nmetadata: {name: nccl}\ndata:\n  NCCL_DEBUG: INFO\n  run.sh: |\n    echo\n    echo\n---\nkind: ConfigMap\nmetadata: {name: other}\ndata: {X: y}\n";

    #[test]
    fn a_map_that_is_named_gives_its_variables() {
        let it = Submission::read("pod.yaml", TEXT).unwrap();
        assert_eq!(it.settings.len(), 1);
        let setting = &it.settings[0];
        assert_eq!(
            (&*setting.name, setting.value.as_deref(), setting.written),
            ("NCCL_DEBUG", Some("INFO"), Written::Entry)
        );
        assert_eq!(&TEXT[setting.span.range.clone()], "NCCL_DEBUG: INFO");
        assert_eq!(setting.owner.unwrap().container, 0);
    }

    #[test]
    fn a_prefix_makes_other_names() {
        let text = TEXT.replace("- configMapRef: {name: nccl}", "- {prefix: P_, configMapRef: {name: nccl}}");
        assert!(Submission::read("pod.yaml", &text).unwrap().settings.is_empty());
    }
}
