//! Versions that do not match.

pub mod config_mismatch_between_ranks;
pub mod cuda_driver_too_old;
pub mod driver_library_mismatch;
pub mod nccl_algorithm_unavailable;
pub mod nccl_too_old_for_gpu;
pub mod nccl_version_mismatch;
pub mod wsl_unsupported_nccl;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &config_mismatch_between_ranks::RULE,
    &cuda_driver_too_old::RULE,
    &driver_library_mismatch::RULE,
    &nccl_algorithm_unavailable::RULE,
    &nccl_too_old_for_gpu::RULE,
    &nccl_version_mismatch::RULE,
    &wsl_unsupported_nccl::RULE,
];
