//! InfiniBand and RoCE: NCCL's own transport, and the plugins of HPC-X.

use fabric::Network;

use super::{Plugin, read_nothing};
use crate::Process;
use crate::nccl::LinkLayer;

/// `Using network IB`
pub static BUILT_IN: Plugin = Plugin {
    name: "NCCL's InfiniBand transport",
    networks: &["IB"],
    network: Some(Network::Ib),
    called,
    prefix: "",
    read: read_nothing,
    variables: &[],
    lines: &[],
    source: "NCCL src/transport/net_ib.cc",
};

/// `Loaded net plugin NCCL RDMA Plugin v11`, then `Using network IBext_v11`.
pub static RDMA_SHARP: Plugin = Plugin {
    name: "nccl-rdma-sharp-plugins",
    networks: &["IBext", "NCCL RDMA Plugin"],
    network: Some(Network::Ib),
    called,
    prefix: "",
    read: read_nothing,
    variables: &["NCCL_IBEXT_", "NCCL_SHARP_", "NCCL_PLUGIN_"],
    lines: &[],
    source: "Mellanox/nccl-rdma-sharp-plugins src/p2p_plugin.c; NVIDIA/nccl issue 676; NVIDIA HPC-X, NCCL-RDMA-SHARP plugins (variables)",
};

/// `Using network UCX`
pub static UCX: Plugin = Plugin {
    name: "nccl-rdma-sharp-plugins with UCX",
    networks: &["UCX"],
    network: Some(Network::Ib),
    called: |_| "UCX".to_owned(),
    prefix: "",
    read: read_nothing,
    variables: &["NCCL_UCX_"],
    lines: &[],
    source: "NVIDIA HPC-X, NCCL-RDMA-SHARP plugins (NCCL_PLUGIN_P2P=ucx)",
};

fn called(processes: &[Process]) -> String {
    let mut adapters = processes.iter().flat_map(|it| it.facts.hcas.iter()).flat_map(|it| &it.value);
    if adapters.any(|it| it.layer == LinkLayer::RoCE) { "RoCE" } else { "InfiniBand" }.to_owned()
}
