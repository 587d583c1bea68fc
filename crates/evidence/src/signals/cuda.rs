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

/// A CUDA call failed in PyTorch.
pub static CUDA_ERROR: Signal = Signal {
    name: "cuda-error",
    templates: &["CUDA error: {what...}"],
    source: "PyTorch c10/cuda/CUDAException.cpp, as an exception or in the end of the watchdog",
    meaning: "A CUDA call of PyTorch failed; the text says how. The reason may be an earlier kernel.",
    kind: Kind::TrainingLog,
};

/// PyTorch sees no GPU.
pub static NO_GPU: Signal = Signal {
    name: "no-gpu",
    templates: &[
        "No CUDA GPUs are available",
        "ProcessGroupNCCL is only supported with GPUs, no GPUs found",
        "Found no NVIDIA driver on your system",
    ],
    source: "PyTorch torch/cuda/__init__.py, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    meaning: "The process sees no GPU.",
    kind: Kind::TrainingLog,
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
        "No backend type associated with device type cpu",
        "Tensors must be CUDA and dense",
    ],
    source: "NCCL src/misc/argcheck.cc, CudaPtrCheck; PyTorch torch/csrc/distributed/c10d",
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
pub static ALL: &[&Signal] =
    &[&CUDA_ERROR, &CUDA_FAILURE, &CUDA_FORKED, &NO_GPU, &POINTER_INVALID, &POINTER_ON_OTHER_GPU];
