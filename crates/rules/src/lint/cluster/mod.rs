//! Rules about where pods run: instance types, zones, node pools, gang scheduling.

mod instance_type_missing;
mod instance_type_unknown;
mod mixed_instance_types;
mod no_gang_scheduling;
mod node_pool;
mod nodepool_many_zones;
mod nodepool_without_efa;
mod spread_over_zones;

use crate::Rule;

/// All of them.
pub(crate) static RULES: &[&Rule] = &[
    &instance_type_missing::RULE,
    &instance_type_unknown::RULE,
    &mixed_instance_types::RULE,
    &no_gang_scheduling::RULE,
    &nodepool_many_zones::RULE,
    &nodepool_without_efa::RULE,
    &spread_over_zones::RULE,
];
