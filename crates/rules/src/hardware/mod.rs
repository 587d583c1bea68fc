//! GPUs and links that fail.

pub mod gpu_ecc_error;
pub mod gpu_fell_off_bus;
pub mod nvlink_fault;
pub(crate) mod xid;
pub mod xid_reported;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] =
    &[&gpu_ecc_error::RULE, &gpu_fell_off_bus::RULE, &nvlink_fault::RULE, &xid_reported::RULE];
