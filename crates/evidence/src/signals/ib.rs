//! InfiniBand and RoCE.

use super::Signal;

/// All signals of this family.
pub static ALL: &[&Signal] = &[];
