//! Environment variables, wherever they are set: names that nothing reads, values with another meaning, settings that cost performance or
//! fail.

mod debugging_left_on;
mod default_restated;
mod duplicate_variable;
mod forced_choice;
mod gpudirect_turned_off;
mod loopback_interface;
mod objections;
mod omp_threads_unset;
mod p2p_turned_off;
mod pointless_with_efa;
mod secret_in_env;
mod setting_aborts;
mod tcp_forced;
mod topology_dropped;
mod value_ignored;
mod value_other_meaning;
mod variable_removed;
mod variable_too_new;
mod variable_unknown;

pub use objections::{Objection, objections};

use crate::Rule;

/// All of them.
pub(crate) static RULES: &[&Rule] = &[
    &debugging_left_on::RULE,
    &default_restated::RULE,
    &duplicate_variable::RULE,
    &forced_choice::RULE,
    &gpudirect_turned_off::RULE,
    &loopback_interface::RULE,
    &omp_threads_unset::RULE,
    &p2p_turned_off::RULE,
    &pointless_with_efa::RULE,
    &secret_in_env::RULE,
    &setting_aborts::RULE,
    &tcp_forced::RULE,
    &topology_dropped::RULE,
    &value_ignored::RULE,
    &value_other_meaning::RULE,
    &variable_removed::RULE,
    &variable_too_new::RULE,
    &variable_unknown::RULE,
];

/// What tests of this family share.
#[cfg(test)]
mod testing {
    /// A pod of 8 GPUs on an instance type, with EFA, in a job of this many.
    pub(super) fn job(instance: &str, replicas: u32, env: &[(&str, &str)]) -> String {
        let mut text = format!(
            "kind: Job\nspec:\n  parallelism: {replicas}\n  template:\n    spec:\n      nodeSelector:\n        node.kubernetes.io/instance-type: {instance}\n      containers:\n      - name: train\n        image: mine\n        resources:\n          limits:\n            nvidia.com/gpu: 8\n            vpc.amazonaws.com/efa: 1\n        env:\n        - name: HOME\n          value: /root\n"
        );
        for (name, value) in env {
            text.push_str(&format!("        - name: {name}\n          value: \"{value}\"\n"));
        }
        text
    }

    /// A pod of which nothing is known.
    pub(super) fn pod(env: &[(&str, &str)]) -> String {
        let mut text = "kind: Pod\nspec:\n  containers:\n  - name: train\n    env:\n    - name: HOME\n      value: /root\n".to_owned();
        for (name, value) in env {
            text.push_str(&format!("    - name: {name}\n      value: \"{value}\"\n"));
        }
        text
    }
}
