//! NVSwitch, Fabric Manager, NVLink SHARP, IMEX.

use super::Signal;
use crate::source::Kind;

/// CUDA waits for the fabric.
pub static SYSTEM_NOT_READY: Signal = Signal {
    name: "system-not-ready",
    templates: &[
        "system not yet initialized",
        "System not yet initialized",
        "cudaErrorSystemNotReady",
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "cuInit err: 802",
        "library init failure: 802",
        "CUDA error 802",
        "cudaGetDeviceCount returned 802",
    ],
    source: "CUDA, error 802",
    meaning: "The driver is up, but a daemon it needs is not: on NVSwitch machines the Fabric Manager.",
    kind: Kind::TrainingLog,
};

/// The Fabric Manager does not match the driver.
pub static FABRIC_MANAGER_MISMATCH: Signal = Signal {
    name: "fabric-manager-mismatch",
    templates: &[
        "fabric manager NVIDIA GPU driver interface version {manager} don't match with driver version {driver}",
    ],
    source: "nv-fabricmanager, in the journal of nvidia-fabricmanager.service",
    meaning: "The Fabric Manager stops because its version is not the driver's.",
    kind: Kind::KernelLog,
};

/// The service is down.
pub static FABRIC_MANAGER_FAILED: Signal = Signal {
    name: "fabric-manager-failed",
    templates: &[
        "nvidia-fabricmanager.service: Failed with result {why}",
        "Job for nvidia-fabricmanager.service failed",
        "nvidia-fabricmanager.service failed because",
        "Unit nvidia-fabricmanager.service could not be found",
        "Failed to start nvidia-fabricmanager",
        "Failed to start NVIDIA fabric manager service",
        "Fabric Manager is not running",
        "fabric manager is not running",
        "fabricmanager is not running",
    ],
    source: "systemd",
    meaning: "The Fabric Manager did not start. Normal only on a machine without NVSwitch.",
    kind: Kind::KernelLog,
};

/// The Fabric Manager's service, as `systemctl status` heads it.
pub static FABRIC_MANAGER_STATUS: Signal = Signal {
    name: "fabric-manager-status",
    templates: &["nvidia-fabricmanager.service - ", "systemctl status nvidia-fabricmanager"],
    source: "systemctl status",
    meaning: "The lines after it are about the Fabric Manager.",
    kind: Kind::Notes,
};

/// A service that does not run.
pub static SERVICE_DOWN: Signal = Signal {
    name: "service-down",
    templates: &["Active: inactive (dead)", "Active: failed (Result: {why})"],
    source: "systemctl status",
    meaning: "The service named above is not running.",
    kind: Kind::Notes,
};

/// The GPUs wait for the Fabric Manager.
pub static FABRIC_IN_PROGRESS: Signal = Signal {
    name: "fabric-in-progress",
    templates: &["State                             : In Progress", "State : In Progress"],
    source: "nvidia-smi -q, section Fabric",
    meaning: "A GPU has not joined the NVLink fabric yet.",
    kind: Kind::Notes,
};

/// The machine has no NVSwitch.
pub static NO_NVSWITCH: Signal = Signal {
    name: "no-nvswitch",
    templates: &["NV_WARN_NOTHING_TO_DO"],
    source: "nv-fabricmanager",
    meaning: "The Fabric Manager found no NVSwitch to manage; it is not needed on this machine.",
    kind: Kind::KernelLog,
};

/// Multicast memory could not be bound.
pub static NVLS_BIND_FAILED: Signal = Signal {
    name: "nvls-bind-failed",
    templates: &[
        "Failed to bind NVLink SHARP (NVLS) Multicast memory of size {size} : CUDA error {code} '{text}'{rest...}",
        "Failed to bind NVLink SHARP (NVLS) Multicast memory of size {size}:{rest...}",
        "Failed to bind NVLink SHARP (NVLS) Multicast memory",
        "usually caused by a system or configuration error in the Fabric Manager or NVSwitches",
    ],
    source: "NCCL src/transport/nvls.cc, 2.27 and later",
    meaning: "The NVSwitches reject a multicast group.",
    kind: Kind::NcclLog,
};

/// NVLS failed, in releases that do not explain it.
pub static NVLS_CUDA_FAILURE: Signal = Signal {
    name: "nvls-cuda-failure",
    templates: &["transport/nvls.cc:{line} NCCL WARN Cuda failure {what...}", "Cuda failure 401 '{what}'"],
    source: "NCCL src/transport/nvls.cc, 2.17 and later",
    meaning: "A CUDA call for NVLink SHARP failed.",
    kind: Kind::NcclLog,
};

/// Multi-node NVLink is present but does not work.
pub static IMEX_NOT_WORKING: Signal = Signal {
    name: "imex-not-working",
    templates: &[
        "MNNVL (cliqueSize {n}) is available but not working on this system. Check the IMEX {what} configuration",
        "MNNVL (cliqueSize {n}) is available but not working on this system",
        "MNNVL (cliqueSize {n}) is available but not supported on this system",
        "Check the IMEX channel configuration (/dev/nvidia-caps-imex-channels)",
    ],
    source: "NCCL src/mnnvl.cc, 2.25 and later",
    meaning: "GPU memory cannot be exported to other nodes: the IMEX channel or daemon is missing.",
    kind: Kind::NcclLog,
};

/// CUDA refused memory that can be exported to other nodes.
pub static FABRIC_HANDLE_REFUSED: Signal = Signal {
    name: "fabric-handle-refused",
    templates: &[
        "cuMemCreate failed: operation not permitted",
        "[CUDA_ERROR_NOT_PERMITTED] operation not permitted in expression cuMemCreate",
        "Cuda failure 800 'operation not permitted'",
        "cuMemCreate failed: 800",
        "(Cu failure: operation not permitted)",
        "CUDA error 800 'operation not permitted'",
    ],
    source: "CUDA error 800, printed by NCCL src/include/alloc.h, MSCCL++, nvbandwidth",
    meaning: "cuMemCreate with a fabric handle needs an IMEX channel that the process may open.",
    kind: Kind::TrainingLog,
};

/// Memory of another node or container could not be imported.
pub static FABRIC_IMPORT_FAILED: Signal = Signal {
    name: "fabric-import-failed",
    templates: &[
        "cuMemImportFromShareableHandle: invalid resource handle",
        "cuMemImportFromShareableHandle : invalid resource handle",
        "Failed to get new memory reference with rc: {code}",
        "Failed to get export ref for UUID: {uuid}",
    ],
    source: "programs that use fabric handles; the log of nvidia-imex",
    meaning: "The IMEX daemons could not share memory.",
    kind: Kind::TrainingLog,
};

/// The directory of channels is missing.
pub static IMEX_CHANNEL_ABSENT: Signal = Signal {
    name: "imex-channel-absent",
    templates: &[
        "'/dev/nvidia-caps-imex-channels/': No such file or directory",
        "'/dev/nvidia-caps-imex-channels': No such file or directory",
        "/dev/nvidia-caps-imex-channels: No such file or directory",
        "/dev/nvidia-caps-imex-channels/channel0: No such file or directory",
    ],
    source: "ls",
    meaning: "There is no IMEX channel in this container or on this host.",
    kind: Kind::Notes,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[
    &FABRIC_HANDLE_REFUSED,
    &FABRIC_IMPORT_FAILED,
    &FABRIC_IN_PROGRESS,
    &FABRIC_MANAGER_FAILED,
    &FABRIC_MANAGER_MISMATCH,
    &FABRIC_MANAGER_STATUS,
    &IMEX_CHANNEL_ABSENT,
    &IMEX_NOT_WORKING,
    &NO_NVSWITCH,
    &NVLS_BIND_FAILED,
    &NVLS_CUDA_FAILURE,
    &SERVICE_DOWN,
    &SYSTEM_NOT_READY,
];
