//! EFA and the aws-ofi-nccl plugin.

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[];
