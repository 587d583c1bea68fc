//! Peer to peer between GPUs, and GPUDirect between GPU and network.

pub mod acs_breaks_gdr;
pub mod dmabuf_unsupported;
pub mod gdr_disabled;
pub mod gdr_off_by_distance;
pub mod gpu_isolation_per_process;
pub mod gpu_registration_limit;
pub mod imex_channel_missing;
pub mod iommu_acs_p2p_hang;
mod machine;
pub mod nvlink_unused;
pub mod p2p_disabled_by_setting;
pub mod p2p_disabled_nvlink;
pub mod p2p_not_available_vm;
pub mod p2p_not_supported;
pub mod p2p_peer_limit;
pub mod p2p_unused;
pub mod shm_inside_node;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &acs_breaks_gdr::RULE,
    &dmabuf_unsupported::RULE,
    &gdr_disabled::RULE,
    &gdr_off_by_distance::RULE,
    &gpu_isolation_per_process::RULE,
    &gpu_registration_limit::RULE,
    &imex_channel_missing::RULE,
    &iommu_acs_p2p_hang::RULE,
    &nvlink_unused::RULE,
    &p2p_disabled_by_setting::RULE,
    &p2p_disabled_nvlink::RULE,
    &p2p_not_available_vm::RULE,
    &p2p_not_supported::RULE,
    &p2p_peer_limit::RULE,
    &p2p_unused::RULE,
    &shm_inside_node::RULE,
];
