//! Memory, shared memory, files, locked memory.

use super::Signal;

/// All signals of this family.
pub static ALL: &[&Signal] = &[];
