//! Versions that do not fit each other.

pub mod nccl_version_mismatch;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[&nccl_version_mismatch::RULE];
