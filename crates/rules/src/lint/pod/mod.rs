//! Rules about the pod itself: shared memory, access to the node, DNS names and ports, the image.

mod host_ipc_not_needed;
mod host_network_dns;
mod host_network_not_needed;
mod host_network_port_clash;
mod host_pid_not_needed;
mod image_latest_tag;
mod image_versions_apart;
mod ipc_lock_missing;
mod master_addr_localhost;
mod master_addr_without_service;
mod privileged_not_needed;
mod share_process_namespace_not_needed;
mod shm_counts_as_memory;
mod shm_missing;
mod shm_not_memory;
mod shm_small;

use std::collections::BTreeSet;
use std::ops::Range;

use evidence::submission::{Container, Flag, Mount, Pod, Submission, Volume, VolumeSource};
use evidence::yaml::{Kind, NodeId, Span, Tree};
use job::submitted::SubmittedJob;

use crate::{Edit, Finding, Rule};

/// All of them.
pub(crate) static RULES: &[&Rule] = &[
    &host_ipc_not_needed::RULE,
    &host_network_dns::RULE,
    &host_network_not_needed::RULE,
    &host_network_port_clash::RULE,
    &host_pid_not_needed::RULE,
    &image_latest_tag::RULE,
    &image_versions_apart::RULE,
    &ipc_lock_missing::RULE,
    &master_addr_localhost::RULE,
    &master_addr_without_service::RULE,
    &privileged_not_needed::RULE,
    &share_process_namespace_not_needed::RULE,
    &shm_counts_as_memory::RULE,
    &shm_missing::RULE,
    &shm_not_memory::RULE,
    &shm_small::RULE,
];

/// A boolean field of a pod that is true.
fn flag<'a>(pod: &'a Pod, name: &str) -> Option<&'a Flag> {
    pod.flags.iter().find(|it| it.name == name && it.on)
}

/// The mount of a container at `/dev/shm`, and its volume if the pod defines it.
fn shm<'a>(pod: &'a Pod, container: &Container) -> Option<(Mount, Option<&'a Volume>)> {
    let at = |it: &&Mount| it.path.trim_end_matches('/') == "/dev/shm";
    let mount = container.mounts.iter().find(at)?.clone();
    let volume = pod.volumes.iter().find(|it| it.name == mount.volume);
    Some((mount, volume))
}

/// An `emptyDir` in memory at `/dev/shm`, with its limit.
fn shm_limit<'a>(pod: &'a Pod, container: &Container) -> Option<(f64, &'a Span)> {
    match &shm(pod, container)?.1?.source {
        VolumeSource::EmptyDir { memory: true, limit: Some((quantity, span)), .. } => {
            Some((quantity.0, span))
        }
        _ => None,
    }
}

/// Whether the pod runs as it is written. Operators of other kinds add volumes and more; a `TrainJob` only overrides.
fn is_whole(job: &SubmittedJob<'_>) -> bool {
    matches!(
        job.kind,
        "Pod"
            | "Deployment"
            | "ReplicaSet"
            | "StatefulSet"
            | "DaemonSet"
            | "Job"
            | "CronJob"
            | "JobSet"
            | "PyTorchJob"
            | "MPIJob"
            | "LeaderWorkerSet"
            | "TrainingRuntime"
            | "ClusterTrainingRuntime"
    )
}

/// The first finding of each key.
fn unique<K: Ord>(mut findings: Vec<Finding>, key: impl Fn(&Finding) -> K) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    findings.retain(|it| seen.insert(key(it)));
    findings
}

/// The name of a container in messages.
fn called(container: &Container) -> String {
    container.name.as_deref().map_or_else(|| "the container".to_owned(), |it| format!("container `{it}`"))
}

/// `1 GPU`, `8 GPUs`.
fn counted(gpus: u64) -> String {
    if gpus == 1 { "1 GPU".to_owned() } else { format!("{gpus} GPUs") }
}

/// The words of a container's command, separated by blanks.
fn command(tree: &Tree, container: &Container) -> String {
    let mut words = Vec::new();
    for name in ["command", "args"] {
        let Some(node) = tree.get(container.node, name) else { continue };
        words.extend(tree.text(node));
        words.extend(tree.items(node).iter().filter_map(|it| tree.text(*it)));
    }
    words.join(" ")
}

/// The source text of a span.
fn source<'a>(file: &'a Submission, span: &Span) -> &'a str {
    file.text.get(span.range.clone()).unwrap_or_default()
}

/// Adds an entry to a mapping, on the line after an existing entry; in a flow mapping right after it.
fn beside(text: &str, span: &Span, name: &str, value: &str) -> Edit {
    let Range { start, end } = span.range.clone();
    let line = text.get(..start).and_then(|it| it.rfind('\n')).map_or(0, |it| it + 1);
    let before = text.get(line..start).unwrap_or_default();
    let first = before.bytes().all(|it| matches!(it, b' ' | b'-'));
    let quoted = text.get(start..).is_some_and(|it| it.starts_with('"'));
    if quoted {
        return Edit { range: end..end, text: format!(", \"{name}\": \"{value}\"") };
    }
    if !first {
        return Edit { range: end..end, text: format!(", {name}: {value}") };
    }
    let rest = text.get(end..).unwrap_or_default();
    let at = end + rest.find(['\r', '\n']).unwrap_or(rest.len());
    let newline = if text.get(at..).is_some_and(|it| it.starts_with('\r')) { "\r\n" } else { "\n" };
    let indent = " ".repeat(span.column.saturating_sub(1));
    Edit { range: at..at, text: format!("{newline}{indent}{name}: {value}") }
}

/// The span of a key and its value.
fn place(tree: &Tree, mapping: NodeId, name: &str) -> Option<Span> {
    let (key, value) = tree.entry(mapping, name)?;
    let (key, value) = (&tree.node(key).span, &tree.node(value).span);
    Some(Span { range: key.range.start..value.range.end.max(key.range.end), ..key.clone() })
}

/// Whether a value is a mapping.
fn is_mapping(tree: &Tree, node: NodeId) -> bool {
    matches!(tree.node(node).kind, Kind::Mapping(_))
}
