//! How ranks are started and assigned to GPUs.

use super::Signal;
use crate::source::Kind;

/// Two ranks on one GPU.
pub static DUPLICATE_GPU: Signal = Signal {
    name: "duplicate-gpu",
    templates: &[
        "Duplicate GPU detected : rank {a} and rank {b} both on CUDA device {bus}",
        "both on CUDA device {bus}",
        "Multiple ranks detected using the same GPU on this node",
        "Multiple Ranks are using the same GPU/Partition",
    ],
    source: "NCCL src/init.cc, up to 2.29.7, 2.30.3, 2.30.7",
    meaning: "Two ranks of one host use one GPU; NCCL refuses.",
    kind: Kind::NcclLog,
};

/// A GPU number that the host does not have.
pub static INVALID_DEVICE: Signal = Signal {
    name: "invalid-device",
    templates: &[
        "invalid device ordinal",
        "GPU device may be out of range, do you have enough GPUs",
        "device >= 0 && device < num_gpus",
        "AssertionError: Invalid device id",
    ],
    source: "CUDA error 101 (10 before CUDA 10.1), as nccl-tests, PyTorch and NCCL print it",
    meaning: "A process requested a GPU number that it does not see.",
    kind: Kind::TrainingLog,
};

/// A launcher or a test counted GPUs and found too few.
pub static TOO_FEW_GPUS: Signal = Signal {
    name: "too-few-gpus",
    templates: &[
        "Invalid number of GPUs: {asked} requested but only {found} were found",
        "World size ({asked}) is larger than the number of available GPUs ({found})",
        "The number of required GPUs exceeds the total number of available GPUs",
        "cannot be larger than the number of available GPUs",
        "But your machine only has: {machine}",
        "No slot '{slot}' specified on host",
    ],
    source: "nccl-tests src/common.cu (2.13 and later), vLLM, Lightning, DeepSpeed's launcher",
    meaning: "More GPUs were requested than there are.",
    kind: Kind::TrainingLog,
};

/// mpirun has fewer slots than processes.
pub static TOO_FEW_SLOTS: Signal = Signal {
    name: "too-few-slots",
    templates: &["There are not enough slots available in the system to satisfy the {n}"],
    source: "Open MPI mpirun, prterun",
    meaning: "More processes were requested than the hosts have slots.",
    kind: Kind::TrainingLog,
};

/// JAX waits until every process has joined.
pub static TASKS_ABSENT: Signal = Signal {
    name: "tasks-absent",
    templates: &[
        "Barrier timed out. Barrier_id: {barrier}. Timed out task names:",
        "Barrier timed out. Id: {barrier}. This usually happens because a task triggered the barrier too early",
        "Stopping coordination service as cluster registration failed",
    ],
    source: "XLA and TensorFlow coordination service",
    meaning: "Not all processes reached a barrier in time.",
    kind: Kind::TrainingLog,
};

/// PyTorch waits until every rank has joined.
pub static STORE_BARRIER: Signal = Signal {
    name: "store-barrier",
    templates: &[
        "Waiting in store based barrier to initialize process group for {wait}ank: {rank}, key: {key} (world_size={world}, worker_count={count}, timeout={timeout}",
        "process group for rank: {rank}, key: {key} (world_size={world}, worker_count={count}, timeout={timeout}",
        "Waiting in store based barrier to initialize process group for {wait}ank: {rank}, key: {key} (world_size={world}, num_workers_joined={count}, timeout={timeout}",
    ],
    source: "PyTorch torch/distributed/distributed_c10d.py; num_workers_joined since 2.1",
    meaning: "A rank waits for others to join; normal for a short time.",
    kind: Kind::TrainingLog,
};

/// PyTorch gave up waiting for ranks.
pub static STORE_BARRIER_TIMEOUT: Signal = Signal {
    name: "store-barrier-timeout",
    templates: &[
        "Timed out initializing process group in store based barrier on rank{rank}, for key: {key} (world_size={world}, worker_count={count}, timeout={timeout}",
        "Timed out initializing process group in store based barrier on rank{rank}, for key: {key} (world_size={world}, num_workers_joined={count}, timeout={timeout}",
    ],
    source: "PyTorch torch/distributed/distributed_c10d.py; num_workers_joined since 2.1",
    meaning: "Not all ranks joined in time.",
    kind: Kind::TrainingLog,
};

/// All ranks have joined.
pub static STORE_BARRIER_DONE: Signal = Signal {
    name: "store-barrier-done",
    templates: &["Completed store-based barrier for key:{key} with {n} nodes"],
    source: "PyTorch torch/distributed/distributed_c10d.py",
    meaning: "All ranks joined; waiting before it was normal.",
    kind: Kind::TrainingLog,
};

/// The store counted the ranks that connected.
pub static CLIENTS_JOINED: Signal = Signal {
    name: "clients-joined",
    templates: &[
        "seconds waiting for clients. {joined}/{world} clients joined",
        "seconds waiting for workers. {joined}/{world} workers joined",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/TCPStore.cpp, 2.2 and later",
    meaning: "Rank 0 waited for the other ranks and not all connected.",
    kind: Kind::TrainingLog,
};

/// The nodes of an elastic job did not find each other.
pub static RENDEZVOUS_TIMEOUT: Signal = Signal {
    name: "rendezvous-timeout",
    templates: &["RendezvousTimeoutError"],
    source: "PyTorch torch/distributed/elastic/rendezvous",
    meaning: "Not enough nodes joined the rendezvous in time.",
    kind: Kind::TrainingLog,
};

/// Rank 0 waited at a barrier and names the ranks that did not reach it.
pub static MONITORED_BARRIER: Signal = Signal {
    name: "monitored-barrier",
    templates: &[
        "]: Rank {ranks} failed to pass monitoredBarrier in {ms} ms",
        "]: Ranks {ranks} failed to pass monitoredBarrier in {ms} ms",
        "Error: Rank {ranks} failed to pass monitoredBarrier in {ms} ms",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/ProcessGroupGloo.cpp",
    meaning: "These ranks did not reach a barrier.",
    kind: Kind::TrainingLog,
};

/// A rank waits for the communicator's id from rank 0.
pub static UNIQUE_ID_WAIT: Signal = Signal {
    name: "unique-id-wait",
    templates: &[
        "is setting up NCCL communicator and retr{spelling}ving ncclUniqueId from [{from}] via c10d key-value store by key '{key}', but store->get('{again}') got error{error...}",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    meaning: "The first rank of the group did not publish the communicator's id in time.",
    kind: Kind::TrainingLog,
};

/// Ranks reported different values to the bootstrap root.
pub static BOOTSTRAP_MISMATCH: Signal = Signal {
    name: "bootstrap-mismatch",
    templates: &[
        "Bootstrap Root : mismatch in {what} from procs, nranks {counts...}",
        "Bootstrap Root : mismatch in {what} from procs {counts...}",
    ],
    source: "NCCL src/bootstrap.cc",
    meaning: "Ranks disagree about the number of ranks.",
    kind: Kind::NcclLog,
};

/// A rank joined twice.
pub static RANK_TWICE: Signal = Signal {
    name: "rank-twice",
    templates: &["Bootstrap Root : rank {rank} of {n} ranks has already checked in"],
    source: "NCCL src/bootstrap.cc",
    meaning: "Two processes claim the same rank.",
    kind: Kind::NcclLog,
};

/// torchrun chose one CPU thread for each process.
pub static ONE_THREAD: Signal = Signal {
    name: "one-thread",
    templates: &["Setting OMP_NUM_THREADS environment variable for each process to be {n} in default"],
    source: "PyTorch torch/distributed/run.py",
    meaning: "OMP_NUM_THREADS was unset; each process gets this many threads.",
    kind: Kind::TrainingLog,
};

/// The last line of an nccl-tests table.
pub static TEST_AVERAGE: Signal = Signal {
    name: "test-average",
    templates: &["Avg bus bandwidth    : {value}"],
    source: "nccl-tests src/common.cu",
    meaning: "The average over all sizes, in GB/s; a job prints it once.",
    kind: Kind::NcclTests,
};

/// mpirun reports which processors a process may use.
pub static BOUND: Signal = Signal {
    name: "bound",
    templates: &["MCW rank {rank} bound to {where...}", "Rank {rank} bound to {where...}"],
    source: "Open MPI mpirun --report-bindings",
    meaning: "The processors of a process.",
    kind: Kind::Notes,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[
    &DUPLICATE_GPU,
    &INVALID_DEVICE,
    &TOO_FEW_GPUS,
    &TOO_FEW_SLOTS,
    &TASKS_ABSENT,
    &STORE_BARRIER,
    &STORE_BARRIER_TIMEOUT,
    &STORE_BARRIER_DONE,
    &CLIENTS_JOINED,
    &RENDEZVOUS_TIMEOUT,
    &MONITORED_BARRIER,
    &UNIQUE_ID_WAIT,
    &BOOTSTRAP_MISMATCH,
    &RANK_TWICE,
    &ONE_THREAD,
    &TEST_AVERAGE,
    &BOUND,
];
