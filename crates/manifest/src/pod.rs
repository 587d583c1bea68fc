//! The pod that runs the ranks, the same in every kind.

use crate::Variable;
use crate::plan::Plan;
use crate::text::{indent, list, unexpanded, yaml};

/// What differs between kinds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shape<'a> {
    /// The container name that the operator expects.
    pub(crate) container: &'a str,
    /// Its command; empty to use that of the image or the operator.
    pub(crate) command: &'a [String],
    /// The headless Service of its DNS name.
    pub(crate) subdomain: Option<&'a str>,
    /// `restartPolicy`, if it is set on the pod.
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
        spec.push_str(&format!("subdomain: {subdomain}  # Gives every pod a DNS name.\n"));
    }
    spec.push_str(&place(plan));
    spec.push_str(&format!("containers:\n- name: {}\n", shape.container));
    spec.push_str(&indent(&container(plan, shape), 2));
    spec.push_str(&format!(
        "volumes:\n- name: shm\n  emptyDir:\n    medium: Memory  # The default of 64 MiB is too small for NCCL and data loaders. Data stored here counts as memory of the pod.\n    sizeLimit: {}Gi\n",
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

/// The words of a command, escaped against Kubernetes' variable expansion.
pub(crate) fn literal(words: &[String]) -> Vec<String> {
    words.iter().map(|it| unexpanded(it)).collect()
}

/// `name` and, if given, `namespace`, for `metadata`.
pub(crate) fn metadata(plan: &Plan, name: &str) -> String {
    match &plan.namespace {
        Some(namespace) => format!("  name: {name}\n  namespace: {namespace}\n"),
        None => format!("  name: {name}\n"),
    }
}

/// `labels` with the queue that starts all pods or none; a comment if there is no queue.
pub(crate) fn queue(plan: &Plan) -> String {
    match &plan.queue {
        Some(queue) => {
            format!("  labels:\n    kueue.x-k8s.io/queue-name: {queue}  # Kueue starts all pods or none.\n")
        }
        None if plan.nodes == 1 => String::new(),
        None => {
            "  # Without a queue that starts all pods or none, part of the job can hold GPUs while it waits for the rest.\n  \
                 # labels:\n  #   kueue.x-k8s.io/queue-name: QUEUE\n"
                .to_owned()
        }
    }
}

/// Machines whose `NVLink` reaches beyond one node need a `ComputeDomain` and an IMEX channel.
pub(crate) fn domain(plan: &Plan) -> String {
    if !fabric(plan) {
        return String::new();
    }
    format!(
        "# NVLink between nodes: the NVIDIA DRA driver starts IMEX on them and gives each pod a channel.\n\
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

/// Tolerations for the usual taints of GPU nodes.
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

/// Instance type, zone and pod affinity.
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
            "# EFA does not cross zones: all pods must be in the same zone, whichever it is.\n"
        } else {
            "# All pods in the same zone, whichever it is: traffic between zones is slower and billed.\n"
        });
        required.push_str(&item("topology.kubernetes.io/zone"));
    }
    if plan.hardware.domain.is_some_and(|it| plan.nodes <= it) {
        required.push_str("# All pods in one NVLink domain.\n");
        required.push_str(&item("nvidia.com/gpu.clique"));
    }
    let mut pods = String::new();
    if !required.is_empty() {
        pods.push_str(&format!("requiredDuringSchedulingIgnoredDuringExecution:\n{required}"));
    }
    if plan.efa > 0 {
        pods.push_str(&format!(
            "preferredDuringSchedulingIgnoredDuringExecution:\n# Preferably below one network switch, if the nodes have this label.\n\
             - weight: 100\n  podAffinityTerm:\n{}",
            indent(&near("topology.k8s.aws/network-node-layer-3"), 4)
        ));
    }
    if pods.is_empty() {
        return String::new();
    }
    format!("affinity:\n  podAffinity:\n{}", indent(&pods, 4))
}

/// The fields of a container after its name.
fn container(plan: &Plan, shape: Shape<'_>) -> String {
    let mut text = format!("image: {}\n", yaml(plan.image()));
    if !shape.command.is_empty() {
        text.push_str(&format!("command:\n{}", list(shape.command)));
    }
    if shape.environment {
        let other = plan.other_variables();
        if plan.variables.is_empty() {
            text.push_str(&format!(
                "# {other} To check transports and NICs with plumb doctor:\n# env:\n# - name: NCCL_DEBUG\n#   value: INFO\n"
            ));
        } else {
            text.push_str("env:\n");
            for Variable { name, value, why } in &plan.variables {
                text.push_str(&format!("# {why}\n- name: {name}\n  value: {}\n", yaml(value)));
            }
            text.push_str(&format!(
                "# {other} To check transports and NICs with plumb doctor:\n# - name: NCCL_DEBUG\n#   value: INFO\n"
            ));
        }
    }
    let resources = resources(plan);
    text.push_str("resources:\n");
    if fabric(plan) {
        text.push_str("  claims:\n  - name: imex\n");
    }
    if let Some(cpus) = plan.cpus() {
        text.push_str(&format!(
            "  requests:\n    cpu: {cpus}  # No limit: throttling slows down data loaders.\n"
        ));
    } else {
        text.push_str("  requests:\n");
    }
    text.push_str(&indent(&resources, 4));
    text.push_str(&format!(
        "  limits:  # Equal to the requests: Kubernetes requires this for devices and huge pages.\n{}",
        indent(&resources, 4)
    ));
    if plan.efa > 0 || (plan.nodes > 1 && plan.hardware.infiniband > 0) {
        text.push_str(
            "securityContext:\n  capabilities:\n    add: [IPC_LOCK]  # RDMA locks memory; this lifts the memlock limit. The pod does not need to be privileged.\n",
        );
    }
    text.push_str("volumeMounts:\n- name: shm\n  mountPath: /dev/shm\n");
    text
}

/// Requests that equal their limits. The huge pages are those of AWS's own manifests
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
