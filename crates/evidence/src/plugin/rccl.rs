//! RCCL's plugin for AMD's network adapters, recognised by name.

use super::{Plugin, read_nothing};

/// `Loaded net plugin RCCL-ANP (v10)`
pub static ANP: Plugin = Plugin {
    name: "RCCL-ANP",
    networks: &["RCCL-ANP"],
    network: None,
    called: |_| "RoCE".to_owned(),
    prefix: "",
    read: read_nothing,
    variables: &[],
    lines: &[],
    source: "ROCm/rccl src/transport/net.cc (RCCL_ANP_PLUGIN_STR); ROCm/amd-anp",
};
