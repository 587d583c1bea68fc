//! The pod that runs ranks: the same in every kind.

use crate::plan::Plan;
use crate::text::{indent, list, unexpanded, yaml};

/// What differs between kinds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shape<'a> {
    /// The name the operator expects of the container.
    pub(crate) container: &'a str,
    /// What it runs; empty to leave that to the image or the operator.
    pub(crate) command: &'a [String],
    /// The headless service its name belongs to.
    pub(crate) subdomain: Option<&'a str>,
    /// `restartPolicy`, where the pod says it itself.
    pub(crate) restart: Option<&'a str>,
    /// Whether ranks see the environment of the pod.
    pub(crate) environment: bool,
}

/// `metadata` and `spec` of a template, at the left margin.
pub(crate) fn template(plan: &Plan, shape: Shape<'_>) -> String {
    let mut spec = String::new();
    if let Some(restart) = shape.restart {
        spec.push_str(&format!("restartPolicy: {restart}\n"));
    }
    if let Some(subdomain) = shape.subdomain {
        spec.push_str(&format!(
            "subdomain: {subdomain}  # Gives every pod a name that the others can look up.\n"
        ));
    }
    spec.push_str(&place(plan));
    spec.push_str(&format!("containers:\n- name: {}\n", shape.container));
    spec.push_str(&indent(&container(plan, shape), 2));
    spec.push_str(&format!(
        "volumes:\n- name: shm\n  emptyDir:\n    medium: Memory  # The default is 64 MiB, too small for NCCL and data loaders. What is used \
         counts as memory of the pod.\n    sizeLimit: {}Gi\n",
        plan.shm()
    ));
    if fabric(plan) {
        spec.push_str(&format!(
            "resourceClaims:\n- name: imex\n  resourceClaimTemplateName: {}-imex\n",
            plan.name
        ));
    }
    format!("metadata:\n  labels:\n    app.kubernetes.io/name: {}\nspec:\n{}", plan.name, indent(&spec, 2))
}

/// The words of a command, safe from what Kubernetes replaces in them.
pub(crate) fn literal(words: &[String]) -> Vec<String> {
    words.iter().map(|it| unexpanded(it)).collect()
}

/// `name` and, where it was asked for, `namespace`, for `metadata`.
pub(crate) fn metadata(plan: &Plan, name: &str) -> String {
    match &plan.namespace {
        Some(namespace) => format!("  name: {name}\n  namespace: {namespace}\n"),
        None => format!("  name: {name}\n"),
    }
}

/// `labels` with the queue that starts all pods or none; a note where none is known.
pub(crate) fn queue(plan: &Plan) -> String {
    match &plan.queue {
        Some(queue) => {
            format!("  labels:\n    kueue.x-k8s.io/queue-name: {queue}  # Kueue starts all pods or none.\n")
        }
        None if plan.nodes == 1 => String::new(),
        None => {
            "  # All pods or none: without a queue, half a job can hold its GPUs and wait for the rest.\n  \
                 # labels:\n  #   kueue.x-k8s.io/queue-name: QUEUE\n"
                .to_owned()
        }
    }
}

/// Machines whose `NVLink` reaches beyond one node need a domain and a channel for it.
pub(crate) fn domain(plan: &Plan) -> String {
    if !fabric(plan) {
        return String::new();
    }
    format!(
        "# NVLink between nodes: the DRA driver of NVIDIA starts IMEX on them and gives each pod a channel.\n\
         apiVersion: resource.nvidia.com/v1beta1\nkind: ComputeDomain\nmetadata:\n{}spec:\n  numNodes: {}\n  channel:\n    \
         resourceClaimTemplate:\n      name: {}-imex\n---\n",
        metadata(plan, &plan.name),
        plan.nodes,
        plan.name
    )
}

fn fabric(plan: &Plan) -> bool {
    plan.nodes > 1 && plan.hardware.domain.is_some()
}

/// What lets a pod onto nodes with GPUs: the usual taints.
pub(crate) fn tolerations(plan: &Plan) -> String {
    let mut keys = vec!["nvidia.com/gpu"];
    if plan.efa > 0 {
        keys.push("vpc.amazonaws.com/efa");
    }
    if plan.hardware.arm {
        keys.push("kubernetes.io/arch");
    }
    let one = |it: &&str| format!("- key: {it}\n  operator: Exists\n  effect: NoSchedule\n");
    format!("tolerations:\n{}", keys.iter().map(one).collect::<String>())
}

/// Instance type, zone, nearness.
fn place(plan: &Plan) -> String {
    let mut text = String::new();
    let mut selectors = String::new();
    if plan.hardware.aws {
        selectors.push_str(&format!("  node.kubernetes.io/instance-type: {}\n", plan.hardware.name));
    }
    if let Some(zone) = &plan.zone {
        selectors.push_str(&format!("  topology.kubernetes.io/zone: {zone}\n"));
    }
    if !selectors.is_empty() {
        text.push_str(&format!("nodeSelector:\n{selectors}"));
    }
    text.push_str(&affinity(plan));
    text.push_str(&tolerations(plan));
    text
}

fn affinity(plan: &Plan) -> String {
    if plan.nodes == 1 || !plan.hardware.aws {
        return String::new();
    }
    let near = |key: &str| {
        format!(
            "topologyKey: {key}\nlabelSelector:\n  matchLabels:\n    app.kubernetes.io/name: {}\n",
            plan.name
        )
    };
    let item = |key: &str| format!("- {}", indent(&near(key), 2).trim_start());
    let mut required = String::new();
    if plan.zone.is_none() {
        required.push_str(if plan.efa > 0 {
            "# EFA does not cross zones: all pods in one, whichever it is.\n"
        } else {
            "# All pods in one zone, whichever it is: between zones traffic is slower and costs.\n"
        });
        required.push_str(&item("topology.kubernetes.io/zone"));
    }
    if plan.hardware.domain.is_some_and(|it| plan.nodes <= it) {
        required.push_str("# All pods in one domain of NVLink.\n");
        required.push_str(&item("nvidia.com/gpu.clique"));
    }
    let mut pods = String::new();
    if !required.is_empty() {
        pods.push_str(&format!("requiredDuringSchedulingIgnoredDuringExecution:\n{required}"));
    }
    if plan.efa > 0 {
        pods.push_str(&format!(
            "preferredDuringSchedulingIgnoredDuringExecution:\n# Below one switch, where nodes are labelled and there is room.\n\
             - weight: 100\n  podAffinityTerm:\n{}",
            indent(&near("topology.k8s.aws/network-node-layer-3"), 4)
        ));
    }
    if pods.is_empty() {
        return String::new();
    }
    format!("affinity:\n  podAffinity:\n{}", indent(&pods, 4))
}

/// A container after its name.
fn container(plan: &Plan, shape: Shape<'_>) -> String {
    let mut text = format!("image: {}\n", yaml(plan.image()));
    if !shape.command.is_empty() {
        text.push_str(&format!("command:\n{}", list(shape.command)));
    }
    if shape.environment {
        text.push_str(
            "# No variable is needed. To see transports and NICs with plumb doctor:\n# env:\n# - name: NCCL_DEBUG\n#   value: INFO\n",
        );
    }
    let resources = resources(plan);
    text.push_str("resources:\n");
    if fabric(plan) {
        text.push_str("  claims:\n  - name: imex\n");
    }
    if let Some(cpus) = plan.cpus() {
        text.push_str(&format!(
            "  requests:\n    cpu: {cpus}  # No limit: throttled data loaders starve GPUs.\n"
        ));
    } else {
        text.push_str("  requests:\n");
    }
    text.push_str(&indent(&resources, 4));
    text.push_str(&format!(
        "  limits:  # As requested: Kubernetes wants it so for devices and huge pages.\n{}",
        indent(&resources, 4)
    ));
    if plan.efa > 0 || (plan.nodes > 1 && plan.hardware.infiniband > 0) {
        text.push_str(
            "securityContext:\n  capabilities:\n    add: [IPC_LOCK]  # NICs lock memory; this lifts the node's memlock limit. \
             Nothing here needs privileged.\n",
        );
    }
    text.push_str("volumeMounts:\n- name: shm\n  mountPath: /dev/shm\n");
    text
}

/// What is requested and limited alike. The huge pages are those of AWS's own manifests
/// (awsome-distributed-ai, `micro-benchmarks/nccl-tests/kubernetes/nccl-tests.yaml`); nodes with the driver of EFA keep 5128 of them.
fn resources(plan: &Plan) -> String {
    let mut text = String::new();
    if let Some(memory) = plan.memory() {
        text.push_str(&format!("memory: {memory}Gi\n"));
    }
    if plan.efa > 0 {
        text.push_str("hugepages-2Mi: 5120Mi\n");
    }
    text.push_str(&format!("nvidia.com/gpu: {}\n", plan.gpus));
    if plan.efa > 0 {
        text.push_str(&format!("vpc.amazonaws.com/efa: {}\n", plan.efa));
    }
    text
}
