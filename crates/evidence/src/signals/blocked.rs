//! Peers that cannot be reached, names that cannot be resolved, ports in use.

use super::Signal;
use crate::source::Kind;

/// A rank gave up on a connection.
pub static CONNECT_FAILED: Signal = Signal {
    name: "connect-failed",
    templates: &[
        "Connect to {peer} failed : {reason...}",
        "connect to {peer} failed : {reason...}",
        "socketPollConnect: Connect to {peer} returned {number}({reason}) errno",
        "Connect to {peer} returned {number}({reason}) errno",
        "connect to {peer} returned {reason}, exceeded error retry count",
        "connect returned {reason}, exceeded error retry count",
        "socketPollConnect to {peer} failed with error {reason...}",
        "ncclOsSocketPollConnect to {peer} failed with error {reason...}",
        "Call to connect failed : {reason...}",
        "Call to connect timeout : {reason...}",
        "socketStartConnect: exceeded {limit} (",
        "socketPollConnect: exceeded {limit} (",
    ],
    source: "NCCL src/include/socket.h up to 2.13, src/misc/socket.cc up to 2.28, src/os/linux.cc later",
    meaning: "A TCP connection to another rank could not be opened.",
    kind: Kind::NcclLog,
};

/// A connection is tried again.
pub static CONNECT_RETRIED: Signal = Signal {
    name: "connect-retried",
    templates: &[
        "connect to {peer} returned {reason}, retrying ({attempt}/{limit})",
        "connect returned {reason}, retrying ({attempt}/{limit})",
        "Call to connect returned {reason}, retrying",
    ],
    source: "NCCL src/misc/socket.cc",
    meaning: "A TCP connection failed and NCCL retries it; a few retries are normal while ranks start.",
    kind: Kind::NcclLog,
};

/// An open connection failed.
pub static CONNECTION_LOST: Signal = Signal {
    name: "connection-lost-reason",
    templates: &[
        "Call to recv from {peer} failed : {reason...}",
        "Call to send to {peer} failed : {reason...}",
        "Call to recv failed : {reason...}",
    ],
    source: "NCCL src/misc/socket.cc",
    meaning: "A TCP connection to another rank broke.",
    kind: Kind::NcclLog,
};

/// A connection of Open MPI or Gloo failed.
pub static OTHER_CONNECT_FAILED: Signal = Signal {
    name: "other-connect-failed",
    templates: &[
        "connect() to {peer} failed: {reason...}",
        "Message:    connect() to {peer} failed",
        "SO_ERROR: {reason}, remote=[{peer}]",
        "pair.cc:{line}] connect [{peer}]:{port}: {reason...}",
        "ssh: connect to host {peer} port {port}: {reason...}",
    ],
    source: "Open MPI btl_tcp_endpoint.c, Gloo transport/tcp/pair.cc, ssh as launchers use it",
    meaning: "A TCP connection between two hosts of the job could not be opened.",
    kind: Kind::TrainingLog,
};

/// A packet filter that refuses.
pub static FIREWALL_RULE: Signal = Signal {
    name: "firewall-rule",
    templates: &[
        "reject-with icmp-host-prohibited",
        "reject-with icmp-port-unreachable",
        "Chain INPUT (policy DROP",
        "firewalld.service - firewalld - dynamic firewall daemon",
        "ufw status: active",
    ],
    source: "iptables -L, systemctl status firewalld",
    meaning: "A packet filter is active on the host.",
    kind: Kind::Notes,
};

/// PyTorch cannot resolve the name of the master.
pub static NAME_NOT_RESOLVED: Signal = Signal {
    name: "name-not-resolved",
    templates: &["addresses of ({host}, {port}) cannot be retrieved (gai error: {code} - {reason})"],
    source: "PyTorch torch/csrc/distributed/c10d/socket.cpp, 1.10 and later",
    meaning: "A name has no address yet; PyTorch looks it up again until the timeout.",
    kind: Kind::TrainingLog,
};

/// An unknown name, as an error.
pub static HOST_NOT_FOUND: Signal = Signal {
    name: "host-not-found",
    templates: &[
        "host not found: {reason...}",
        "Could not resolve hostname {host}: {reason...}",
        "Net : error encountered when getting address info : {reason...}",
        "DNS resolution failed for {host}",
    ],
    source: "PyTorch up to 1.9, ssh, NCCL src/misc/socket.cc (NCCL_COMM_ID), gRPC in JAX and TensorFlow",
    meaning: "A name could not be resolved and the program gave up.",
    kind: Kind::TrainingLog,
};

/// A name that Python could not resolve; downloads fail with the same message.
pub static GAI_ERROR: Signal = Signal {
    name: "gai-error",
    templates: &["socket.gaierror: [Errno {code}] {reason...}"],
    source: "Python",
    meaning: "A name could not be resolved, for the job or for a download.",
    kind: Kind::TrainingLog,
};

/// A tool could not resolve a name.
pub static LOOK_UP_FAILED: Signal = Signal {
    name: "look-up-failed",
    templates: &["nslookup: can't resolve '{host}'", "** server can't find {host}: NXDOMAIN"],
    source: "nslookup, as in the init container of a PyTorchJob",
    meaning: "A name has no address yet.",
    kind: Kind::TrainingLog,
};

/// The client of PyTorch's store gave up.
pub static CLIENT_TIMED_OUT: Signal = Signal {
    name: "client-timed-out",
    templates: &[
        "The client socket has timed out after {time} while trying to connect to ({host}, {port})",
        "The client socket has timed out after {time} while trying to connect to {host}:{port}",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/socket.cpp",
    meaning: "The master could not be reached before the timeout.",
    kind: Kind::TrainingLog,
};

/// The client of PyTorch's store tried every address of the master.
pub static CLIENT_GAVE_UP: Signal = Signal {
    name: "client-gave-up",
    templates: &[
        "The client socket has failed to connect to any network address of ({host}, {port})",
        "RendezvousConnectionError: The connection to the C10d store has failed",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/socket.cpp, torch/distributed/elastic/rendezvous",
    meaning: "The master could not be reached at any of its addresses.",
    kind: Kind::TrainingLog,
};

/// The client of PyTorch's store tries again.
pub static CLIENT_FAILED: Signal = Signal {
    name: "client-failed",
    templates: &["The client socket has failed to connect to {peer} (errno: {code} - {reason})"],
    source: "PyTorch torch/csrc/distributed/c10d/socket.cpp",
    meaning: "One attempt to reach the master failed; errno 99 and 111 are normal while it starts.",
    kind: Kind::TrainingLog,
};

/// A port that another process uses.
pub static PORT_IN_USE: Signal = Signal {
    name: "port-in-use",
    templates: &[
        "The server socket has failed to listen on any local network address. port: {port}, useIpv6: {v6}, code: {code}, name: EADDRINUSE",
        "The server socket has failed to bind to {address} (errno: 98 - Address already in use)",
        "The server socket has failed to listen on {address} (errno: 98 - Address already in use)",
        "name: EADDRINUSE",
        "The server socket has failed to bind to {address} (system error: 10048 - ",
        "(errno: 48 - Address already in use)",
        "Tried to launch distributed communication on port `{port}`, but another process is utilizing it",
        "RuntimeError: Address already in use",
        "[Errno 98] Address already in use",
        "ZMQError: Address already in use",
        "Could not start gRPC server",
        "EADDRINUSE: address already in use {address}",
        "Call to bind failed : Address already in use",
        "Call to bind failed: Address already in use",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/socket.cpp and TCPStore, Accelerate, Python, ZeroMQ, gRPC, NCCL; macOS says 48, Windows 10048",
    meaning: "A server could not open its port: another process listens there.",
    kind: Kind::TrainingLog,
};

/// The master's name in the settings.
pub static MASTER_ADDR: Signal = Signal {
    name: "master-addr",
    templates: &[
        "MASTER_ADDR={host}",
        "MASTER_ADDR: {host}",
        "--master_addr={host}",
        "--master_addr {host}",
        "--master-addr={host}",
        "--master-addr {host}",
        "rdzv_endpoint={host}",
    ],
    source: "settings and commands",
    meaning: "Names the host that all ranks connect to.",
    kind: Kind::Notes,
};

/// Something that is not a rank of this job connected.
pub static STRANGER: Signal = Signal {
    name: "stranger-connected",
    templates: &[
        "socketFinalizeAccept: wrong magic {got} != {want}",
        "socketFinalizeAccept from {peer}: wrong magic {got} != {want}",
        "[Service thread] Unknown command {command} from localRank {rank}",
    ],
    source: "NCCL src/misc/socket.cc, 2.16 to 2.26; src/proxy.cc, 2.12 and later",
    meaning: "Bytes that no rank of this job sends arrived at a port of NCCL.",
    kind: Kind::NcclLog,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[
    &CONNECT_FAILED,
    &CONNECT_RETRIED,
    &CONNECTION_LOST,
    &OTHER_CONNECT_FAILED,
    &FIREWALL_RULE,
    &NAME_NOT_RESOLVED,
    &HOST_NOT_FOUND,
    &GAI_ERROR,
    &LOOK_UP_FAILED,
    &CLIENT_TIMED_OUT,
    &CLIENT_GAVE_UP,
    &CLIENT_FAILED,
    &PORT_IN_USE,
    &MASTER_ADDR,
    &STRANGER,
];
