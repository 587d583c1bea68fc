//! TCP: NCCL's own transport.

use fabric::Network;

use super::{Plugin, read_nothing};

/// `Using network Socket`
pub static BUILT_IN: Plugin = Plugin {
    name: "NCCL's socket transport",
    networks: &["Socket"],
    network: Some(Network::Socket),
    called: |_| "TCP sockets".to_owned(),
    prefix: "",
    read: read_nothing,
    variables: &[],
    lines: &[],
    source: "NCCL src/transport/net_socket.cc",
};
