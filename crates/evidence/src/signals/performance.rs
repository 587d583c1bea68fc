//! Bandwidth: counters and settings of the network.

use super::Signal;
use crate::source::Kind;

/// Counters of lost or repeated packets.
pub static LOST_PACKETS: Signal = Signal {
    name: "roce-lost-packets",
    templates: &[
        "out_of_sequence: {count}",
        "out_of_sequence {count}",
        "packet_seq_err: {count}",
        "packet_seq_err {count}",
        "rx_discards_phy: {count}",
        "rx_out_of_buffer: {count}",
        "tx_discards_phy: {count}",
        "roce_adp_retrans: {count}",
        "local_ack_timeout_err: {count}",
        "local_ack_timeout_err {count}",
    ],
    source: "ethtool -S, rdma -p statistic show, /sys/class/infiniband/*/ports/*/hw_counters of mlx5",
    meaning: "The network dropped packets, and they were sent again.",
    kind: Kind::Notes,
};

/// Counters of congestion.
pub static CONGESTION_COUNTERS: Signal = Signal {
    name: "roce-congestion-counters",
    templates: &[
        "np_cnp_sent: {count}",
        "np_cnp_sent {count}",
        "rp_cnp_handled: {count}",
        "rp_cnp_handled {count}",
        "np_ecn_marked_roce_packets: {count}",
        "np_ecn_marked_roce_packets {count}",
        "rx_pause_ctrl_phy: {count}",
        "rx_global_pause: {count}",
        "rx_prio3_pause: {count}",
        "rx_prio5_pause: {count}",
        "tx_prio3_pause: {count}",
        "tx_prio5_pause: {count}",
    ],
    source: "ethtool -S, rdma -p statistic show, hw_counters of mlx5",
    meaning: "Switches marked packets or paused senders.",
    kind: Kind::Notes,
};

/// Flow control is off.
pub static FLOW_CONTROL_OFF: Signal = Signal {
    name: "roce-flow-control-off",
    templates: &[
        "RX:\t\toff",
        "TX:\t\toff",
        "PFC is not enabled",
        "PFC not enabled",
        "PFC disabled",
        "without PFC",
        "no PFC",
        "enabled     0   0   0   0   0   0   0   0",
        "enabled\t0\t0\t0\t0\t0\t0\t0\t0",
    ],
    source: "ethtool -a, mlnx_qos -i, notes",
    meaning: "Neither pause frames nor priority flow control protect RDMA traffic.",
    kind: Kind::Notes,
};

/// The network is Ethernet with RDMA.
pub static ROCE_NAMED: Signal = Signal {
    name: "roce-named",
    templates: &[
        "RoCE v2",
        "RoCEv2",
        "RoCE network",
        "Roce network",
        "RoCE fabric",
        "RoCE NIC",
        "over RoCE",
        "link_layer:\t\tEthernet",
        "link_layer:\t\t\tEthernet",
        "link_layer: Ethernet",
        "Link layer: Ethernet",
        "transport: RoCE",
    ],
    source: "ibv_devinfo, ibstat, notes",
    meaning: "RDMA runs over Ethernet, which drops packets unless flow control is on.",
    kind: Kind::Notes,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[&LOST_PACKETS, &CONGESTION_COUNTERS, &FLOW_CONTROL_OFF, &ROCE_NAMED];
