//! Limits of memory, shared memory, files and locked memory.

pub mod fd_limit;
pub mod gpu_oom_in_nccl;
pub mod host_oom_kill;
pub mod memlock_limit;
pub mod shm_not_shared;
pub mod shm_not_writable;
pub mod shm_too_small;
pub mod thread_limit;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &fd_limit::RULE,
    &gpu_oom_in_nccl::RULE,
    &host_oom_kill::RULE,
    &memlock_limit::RULE,
    &shm_not_shared::RULE,
    &shm_not_writable::RULE,
    &shm_too_small::RULE,
    &thread_limit::RULE,
];
