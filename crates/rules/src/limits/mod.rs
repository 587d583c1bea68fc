//! Memory, shared memory, open files, locked memory.

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[];
