//! Network interfaces of the setup and of sockets.

pub(crate) mod address;
pub mod bootstrap_on_wrong_interface;
pub mod comm_id_not_local;
pub mod docker_bridge_network;
pub mod hostname_collision;
pub mod loopback_interface_used;
pub mod routing_same_subnet_two_nics;
pub mod socket_ifname_mismatch;
pub mod socket_ifname_not_found;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &bootstrap_on_wrong_interface::RULE,
    &comm_id_not_local::RULE,
    &docker_bridge_network::RULE,
    &hostname_collision::RULE,
    &loopback_interface_used::RULE,
    &routing_same_subnet_two_nics::RULE,
    &socket_ifname_mismatch::RULE,
    &socket_ifname_not_found::RULE,
];
