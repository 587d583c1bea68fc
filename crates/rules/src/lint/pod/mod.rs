//! Rules about the pod itself: shared memory, what it may see of its node, names and ports, the image.

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

use std::ops::Range;

use evidence::submission::{
    Container, Flag, Mount, Pod, Resource, Submission, Volume, VolumeSource, Workload,
};
use evidence::yaml::{Kind, NodeId, Span, Tree};

use super::Context;
use crate::{Edit, Rule};

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

/// A container that asks for GPUs, with all around it.
#[derive(Clone, Copy)]
struct Asking<'a> {
    file: usize,
    workload: &'a Workload,
    pod: &'a Pod,
    container: &'a Container,
    /// The limit (or request) by which it asks.
    resource: &'a Resource,
    gpus: u64,
}

/// All containers that ask for GPUs. Launchers, heads and services do not.
fn asking<'a>(context: &Context<'a>) -> Vec<Asking<'a>> {
    let mut all = Vec::new();
    for (file, workload, pod) in context.pods() {
        for container in &pod.containers {
            let is_gpu = |it: &&Resource| matches!(&*it.name, "nvidia.com/gpu" | "amd.com/gpu");
            let found = container.limits.iter().chain(&container.requests).find(is_gpu);
            let Some(resource) = found else { continue };
            let gpus = resource.quantity.and_then(evidence::submission::Quantity::whole).unwrap_or(0);
            if gpus > 0 {
                all.push(Asking { file, workload, pod, container, resource, gpus });
            }
        }
    }
    all
}

/// The EFA interfaces a container asks for.
fn efa(container: &Container) -> Option<&Resource> {
    let some = |it: &Resource| it.quantity.is_some_and(|it| it.0 > 0.0);
    let limits = container.limits.iter().chain(&container.requests);
    limits.into_iter().find(|it| &*it.name == "vpc.amazonaws.com/efa" && some(it))
}

/// Whether any container of a pod asks for EFA.
fn pod_efa(pod: &Pod) -> Option<&Resource> {
    pod.containers.iter().find_map(efa)
}

/// A boolean of a pod that is on.
fn flag<'a>(pod: &'a Pod, name: &str) -> Option<&'a Flag> {
    pod.flags.iter().find(|it| it.name == name && it.on)
}

/// What a container mounts at `/dev/shm`, and the volume where it is in the pod.
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

/// Whether what stands in the file is what runs. Operators of other kinds add volumes and more; a `TrainJob` only overrides.
fn is_whole(workload: &Workload) -> bool {
    matches!(
        &*workload.kind,
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

/// Name and quantity of a resource as one place.
fn entry(resource: &Resource) -> Span {
    let end = resource.value.range.end.max(resource.key.range.end);
    Span { range: resource.key.range.start..end, ..resource.key.clone() }
}

/// How a container is spoken of.
fn called(container: &Container) -> String {
    container.name.as_deref().map_or_else(|| "the container".to_owned(), |it| format!("container `{it}`"))
}

/// `1 GPU`, `8 GPUs`.
fn counted(gpus: u64) -> String {
    if gpus == 1 { "1 GPU".to_owned() } else { format!("{gpus} GPUs") }
}

/// The least number of pods with GPUs a workload starts, where one template tells.
fn pods_at_least(workload: &Workload) -> u64 {
    let with_gpus = |it: &&Pod| {
        it.containers
            .iter()
            .any(|it| it.limits.iter().chain(&it.requests).any(|it| it.name.ends_with("/gpu")))
    };
    workload.pods.iter().filter(with_gpus).map(|it| it.replicas.unwrap_or(1)).fold(0, u64::saturating_add)
}

/// All words of a container's command, with blanks between them.
fn command(tree: &Tree, container: &Container) -> String {
    let mut words = Vec::new();
    for name in ["command", "args"] {
        let Some(node) = tree.get(container.node, name) else { continue };
        words.extend(tree.text(node));
        words.extend(tree.items(node).iter().filter_map(|it| tree.text(*it)));
    }
    words.join(" ")
}

/// The text of a place.
fn source<'a>(file: &'a Submission, span: &Span) -> &'a str {
    file.text.get(span.range.clone()).unwrap_or_default()
}

/// A new entry of a mapping, after the line of an entry it has; in a flow mapping right after it.
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

/// The place of a key and its value.
fn place(tree: &Tree, mapping: NodeId, name: &str) -> Option<Span> {
    let (key, value) = tree.entry(mapping, name)?;
    let (key, value) = (&tree.node(key).span, &tree.node(value).span);
    Some(Span { range: key.range.start..value.range.end.max(key.range.end), ..key.clone() })
}

/// Whether a value is a mapping.
fn is_mapping(tree: &Tree, node: NodeId) -> bool {
    matches!(tree.node(node).kind, Kind::Mapping(_))
}
