//! Network interfaces of the setup and of sockets.

use super::Signal;
use crate::source::Kind;

/// No interface matches the request.
pub static NO_SOCKET_INTERFACE: Signal = Signal {
    name: "no-socket-interface",
    templates: &[
        "Bootstrap : no socket interface found",
        "NET/Socket : no interface found",
        "NET/IB : No IP interface found",
        "Socket creation failed : Address family not supported by protocol",
        "no device found matching {name}, verify NCCL_OOB_NET_IFNAME",
        "no device found after excluding {name}, verify NCCL_OOB_NET_IFNAME",
    ],
    source: "NCCL src/bootstrap.cc and src/transport/net_*.cc, 2.4 and later; up to 2.3 the socket without an address fails; \
             NCCL_OOB_NET_IFNAME since 2.23",
    meaning: "No interface has the requested name, or none that has it has an address.",
    kind: Kind::NcclLog,
};

/// The same for Gloo, which PyTorch uses beside NCCL.
pub static GLOO_NO_INTERFACE: Signal = Signal {
    name: "gloo-no-interface",
    templates: &[
        "Unable to find address for: {name}",
        "Unable to find interface for: {name}",
        "unable to find interface {name}",
    ],
    source: "Gloo transport/tcp/device.cc",
    meaning: "GLOO_SOCKET_IFNAME names an interface that the host does not have, or that has no address.",
    kind: Kind::TrainingLog,
};

/// `NCCL_COMM_ID` names an address in no local subnet.
pub static NO_INTERFACE_IN_SUBNET: Signal = Signal {
    name: "no-interface-in-subnet",
    templates: &[
        "Net : No interface found in the same subnet as remote address {address}",
        "NET/Socket : No usable listening interface found",
    ],
    source: "NCCL src/misc/socket.cc and src/bootstrap.cc, with NCCL_COMM_ID",
    meaning: "No local interface is in the subnet of the address in NCCL_COMM_ID.",
    kind: Kind::NcclLog,
};

/// The interfaces, as old releases list them.
pub static OLD_INTERFACE: Signal = Signal {
    name: "old-interface",
    templates: &["NET : Using interface {name}:{address}<"],
    source: "NCCL 2.2 and 2.3",
    meaning: "An interface that is used for the setup and for sockets.",
    kind: Kind::NcclLog,
};

/// The interfaces with their distance, as old releases list them.
pub static OLD_INTERFACES: Signal = Signal {
    name: "old-interfaces",
    templates: &[", IP Interfaces : {list...}"],
    source: "NCCL 2.2 and 2.3",
    meaning: "The interfaces that sockets use, with their distance from a GPU.",
    kind: Kind::NcclLog,
};

/// Gloo found no better address than loopback.
pub static GLOO_LOOPBACK: Signal = Signal {
    name: "gloo-loopback",
    templates: &["Unable to resolve hostname to a (local) address. Using the loopback"],
    source: "PyTorch ProcessGroupGloo.cpp",
    meaning: "The host name has no address of its own; Gloo announces 127.0.0.1 to other hosts.",
    kind: Kind::TrainingLog,
};

/// Gloo's ranks could not reach each other.
pub static GLOO_MESH_FAILED: Signal = Signal {
    name: "gloo-mesh-failed",
    templates: &["Gloo connectFullMesh failed"],
    source: "PyTorch ProcessGroupGloo.cpp, 1.13 and later",
    meaning: "A rank could not connect to another at the address that Gloo announced.",
    kind: Kind::TrainingLog,
};

/// A container in a separate network.
pub static DOCKER_RUN: Signal = Signal {
    name: "docker-run-network",
    templates: &["docker run {arguments...}"],
    source: "pasted commands",
    meaning: "Starts a container; its network decides which hosts can reach it.",
    kind: Kind::Notes,
};

/// A route to a directly connected subnet.
pub static LINK_ROUTE: Signal = Signal {
    name: "link-route",
    templates: &[" dev {device} proto kernel scope link {rest...}", "255.{mask} U {rest...}"],
    source: "ip route; route -n",
    meaning: "Packets for this subnet leave by this interface.",
    kind: Kind::Notes,
};

/// An address of an interface.
pub static INTERFACE_ADDRESS: Signal = Signal {
    name: "interface-address",
    templates: &["inet {address} scope global {rest...}"],
    source: "ip addr",
    meaning: "An interface has this address and this subnet.",
    kind: Kind::Notes,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[
    &NO_SOCKET_INTERFACE,
    &GLOO_NO_INTERFACE,
    &NO_INTERFACE_IN_SUBNET,
    &OLD_INTERFACE,
    &OLD_INTERFACES,
    &GLOO_LOOPBACK,
    &GLOO_MESH_FAILED,
    &DOCKER_RUN,
    &LINK_ROUTE,
    &INTERFACE_ADDRESS,
];
