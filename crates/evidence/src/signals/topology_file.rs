//! Topology files and machines without a topology.

use super::Signal;

/// All signals of this family.
pub static ALL: &[&Signal] = &[];
