//! EFA, libfabric and aws-ofi-nccl.

use super::Signal;

/// All signals of this family.
pub static ALL: &[&Signal] = &[];
