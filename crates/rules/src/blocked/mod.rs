//! Peers that cannot be reached, names that cannot be resolved, ports that are taken.

pub mod dns_master_addr;
pub(crate) mod failures;
pub mod firewall_blocks_ports;
pub mod master_port_in_use;
pub mod peer_unreachable;
pub mod stranger_connected;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &dns_master_addr::RULE,
    &firewall_blocks_ports::RULE,
    &master_port_in_use::RULE,
    &peer_unreachable::RULE,
    &stranger_connected::RULE,
];
