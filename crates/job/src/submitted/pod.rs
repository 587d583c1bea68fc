//! Pod templates: what their containers request, and how many pods run.

use evidence::submission::{
    Container, Count, Pod, Quantity, Resource, ResourceKind, Submission, Vendor, Workload,
};
use evidence::yaml::{NodeId, Span};

use super::{Machines, SubmittedJob};

/// Pods of one template.
#[derive(Debug)]
pub struct PodTemplate<'a> {
    /// As it is written.
    pub pod: &'a Pod,
    /// Its containers.
    pub containers: Vec<ContainerTemplate<'a>>,
    /// The GPUs of all its containers.
    pub gpus: Option<Gpus<'a>>,
    /// The EFA interfaces of all its containers.
    pub efa: Option<Efa<'a>>,
    /// The machines it can run on.
    pub machines: Machines,
    /// How many pods of this template run together; one where the file does not say.
    pub count: u64,
    /// Whether its GPUs run ranks; those of the launcher of an `MPIJob` do not.
    pub works: bool,
    /// Whether devices come by claims, whose number is elsewhere.
    pub claims: bool,
}

/// A container and the devices it requests.
#[derive(Debug, Clone, Copy)]
pub struct ContainerTemplate<'a> {
    /// As it is written.
    pub container: &'a Container,
    /// The mapping with `limits` and `requests`.
    pub resources: Option<NodeId>,
    /// Its GPUs.
    pub gpus: Option<Gpus<'a>>,
    /// Its EFA interfaces.
    pub efa: Option<Efa<'a>>,
}

/// GPUs that a container or a pod requests, at least one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpus<'a> {
    /// Who makes them.
    pub vendor: Vendor,
    /// How many; none where the number is not a literal.
    pub count: Option<u64>,
    /// The first entry that requests them.
    pub resource: &'a Resource,
}

/// EFA interfaces that a container or a pod requests, at least one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Efa<'a> {
    /// How many; none where the number is not a literal.
    pub count: Option<u64>,
    /// The first entry that requests them.
    pub resource: &'a Resource,
}

/// A container with a known number of GPUs.
#[derive(Debug, Clone, Copy)]
pub struct GpuContainer<'s> {
    /// The job.
    pub job: &'s SubmittedJob<'s>,
    /// The pod template.
    pub template: &'s PodTemplate<'s>,
    /// The pod as it is written.
    pub pod: &'s Pod,
    /// The container.
    pub container: &'s Container,
    /// Its EFA interfaces.
    pub efa: Option<Efa<'s>>,
    /// How many GPUs.
    pub gpus: u64,
    /// The entry that requests them.
    pub resource: &'s Resource,
}

impl Gpus<'_> {
    /// The number and where it is written.
    pub fn counted(&self) -> Option<Count> {
        Some(Count { value: self.count?, span: self.resource.value.clone() })
    }

    /// Name and number.
    pub fn span(&self) -> Span {
        self.resource.span()
    }
}

impl Efa<'_> {
    /// Name and number.
    pub fn span(&self) -> Span {
        self.resource.span()
    }
}

impl<'a> PodTemplate<'a> {
    pub(super) fn new(submission: &Submission, workload: &Workload, pod: &'a Pod) -> Self {
        let tree = &submission.tree;
        let container = |container: &'a Container| {
            let node = if pod.partial { "resourcesPerNode" } else { "resources" };
            ContainerTemplate {
                container,
                resources: tree.get(container.node, node),
                gpus: gpus(container),
                efa: efa(container),
            }
        };
        let containers: Vec<ContainerTemplate<'a>> = pod.containers.iter().map(container).collect();
        let number = |path: &[&str]| tree.at(workload.root, path).and_then(|it| tree.integer(it));
        // A group has one leader, with its own template or as one of the workers.
        let group = number(&["spec", "leaderWorkerTemplate", "size"]).map(|size| match workload.pods.len() {
            0 | 1 => size,
            _ if pod.role.as_deref() == Some("leaderTemplate") => 1,
            _ => size.saturating_sub(1),
        });
        let launcher = &*workload.kind == "MPIJob" && pod.role.as_deref() == Some("Launcher");
        let gpus = containers.iter().find_map(|it| it.gpus).map(|first| {
            let alike = containers.iter().filter_map(|it| it.gpus).filter(|it| it.vendor == first.vendor);
            Gpus { count: total(alike.map(|it| it.count)), ..first }
        });
        let efa = containers.iter().find_map(|it| it.efa).map(|first| {
            let all = containers.iter().filter_map(|it| it.efa);
            Efa { count: total(all.map(|it| it.count)), ..first }
        });
        Self {
            pod,
            gpus,
            efa,
            machines: Machines::default(),
            count: group.or(pod.replicas).unwrap_or(1),
            works: gpus.is_some() && !launcher,
            claims: tree.get(pod.spec, "resourceClaims").is_some(),
            containers,
        }
    }

    /// The GPUs, where they are NVIDIA's: what NCCL, NVLink and EFA are about.
    pub fn nvidia_gpus(&self) -> Option<Gpus<'a>> {
        self.gpus.filter(|it| it.vendor == Vendor::Nvidia)
    }

    /// The pod, where the file has all of it: that of a `TrainJob` is completed by its runtime.
    pub fn whole(&self) -> Option<&'a Pod> {
        Some(self.pod).filter(|it| !it.partial)
    }

    pub(super) fn gpu_containers<'s>(
        &'s self,
        job: &'s SubmittedJob<'a>,
    ) -> impl Iterator<Item = GpuContainer<'s>> {
        self.containers.iter().filter_map(move |it| {
            let gpus = it.gpus?;
            let (container, efa, resource) = (it.container, it.efa, gpus.resource);
            Some(GpuContainer {
                job,
                template: self,
                pod: self.pod,
                container,
                efa,
                gpus: gpus.count?,
                resource,
            })
        })
    }
}

/// None where one of them is not known.
fn total(mut counts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    counts.try_fold(0u64, |sum, count| Some(sum.saturating_add(count?)))
}

fn gpus(container: &Container) -> Option<Gpus<'_>> {
    let by = |vendor: Vendor| {
        let is = move |kind| matches!(kind, ResourceKind::Gpu { vendor: it, .. } if it == vendor);
        devices(container, is).map(|(count, resource)| Gpus { vendor, count, resource })
    };
    by(Vendor::Nvidia).or_else(|| by(Vendor::Amd))
}

fn efa(container: &Container) -> Option<Efa<'_>> {
    let found = devices(container, |kind| matches!(kind, ResourceKind::Efa { .. }));
    found.map(|(count, resource)| Efa { count, resource })
}

/// The number of a device and its first entry. Kubernetes takes devices from the limits; a request alone is understood all the
/// same, and so is a misspelt name where no entry has the right one. Zero is none.
fn devices(container: &Container, is: impl Fn(ResourceKind) -> bool) -> Option<(Option<u64>, &Resource)> {
    let of = |list: &'_ [Resource]| list.iter().any(|it| is(it.kind));
    let list = if of(&container.limits) { &container.limits } else { &container.requests };
    let proper = list.iter().any(|it| is(it.kind) && !it.kind.is_misspelt());
    let counts = || list.iter().filter(|it| is(it.kind) && it.kind.is_misspelt() != proper);
    let count = total(counts().map(|it| it.quantity.and_then(Quantity::whole)));
    let first = counts().next()?;
    (count != Some(0)).then_some((count, first))
}
