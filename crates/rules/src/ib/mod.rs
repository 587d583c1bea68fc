//! InfiniBand and `RoCE`.

pub(crate) mod blame;
pub mod hca_fatal_error;
pub mod ib_device_not_in_container;
pub mod ib_fabric_fault;
pub mod ib_hca_selection;
pub mod ib_link_flap;
pub mod ib_port_failover;
pub mod nic_relaxed_ordering_forced;
pub mod peer_rejected_rdma;
pub mod rdma_flushed;
pub mod rdma_receiver_not_ready;
pub mod rdma_transfer_failed;
pub mod roce_fabric_unreachable;
pub mod roce_gid_index;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &hca_fatal_error::RULE,
    &ib_device_not_in_container::RULE,
    &ib_fabric_fault::RULE,
    &ib_hca_selection::RULE,
    &ib_link_flap::RULE,
    &ib_port_failover::RULE,
    &nic_relaxed_ordering_forced::RULE,
    &peer_rejected_rdma::RULE,
    &rdma_flushed::RULE,
    &rdma_receiver_not_ready::RULE,
    &rdma_transfer_failed::RULE,
    &roce_fabric_unreachable::RULE,
    &roce_gid_index::RULE,
];
