//! A `/dev/shm` on the disk of the node.

use evidence::submission::{Submission, VolumeSource};
use evidence::yaml::{NodeId, Span};
use job::submitted::{GpuContainer, Submitted};

use super::{beside, is_mapping, place, shm, unique};
use crate::{Check, Checked, Edit, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "shm-not-memory",
    title: "/dev/shm on the disk of the node",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "An emptyDir without `medium: Memory` is a directory on the disk of the node. Data that ranks and data loaders write to \
          /dev/shm then goes to that disk: it uses the disk's bandwidth and counts as ephemeral storage, and pods that exceed it are \
          evicted.",
    fix: "Add `medium: Memory` to the emptyDir.",
    references: &["https://kubernetes.io/docs/concepts/storage/volumes/#emptydir"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings: Vec<Finding> = Vec::new();
    for it in submitted.gpu_containers() {
        let Some((mount, Some(volume))) = shm(it.pod, it.container) else { continue };
        let VolumeSource::EmptyDir { memory: false, limit, node } = &volume.source else { continue };
        let file = it.job.submission;
        let medium = file.tree.get(*node, "medium").and_then(|it| file.tree.text(it)).unwrap_or_default();
        if medium.starts_with("HugePages") || medium.contains(['{', '$']) {
            continue;
        }
        let span = place(&file.tree, *node, "medium").unwrap_or_else(|| file.tree.node(*node).span.clone());
        let span = if span.range.is_empty() { volume.span.clone() } else { span };
        let finding = if medium.is_empty() {
            let message = format!(
                "volume `{}` at /dev/shm is on the disk of the node, because its medium is not Memory",
                volume.name
            );
            Finding::at(it.job.file, &span, message).label("no `medium: Memory`")
        } else {
            Finding::at(it.job.file, &span, format!("`{medium}` is not a storage medium: the kubelet does not mount /dev/shm"))
                .label("should be `Memory`")
                .severity(Severity::Error)
                .why("The kubelet accepts ``, `Memory` and `HugePages`, in exactly this spelling. The pod never starts: `unknown storage medium`.")
                .fix("Write `medium: Memory`.")
        };
        let mut finding = finding.also_at(&mount.span, "mounted here");
        // A limit above the memory limit of the container was meant for a disk: no automatic edit.
        let fits = match (limit, memory(&it)) {
            (Some((limit, _)), Some(memory)) => limit.0 <= memory,
            _ => true,
        };
        finding.edits.extend(edit(file, *node, &span).filter(|_| fits));
        findings.push(finding);
    }
    Ok(unique(findings, |it| (it.file(), it.start())))
}

fn memory(at: &GpuContainer<'_>) -> Option<f64> {
    let limit = at.container.limits.iter().find(|it| &*it.name == "memory")?;
    limit.quantity.map(|it| it.0)
}

fn edit(file: &Submission, node: NodeId, span: &Span) -> Option<Edit> {
    let tree = &file.tree;
    if let Some(medium) = tree.get(node, "medium") {
        let range = tree.node(medium).span.range.clone();
        let quoted = file.text.get(range.clone())?.starts_with(['"', '\'']);
        let text = if quoted { "\"Memory\"" } else { "Memory" };
        return (!range.is_empty()).then(|| Edit { range, text: text.to_owned() });
    }
    if !is_mapping(tree, node) {
        return None;
    }
    // `{}` and `{ }`; every other mapping has an entry to insert after.
    if tree.entries(node).is_empty() {
        let source = file.text.get(span.range.clone())?;
        let open = source.starts_with('{').then_some(span.range.start + 1)?;
        let close = file.text.get(open..)?.find('}')? + open;
        let empty = file.text.get(open..close)?.trim().is_empty();
        // JSON quotes names.
        let before = file.text.get(..span.range.start)?.trim_end();
        let json = before.strip_suffix(':').is_some_and(|it| it.trim_end().ends_with('"'));
        let text = if json { "\"medium\": \"Memory\"" } else { "medium: Memory" };
        return empty.then(|| Edit { range: open..close, text: text.to_owned() });
    }
    // The end of an entry without a value is not known: `{sizeLimit, a: b}`.
    let (first, _) = tree.entries(node).iter().find(|it| !tree.is_null(it.1))?;
    let name = tree.text(*first)?;
    Some(beside(&file.text, &place(tree, node, name)?, "medium", "Memory"))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::testing::{findings, fixed, quiet};

    fn pod(volume: &str) -> String {
        format!(
            "kind: Pod\nspec:\n  containers:\n  - name: train\n    resources:\n      limits: {{nvidia.com/gpu: 8, memory: 64Gi}}\n    volumeMounts:\n\
             \x20   - {{name: dshm, mountPath: /dev/shm}}\n  volumes:\n  - name: dshm\n{volume}"
        )
    }

    #[test]
    fn a_directory_on_disk() {
        let found = findings(&RULE, &pod("    emptyDir: {}\n"));
        assert_eq!(
            found[0].message,
            "volume `dshm` at /dev/shm is on the disk of the node, because its medium is not Memory"
        );
        assert_eq!(found[0].evidence[0].at().line, 11);
        let found = findings(&RULE, &pod("    emptyDir:\n      medium: memory\n"));
        assert_eq!(found[0].severity, Some(Severity::Error));
        assert_eq!(findings(&RULE, &pod("    emptyDir:\n")).len(), 1);
    }

    #[test]
    fn the_medium_is_added() {
        for (before, after) in [
            ("    emptyDir: {}  # small\n", "    emptyDir: {medium: Memory}  # small\n"),
            ("    emptyDir: {sizeLimit: 8Gi}\n", "    emptyDir: {sizeLimit: 8Gi, medium: Memory}\n"),
            (
                "    emptyDir:\n      # enough\n      sizeLimit: 8Gi # GiB\n  - name: data\n    emptyDir: {}\n",
                "    emptyDir:\n      # enough\n      sizeLimit: 8Gi # GiB\n      medium: Memory\n  - name: data\n    emptyDir: {}\n",
            ),
            ("    emptyDir:\n      medium: \"\"\n", "    emptyDir:\n      medium: \"Memory\"\n"),
            ("    emptyDir:\n      medium: memory\n", "    emptyDir:\n      medium: Memory\n"),
            ("    emptyDir: {a, sizeLimit: 8Gi}\n", "    emptyDir: {a, sizeLimit: 8Gi, medium: Memory}\n"),
        ] {
            assert_eq!(fixed(&RULE, &pod(before)), pod(after));
        }
        assert_eq!(
            fixed(&RULE, &pod("    emptyDir:\n      sizeLimit: 8Gi\n").replace('\n', "\r\n")),
            pod("    emptyDir:\n      sizeLimit: 8Gi\n      medium: Memory\n").replace('\n', "\r\n")
        );
        let json = |dir: &str| {
            format!(
                "{{\"kind\": \"Pod\", \"spec\": {{\"containers\": [{{\"name\": \"a\", \"resources\": {{\"limits\": {{\"nvidia.com/gpu\": 8}}}}, \
             \"volumeMounts\": [{{\"name\": \"s\", \"mountPath\": \"/dev/shm\"}}]}}], \"volumes\": [{{\"name\": \"s\", \"emptyDir\": {dir}}}]}}}}"
            )
        };
        assert_eq!(fixed(&RULE, &json("{}")), json("{\"medium\": \"Memory\"}"));
        assert_eq!(
            fixed(&RULE, &json("{\"sizeLimit\": \"1Gi\"}")),
            json("{\"sizeLimit\": \"1Gi\", \"medium\": \"Memory\"}")
        );
    }

    #[test]
    fn a_limit_for_a_disk_and_entries_without_values_are_left_to_a_person() {
        let found = findings(&RULE, &pod("    emptyDir: {sizeLimit: 500Gi}\n"));
        assert!(found[0].edits.is_empty());
        let found = findings(&RULE, &pod("    emptyDir: {a:-b, c: }\n"));
        assert!(found[0].edits.is_empty());
    }

    #[test]
    fn quiet_elsewhere() {
        quiet(&RULE, &pod("    emptyDir:\n      medium: Memory\n"));
        quiet(&RULE, &pod("    hostPath: {path: /dev/shm}\n"));
        quiet(&RULE, &pod("    emptyDir: {}\n").replace("/dev/shm", "/scratch"));
        quiet(&RULE, &pod("    emptyDir: {}\n").replace("nvidia.com/gpu: 8, ", ""));
    }
}
