//! Network plugins that NCCL opened and could not use.

use super::Signal;
use crate::source::Kind;

/// A library has no interface of a version that this NCCL knows.
pub static PLUGIN_UNSUPPORTED: Signal = Signal {
    name: "net-plugin-unsupported",
    templates: &[
        "External network plugin {library} is unsupported",
        "NET/Plugin: Failed to find ncclNetPlugin{version} symbol",
    ],
    source: "NCCL src/net.cc 2.12 to 2.26, src/plugin/net/net_v6.cc to 2.27, src/plugin/net.cc since 2.28",
    meaning: "The library has no network interface of this version. NCCL then looks for an older version.",
    kind: Kind::NcclLog,
};

/// A network was opened and could not be started.
pub static PLUGIN_NOT_STARTED: Signal = Signal {
    name: "net-plugin-not-started",
    templates: &["Failed to initialize NET plugin {name...}"],
    source: "NCCL src/plugin/net.cc, 2.28 and later",
    meaning: "A network found no device, or its plugin could not be started. NCCL goes on with the next. `IB` here is normal on machines \
              without RDMA adapters.",
    kind: Kind::NcclLog,
};

/// All signals of this file.
pub static ALL: &[&Signal] = &[&PLUGIN_UNSUPPORTED, &PLUGIN_NOT_STARTED];
