//! EFA, libfabric and aws-ofi-nccl.

use super::Signal;
use crate::source::Kind;

/// Libfabric offers no EFA device.
pub static NO_EFA_DEVICE: Signal = Signal {
    name: "efa-no-device",
    templates: &[
        "OFI fi_getinfo() call failed: No data available",
        "NET/OFI No eligible providers were found",
        "fi_getinfo: -61",
        "fi_getinfo: provider efa returned -61",
        "fi_info -p efa: -61",
        "fi_info -p efa returned -61",
    ],
    source: "aws-ofi-nccl 1.9 to 1.14.0, then 1.14.1 and later; fi_info; libfabric at level info",
    meaning: "This process sees no EFA device.",
    kind: Kind::NcclLog,
};

/// The plugin found no provider it can use.
pub static NO_PROVIDER: Signal = Signal {
    name: "efa-no-provider",
    templates: &[
        "NET/OFI Couldn't find any optimal provider",
        "NET/OFI Could not find any optimal provider",
        "NET/OFI Only EFA provider is supported",
        "EFA libfabric provider not detected",
        "fi_getinfo: provider efa output empty list",
    ],
    source: "aws-ofi-nccl 0.9 to 1.8; efa_installer.sh; libfabric src/fabric.c at level warn",
    meaning: "The plugin was loaded, but libfabric has no EFA provider for it.",
    kind: Kind::NcclLog,
};

/// The provider that the plugin uses.
pub static PROVIDER: Signal = Signal {
    name: "ofi-provider",
    templates: &["NET/OFI Selected Provider is {name}", "NET/OFI Selected provider is {name}"],
    source: "aws-ofi-nccl, all releases",
    meaning: "The libfabric provider in use; efa on a machine with EFA.",
    kind: Kind::NcclLog,
};

/// The plugin gave up.
pub static PLUGIN_FAILED: Signal = Signal {
    name: "ofi-plugin-failed",
    templates: &[
        "NET/OFI aws-ofi-nccl initialization failed",
        "NET/OFI Unable to find a protocol that worked.",
        "NET/OFI Failed to initialize sendrecv protocol",
        "NET/OFI Failed to initialize rdma protocol",
        "NET/OFI OFI NCCL failure: {code}",
    ],
    source: "aws-ofi-nccl 1.1.4 and later",
    meaning: "The plugin was loaded but could not start; NCCL then tries InfiniBand and sockets.",
    kind: Kind::NcclLog,
};

/// A plugin, or a library it needs, is missing.
pub static PLUGIN_LOAD: Signal = Signal {
    name: "net-plugin-load",
    templates: &[
        "NET/Plugin : dlerror={library}: cannot open shared object file",
        "NET/Plugin : Plugin load ({plugin}) returned {errno} : {library}: cannot open shared object file",
        "NET/Plugin: Plugin load returned {errno} : {library}: cannot open shared object file",
        "NET/Plugin : Plugin load returned {errno} : {library}: cannot open shared object file",
        "NET/Plugin: {library}: cannot open shared object file",
        "Unable to load {plugin} : {library}: cannot open shared object file",
    ],
    source: "NCCL src/net.cc 2.3 to 2.22, src/plugin/plugin_open.cc 2.23 and later",
    meaning: "The dynamic linker did not find the plugin, or did not find a library it needs.",
    kind: Kind::NcclLog,
};

/// No plugin was found; normal without EFA.
pub static NO_PLUGIN: Signal = Signal {
    name: "net-plugin-absent",
    templates: &[
        "NET/Plugin : No plugin found",
        "NET/Plugin: No plugin found",
        "No plugin found ({plugin})",
        "NET/Plugin: Could not find: {plugin}",
        "Unable to load libnccl-net.so",
    ],
    source: "NCCL src/net.cc, src/plugin/plugin_open.cc, all releases",
    meaning: "NCCL uses its own networks. Harmless unless the machine needs a plugin.",
    kind: Kind::NcclLog,
};

/// A network that was requested by name is missing.
pub static NETWORK_REFUSED: Signal = Signal {
    name: "net-refused",
    templates: &["Error: network {name} not found", "Failed to initialize any NET plugin"],
    source: "NCCL src/net.cc up to 2.26, src/plugin/net.cc 2.27 and later",
    meaning: "No network could start: NCCL_NET names one that no plugin provides, or none works in this container.",
    kind: Kind::NcclLog,
};

/// A library is older than what was linked against it.
pub static LIBRARY_VERSION: Signal = Signal {
    name: "library-version",
    templates: &[
        "version `{symbol}' not found (required by {library})",
        "version '{symbol}' not found (required by {library})",
    ],
    source: "the dynamic linker of glibc",
    meaning: "A library in the search path is older than the one the plugin was built with.",
    kind: Kind::NcclLog,
};

/// A library the plugin needs is missing.
pub static LIBRARY_MISSING: Signal = Signal {
    name: "efa-library-missing",
    templates: &[
        "libhwloc.so{version}: cannot open shared object file",
        "libfabric.so{version}: cannot open shared object file",
        "libefa.so{version}: cannot open shared object file",
        "libnccl-ofi-tuner.so: cannot open shared object file",
    ],
    source: "the dynamic linker of glibc",
    meaning: "libnccl-net.so was found, but not a library it needs.",
    kind: Kind::NcclLog,
};

/// A symbol the plugin needs is not in the library that was loaded.
pub static LIBRARY_SYMBOL: Signal = Signal {
    name: "library-symbol",
    templates: &[
        "libnccl-net{file}: undefined symbol: {symbol}",
        "libfabric.so{file}: undefined symbol: {symbol}",
    ],
    source: "the dynamic linker of glibc",
    meaning: "The plugin and a library it uses are of different releases.",
    kind: Kind::NcclLog,
};

/// Libfabric does not know a request of the plugin.
pub static LIBFABRIC_TOO_OLD: Signal = Signal {
    name: "libfabric-too-old",
    templates: &[
        "EFA provider requires at least libfabric version {version}",
        "NET/OFI Couldn't set FI_OPT_E",
        "NET/OFI Disabling shared memory failed: {reason...}",
        "and FI_OPT_CUDA_API_PERMITTED is not declared.",
        "NET/OFI Couldn't get FI_OPT_EFA_EMULATED_WRITE",
        "FI_OPT_EFA_EMULATED_WRITE not declared when the communication protocol is RDMA write",
        "NET/OFI Failed to find CUDA Runtime library",
    ],
    source: "aws-ofi-nccl: versions 1.8 and later; options 1.7.0 to 1.7.2; shared memory 1.10 and later",
    meaning: "The libfabric that was loaded is older than the plugin expects, or the CUDA runtime is not found.",
    kind: Kind::NcclLog,
};

/// libibverbs is not in the image.
pub static NO_VERBS: Signal = Signal {
    name: "no-libibverbs",
    templates: &["Failed to open libibverbs.so[.1]", "Failed to open libibverbs.so.1"],
    source: "NCCL src/misc/ibvwrap.cc; a warning up to 2.17",
    meaning: "NCCL's own InfiniBand code cannot be used. Harmless without InfiniBand.",
    kind: Kind::NcclLog,
};

/// GPUDirect RDMA does not work where the plugin insists on it.
pub static GPUDIRECT_REFUSED: Signal = Signal {
    name: "efa-gpudirect-refused",
    templates: &[
        "NET/OFI GDR disabled on GDR-supported instance type {type}",
        "NET/OFI GDR support reported to NCCL but then couldn't be configured",
    ],
    source: "aws-ofi-nccl 1.7.4 and later; 1.7.0 and later",
    meaning: "EFA cannot reach GPU memory although this machine supports it.",
    kind: Kind::NcclLog,
};

/// The provider stopped a process that forked.
pub static FORK_UNSAFE: Signal = Signal {
    name: "efa-fork-unsafe",
    templates: &[
        "the libfabric EFA provider is operating in",
        "the Libfabric EFA provider is operating in",
        "For the libfabric EFA provider to work safely when fork()",
        "For the Libfabric EFA provider to work safely when fork()",
        "Using libibverbs fork support and huge pages is not supported by the EFA provider",
        "The usage of huge page is incompatible with rdma-core's fork support",
    ],
    source: "libfabric prov/efa, 1.10 and later",
    meaning: "The program called fork() while EFA was in use without fork support; the provider ends it.",
    kind: Kind::TrainingLog,
};

/// `fork()` found no memory.
pub static FORK_NO_MEMORY: Signal = Signal {
    name: "fork-no-memory",
    templates: &[
        "OSError: [Errno 12] Cannot allocate memory",
        "OSError: [Errno 12]",
        "fork: Cannot allocate memory",
        "fork(): Cannot allocate memory",
    ],
    source: "Python, shells",
    meaning: "The kernel could not copy the process.",
    kind: Kind::TrainingLog,
};

/// The line of a traceback that forks.
pub static FORK_CALL: Signal = Signal {
    name: "fork-call",
    templates: &["self.pid = os.fork()", "pid = os.fork()", "_MultiProcessingDataLoaderIter(self)"],
    source: "tracebacks of Python's multiprocessing and of PyTorch's DataLoader",
    meaning: "The failure happened while a worker process was started.",
    kind: Kind::TrainingLog,
};

/// A data loader's worker crashed.
pub static WORKER_CRASHED: Signal = Signal {
    name: "worker-crashed",
    templates: &[
        "is killed by signal: Segmentation fault",
        "Unexpected segmentation fault encountered in worker",
        "Unable to write to EQ: Missing or unavailable event queue",
    ],
    source: "PyTorch DataLoader; libfabric before 1.9",
    meaning: "A forked process used memory that no longer belonged to it.",
    kind: Kind::TrainingLog,
};

/// Libfabric could not prepare CUDA memory of NCCL 2.19.
pub static SYNC_MEMOPS: Signal = Signal {
    name: "efa-sync-memops",
    templates: &[
        "Failed to perform cuPointerSetAttribute: CUDA_ERROR_NOT_SUPPORTED",
        "unable to set memops for cuda ptr",
        "core:core:cuda_set_sync_memops():{line}<warn>",
    ],
    source: "libfabric src/hmem_cuda.c, prov/efa/src/efa_mr.c before EFA installer 1.29.1",
    meaning: "This libfabric cannot register memory from cuMem allocations.",
    kind: Kind::NcclLog,
};

/// GPU memory could not be registered.
pub static REGISTER_FAILED: Signal = Signal {
    name: "efa-register-failed",
    templates: &[
        "Unable to register memory (type = {type}) for device {device}. RC: {code}, Error: {error...}",
    ],
    source: "aws-ofi-nccl 1.1.0 and later",
    meaning: "Libfabric refused a buffer: type 1 is host memory, type 2 GPU memory.",
    kind: Kind::NcclLog,
};

/// A library names the security group as the cause.
pub static SECURITY_GROUP_SAID: Signal = Signal {
    name: "efa-security-group-said",
    templates: &[
        "This error indicates that the security group on either this instance",
        "most often due to incorrect inbound/outbound",
        "incorrect inbound/outbound rules in the security group",
        "The peer is not reachable by the EFA device.",
    ],
    source: "aws-ofi-nccl 1.21; libfabric prov/efa/src/efa_strerror.c 1.18 and later",
    meaning: "EFA packets to the peer never arrive.",
    kind: Kind::NcclLog,
};

/// A peer never answered over EFA.
pub static EFA_UNREACHABLE: Signal = Signal {
    name: "efa-unreachable",
    templates: &[
        "NET/OFI Unable to insert remote address into address vector",
        "NET/OFI CM: Unable to insert remote address into address vector",
        "Unable to insert remote address into address vector for device",
        "completed with error. RC: 20.",
        "prov_err: Not a directory (20)",
        "completed with error. RC: 113.",
        "completed with error: err: 113,",
        "Unreachable remote (never received a response)",
        "Unreachable remote - never received a response",
        "Unresponsive receiver. ",
        "Unresponsive remote - detected locally",
        "Unresponsive remote (detected locally)",
    ],
    source: "aws-ofi-nccl, all releases; libfabric prov/efa 1.10 and later",
    meaning: "The ranks exchange addresses over TCP, but the EFA packets do not arrive.",
    kind: Kind::NcclLog,
};

/// A transfer failed and its line does not say why.
pub static EFA_REQUEST_FAILED: Signal = Signal {
    name: "efa-request-failed",
    templates: &[
        "NET/OFI Operation with NULL context completed with error",
        "NET/OFI Remote write completed with error",
        "NET/OFI Request {request} completed with error",
        "NET/OFI Fatal: rx buffer recv completed with error",
        "NET/OFI Fatal: Bounce buffer recv completed with error",
    ],
    source: "aws-ofi-nccl 1.3 and later",
    meaning: "EFA reports that a transfer did not complete.",
    kind: Kind::NcclLog,
};

/// An endpoint could not be created.
pub static ENDPOINT_FAILED: Signal = Signal {
    name: "efa-endpoint-failed",
    templates: &[
        "NET/OFI Creating new endpoint for domain {domain} failed: {reason...}",
        "NET/OFI Couldn't enable endpoint. RC: {code}",
    ],
    source: "aws-ofi-nccl 1.0 and later",
    meaning: "Libfabric rejected the plugin's request for an endpoint.",
    kind: Kind::NcclLog,
};

/// A container that was started by hand.
pub static DOCKER_RUN: Signal = Signal {
    name: "docker-run",
    templates: &["docker run {options...}"],
    source: "shell",
    meaning: "Devices that are not named here are not in the container.",
    kind: Kind::Notes,
};

/// A peer answered before and no longer does.
pub static EFA_PEER_GONE: Signal = Signal {
    name: "efa-peer-gone",
    templates: &[
        "Unresponsive remote (was previously responsive)",
        "Unresponsive receiver (connection previously established)",
        "Unresponsive receiver (reachable by EFA device but handshake failed)",
        "typically encountered when the peer process is no longer present",
        "Bad queue pair (QP) number (QP does not exist or is in error state)",
        "Invalid receiver queue pair number (QPN)",
        "Connection was reset by remote peer",
        "Receiver connection aborted",
    ],
    source: "libfabric prov/efa/src/efa_errno.h 1.20.1 and later",
    meaning: "The process on the other side ended, or its machine failed.",
    kind: Kind::NcclLog,
};

/// A peer's address belongs to another network.
pub static INVALID_TAG: Signal = Signal {
    name: "ofi-invalid-tag",
    templates: &["NET/OFI Received an invalid tag {tag} for device {device}"],
    source: "aws-ofi-nccl 1.0 to 1.15",
    meaning: "The handle of a peer was not written by the same plugin and protocol.",
    kind: Kind::NcclLog,
};

/// A peer uses a different number of EFA devices for one connection.
pub static RAILS_DIFFER: Signal = Signal {
    name: "ofi-rails-differ",
    templates: &[
        "NET/OFI Unexpected number of remote rails for dev {device}. Expected {counts...}",
        "NET/OFI Unexpected number of remote control rails for dev {device}. Expected {counts...}",
        "NET/OFI Unexpected number of remote rails",
    ],
    source: "aws-ofi-nccl 1.7 and later",
    meaning: "The handle of a peer names a different number of EFA devices than this side has.",
    kind: Kind::NcclLog,
};

/// A connection of another network arrived.
pub static WRONG_SOCKET: Signal = Signal {
    name: "wrong-socket-type",
    templates: &[
        "socketFinalizeAccept: wrong type {got} != {want}",
        "socketFinalizeAccept from {peer}: wrong type {got} != {want}",
        "wrong socket type (peer {got} != expected {want}",
    ],
    source: "NCCL src/misc/socket.cc 2.16 and later; 3 is NET/Socket, 4 is NET/IB",
    meaning: "The two ends of a connection chose different networks.",
    kind: Kind::NcclLog,
};

/// Ranks have different numbers of adapters.
pub static MIXED_DEVICE_COUNTS: Signal = Signal {
    name: "mixed-device-counts",
    templates: &[
        "Detected mixed local Net device counts across ranks (min {min}, max {max})",
        "Detected mixed local CollNet device counts across ranks (min {min}, max {max})",
    ],
    source: "NCCL src/init.cc 2.30 and later",
    meaning: "Some ranks see more network devices than others.",
    kind: Kind::NcclLog,
};

/// A network named on a line that has lost its prefix.
pub static NETWORK_QUOTED: Signal = Signal {
    name: "network-quoted",
    templates: &["Using network {name...}"],
    source: "NCCL src/init.cc, quoted",
    meaning: "The network a rank chose.",
    kind: Kind::NcclLog,
};

/// Sockets named on a line that has lost its prefix.
pub static SOCKET_QUOTED: Signal = Signal {
    name: "socket-quoted",
    templates: &["NET/Socket: Using [", "NET/Socket : Using ["],
    source: "NCCL src/transport/net_socket.cc, quoted",
    meaning: "NCCL set up its TCP network.",
    kind: Kind::NcclLog,
};

/// The platform on a line that has lost its prefix.
pub static PLATFORM_QUOTED: Signal = Signal {
    name: "platform-quoted",
    templates: &["NET/OFI Running on {type} platform"],
    source: "aws-ofi-nccl 1.1 and later",
    meaning: "The machine, as the plugin names it.",
    kind: Kind::NcclLog,
};

/// A machine of AWS that has EFA, named in a note. Its texts are the names in the catalogue, see [`Signal::texts`].
pub static MACHINE_NAMED: Signal = Signal {
    name: "machine-named",
    templates: &[],
    source: "notes, node names, node selectors",
    meaning: "Names a machine that has EFA.",
    kind: Kind::Notes,
};

/// The instance types that have EFA.
pub(super) fn machine_names() -> impl Iterator<Item = &'static str> {
    fabric::instance::all().iter().filter(|it| it.efa()).map(|it| it.name.as_str())
}

/// Families of machines, named in a note.
pub static FAMILY_NAMED: Signal = Signal {
    name: "machine-family-named",
    templates: &["instance types: {types...}", "instance type: {types...}", "Instance type: {types...}"],
    source: "notes",
    meaning: "Names the machines of a cluster.",
    kind: Kind::Notes,
};

/// A setting for EFA.
pub static EFA_SETTING: Signal = Signal {
    name: "efa-setting",
    templates: &[
        "FI_PROVIDER=efa",
        "FI_PROVIDER: efa",
        "\"FI_PROVIDER\": \"efa\"",
        "FI_EFA_{name}={value}",
        "vpc.amazonaws.com/efa",
        "LD_PRELOAD={path}aws-ofi-nccl",
        "EFA-enabled",
        "EFA enabled",
        "(EFA)",
        "with EFA",
    ],
    source: "shell, sbatch, mpirun -x, YAML",
    meaning: "The job should use EFA.",
    kind: Kind::Notes,
};

/// The search path for libraries.
pub static LIBRARY_PATH: Signal = Signal {
    name: "library-path",
    templates: &["LD_LIBRARY_PATH={path}", "LD_LIBRARY_PATH: {path}"],
    source: "shell, Dockerfiles, YAML",
    meaning: "The directories that are searched for libnccl-net.so.",
    kind: Kind::Notes,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[
    &NO_EFA_DEVICE,
    &NO_PROVIDER,
    &PROVIDER,
    &PLUGIN_FAILED,
    &PLUGIN_LOAD,
    &NO_PLUGIN,
    &NETWORK_REFUSED,
    &LIBRARY_VERSION,
    &LIBRARY_MISSING,
    &LIBRARY_SYMBOL,
    &LIBFABRIC_TOO_OLD,
    &NO_VERBS,
    &GPUDIRECT_REFUSED,
    &FORK_UNSAFE,
    &FORK_NO_MEMORY,
    &FORK_CALL,
    &WORKER_CRASHED,
    &SYNC_MEMOPS,
    &REGISTER_FAILED,
    &SECURITY_GROUP_SAID,
    &EFA_UNREACHABLE,
    &EFA_REQUEST_FAILED,
    &EFA_PEER_GONE,
    &ENDPOINT_FAILED,
    &DOCKER_RUN,
    &INVALID_TAG,
    &RAILS_DIFFER,
    &WRONG_SOCKET,
    &MIXED_DEVICE_COUNTS,
    &NETWORK_QUOTED,
    &SOCKET_QUOTED,
    &PLATFORM_QUOTED,
    &MACHINE_NAMED,
    &FAMILY_NAMED,
    &EFA_SETTING,
    &LIBRARY_PATH,
];
