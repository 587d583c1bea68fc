//! GPUs and links that fail.

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[];
