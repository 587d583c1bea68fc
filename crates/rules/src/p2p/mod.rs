//! Peer to peer inside a node, and GPUDirect RDMA.

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[];
