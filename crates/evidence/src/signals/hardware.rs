//! GPUs and links that fail.

use super::Signal;
use crate::source::Kind;

/// The driver reports an error of a GPU by number.
pub static XID: Signal = Signal {
    name: "xid",
    // The space keeps the SXid of an NVSwitch out.
    templates: &["NVRM: Xid ({bus}): {xid}, {text...}", " Xid (PCI:{bus}): {xid}, {text...}"],
    source: "the NVIDIA kernel driver",
    meaning: "An error of a GPU; the number says which.",
    kind: Kind::KernelLog,
};

/// An Xid in a note.
pub static XID_NAMED: Signal = Signal {
    name: "xid-named",
    templates: &[
        "Xid {n}",
        "XID {n}",
        "Xid: {n}",
        "XID: {n}",
        "Xid error {n}",
        "XID error {n}",
        "Xid errors: {n}",
        "XID errors: {n}",
    ],
    source: "notes, DCGM, node problem detectors",
    meaning: "An error of a GPU; the number says which.",
    kind: Kind::Notes,
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
        "NVRM: osInitNvMapping: *** Cannot attach gpu",
    ],
    source: "the NVIDIA kernel driver, nvidia-smi, NVML",
    meaning: "The driver has lost a GPU.",
    kind: Kind::KernelLog,
};

/// The driver cannot start a GPU.
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
        "uncorrectable ECC error detected",
        "Uncorrectable ECC error",
        "volatile double-bit ECC error(s)",
        "has uncorrectable memory errors and row remappings are pending",
        "Row remap failure. Replace the GPU",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "cudaErrorECCUncorrectable",
    ],
    source: "CUDA, error 214 (39 before CUDA 10.1); DCGM",
    meaning: "A program read GPU memory that is broken beyond correction.",
    kind: Kind::TrainingLog,
};

/// Rows of GPU memory wait to be replaced, or could not be.
pub static ROW_REMAPPING: Signal = Signal {
    name: "row-remapping",
    templates: &[
        "Pending                           : Yes",
        "Pending : Yes",
        "Remapping Failure Occurred        : Yes",
        "Remapping Failure Occurred : Yes",
        "Pending Page Blacklist            : Yes",
    ],
    source: "nvidia-smi -q, sections Remapped Rows and Retired Pages",
    meaning: "A GPU has broken memory and uses a spare row after its next reset, or has none left.",
    kind: Kind::Notes,
};

/// Counters of errors in GPU memory.
pub static ECC_COUNTER: Signal = Signal {
    name: "ecc-counter",
    templates: &["DRAM Uncorrectable {count...}", "SRAM Uncorrectable {count...}"],
    source: "nvidia-smi -q, section ECC Errors",
    meaning: "How many uncorrectable errors a GPU has had.",
    kind: Kind::Notes,
};

/// A GPU, as `nvidia-smi` lists it.
pub static GPU_LISTED: Signal = Signal {
    name: "gpu-listed",
    templates: &["GPU {index}: NVIDIA {model} (UUID: {uuid}"],
    source: "nvidia-smi -L, nvidia-smi nvlink",
    meaning: "The model of a GPU.",
    kind: Kind::Notes,
};

/// A link between GPUs failed during a program.
pub static NVLINK_UNCORRECTABLE: Signal = Signal {
    name: "nvlink-uncorrectable",
    templates: &[
        "uncorrectable NVLink error detected during the execution",
        "uncorrectable NVLink error was detected during the execution",
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        "Invalid access of peer GPU memory over nvlink or a hardware error",
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
    &ECC_COUNTER,
    &FALLEN_OFF_BUS,
    &GPU_INIT_FAILED,
    &GPU_LISTED,
    &NVLINK_DOWN,
    &NVLINK_UNCORRECTABLE,
    &NVLINK_UP,
    &PCIE_AER,
    &ROW_REMAPPING,
    &SXID,
    &UNCORRECTABLE_ECC,
    &XID,
    &XID_NAMED,
];
