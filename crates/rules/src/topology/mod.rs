//! Topology files and machines without a topology.

pub mod topo_file_emptied;
pub mod topo_file_malformed;
pub mod topo_file_missing;
pub mod topo_too_many_nodes;
pub mod vm_no_topology;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &topo_file_emptied::RULE,
    &topo_file_malformed::RULE,
    &topo_file_missing::RULE,
    &topo_too_many_nodes::RULE,
    &vm_no_topology::RULE,
];
