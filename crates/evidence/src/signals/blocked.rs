//! Peers that cannot be reached, names that cannot be resolved, ports that are taken.

use super::Signal;

/// All signals of this family.
pub static ALL: &[&Signal] = &[];
