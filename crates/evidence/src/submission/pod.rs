//! Pods, found in any object that carries them.
//!
//! A pod spec is a mapping with `containers`. It is found by its form wherever it is, so that unknown kinds are read
//! too; what runs how often comes from the fields around it.

use super::resource::{Resource, ResourceKind};
use super::{Object, Owner, Quantity, Setting, Submission, Written, command, trainjob};
use crate::yaml::{Kind, NodeId, Span, Tree};

/// An object that carries pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// `Pod`, `Job`, `PyTorchJob`, ...
    pub kind: Box<str>,
    /// `metadata.name`
    pub name: Option<Box<str>>,
    /// Its root.
    pub root: NodeId,
    /// Its pods: one for each template.
    pub pods: Vec<Pod>,
}

/// A pod template.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    /// The mapping with `containers`.
    pub spec: NodeId,
    /// The template around it: `metadata` and `spec`.
    pub template: Option<NodeId>,
    /// The names that lead to it: `spec.replicatedJobs[0].template.spec.template.spec`.
    pub path: Box<str>,
    /// What it is in its job: `Worker`, `Launcher`, `node`, `head`.
    pub role: Option<Box<str>>,
    /// How many such pods run together, where the file says so.
    pub replicas: Option<u64>,
    /// Its containers, without those that only prepare.
    pub containers: Vec<Container>,
    /// Its volumes.
    pub volumes: Vec<Volume>,
    /// `hostNetwork`, `hostIPC`, `hostPID`, `shareProcessNamespace`, where they are set.
    pub flags: Vec<Flag>,
    /// `nodeSelector` and required node affinity.
    pub selectors: Vec<NodeSelector>,
    /// Its tolerations.
    pub tolerations: Vec<Toleration>,
    /// Whether the rest of the pod is in a runtime: what is missing here may be there.
    pub partial: bool,
}

/// A label that a node must have.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSelector {
    /// `topology.kubernetes.io/zone`
    pub key: Box<str>,
    /// The values it may have.
    pub values: Vec<Box<str>>,
    /// Its position.
    pub span: Span,
}

/// An instance type that a pod is tied to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InstanceName<'a> {
    /// `p5.48xlarge`
    pub name: &'a str,
    /// The selector that names it.
    pub span: &'a Span,
}

/// A text of a manifest and where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Located {
    /// The text.
    pub text: Box<str>,
    /// Its position.
    pub span: Span,
}

/// A boolean of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Flag {
    /// `hostIPC`
    pub name: &'static str,
    /// Its value.
    pub on: bool,
    /// Key and value.
    pub span: Span,
}

/// A container.
#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    /// Its mapping.
    pub node: NodeId,
    /// Its name.
    pub name: Option<Box<str>>,
    /// Its image.
    pub image: Option<Located>,
    /// `resources.limits`
    pub limits: Vec<Resource>,
    /// `resources.requests`
    pub requests: Vec<Resource>,
    /// What it mounts.
    pub mounts: Vec<Mount>,
    /// `securityContext.privileged: true`
    pub privileged: Option<Span>,
    /// `securityContext.capabilities.add`
    pub capabilities: Vec<Located>,
    /// Whether variables come from a `ConfigMap` or `Secret` that may not be here.
    pub env_from: bool,
}

/// A mount.
#[derive(Debug, Clone, PartialEq)]
pub struct Mount {
    /// `/dev/shm`
    pub path: Box<str>,
    /// The volume.
    pub volume: Box<str>,
    /// Its position.
    pub span: Span,
}

/// A volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Volume {
    /// Its name.
    pub name: Box<str>,
    /// What it is.
    pub source: VolumeSource,
    /// Its position.
    pub span: Span,
}

/// What a volume is.
#[derive(Debug, Clone, PartialEq)]
pub enum VolumeSource {
    /// `emptyDir`
    EmptyDir {
        /// `medium: Memory`
        memory: bool,
        /// `sizeLimit`
        limit: Option<(Quantity, Span)>,
        /// The mapping.
        node: NodeId,
    },
    /// `hostPath`
    HostPath(Box<str>),
    /// Anything else.
    Other,
}

/// A toleration.
#[derive(Debug, Clone, PartialEq)]
pub struct Toleration {
    /// Its key; none tolerates everything.
    pub key: Option<Box<str>>,
}

/// Finds the pods of all documents, their settings and their commands.
pub(super) fn read(submission: &mut Submission) {
    for root in submission.tree.documents.clone() {
        object(submission, root);
    }
}

fn object(submission: &mut Submission, root: NodeId) {
    let tree = &submission.tree;
    let text = |path: &[&str]| tree.at(root, path).and_then(|it| tree.text(it)).map(Into::into);
    let kind: Box<str> = text(&["kind"]).unwrap_or_default();
    let name = text(&["metadata", "name"]);
    // A list of objects is its objects.
    if &*kind == "List" {
        for item in tree.get(root, "items").map(|it| tree.items(it).to_vec()).unwrap_or_default() {
            object(submission, item);
        }
        return;
    }
    let found = search(tree, root);
    if found.is_empty() {
        submission.objects.push(Object { kind, name, root });
        return;
    }
    let workload = submission.workloads.len();
    let pods: Vec<Pod> = found.iter().map(|it| pod(tree, root, it)).collect();
    let mut settings = Vec::new();
    let mut commands = Vec::new();
    for (index, pod) in pods.iter().enumerate() {
        for (container_index, container) in pod.containers.iter().enumerate() {
            let owner = Owner { workload, pod: index, container: container_index };
            settings.extend(environment(tree, container.node, owner));
            for key in ["command", "args"] {
                commands.extend(tree.get(container.node, key).map(|it| (it, owner)));
            }
        }
    }
    submission.workloads.push(Workload { kind, name, root, pods });
    submission.settings.extend(settings);
    command::of_containers(submission, &commands);
}

/// A pod spec and the path to it.
pub(super) struct Found {
    pub(super) spec: NodeId,
    /// Names and indices from the root, with the node each leads to.
    steps: Vec<(String, NodeId)>,
}

/// All mappings with `containers`, outermost first. Without recursion: the tree may be shared by aliases, so positions
/// are bounded too.
fn search(tree: &Tree, root: NodeId) -> Vec<Found> {
    const MOST: usize = 200_000;
    let mut found = Vec::new();
    let mut open = vec![(root, Vec::<(String, NodeId)>::new())];
    let mut visited = 0;
    while let Some((node, steps)) = open.pop() {
        visited += 1;
        if visited > MOST || steps.len() > 60 {
            break;
        }
        let containers = tree.get(node, "containers");
        let is_spec = containers.is_some_and(|it| !tree.items(it).is_empty() || !tree.entries(it).is_empty());
        if (is_spec || trainjob::is_trainer(tree, node)) && steps.last().is_none_or(|it| it.0 != "status") {
            found.push(Found { spec: node, steps });
            continue;
        }
        match &tree.node(node).kind {
            Kind::Mapping(entries) => {
                for (key, value) in entries.iter().rev() {
                    if let (Some(name), false) =
                        (tree.text(*key), matches!(tree.node(*value).kind, Kind::Scalar { .. }))
                    {
                        let mut steps = steps.clone();
                        steps.push((name.to_owned(), *value));
                        open.push((*value, steps));
                    }
                }
            }
            Kind::Sequence(items) => {
                for (index, item) in items.iter().enumerate().rev() {
                    let mut steps = steps.clone();
                    steps.push((format!("[{index}]"), *item));
                    open.push((*item, steps));
                }
            }
            Kind::Scalar { .. } => {}
        }
    }
    found
}

fn pod(tree: &Tree, root: NodeId, found: &Found) -> Pod {
    let Some(containers) = tree.get(found.spec, "containers") else {
        return trainjob::pod(tree, root, found);
    };
    let list = match &tree.node(containers).kind {
        Kind::Sequence(items) => items.clone(),
        // A shortened form in notes: one container, written as a mapping.
        _ => vec![containers],
    };
    of_containers(tree, root, found, &list)
}

pub(super) fn of_containers(tree: &Tree, root: NodeId, found: &Found, containers: &[NodeId]) -> Pod {
    let Found { spec, steps } = found;
    let mut path = String::new();
    for (name, _) in steps {
        if !name.starts_with('[') && !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
    }
    // The mapping around the spec is its template.
    let around = steps.len().checked_sub(2).and_then(|it| steps.get(it)).map(|it| it.1);
    let template = around.or(Some(root)).filter(|it| tree.get(*it, "spec") == Some(*spec));
    Pod {
        spec: *spec,
        template,
        path: path.into(),
        role: role(tree, steps),
        replicas: replicas(tree, root, steps),
        containers: containers.iter().map(|it| container(tree, *it)).collect(),
        volumes: volumes(tree, *spec),
        flags: flags(tree, *spec),
        selectors: selectors(tree, *spec),
        tolerations: tree
            .get(*spec, "tolerations")
            .map(|it| tree.items(it))
            .unwrap_or_default()
            .iter()
            .map(|it| Toleration { key: tree.get(*it, "key").and_then(|it| tree.text(it)).map(Into::into) })
            .collect(),
        partial: false,
    }
}

/// The name of the replica a pod belongs to: the key below `pytorchReplicaSpecs`, the `name` beside a template.
fn role(tree: &Tree, steps: &[(String, NodeId)]) -> Option<Box<str>> {
    for pair in steps.windows(2).rev() {
        let [(name, node), (below, _)] = pair else { continue };
        if name.ends_with("ReplicaSpecs") {
            return Some(below.as_str().into());
        }
        if name.starts_with('[')
            && let Some(name) =
                tree.get(*node, "name").or_else(|| tree.get(*node, "groupName")).and_then(|it| tree.text(it))
        {
            return Some(name.into());
        }
        if matches!(name.as_str(), "headGroupSpec" | "leaderTemplate" | "workerTemplate") {
            return Some(name.as_str().into());
        }
    }
    None
}

/// How many pods of a template run together: the product of the fields on the path to it.
fn replicas(tree: &Tree, root: NodeId, steps: &[(String, NodeId)]) -> Option<u64> {
    let mut nodes = vec![root];
    nodes.extend(steps.iter().map(|it| it.1));
    let mut product: Option<u64> = None;
    for node in nodes {
        let number = |name: &str| tree.get(node, name).and_then(|it| tree.integer(it));
        // A Job starts `parallelism` pods, a replica or group `replicas`, a LeaderWorkerSet groups of `size`, a TrainJob `numNodes`.
        let here = number("parallelism").or_else(|| number("replicas")).or_else(|| number("numNodes"));
        if let Some(here) = here {
            product = Some(product.unwrap_or(1).saturating_mul(here));
        }
    }
    product
}

fn span(tree: &Tree, node: NodeId) -> Span {
    tree.node(node).span.clone()
}

fn located(tree: &Tree, node: NodeId) -> Option<Located> {
    Some(Located { text: tree.text(node)?.into(), span: span(tree, node) })
}

/// From the beginning of a key to the end of its value.
fn entry_span(tree: &Tree, key: NodeId, value: NodeId) -> Span {
    let (key, value) = (span(tree, key), span(tree, value));
    Span { range: key.range.start..value.range.end.max(key.range.end), ..key }
}

fn container(tree: &Tree, node: NodeId) -> Container {
    let text = |name: &str| tree.get(node, name).and_then(|it| tree.text(it)).map(Into::into);
    let privileged = tree
        .get(node, "securityContext")
        .and_then(|it| tree.entry(it, "privileged"))
        .filter(|it| tree.bool(it.1) == Some(true))
        .map(|it| entry_span(tree, it.0, it.1));
    let capabilities = tree
        .at(node, &["securityContext", "capabilities", "add"])
        .map(|it| tree.items(it))
        .unwrap_or_default();
    let mounts = tree.get(node, "volumeMounts").map(|it| tree.items(it)).unwrap_or_default();
    Container {
        node,
        name: text("name"),
        image: tree.get(node, "image").and_then(|it| located(tree, it)),
        limits: resources(tree, node, &["resources", "limits"]),
        requests: resources(tree, node, &["resources", "requests"]),
        mounts: mounts
            .iter()
            .map(|it| {
                let text =
                    |name: &str| tree.get(*it, name).and_then(|it| tree.text(it)).unwrap_or_default().into();
                Mount { path: text("mountPath"), volume: text("name"), span: span(tree, *it) }
            })
            .collect(),
        privileged,
        capabilities: capabilities.iter().filter_map(|it| located(tree, *it)).collect(),
        env_from: tree.get(node, "envFrom").is_some_and(|it| !tree.items(it).is_empty()),
    }
}

pub(super) fn resources(tree: &Tree, container: NodeId, path: &[&str]) -> Vec<Resource> {
    let entries = tree.at(container, path).map(|it| tree.entries(it)).unwrap_or_default();
    let resource = |(key, value): &(NodeId, NodeId)| {
        let name = tree.text(*key)?;
        Some(Resource {
            name: name.into(),
            kind: ResourceKind::of(name),
            quantity: tree.text(*value).and_then(Quantity::parse),
            key: span(tree, *key),
            value: span(tree, *value),
        })
    };
    entries.iter().filter_map(resource).collect()
}

pub(super) fn volumes(tree: &Tree, spec: NodeId) -> Vec<Volume> {
    let items = tree.get(spec, "volumes").map(|it| tree.items(it)).unwrap_or_default();
    let volume = |it: &NodeId| {
        let name = tree.get(*it, "name").and_then(|it| tree.text(it)).unwrap_or_default();
        let source = if let Some(node) = tree.get(*it, "emptyDir") {
            let limit = tree.get(node, "sizeLimit");
            VolumeSource::EmptyDir {
                memory: tree.get(node, "medium").and_then(|it| tree.text(it)) == Some("Memory"),
                limit: limit.and_then(|it| Some((Quantity::parse(tree.text(it)?)?, span(tree, it)))),
                node,
            }
        } else if let Some(path) = tree.at(*it, &["hostPath", "path"]).and_then(|it| tree.text(it)) {
            VolumeSource::HostPath(path.into())
        } else {
            VolumeSource::Other
        };
        Volume { name: name.into(), source, span: span(tree, *it) }
    };
    items.iter().map(volume).collect()
}

fn flags(tree: &Tree, spec: NodeId) -> Vec<Flag> {
    let names = ["hostNetwork", "hostIPC", "hostPID", "shareProcessNamespace"];
    let flag = |name: &'static str| {
        let (key, value) = tree.entry(spec, name)?;
        Some(Flag { name, on: tree.bool(value)?, span: entry_span(tree, key, value) })
    };
    names.into_iter().filter_map(flag).collect()
}

pub(super) fn selectors(tree: &Tree, spec: NodeId) -> Vec<NodeSelector> {
    let mut all = Vec::new();
    for (key, value) in tree.get(spec, "nodeSelector").map(|it| tree.entries(it)).unwrap_or_default() {
        if let (Some(key_text), Some(text)) = (tree.text(*key), tree.text(*value)) {
            let span = entry_span(tree, *key, *value);
            all.push(NodeSelector { key: key_text.into(), values: vec![text.into()], span });
        }
    }
    let terms =
        ["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"];
    for term in tree.at(spec, &terms).map(|it| tree.items(it)).unwrap_or_default() {
        for expression in tree.get(*term, "matchExpressions").map(|it| tree.items(it)).unwrap_or_default() {
            let operator = tree.get(*expression, "operator").and_then(|it| tree.text(it));
            let key = tree.get(*expression, "key").and_then(|it| tree.text(it));
            if let (Some("In"), Some(key)) = (operator, key) {
                let values = tree.get(*expression, "values").map(|it| tree.items(it)).unwrap_or_default();
                let values = values.iter().filter_map(|it| tree.text(*it)).map(Into::into).collect();
                all.push(NodeSelector { key: key.into(), values, span: span(tree, *expression) });
            }
        }
    }
    all
}

/// `env` of a container: a list of names and values.
fn environment(tree: &Tree, container: NodeId, owner: Owner) -> Vec<Setting> {
    let items = tree.get(container, "env").map(|it| tree.items(it)).unwrap_or_default();
    let setting = |it: &NodeId| {
        let name = tree.get(*it, "name")?;
        let value = tree.get(*it, "value");
        Some(Setting {
            name: tree.text(name)?.into(),
            value: value.and_then(|it| tree.text(it)).map(Into::into),
            name_span: span(tree, name),
            value_span: value.map(|it| span(tree, it)),
            span: span(tree, *it),
            owner: Some(owner),
            written: Written::Env,
        })
    };
    items.iter().filter_map(setting).collect()
}

impl Pod {
    /// The instance types it is tied to by node selector or affinity.
    pub fn instances(&self) -> Vec<InstanceName<'_>> {
        let key = |it: &str| it.ends_with("kubernetes.io/instance-type");
        let tied = self.selectors.iter().filter(|it| key(&it.key));
        tied.flat_map(|it| it.values.iter().map(|name| InstanceName { name, span: &it.span })).collect()
    }

    /// The limits of all its containers under exactly this name; none where there is no such limit.
    pub fn limit(&self, name: &str) -> Option<f64> {
        let limits = self.containers.iter().flat_map(|it| &it.limits).filter(|it| &*it.name == name);
        let quantities: Vec<f64> = limits.filter_map(|it| it.quantity).map(|it| it.0).collect();
        (!quantities.is_empty()).then(|| quantities.iter().sum())
    }
}
