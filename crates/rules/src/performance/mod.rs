//! Paths that work and are slow.

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[];
