//! What frameworks and programs print: exceptions, PyTorch, DeepSpeed, trainers.

use super::Signal;
use crate::source::Kind;

/// An exception that ended a rank.
pub static RANK_EXCEPTION: Signal = Signal {
    name: "rank-exception",
    templates: &["[rank{rank}]: {error}Error: {text...}"],
    source: "PyTorch 2.3 and later, which put the rank before an exception that nothing caught",
    meaning: "An uncaught exception of this rank.",
    kind: Kind::TrainingLog,
};

/// An exception of a program, as Python prints it.
pub static EXCEPTION: Signal = Signal {
    name: "exception",
    templates: &[
        "RuntimeError: {text...}",
        "ValueError: {text...}",
        "TypeError: {text...}",
        "KeyError: {text...}",
        "IndexError: {text...}",
        "AttributeError: {text...}",
        "AssertionError: {text...}",
        "FileNotFoundError: {text...}",
        "PermissionError: {text...}",
        "ModuleNotFoundError: {text...}",
        "ImportError: {text...}",
        "OSError: {text...}",
    ],
    source: "Python",
    meaning: "An exception; the line does not show whether it was caught.",
    kind: Kind::TrainingLog,
};

/// A crash below Python.
pub static CRASH: Signal = Signal {
    name: "crash",
    templates: &[
        "Fatal Python error: {what...}",
        "Caught signal {signal...}",
        "Signal: Segmentation fault{what...}",
        "CUDA error: device-side assert triggered",
        "CUDA error: an illegal memory access was encountered",
    ],
    source: "Python's faulthandler, UCX, Open MPI, PyTorch",
    meaning: "A process crashed.",
    kind: Kind::TrainingLog,
};

/// PyTorch's allocator found no memory.
pub static OUT_OF_MEMORY: Signal = Signal {
    name: "torch-out-of-memory",
    templates: &["CUDA out of memory. Tried to allocate {size...}"],
    source: "PyTorch c10/cuda/CUDACachingAllocator.cpp",
    meaning: "The program needs more GPU memory than is free.",
    kind: Kind::TrainingLog,
};

/// A progress bar of work on data.
pub static PREPARING_DATA: Signal = Signal {
    name: "preparing-data",
    templates: &[
        "Running tokenizer on {what}:{percent}%|",
        "Tokenizing{what}:{percent}%|",
        "Grouping texts in {what}:{percent}%|",
        "Converting format of {what}:{percent}%|",
        "Dropping Long Sequences{what}:{percent}%|",
        "Packing{what}:{percent}%|",
        "Preprocessing{what}:{percent}%|",
        "Pre-processing{what}:{percent}%|",
        "Preparing {what}:{percent}%|",
        "Processing {what}:{percent}%|",
        "Loading dataset{what}:{percent}%|",
        "Loading data{what}:{percent}%|",
        "Generating {what} split:{percent}%|",
        "Building {what}index{rest}:{percent}%|",
        "Encoding {what}:{percent}%|",
        "Extracting {what}:{percent}%|",
        "Downloading {what}:{percent}%|",
        "Caching {what}:{percent}%|",
        "Map{what}:{percent}%|",
        "Filter{what}:{percent}%|",
    ],
    source: "Hugging Face datasets and trainers built on it",
    meaning: "A process prepares data; the line shows its progress.",
    kind: Kind::TrainingLog,
};

/// A progress bar that counts examples or megabytes.
pub static DATA_PROGRESS: Signal = Signal {
    name: "data-progress",
    templates: &[" examples/s]", " examples/s,", "MB/s]", "ba/s]"],
    source: "tqdm",
    meaning: "A program processes data.",
    kind: Kind::TrainingLog,
};

/// The other ranks wait until the first process has prepared the data.
pub static MAIN_PROCESS_FIRST: Signal = Signal {
    name: "main-process-first",
    templates: &[
        "main_process_first(",
        "in main_process_first",
        "zero_first(",
        "could not find index map files, building the indices on rank 0",
    ],
    source: "tracebacks through Hugging Face transformers, accelerate and trainers of others; Megatron-LM",
    meaning: "A rank was waiting for the first process.",
    kind: Kind::TrainingLog,
};

/// A checkpoint is written.
pub static SAVING: Signal = Signal {
    name: "saving",
    templates: &[
        "Saving model checkpoint{what...}",
        "Saving checkpoint{what...}",
        "saving checkpoint{what...}",
        "Saving Model Checkpoint{what...}",
        "Saving Full Model Checkpoint{what...}",
        "Saving final checkpoint{what...}",
        "Saving model{what...}",
        "Saving current state to {what...}",
        "Saving DeepSpeed Model and Optimizer{what...}",
        "Saving FSDP model{what...}",
        "Saving the whole model{what...}",
        "Saving state dict{what...}",
        "Saving latest checkpoint{what...}",
        "Saving best {what...}",
        "Saving weights{what...}",
        "Saving the model{what...}",
        "Saving optimizer{what...}",
        "Saving training state{what...}",
        "Writing checkpoint{what...}",
        "Begin saving {what...}",
        "save checkpoint to {what...}",
        "saving model{what...}",
        "Checkpoint saving{what...}",
        "Saving full model{what...}",
        "[Torch] Saving {what...}",
        "[Torch] Checkpoint {what} is ready now",
        "Model checkpoint of size {what...}",
        "Gathering full model state dict{what...}",
    ],
    source: "transformers, Megatron-LM, DeepSpeed, torchtune and others",
    meaning: "A checkpoint is being written.",
    kind: Kind::TrainingLog,
};

/// A traceback through the code that saves.
pub static SAVE_FRAME: Signal = Signal {
    name: "save-frame",
    templates: &[
        ", in save_checkpoint",
        ", in _save_checkpoint",
        ", in save_model",
        ", in save_pretrained",
        ", in _save_model",
        ", in save_state",
        ", in save_fsdp_model",
        ", in save_16bit_model",
        ", in save_full_model",
        ", in save_with_accelerate",
        ", in _zero3_consolidated_16bit_state_dict",
    ],
    source: "tracebacks of trainers",
    meaning: "The rank was saving.",
    kind: Kind::TrainingLog,
};

/// Two different settings for the same value.
pub static ACCUMULATION_MISMATCH: Signal = Signal {
    name: "accumulation-mismatch",
    templates: &[
        "Gradient accumulation steps mismatch: GradientAccumulationPlugin has {plugin}, DeepSpeed config has {config}. Using DeepSpeed's value",
    ],
    source: "Hugging Face accelerate",
    meaning: "The trainer's and DeepSpeed's gradient accumulation differ; DeepSpeed's is used.",
    kind: Kind::TrainingLog,
};

/// The optimizer runs on the CPU.
pub static CPU_OPTIMIZER: Signal = Signal {
    name: "cpu-optimizer",
    templates: &[
        "Detected ZeRO Offload",
        "Adam Optimizer #{n} is created with {instructions} arithmetic capability",
        "[DeepSpeed CPU Adam]",
    ],
    source: "Hugging Face accelerate, DeepSpeed csrc/adam/cpu_adam_impl.cpp",
    meaning: "Optimizer state is kept in host memory and updated by the CPU.",
    kind: Kind::TrainingLog,
};

/// Code is compiled while other ranks wait.
pub static COMPILING: Signal = Signal {
    name: "compiling",
    templates: &[
        "Building extension module {name}",
        "Loading extension module {name}",
        "cpp_extension.py:{line}] TORCH_CUDA_ARCH_LIST is not set",
        "Time to load {name} op: {seconds} seconds",
        "ninja: no work to do",
    ],
    source: "PyTorch torch/utils/cpp_extension.py, DeepSpeed op_builder",
    meaning: "An extension is compiled or loaded.",
    kind: Kind::TrainingLog,
};

/// NCCL could not read a number.
pub static INVALID_VALUE: Signal = Signal {
    name: "invalid-value",
    templates: &["Invalid value {value} for {name}, using default {default}"],
    source: "NCCL src/misc/param.cc",
    meaning: "A variable's value was not understood and is ignored.",
    kind: Kind::NcclLog,
};

/// Lines that look like a problem but are harmless.
pub static HARMLESS: Signal = Signal {
    name: "harmless",
    templates: &[
        "destroy_process_group() was not called before program exit",
        "process group has NOT been destroyed before",
        "The hostname of the client socket cannot be retrieved",
        "cannot be initialized on [::]:{port} (errno: 97 - Address family not supported by protocol)",
        "TORCH_NCCL_AVOID_RECORD_STREAMS=1 has no effect",
        "ProcessGroupNCCL preparing to dump debug info",
        "Observed flight recorder dump signal from another rank via TCPStore",
        "First PG on this rank to signal dumping",
        "find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters",
        "using GPU {gpu} to perform barrier as devices used by this process are currently unknown",
        "[Service thread] Connection closed by localRank {rank}",
    ],
    source: "PyTorch, NCCL",
    meaning: "Printed at a normal end, or beside a failure that other lines report.",
    kind: Kind::TrainingLog,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[
    &RANK_EXCEPTION,
    &EXCEPTION,
    &CRASH,
    &OUT_OF_MEMORY,
    &PREPARING_DATA,
    &DATA_PROGRESS,
    &MAIN_PROCESS_FIRST,
    &SAVING,
    &SAVE_FRAME,
    &ACCUMULATION_MISMATCH,
    &CPU_OPTIMIZER,
    &COMPILING,
    &INVALID_VALUE,
    &HARMLESS,
];
