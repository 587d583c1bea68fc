//! RDMA ports and network interfaces, with the counters that count errors.

use std::collections::BTreeMap;
use std::path::Path;

use evidence::node::{Interface, RdmaPort};
use evidence::topology::nic_kind;
use fabric::machine::{BusId, NicKind};

use super::name_of;
use crate::network::AMAZON;
use crate::sysfs::{Sysfs, device_of, entries, text};

/// Counters that count errors or their consequences: those of `ports/N/counters` that every driver has, and those of `hw_counters` of
/// mlx5 and EFA. What counts traffic, or answers to congestion, is not here.
const ERRORS: &[&str] = &[
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_rcv_constraint_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
    "VL15_dropped",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "implied_nak_seq_err",
    "duplicate_request",
    "rx_icrc_encapsulated",
    "req_cqe_error",
    "resp_cqe_error",
    "req_remote_access_errors",
    "resp_remote_access_errors",
    "rx_drops",
    "retrans_timeout_events",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
    "rdma_read_wr_err",
    "rdma_write_wr_err",
    "cmds_err",
    "no_completion_cmds",
    "create_qp_err",
    "create_cq_err",
    "reg_mr_err",
    "alloc_pd_err",
    "create_ah_err",
    "mmap_err",
];

pub(super) fn rdma(sysfs: &Sysfs, root: &Path) -> Option<Vec<RdmaPort>> {
    if !root.join("sys/class").exists() {
        return None;
    }
    let mut found = Vec::new();
    for (device, path) in sysfs.members("infiniband") {
        let bus = device_of(&path.join("device"));
        let efa = bus.and_then(|it| sysfs.attribute(it, "vendor")).as_deref() == Some(AMAZON);
        for folder in entries(&path.join("ports")) {
            let Some(port) = name_of(&folder).and_then(|it| it.parse().ok()) else { continue };
            let kind = match text(&folder.join("link_layer")).as_deref() {
                _ if efa => NicKind::Efa,
                Some("InfiniBand") => NicKind::InfiniBand,
                Some("Ethernet") => NicKind::Roce,
                _ => nic_kind(&device),
            };
            let mut counters = BTreeMap::new();
            for group in [folder.join("counters"), folder.join("hw_counters"), path.join("hw_counters")] {
                for name in ERRORS {
                    if let Some(count) = text(&group.join(name)).and_then(|it| it.parse::<u64>().ok()) {
                        counters.entry((*name).to_owned()).or_insert(count);
                    }
                }
            }
            found.push(RdmaPort {
                device: device.clone(),
                port,
                kind: said(kind).to_owned(),
                bus: bus.map(shown),
                state: text(&folder.join("state")).map(|it| after_colon(&it)),
                physical: text(&folder.join("phys_state")).map(|it| after_colon(&it)),
                // `100 Gb/sec (4X EDR)`
                gbps: text(&folder.join("rate"))
                    .and_then(|it| it.split_whitespace().next()?.parse().ok())
                    .filter(|it: &f64| *it > 0.0 && it.is_finite()),
                firmware: text(&path.join("fw_ver")),
                peer_memory: text(&path.join("device/p2p")),
                counters: u32::try_from(counters.len()).unwrap_or(u32::MAX),
                errors: counters.into_iter().filter(|it| it.1 > 0).collect(),
            });
        }
    }
    Some(found)
}

fn said(kind: NicKind) -> &'static str {
    match kind {
        NicKind::Efa => "efa",
        NicKind::InfiniBand => "infiniband",
        NicKind::Roce => "roce",
        _ => "other",
    }
}

/// `4: ACTIVE`
fn after_colon(text: &str) -> String {
    text.split(':').next_back().unwrap_or_default().trim().to_owned()
}

pub(super) fn shown(bus: BusId) -> String {
    bus.to_string()
}

/// Counters of an interface that count errors.
const INTERFACE_ERRORS: &[&str] = &[
    "rx_errors",
    "tx_errors",
    "rx_crc_errors",
    "rx_missed_errors",
    "rx_fifo_errors",
    "rx_length_errors",
    "tx_carrier_errors",
    "tx_dropped",
    "rx_dropped",
];

pub(super) fn interfaces(sysfs: &Sysfs, root: &Path) -> Option<Vec<Interface>> {
    if !root.join("sys/class/net").exists() {
        return None;
    }
    // /sys shows the network namespace in which it was mounted, /proc that of this process.
    let own = sysfs.read("proc/self/net/dev").or_else(|| sysfs.read("proc/net/dev"));
    let own: Option<Vec<&str>> = own
        .as_deref()
        .map(|it| it.lines().filter_map(|it| it.split_once(':')).map(|it| it.0.trim()).collect());
    let ours = |name: &str| name != "lo" && own.as_ref().is_none_or(|it| it.contains(&name));
    let interface = |(name, path): (String, std::path::PathBuf)| {
        let count = |it: &&str| {
            let count = text(&path.join("statistics").join(it))?.parse::<u64>().ok()?;
            Some(((*it).to_owned(), count)).filter(|it| it.1 > 0)
        };
        // -1 where the driver does not say.
        let megabits = text(&path.join("speed")).and_then(|it| it.parse::<f64>().ok());
        Interface {
            physical: path.join("device").exists(),
            state: text(&path.join("operstate")),
            mtu: text(&path.join("mtu")).and_then(|it| it.parse().ok()),
            gbps: megabits.filter(|it| *it > 0.0 && it.is_finite()).map(|it| it / 1000.0),
            bus: device_of(&path.join("device")).map(shown),
            errors: INTERFACE_ERRORS.iter().filter_map(count).collect(),
            name,
        }
    };
    Some(sysfs.members("net").into_iter().filter(|it| ours(&it.0) && it.1.is_dir()).map(interface).collect())
}
