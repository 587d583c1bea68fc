//! InfiniBand and RoCE.

use super::Signal;
use crate::source::Kind;

/// A work request ended with an error.
pub static COMPLETION: Signal = Signal {
    name: "ib-completion-status",
    templates: &[
        "Got completion from peer {peer} with status={status} opcode",
        "Got completion from peer {peer} with error {status}",
        "Got completion with error {status}",
        "Got completion error {status}",
        "Got completion with status={status} opcode",
    ],
    source: "NCCL src/transport/net_ib.cc, all releases, and the HPC-X plugin; names of the status since 2.28.7",
    meaning: "An adapter reports that a transfer failed. 12 is a timeout, 5 follows from an earlier error.",
    kind: Kind::NcclLog,
};

/// The same as status 12, by UCX.
pub static RETRY_EXCEEDED: Signal = Signal {
    name: "ib-retry-exceeded",
    templates: &["Transport retry count exceeded on {device} (synd", "transport retry counter exceeded"],
    source: "UCX, Open MPI",
    meaning: "A peer's adapter did not answer.",
    kind: Kind::TrainingLog,
};

/// Something happened to an adapter or to its port.
pub static ASYNC_EVENT: Signal = Signal {
    name: "ib-async-event",
    templates: &[
        "NET/IB : Got async event : {event...}",
        "Got async event : {event...}",
        "Got async error event: {event...}",
        "async fatal event: {event...}",
        "async fatal event on {event...}",
        "Got non-fatal async event: {event...}",
        "IB Async event on {event...}",
    ],
    source: "NCCL src/transport/net_ib.cc: `Got async event` up to 2.22, the others since 2.23; UCX",
    meaning: "The verbs library reports an event of an adapter: a port went down, the adapter failed, the GID table changed.",
    kind: Kind::NcclLog,
};

/// The GID table changed.
pub static GID_TABLE_CHANGED: Signal = Signal {
    name: "gid-table-changed",
    templates: &["NET/IB : {device} GID table changed"],
    source: "NCCL src/transport/net_ib/common.cc, 2.30",
    meaning: "An address was added to or removed from a RoCE interface.",
    kind: Kind::NcclLog,
};

/// An adapter's health, by its driver.
pub static HCA_HEALTH: Signal = Signal {
    name: "hca-health",
    templates: &[
        "device's health compromised - reached miss count",
        "mlx5_core {device}: poll_health:{line}: Fatal error",
        "mlx5_core {device}: mlx5_error_sw_reset",
        "mlx5_core {device}: health_recover_work:{line}: handling bad device",
        "synd 0x1: firmware internal error",
        "mlx5_core {device}: Health issue observed, firmware internal error",
        "mlx5_core {device}: mlx5_fw_fatal_reporter_err_work",
        "mlx5_core {device}: mlx5_health_try_recover",
        "mlx4_core {device}: Internal error detected",
    ],
    source: "Linux drivers/net/ethernet/mellanox/mlx5/core/health.c and mlx4/catas.c",
    meaning: "The firmware of an adapter stopped working.",
    kind: Kind::KernelLog,
};

/// A link went down, by its driver.
pub static LINK_DOWN: Signal = Signal {
    name: "nic-link-down",
    templates: &[
        "mlx5_core {device}: Link down",
        "bnxt_en {device}: NIC Link is Down",
        "ice {device}: NIC Link is Down",
        "i40e {device}: NIC Link is Down",
        "Port module event[error]: {event...}",
        "Port module event: module {module}, Cable unplugged",
        "link status definitely down for interface {device}",
        "(slave {device}): link status definitely down",
    ],
    source: "Linux mlx5_core, bnxt_en, ice and i40e; bonding",
    meaning: "A port lost its link, or its cable or module reports an error.",
    kind: Kind::KernelLog,
};

/// A connection could not be set up.
pub static MODIFY_QP_FAILED: Signal = Signal {
    name: "modify-qp-failed",
    templates: &[
        "Call to ibv_modify_qp failed with error {reason...}",
        "Call to ibv_modify_qp failed with {number} {reason}, on dev {device}, {state...}",
        "Failed to modify QP to RTR: {reason...}",
        "Failed to modify QP to RTR, check mtu, gid, peer lid, peer qp num: {reason...}",
    ],
    source: "NCCL src/misc/ibvwrap.cc; with device and GIDs since 2.26; perftest, Mooncake",
    meaning: "The adapter rejected the address of the peer, or found no route to it.",
    kind: Kind::NcclLog,
};

/// The kind of a GID could not be read.
pub static GID_UNREADABLE: Signal = Signal {
    name: "gid-unreadable",
    templates: &[
        "NET/IB: read failed in ncclIbRoceGetVersionNum: {reason...}",
        "NET/IB: open failed in ncclIbRoceGetVersionNum: {reason...}",
    ],
    source: "NCCL src/transport/net_ib.cc, 2.21 to 2.25",
    meaning: "The search for the right GID found an entry that belongs to another container, and gave up.",
    kind: Kind::NcclLog,
};

/// An adapter is seen but cannot be opened.
pub static UNABLE_TO_OPEN: Signal = Signal {
    name: "unable-to-open-hca",
    templates: &["NET/IB : Unable to open device {device}", "Call to ibv_open_device failed"],
    source: "NCCL src/transport/net_ib.cc and src/misc/ibvwrap.cc",
    meaning: "/sys lists the adapter, but its device file cannot be opened.",
    kind: Kind::NcclLog,
};

/// A tool finds no adapter.
pub static NO_ADAPTERS: Signal = Signal {
    name: "no-ib-adapters",
    templates: &["No IB devices found", "0 HCAs found", "Unable to find the Infiniband/RoCE device"],
    source: "ibv_devinfo, perftest",
    meaning: "No RDMA adapter can be opened in this container or on this host.",
    kind: Kind::Notes,
};

/// The verbs library sees an adapter and has no driver for it.
pub static NO_USER_DRIVER: Signal = Signal {
    name: "no-verbs-driver",
    templates: &[
        "libibverbs: Warning: no userspace device-specific driver found for {path}",
        "libibverbs: Warning: couldn't open {path}",
    ],
    source: "rdma-core libibverbs",
    meaning: "/sys lists an adapter, but its device file or its library is not in this image.",
    kind: Kind::Notes,
};

/// Two adapters that cannot communicate with each other.
pub static INCOMPATIBLE_DEVICES: Signal = Signal {
    name: "incompatible-hcas",
    templates: &[
        "NET/IB : Attempted to connect incompatible devices: {devices...}",
        "NET/IB : Attempted to merge incompatible devices: {devices...}",
        "NET/IB : Remote {layer} device is incompatible with the local {device}",
        "NET/IB : Can't merge net devices with different link_layer",
        "NET/IB : Can't connect net devices with different link_layer",
        "NET/IB : Trying to merge multiple devices together with different link_layer",
    ],
    source: "NCCL src/transport/net_ib.cc, 2.19 and later",
    meaning: "The job uses InfiniBand and RoCE adapters together.",
    kind: Kind::NcclLog,
};

/// A receive request that does not match the send.
pub static SIZE_MISMATCH: Signal = Signal {
    name: "ib-size-mismatch",
    templates: &[
        "collective mismatch error, local size {local} remote size {remote}",
        "collective mismatch error local size {local} remote {remote} addr {address} rkey {rkey} seq {sequence}",
        "posted incorrect receive info: size {remote} addr {address} rkey",
    ],
    source: "NCCL src/transport/net_ib.cc; with addr, rkey and seq up to 2.11",
    meaning: "What the receiver announced does not match what the sender sends.",
    kind: Kind::NcclLog,
};

/// The write ordering of an adapter.
pub static WRITE_ORDERING: Signal = Signal {
    name: "pci-write-ordering",
    templates: &["PCI_WR_ORDERING {value...}", "PCI_WR_ORDERING={value...}", "PCI_WR_ORDERING: {value...}"],
    source: "mlxconfig query",
    meaning: "Whether an adapter may reorder its writes: per_mkey(0) or force_relax(1).",
    kind: Kind::Notes,
};

/// An entry of the GID table.
pub static GID_ENTRY: Signal = Signal {
    name: "gid-entry",
    templates: &["GID[{index}]: {gid...}"],
    source: "ibv_devinfo -v",
    meaning: "An address of a RoCE port.",
    kind: Kind::Notes,
};

/// No verbs library; normal where there is no InfiniBand.
pub static NO_VERBS_LIBRARY: Signal = Signal {
    name: "no-verbs-library",
    templates: &["Failed to open libibverbs.so"],
    source: "NCCL src/misc/ibvwrap.cc; a warning up to 2.12",
    meaning: "The library for InfiniBand is not installed; without InfiniBand it is not needed.",
    kind: Kind::NcclLog,
};

/// A consequence of an adapter that failed.
pub static ASYNC_EVENT_FAILED: Signal = Signal {
    name: "ib-async-event-failed",
    templates: &["Call to ibv_get_async_event failed"],
    source: "NCCL src/misc/ibvwrap.cc",
    meaning: "The thread that waits for events of an adapter ended.",
    kind: Kind::NcclLog,
};

/// One port of an adapter failed, and NCCL goes on over another.
pub static PORT_FAILED: Signal = Signal {
    name: "ib-port-failed",
    templates: &[
        "Device {device} marked as failed",
        "Marking device {device} as permanently failed",
        "The error is not fatal. Trying to continue",
    ],
    source: "NCCL src/transport/net_ib/p2p_resiliency.cc, 2.29 and later",
    meaning: "Port failover: a port of a fused adapter failed, and the transfers go over the other ports.",
    kind: Kind::NcclLog,
};

/// Port failover could not help.
pub static FAILOVER_EXHAUSTED: Signal = Signal {
    name: "ib-failover-exhausted",
    templates: &[
        "NET/IB: Fatal error. Detected {n} failed devices",
        "NET/IB: Maximum number of probing attempts ({n}) reached",
        "Maximum number of probing attempts ({n}) reached",
        "The error is fatal ({why}). Cannot continue",
        "No support for more than a single failed device",
    ],
    source: "NCCL src/transport/net_ib/p2p_resiliency.cc, 2.29 and later",
    meaning: "No port of the adapter is left that could carry the transfer.",
    kind: Kind::NcclLog,
};

/// A fatal event, repeated by the calls that use the adapter.
pub static FATAL_EVENT_REPEATED: Signal = Signal {
    name: "ib-fatal-event-repeated",
    templates: &["communicator encountered a fatal error (detected in {place})"],
    source: "NCCL src/transport/net_ib.cc, ncclIbStatsCheckFatalCount, 2.23 and later",
    meaning: "An adapter of this communicator reported a fatal event before.",
    kind: Kind::NcclLog,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[
    &COMPLETION,
    &PORT_FAILED,
    &FAILOVER_EXHAUSTED,
    &FATAL_EVENT_REPEATED,
    &RETRY_EXCEEDED,
    &ASYNC_EVENT,
    &GID_TABLE_CHANGED,
    &HCA_HEALTH,
    &LINK_DOWN,
    &MODIFY_QP_FAILED,
    &GID_UNREADABLE,
    &UNABLE_TO_OPEN,
    &NO_ADAPTERS,
    &NO_USER_DRIVER,
    &INCOMPATIBLE_DEVICES,
    &SIZE_MISMATCH,
    &WRITE_ORDERING,
    &GID_ENTRY,
    &NO_VERBS_LIBRARY,
    &ASYNC_EVENT_FAILED,
];
