//! Versions that do not match.

use super::Signal;
use crate::source::Kind;

/// NCCL compared the ranks' releases.
pub static MISMATCHED_VERSION: Signal = Signal {
    name: "mismatched-version",
    templates: &[
        "Mismatched NCCL version detected : rank {a} version {x} rank {b} version {y}",
        "NCCL version mismatch with remote peer {b} (local: {x}, remote {y})",
    ],
    source: "NCCL src/init.cc, 2.23 and later; src/ras/ras.cc, 2.24 and later",
    meaning: "Two ranks loaded different NCCL releases.",
    kind: Kind::NcclLog,
};

/// An address that is not valid.
pub static BAD_ADDRESS_FAMILY: Signal = Signal {
    name: "bad-address-family",
    templates: &["with family {family} is neither AF_INET"],
    source: "NCCL src/misc/socket.cc",
    meaning: "A peer sent an invalid address: it has another NCCL release, or found no interface.",
    kind: Kind::NcclLog,
};

/// A setup message of the wrong size.
pub static SETUP_TRUNCATED: Signal = Signal {
    name: "setup-truncated",
    templates: &["Message truncated : received {received} bytes instead of {expected}"],
    source: "NCCL src/bootstrap.cc",
    meaning: "Two ranks exchange structures of different sizes: other releases, or ranks in different steps.",
    kind: Kind::NcclLog,
};

/// The NCCL release in an error of PyTorch.
pub static ERROR_VERSION: Signal = Signal {
    name: "nccl-error-version",
    templates: &[
        "NCCL error in: {place}, NCCL version {version}",
        "NCCL error in: {place}, NCCL Version {version}",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/NCCLUtils",
    meaning: "The NCCL release that this rank uses.",
    kind: Kind::TrainingLog,
};

/// An installed NCCL package.
pub static NCCL_PACKAGE: Signal = Signal {
    name: "nccl-package",
    templates: &[
        "nvidia-nccl-cu12=={version}",
        "nvidia-nccl-cu13=={version}",
        "vLLM is using nccl=={version}",
    ],
    source: "pip list, vLLM",
    meaning: "The NCCL release that is installed.",
    kind: Kind::Notes,
};

/// The driver is older than the program.
pub static DRIVER_TOO_OLD: Signal = Signal {
    name: "driver-too-old",
    templates: &[
        "CUDA driver version is insufficient for CUDA runtime version",
        "The NVIDIA driver on your system is too old (found version {driver})",
        "CUDA Driver version found is {driver}. Minimum requirement is {needed}",
        "the provided PTX was compiled with an unsupported toolchain",
        "API call is not supported in the installed CUDA driver",
        "cudaErrorCallRequiresNewerDriver",
        "cudaErrorInsufficientDriver",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "forward compatibility was attempted on non supported HW",
        "system has unsupported display driver / cuda driver combination",
        "was detected and compatibility mode is UNAVAILABLE",
        "unsatisfied condition: cuda>={needed}",
    ],
    source: "CUDA runtime (errors 35, 36, 222, 803 and 804), PyTorch torch/cuda/__init__.py, NCCL, NVIDIA's images and container toolkit",
    meaning: "The driver does not support the CUDA release that the program was built with.",
    kind: Kind::TrainingLog,
};

/// The driver's version, as tools print it.
pub static DRIVER_VERSION: Signal = Signal {
    name: "driver-version-noted",
    templates: &[
        "Driver Version: {driver}",
        "Nvidia driver version: {driver}",
        "NVIDIA UNIX x86_64 Kernel Module  {driver}",
    ],
    source: "nvidia-smi, PyTorch collect_env, /proc/driver/nvidia/version",
    meaning: "The installed driver.",
    kind: Kind::Notes,
};

/// The library has no code for the GPU.
pub static NO_CODE_FOR_GPU: Signal = Signal {
    name: "no-code-for-gpu",
    templates: &[
        "Cuda failure 'no kernel image is available for execution on the device'",
        "Cuda failure 209 'no kernel image is available for execution on the device'",
        "Cuda failure 'invalid device function'",
        "Cuda failure 98 'invalid device function'",
        "Cuda failure 'named symbol not found'",
        "Cuda failure 500 'named symbol not found'",
        "Cuda failure: named symbol not found",
        "CUDA failure common.cu:{line} 'no kernel image is available for execution on the device'",
    ],
    source: "NCCL src/enqueue.cc and src/init.cc, nccl-tests src/common.cu",
    meaning: "This build of NCCL, or of its tests, has no kernels for this GPU.",
    kind: Kind::NcclLog,
};

/// Some library of the program has no code for the GPU.
pub static NO_KERNEL_IMAGE: Signal = Signal {
    name: "no-kernel-image",
    templates: &[
        "CUDA error: no kernel image is available for execution on the device",
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
    ],
    source: "PyTorch, JAX",
    meaning: "A library of the program has no kernels for this GPU; the line does not say which.",
    kind: Kind::TrainingLog,
};

/// PyTorch compared its build with the GPU.
pub static GPU_NOT_IN_BUILD: Signal = Signal {
    name: "gpu-not-in-build",
    templates: &[
        "with CUDA capability sm_{capability} is not compatible with the current PyTorch installation",
    ],
    source: "PyTorch torch/cuda/__init__.py",
    meaning: "This build of PyTorch, and of the NCCL in it, has no kernels for this GPU.",
    kind: Kind::TrainingLog,
};

/// A GPU model.
pub static GPU_MODEL: Signal = Signal {
    name: "gpu-model-noted",
    templates: &[
        "NVIDIA A100",
        "A100-SXM",
        "A100-PCIE",
        "NVIDIA H100",
        "H100-SXM",
        "H100 80GB",
        "NVIDIA H200",
        "NVIDIA B200",
        "GeForce RTX 30",
        "GeForce RTX 50",
    ],
    source: "nvidia-smi, PyTorch collect_env, nccl-tests, pasted notes",
    meaning: "The GPUs of the machine.",
    kind: Kind::Notes,
};

/// The GPUs' generation, as old releases print it.
pub static OLD_CAPABILITY: Signal = Signal {
    name: "old-capability",
    templates: &[" threads, Min Comp Cap {capability}, Trees"],
    source: "NCCL 2.4",
    meaning: "The lowest compute capability of the GPUs.",
    kind: Kind::NcclLog,
};

/// Links between GPUs that NCCL does not understand.
pub static NO_REVERSE_PATH: Signal = Signal {
    name: "no-reverse-path",
    templates: &["Failed to find reverse path from remNode"],
    source: "NCCL src/graph/paths.cc",
    meaning: "The links between GPUs look one-sided to this release.",
    kind: Kind::NcclLog,
};

/// The GPU is not in `/sys`.
pub static NO_PCI_PATH: Signal = Signal {
    name: "no-pci-path",
    templates: &["NCCL WARN Could not find real path of /sys/class/pci_bus/{path}"],
    source: "NCCL src/graph/xml.cc",
    meaning: "The kernel does not show the GPU's position on the PCI bus.",
    kind: Kind::NcclLog,
};

/// Windows Subsystem for Linux.
pub static WSL: Signal = Signal {
    name: "wsl-noted",
    templates: &["microsoft-standard-WSL", "Microsoft-standard-WSL", "WSL2", "/usr/lib/wsl/"],
    source: "uname -r, paths, pasted notes",
    meaning: "The job runs in the Windows Subsystem for Linux.",
    kind: Kind::Notes,
};

/// The driver's libraries and its kernel module differ.
pub static LIBRARY_NOT_OF_DRIVER: Signal = Signal {
    name: "library-not-of-driver",
    templates: &["Driver/library version mismatch", "driver/library version mismatch"],
    source: "NVML, result 18, printed by nvidia-smi, NCCL src/misc/nvmlwrap.cc, container runtimes",
    meaning: "The libraries of the driver are of another release than the kernel module that is loaded.",
    kind: Kind::TrainingLog,
};

/// No algorithm is left that the settings allow.
pub static NO_ALGORITHM: Signal = Signal {
    name: "no-algorithm",
    templates: &["no algorithm/protocol available{what...}", "No algorithm/protocol available{what...}"],
    source: "NCCL src/enqueue.cc, topoGetAlgoInfo, all releases; with function and settings since 2.24",
    meaning: "NCCL_ALGO and NCCL_PROTO leave no kernel for this collective.",
    kind: Kind::NcclLog,
};

/// A list of algorithms or protocols that NCCL does not understand.
pub static ALGORITHM_LIST: Signal = Signal {
    name: "algorithm-list",
    templates: &[
        "Unrecognized element token \"{word}\" when parsing \"{list}\"",
        "Unrecognized prefix token \"{word}\" when parsing \"{list}\"",
        "All entries except the first must have a prefix: \"{list}\"",
    ],
    source: "NCCL src/graph/tuning.cc, parseList, 2.24 and later",
    meaning: "NCCL_ALGO or NCCL_PROTO has a word that NCCL does not know.",
    kind: Kind::NcclLog,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[
    &MISMATCHED_VERSION,
    &BAD_ADDRESS_FAMILY,
    &SETUP_TRUNCATED,
    &ERROR_VERSION,
    &NCCL_PACKAGE,
    &DRIVER_TOO_OLD,
    &DRIVER_VERSION,
    &NO_CODE_FOR_GPU,
    &NO_KERNEL_IMAGE,
    &GPU_NOT_IN_BUILD,
    &GPU_MODEL,
    &OLD_CAPABILITY,
    &NO_REVERSE_PATH,
    &NO_PCI_PATH,
    &WSL,
    &LIBRARY_NOT_OF_DRIVER,
    &NO_ALGORITHM,
    &ALGORITHM_LIST,
];
