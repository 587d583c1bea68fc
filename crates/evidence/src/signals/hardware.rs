//! GPUs and links that fail.

use super::Signal;

/// All signals of this family.
pub static ALL: &[&Signal] = &[];
