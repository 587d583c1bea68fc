//! Peer to peer and GPUDirect.

use super::Signal;

/// All signals of this family.
pub static ALL: &[&Signal] = &[];
