//! How ranks are started and given GPUs.

pub mod duplicate_gpu;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[&duplicate_gpu::RULE];
