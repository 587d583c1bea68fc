//! GPUs and links that fail.

use super::Signal;
use crate::source::Kind;

/// The driver reports an error of a GPU by number.
pub static XID: Signal = Signal {
    name: "xid",
    templates: &["NVRM: Xid ({bus}): {xid}, {text...}"],
    source: "the NVIDIA kernel driver",
    meaning: "An error of a GPU; the number says which.",
    kind: Kind::KernelLog,
};

/// An NVSwitch reports an error by number.
pub static SXID: Signal = Signal {
    name: "sxid",
    templates: &["SXid (PCI:{bus}): {sxid}, {class}, {text...}"],
    source: "the NVIDIA NVSwitch kernel driver",
    meaning: "An error of an NVSwitch or of one of its links.",
    kind: Kind::KernelLog,
};

/// A GPU does not answer.
pub static FALLEN_OFF_BUS: Signal = Signal {
    name: "fallen-off-bus",
    templates: &[
        "GPU has fallen off the bus",
        "fallen off the bus and is not responding to commands",
        "GPU is lost",
        "NVML_ERROR_GPU_IS_LOST",
        "Unable to determine the device handle for GPU",
        "Unable to determine the device handle for gpu",
    ],
    source: "the NVIDIA kernel driver, nvidia-smi, NVML",
    meaning: "The driver has lost a GPU.",
    kind: Kind::KernelLog,
};

/// A GPU cannot be started.
pub static GPU_INIT_FAILED: Signal = Signal {
    name: "gpu-init-failed",
    templates: &["NVRM: GPU {bus}: RmInitAdapter failed! {code}"],
    source: "the NVIDIA kernel driver",
    meaning: "The driver could not start a GPU.",
    kind: Kind::KernelLog,
};

/// A link that carries data.
pub static NVLINK_UP: Signal = Signal {
    name: "nvlink-up",
    templates: &["Link {link}: {speed} GB/s"],
    source: "nvidia-smi nvlink --status",
    meaning: "An NVLink is up.",
    kind: Kind::Notes,
};

/// A link that carries nothing.
pub static NVLINK_DOWN: Signal = Signal {
    name: "nvlink-down",
    templates: &["Link {link}: <inactive>"],
    source: "nvidia-smi nvlink --status",
    meaning: "An NVLink is down. Normal where nothing is plugged in.",
    kind: Kind::Notes,
};

/// Memory of a GPU is broken.
pub static UNCORRECTABLE_ECC: Signal = Signal {
    name: "uncorrectable-ecc",
    templates: &[
        "uncorrectable ECC error encountered",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "cudaErrorECCUncorrectable",
    ],
    source: "CUDA, error 214 (39 before CUDA 10.1)",
    meaning: "A program read GPU memory that is broken beyond correction.",
    kind: Kind::TrainingLog,
};

/// A link between GPUs failed during a program.
pub static NVLINK_UNCORRECTABLE: Signal = Signal {
    name: "nvlink-uncorrectable",
    templates: &[
        "uncorrectable NVLink error detected during the execution",
        "uncorrectable NVLink error was detected during the execution",
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        "cudaErrorNvlinkUncorrectable",
    ],
    source: "CUDA, error 220",
    meaning: "An NVLink failed while a program used it.",
    kind: Kind::TrainingLog,
};

/// PCIe errors.
pub static PCIE_AER: Signal = Signal {
    name: "pcie-aer",
    templates: &[
        "AER: Uncorrected (Fatal) error received: {device}",
        "AER: Uncorrected (Non-Fatal) error received: {device}",
        "AER: Uncorrectable (Fatal) error received: {device}",
        "AER: Corrected error received: {device}",
        "AER: Multiple Corrected error received: {device}",
        "PCIe Bus Error: severity={severity},",
    ],
    source: "Linux, drivers/pci/pcie/aer.c",
    meaning: "A PCIe link had errors. Single corrected ones are harmless; many, or fatal ones, are not.",
    kind: Kind::KernelLog,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[
    &FALLEN_OFF_BUS,
    &GPU_INIT_FAILED,
    &NVLINK_DOWN,
    &NVLINK_UNCORRECTABLE,
    &NVLINK_UP,
    &PCIE_AER,
    &SXID,
    &UNCORRECTABLE_ECC,
    &XID,
];
