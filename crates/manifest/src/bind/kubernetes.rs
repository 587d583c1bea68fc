//! Kubernetes: the kubelet gives a container CPUs of its own, and aligns them with its GPUs. It does not know ranks.
//!
//! Exclusive CPUs need the static CPU manager, which needs CPUs reserved for the system, and a pod of the class Guaranteed with whole
//! CPUs (kubernetes.io/docs: "Control CPU Management Policies on the Node"). The topology manager aligns what device plugins report;
//! `single-numa-node` rejects a pod that does not fit on one node ("Control Topology Management Policies on a node").

use fabric::CpuSet;

use super::{Binding, Block, Pin, wrapper};

pub(super) fn blocks(binding: &Binding) -> Vec<Block> {
    let per_pod = binding.ranks.len() / (binding.pods.max(1) as usize);
    let mut blocks = vec![kubelet(binding, per_pod), pod(binding, per_pod)];
    // Which GPUs a pod gets is known only where it gets all of them.
    if binding.pods == 1 && per_pod > 1 && !binding.is_unknown() {
        let text = format!(
            "{}torchrun --nproc-per-node={per_pod} --no-python ./{} python -u train.py\n",
            wrapper::script(binding, "LOCAL_RANK"),
            wrapper::NAME
        );
        blocks.push(Block {
            title: "in the pod: the kubelet pins the container, not its ranks".to_owned(),
            text,
        });
    }
    blocks
}

/// Whether the GPUs of a pod can be on one NUMA node.
fn fits_a_node(binding: &Binding, per_pod: usize) -> bool {
    let Some(nodes) = binding.ranks.iter().map(|it| it.numa).collect::<Option<Vec<_>>>() else {
        return false;
    };
    nodes.iter().all(|node| {
        let there = nodes.iter().filter(|it| *it == node).count();
        there >= per_pod && there.is_multiple_of(per_pod.max(1))
    })
}

/// CPUs for the system: the first core of the machine, with all its threads where they are known.
fn reserved(binding: &Binding) -> CpuSet {
    let zero = |it: &&CpuSet| it.iter().next() == Some(0);
    let cpus = binding.ranks.iter().find_map(|it| match &it.pin {
        Pin::Cpus(cpus) => Some(cpus).filter(zero),
        Pin::Node(_) | Pin::Unknown => None,
    });
    // Every range of a rank's CPUs begins with a thread of its first core.
    cpus.map(CpuSet::firsts).or_else(|| CpuSet::parse("0")).unwrap_or_default()
}

fn kubelet(binding: &Binding, per_pod: usize) -> Block {
    let policy =
        if fits_a_node(binding, per_pod) && binding.pods > 1 { "single-numa-node" } else { "best-effort" };
    let reserved = reserved(binding);
    let text = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\n\
         kind: KubeletConfiguration\n\
         cpuManagerPolicy: static\n\
         reservedSystemCPUs: \"{reserved}\"\n\
         topologyManagerPolicy: {policy}\n\
         topologyManagerScope: pod\n"
    );
    let title =
        "kubelet of the node: drain it, delete /var/lib/kubelet/cpu_manager_state, restart the kubelet"
            .to_owned();
    Block { title, text }
}

fn pod(binding: &Binding, per_pod: usize) -> Block {
    let pods = binding.pods.max(1) as usize;
    // One core for the system, one for the pods of daemonsets. An even number, so that no core has threads of two pods.
    let left = |all: &CpuSet| all.len().saturating_sub(2 * reserved(binding).len());
    let cpus = binding.all.as_ref().map(|it| left(it) / pods / 2 * 2).filter(|it| *it > 0);
    let cpu = cpus.map_or_else(|| "CPUS  # a whole number".to_owned(), |it| format!("\"{it}\""));
    let amounts = format!("    cpu: {cpu}\n    memory: MEMORY\n    nvidia.com/gpu: {per_pod}\n");
    let text = format!("resources:\n  requests:\n{amounts}  limits:\n{amounts}");
    let title =
        "every container of the pod: equal requests and limits, whole CPUs (QoS class Guaranteed)".to_owned();
    Block { title, text }
}
