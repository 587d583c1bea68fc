//! NVSwitch, Fabric Manager, NVLink SHARP, IMEX.

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[];
