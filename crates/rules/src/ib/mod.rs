//! InfiniBand and RoCE.

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[];
