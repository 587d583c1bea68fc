//! NVSwitch, Fabric Manager, NVLink SHARP, IMEX.

use super::Signal;

/// All signals of this family.
pub static ALL: &[&Signal] = &[];
