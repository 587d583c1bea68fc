//! NVSwitch, Fabric Manager and NVLink SHARP.

pub mod fabric_manager_not_running;
pub mod nvls_fabric_state;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[&fabric_manager_not_running::RULE, &nvls_fabric_state::RULE];
