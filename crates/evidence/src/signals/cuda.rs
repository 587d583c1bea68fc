//! CUDA calls of NCCL that failed, and buffers that it cannot use.

use super::Signal;
use crate::source::Kind;

/// A CUDA call failed inside NCCL.
pub static CUDA_FAILURE: Signal = Signal {
    name: "cuda-failure",
    templates: &["NCCL WARN Cuda failure {what...}", "Cuda failure {what...}"],
    source: "NCCL src/include/checks.h, all releases; with the number since 2.19",
    meaning: "A CUDA call of NCCL failed; the number or text says how, the file before it says where.",
    kind: Kind::NcclLog,
};

/// CUDA in a process that was forked.
pub static CUDA_FORKED: Signal = Signal {
    name: "cuda-forked",
    templates: &["Cannot re-initialize CUDA in forked subprocess"],
    source: "PyTorch torch/cuda/__init__.py",
    meaning: "A process uses CUDA after it was forked from one that already did.",
    kind: Kind::TrainingLog,
};

/// A buffer that is not GPU memory of this process.
pub static POINTER_INVALID: Signal = Signal {
    name: "pointer-not-on-gpu",
    templates: &[
        " : sendbuff {pointer} is not a valid pointer",
        " : recvbuff {pointer} is not a valid pointer",
        " : sendbuff is not a valid pointer",
        " : recvbuff is not a valid pointer",
        "sendbuff {pointer} is not a valid pointer",
        "recvbuff {pointer} is not a valid pointer",
    ],
    source: "NCCL src/misc/argcheck.cc, CudaPtrCheck",
    meaning: "The program gave NCCL a pointer that is not GPU memory.",
    kind: Kind::NcclLog,
};

/// A buffer on another GPU than the communicator.
pub static POINTER_ON_OTHER_GPU: Signal = Signal {
    name: "pointer-on-other-gpu",
    templates: &[
        "sendbuff allocated on device {there} mismatchs with NCCL device {here}",
        "recvbuff allocated on device {there} mismatchs with NCCL device {here}",
        "allocated on device {there} mismatchs with NCCL device {here}",
    ],
    source: "NCCL src/misc/argcheck.cc, CudaPtrCheck",
    meaning: "A tensor is on another GPU than the communicator of this rank.",
    kind: Kind::NcclLog,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[&CUDA_FAILURE, &CUDA_FORKED, &POINTER_INVALID, &POINTER_ON_OTHER_GPU];
