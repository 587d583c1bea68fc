//! Rules of the family `launch`: commands that start ranks, against the GPUs and nodes they get.

mod exports_not_passed;
mod launcher_in_every_task;
mod launcher_on_one_node;
mod mpijob_slots;
mod nccl_tests_idle_factor;
mod nccl_tests_too_many_gpus;
pub(crate) mod nccl_tests_without_mpi;
mod processes_unlike_gpus;
mod ranks_unlike_nodes;
mod rendezvous_conflict;
mod sbatch_without_gpus;

use crate::Rule;

/// All of them.
pub(crate) static RULES: &[&Rule] = &[
    &exports_not_passed::RULE,
    &launcher_in_every_task::RULE,
    &launcher_on_one_node::RULE,
    &mpijob_slots::RULE,
    &nccl_tests_idle_factor::RULE,
    &nccl_tests_too_many_gpus::RULE,
    &processes_unlike_gpus::RULE,
    &ranks_unlike_nodes::RULE,
    &rendezvous_conflict::RULE,
    &sbatch_without_gpus::RULE,
];
