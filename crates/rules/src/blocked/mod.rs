//! Peers and names that cannot be reached.

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[];
