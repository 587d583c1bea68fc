//! Manifests that the tests of this family and of `cluster` share.

/// A pod on an instance type (none if it is empty) with these limits, one per line.
pub(in crate::lint) fn pod(instance: &str, limits: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n{}", spec(2, instance, limits, ""))
}

/// A `PyTorchJob` with this many workers on an instance type, each with these limits.
pub(in crate::lint) fn job(workers: u32, instance: &str, limits: &str) -> String {
    job_with(workers, instance, limits, "")
}

/// The same with more lines in its pod spec, without indentation.
pub(in crate::lint) fn job_with(workers: u32, instance: &str, limits: &str, more: &str) -> String {
    format!(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: a\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: \
         {workers}\n      template:\n        spec:\n{}",
        spec(10, instance, limits, more)
    )
}

fn spec(indent: usize, instance: &str, limits: &str, more: &str) -> String {
    let mut lines = Vec::new();
    if !instance.is_empty() {
        lines.push("nodeSelector:".to_owned());
        lines.push(format!("  node.kubernetes.io/instance-type: {instance}"));
    }
    lines.extend(more.lines().map(str::to_owned));
    lines.push("containers:".to_owned());
    lines.push("- name: train".to_owned());
    lines.push("  image: train:1".to_owned());
    lines.push("  resources:".to_owned());
    lines.push("    limits:".to_owned());
    lines.extend(limits.lines().map(|it| format!("      {it}")));
    let before = " ".repeat(indent);
    let body = lines.join(&format!("\n{before}"));
    format!("{before}{body}\n")
}
