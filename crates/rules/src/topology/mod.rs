//! Topology files and machines without a topology.

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[];
