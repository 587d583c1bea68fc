//! The `trainer` of a `TrainJob` (Kubeflow Trainer v2): a container and its resources, without the pod around it, which a runtime provides.

use super::pod::{Found, Pod};
use crate::yaml::{NodeId, Tree};

/// Whether a mapping is such a trainer.
pub(super) fn is_trainer(tree: &Tree, node: NodeId) -> bool {
    let has = |name: &str| tree.get(node, name).is_some();
    has("resourcesPerNode") || (has("numNodes") && has("numProcPerNode"))
}

/// The pod of a trainer, as far as this file describes it.
pub(super) fn pod(tree: &Tree, root: NodeId, found: &Found) -> Pod {
    let mut pod = super::pod::of_containers(tree, root, found, &[found.spec]);
    pod.partial = true;
    pod.role = Some("trainer".into());
    pod.replicas = tree.get(found.spec, "numNodes").and_then(|it| tree.integer(it));
    for container in &mut pod.containers {
        container.limits = super::pod::resources(tree, found.spec, &["resourcesPerNode", "limits"]);
        container.requests = super::pod::resources(tree, found.spec, &["resourcesPerNode", "requests"]);
    }
    // What the job changes in the pods of its runtime.
    let overrides = ["podTemplateOverrides", "podSpecOverrides"];
    let lists = overrides.iter().filter_map(|it| tree.at(root, &["spec", it]));
    for item in lists.flat_map(|it| tree.items(it).iter().copied()) {
        let spec = tree.get(item, "spec").unwrap_or(item);
        pod.volumes.extend(super::pod::volumes(tree, spec));
        pod.selectors.extend(super::pod::selectors(tree, spec));
    }
    pod
}

#[cfg(test)]
mod tests {
    use crate::submission::Submission;

    #[test]
    fn a_trainer_is_a_pod_in_part() {
        let text = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: llama}\nspec:\n  runtimeRef: {name: torch}\n  trainer:\n\
                    \x20   numNodes: 16\n    numProcPerNode: 1\n    image: x\n    command: [torchrun, --nproc-per-node=1, t.py]\n    env:\n    - {name: NCCL_DEBUG, value: INFO}\n\
                    \x20   resourcesPerNode:\n      limits: {nvidia.com/gpu: 1, vpc.amazonaws.com/efa: 1}\n  podSpecOverrides:\n  - targetJobs: [{name: node}]\n    nodeSelector: {node.kubernetes.io/instance-type: p4d.24xlarge}\n";
        let it = Submission::read("t.yaml", text).unwrap();
        let (workload, pod) = it.pods().next().unwrap();
        assert_eq!((&*workload.kind, pod.partial, pod.replicas), ("TrainJob", true, Some(16)));
        let names: Vec<&str> = pod.containers[0].limits.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["nvidia.com/gpu", "vpc.amazonaws.com/efa"]);
        assert_eq!(pod.instances()[0].name, "p4d.24xlarge");
        assert_eq!((it.launches.len(), it.settings.len()), (1, 1));
    }
}
