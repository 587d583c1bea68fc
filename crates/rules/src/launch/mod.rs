//! How ranks are started and given GPUs.

pub mod cpu_binding_mpirun;
pub mod duplicate_gpu;
pub mod more_ranks_than_gpus;
pub mod nccl_tests_without_mpi;
pub mod rank_never_joined;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &cpu_binding_mpirun::RULE,
    &duplicate_gpu::RULE,
    &more_ranks_than_gpus::RULE,
    &nccl_tests_without_mpi::RULE,
    &rank_never_joined::RULE,
];
