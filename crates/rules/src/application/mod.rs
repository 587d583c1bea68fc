//! What the program does: collectives that differ, timeouts, training settings.

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[];
