//! Rules about what pods request: GPUs, EFA interfaces, huge pages, and whether the machine has them.

mod cost;
mod efa_count_impossible;
mod efa_count_low;
mod efa_count_wasteful;
mod efa_on_type_without_efa;
mod efa_resource_missing;
mod gpu_count_impossible;
mod gpu_request_without_limit;
mod hugepages_missing;
mod hugepages_refused;
mod one_gpu_pods;
mod partial_node_affinity;
mod requests_unlike_limits;
mod resource_misspelt;

#[cfg(test)]
pub(super) mod testing;

use crate::Rule;

/// All of them.
pub(crate) static RULES: &[&Rule] = &[
    &efa_count_impossible::RULE,
    &efa_count_low::RULE,
    &efa_count_wasteful::RULE,
    &efa_on_type_without_efa::RULE,
    &efa_resource_missing::RULE,
    &gpu_count_impossible::RULE,
    &gpu_request_without_limit::RULE,
    &hugepages_missing::RULE,
    &hugepages_refused::RULE,
    &one_gpu_pods::RULE,
    &partial_node_affinity::RULE,
    &requests_unlike_limits::RULE,
    &resource_misspelt::RULE,
];

#[cfg(test)]
mod tests {
    use super::RULES;
    use super::testing::job;
    use crate::lint::testing::{findings, quiet};
    use crate::lint::{cluster, devices};

    #[test]
    fn whole_machines_with_all_they_have_are_right() {
        for it in fabric::instance::all().iter().filter(|it| it.efa()) {
            let limits = format!(
                "nvidia.com/gpu: {}\nhugepages-2Mi: 5120Mi\nvpc.amazonaws.com/efa: {}\nmemory: 32000Mi",
                it.gpus, it.nics
            );
            for name in [it.name.clone(), format!("ml.{}", it.name)] {
                let text = job(2, &name, &limits);
                devices::RULES.iter().chain(cluster::RULES).for_each(|rule| quiet(rule, &text));
            }
        }
    }

    #[test]
    fn a_part_of_a_train_job_has_its_known_faults() {
        let text = "trainer:\n  numNodes: 16\n  numProcPerNode: 1\n  resourcesPerNode:\n    limits:\n      nvidia.com: \"1\"\n      vpc.amazonaws.com: \"1\"\n";
        let found: Vec<&str> =
            RULES.iter().flat_map(|rule| findings(rule, text).into_iter().map(|_| rule.id)).collect();
        assert_eq!(found, ["hugepages-missing", "one-gpu-pods", "resource-misspelt", "resource-misspelt"]);
    }

    #[test]
    fn the_pod_of_the_notes_has_its_known_faults() {
        let text = include_str!("../../../../../cases/p4d-pod-spec/pod.yaml");
        let found: Vec<&str> =
            RULES.iter().flat_map(|rule| findings(rule, text).into_iter().map(|_| rule.id)).collect();
        assert_eq!(found, ["efa-count-wasteful"]);
    }
}
