//! What frameworks and programs print: PyTorch, DeepSpeed, trainers, launchers.

use super::Signal;
use crate::source::Kind;

/// The watchdog of a process group gave up on a collective.
pub static WATCHDOG_TIMEOUT: Signal = Signal {
    name: "watchdog-timeout",
    templates: &[
        "Watchdog caught collective operation timeout: WorkNCCL({work}) ran for {ms} milliseconds before timing out",
        "Caught collective operation timeout: WorkNCCL({work}) ran for {ms} milliseconds",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, 1.7 and later",
    meaning: "A collective did not end within the process group's timeout.",
    kind: Kind::TrainingLog,
};

/// The same, with the state of the rank's queue.
pub static TIMEOUT_STATUS: Signal = Signal {
    name: "timeout-status",
    templates: &[
        "Timeout at NCCL work: {work}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, 2.2 and later",
    meaning: "A collective timed out; the line shows the last collectives of this rank.",
    kind: Kind::TrainingLog,
};

/// The last collectives of a rank when something went wrong.
pub static WORK_STATUS: Signal = Signal {
    name: "work-status",
    templates: &[
        "detected by watchdog at work: {work}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.",
        "detected by watchdog at work sequence id: {work} PG status: last enqueued work: {enqueued}, last completed work: {completed}",
        "Received a dump signal due to a collective timeout from {who} and we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, 2.2 and later",
    meaning: "The last collective this rank enqueued and the last it completed.",
    kind: Kind::TrainingLog,
};

/// The watchdog itself hangs.
pub static WATCHDOG_STUCK: Signal = Signal {
    name: "watchdog-stuck",
    templates: &[
        "watchdog got stuck for {time} without making progress in monitoring enqueued collectives",
        "Heartbeat monitor timed out! Process will be terminated after dumping debug info",
        "Exiting to ensure a consistent program state. Expected {n} threads to join the rendezvous",
        "Watchdog timeout (self.watchdog_timeout={seconds}",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, 2.2 and later; XLA's rendezvous; SGLang's scheduler",
    meaning: "A CUDA call or the interpreter lock blocks the watchdog.",
    kind: Kind::TrainingLog,
};

/// What the watchdog prints before it ends the process.
pub static OPERATIONS_FAILED: Signal = Signal {
    name: "operations-failed",
    templates: &[
        "Some NCCL operations have failed or timed out",
        "we are taking the entire process down",
        "NCCL communicator was aborted on rank",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    meaning: "The process is about to end itself.",
    kind: Kind::TrainingLog,
};

/// A rank waited for the store.
pub static STORE_TIMEOUT: Signal = Signal {
    name: "store-timeout",
    templates: &[
        "waitForInput: socket SocketImpl({socket}) timed out after {ms}ms",
        "wait timeout after {ms}ms, keys: {keys...}",
        "Timeout waiting for key: {key}",
        "got error: Socket Timeout",
        "Error: Socket Timeout",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/{TCPStore,socket}.cpp",
    meaning: "A rank waited for a key that another rank did not write in time.",
    kind: Kind::TrainingLog,
};

/// Gloo waited for a peer.
pub static GLOO_TIMEOUT: Signal = Signal {
    name: "gloo-timeout",
    templates: &[
        "Timed out waiting {ms}ms for {what} operation to complete",
        "Application timeout caused pair closure",
    ],
    source: "gloo transport/tcp/unbound_buffer.cc",
    meaning: "A peer did not send or receive in time.",
    kind: Kind::TrainingLog,
};

/// PyTorch names the ranks that are out of step.
pub static DESYNC: Signal = Signal {
    name: "desync",
    templates: &[
        "] finished collective #{finished}, but didn't join collective #{missed} (count from 1)",
        "] joined but didn't finish collective #{missed} (count from 1)",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/TraceUtils.h, with TORCH_NCCL_DESYNC_DEBUG=1",
    meaning: "Ranks that lag behind.",
    kind: Kind::TrainingLog,
};

/// The flight recorder's analysis, and Horovod's.
pub static MISSING_RANKS: Signal = Signal {
    name: "missing-ranks",
    templates: &["[missing ranks: {ranks}]", "missing ranks: {ranks...}", "Missing ranks are {ranks...}"],
    source: "PyTorch tools/flight_recorder, Horovod stall_inspector.cc",
    meaning: "Ranks that did not join a collective.",
    kind: Kind::TrainingLog,
};

/// Horovod waits.
pub static HOROVOD_STALL: Signal = Signal {
    name: "horovod-stall",
    templates: &["by subset of ranks and are waiting for remainder of ranks for more than {seconds} seconds"],
    source: "Horovod horovod/common/stall_inspector.cc",
    meaning: "Some ranks submitted a tensor and others did not.",
    kind: Kind::TrainingLog,
};

/// The flight recorder compared the calls of the ranks.
pub static RECORDED_MISMATCH: Signal = Signal {
    name: "recorded-mismatch",
    templates: &["COLLECTIVE_TYPE_MISMATCH", "SIZE_OR_SYNTAX_MISMATCH", "COLLECTIVE_DTYPE_MISMATCH"],
    source: "PyTorch tools/flight_recorder",
    meaning: "Ranks called different collectives, or with different shapes or types.",
    kind: Kind::TrainingLog,
};

/// NCCL compared the calls of the ranks.
pub static MISMATCHED_COLLECTIVE: Signal = Signal {
    name: "mismatched-collective",
    templates: &[
        "Mismatched collective detected, please check your collective calls at and around rank {rank}.",
        "please check your collective calls at and around rank {rank}.",
    ],
    source: "NCCL src/init.cc, 2.4",
    meaning: "Ranks called different collectives.",
    kind: Kind::NcclLog,
};

/// A message is longer than expected.
pub static MESSAGE_TRUNCATED: Signal = Signal {
    name: "message-truncated",
    templates: &["message truncated : receiving {got} bytes instead of {want}"],
    source: "NCCL src/transport/net_socket.cc",
    meaning: "Two ranks disagree about the size of a message.",
    kind: Kind::NcclLog,
};

/// The same in NCCL's setup messages.
pub static BOOTSTRAP_TRUNCATED: Signal = Signal {
    name: "bootstrap-truncated",
    templates: &["Message truncated : received {got} bytes instead of {want}"],
    source: "NCCL src/bootstrap.cc",
    meaning: "Two ranks are in different steps of a setup.",
    kind: Kind::NcclLog,
};

/// The same over InfiniBand.
pub static SIZE_MISMATCH: Signal = Signal {
    name: "size-mismatch",
    templates: &["collective mismatch error{sizes...}"],
    source: "NCCL src/transport/net_ib.cc",
    meaning: "Two ranks disagree about the size of a message.",
    kind: Kind::NcclLog,
};

/// PyTorch compared the calls of the ranks.
pub static FINGERPRINT: Signal = Signal {
    name: "fingerprint",
    templates: &["Detected mismatch between collectives on ranks{what...}", "collectives on ranks{what...}"],
    source: "PyTorch torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp, with TORCH_DISTRIBUTED_DEBUG=DETAIL",
    meaning: "Two ranks called different collectives, or with different tensors.",
    kind: Kind::TrainingLog,
};

/// A connection ended from the other side.
pub static CLOSED: Signal = Signal {
    name: "closed-by-peer",
    templates: &["Connection closed by remote peer{peer...}"],
    source: "NCCL src/misc/socket.cc",
    meaning: "The process at the other end ended or aborted.",
    kind: Kind::NcclLog,
};

/// A socket call failed.
pub static SOCKET_CALL: Signal = Signal {
    name: "socket-call",
    templates: &["Call to recv{peer} failed : {why...}", "Call to send{peer} failed : {why...}"],
    source: "NCCL src/misc/socket.cc",
    meaning: "An established connection broke; the reason follows.",
    kind: Kind::NcclLog,
};

/// The text of ncclRemoteError.
pub static REMOTE_ERROR: Signal = Signal {
    name: "remote-error",
    templates: &[
        "remote process exited or there was a network error",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely",
    ],
    source: "NCCL src/init.cc, PyTorch NCCLUtils.cpp",
    meaning: "Another rank ended, or the network failed.",
    kind: Kind::TrainingLog,
};

/// A framework reports that another process of the job is gone.
pub static PEER_DIED: Signal = Signal {
    name: "peer-died-said",
    templates: &[
        "Horovod has been shut down. This was caused by an exception on one of the ranks",
        "This most likely indicates that another task died",
        "tasks are unhealthy (stopped sending heartbeats)",
        "Collective ops is aborted by: {what...}",
        "The actor is dead because its worker process has died",
    ],
    source: "Horovod, JAX and XLA's coordination service, TensorFlow, Ray",
    meaning: "Another process of the job ended first.",
    kind: Kind::TrainingLog,
};

/// NCCL's proxy failed a request of a rank.
pub static PROXY_FAILED: Signal = Signal {
    name: "proxy-failed",
    templates: &[
        "Failed to execute operation {operation} from rank {rank}, retcode {code}",
        "Socket recv failed while polling for opId",
        "Proxy Call to rank {rank} failed",
    ],
    source: "NCCL src/proxy.cc",
    meaning: "A helper thread of NCCL failed; an earlier line has the reason.",
    kind: Kind::NcclLog,
};

/// Gloo lost a peer.
pub static GLOO_CLOSED: Signal = Signal {
    name: "gloo-closed",
    templates: &["Connection closed by peer [{peer}]", "Read error [{peer}]{port}: Connection reset by peer"],
    source: "gloo transport/tcp/pair.cc",
    meaning: "The process at the other end ended.",
    kind: Kind::TrainingLog,
};

/// The store of rank 0 went away; also seen when a job ends.
pub static STORE_CLOSED: Signal = Signal {
    name: "store-closed",
    templates: &[
        "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash",
        "sendBytes failed on SocketImpl({socket}): {why...}",
        "recvValue failed on SocketImpl({socket}): {why...}",
        "maybe TCPStore server has shut down too early",
    ],
    source: "PyTorch torch/csrc/distributed/c10d/{TCPStore,Utils}.cpp",
    meaning: "Rank 0's process ended before this one.",
    kind: Kind::TrainingLog,
};

/// torchrun's agent saw a worker fail.
pub static ELASTIC_FAILED: Signal = Signal {
    name: "elastic-failed",
    templates: &["failed (exitcode: {code}) local_rank: {local} (pid: {pid})"],
    source: "PyTorch torch/distributed/elastic/multiprocessing/api.py",
    meaning: "A worker ended with an error.",
    kind: Kind::TrainingLog,
};

/// torchrun's table: which failure came first.
pub static ELASTIC_ROOT: Signal = Signal {
    name: "elastic-root",
    templates: &["Root Cause (first observed failure)"],
    source: "PyTorch torch/distributed/elastic/multiprocessing/errors",
    meaning: "The entry that follows failed first on this node.",
    kind: Kind::TrainingLog,
};

/// torchrun's table: the rank.
pub static ELASTIC_RANK: Signal = Signal {
    name: "elastic-rank",
    templates: &["rank      : {rank} (local_rank: {local})"],
    source: "PyTorch torch/distributed/elastic/multiprocessing/errors",
    meaning: "The rank of a failed worker.",
    kind: Kind::TrainingLog,
};

/// torchrun's table: how it ended.
pub static ELASTIC_EXIT: Signal = Signal {
    name: "elastic-exit",
    templates: &["exitcode  : {code} (pid: {pid})"],
    source: "PyTorch torch/distributed/elastic/multiprocessing/errors",
    meaning: "The exit code of a failed worker; negative for a signal.",
    kind: Kind::TrainingLog,
};

/// torchrun's table: the rest.
pub static ELASTIC_TABLE: Signal = Signal {
    name: "elastic-table",
    templates: &[
        "host      : {host}",
        "traceback : Signal {signal} ({name}) received by PID {pid}",
        "<NO_OTHER_FAILURES>",
    ],
    source: "PyTorch torch/distributed/elastic/multiprocessing/errors",
    meaning: "Details of a failed worker.",
    kind: Kind::TrainingLog,
};

/// torchrun ends the workers that are left.
pub static ELASTIC_TERM: Signal = Signal {
    name: "elastic-term",
    templates: &["Sending process {pid} closing signal {signal}"],
    source: "PyTorch torch/distributed/elastic/multiprocessing/api.py",
    meaning: "This worker is ended because another failed.",
    kind: Kind::TrainingLog,
};

/// mpirun saw a process end by a signal.
pub static MPI_SIGNAL: Signal = Signal {
    name: "mpi-signal",
    templates: &[
        "noticed that process rank {rank} with PID {pid} on node {host} exited on signal {signal}",
        "noticed that process rank {rank} with PID {pid} on node {host} exited on",
    ],
    source: "Open MPI mpirun; prterun, which puts the signal on the next line",
    meaning: "A process was killed by a signal.",
    kind: Kind::TrainingLog,
};

/// The signal, where it is on a separate line.
pub static MPI_SIGNAL_NAME: Signal = Signal {
    name: "mpi-signal-name",
    templates: &[
        "signal {signal} (Segmentation fault",
        "signal {signal} (Killed",
        "signal {signal} (Bus error",
        "signal {signal} (Aborted",
        "THE EXIT STRING: Segmentation fault (signal {signal})",
        "THE EXIT STRING: Killed (signal {signal})",
        "THE EXIT STRING: Bus error (signal {signal})",
        "THE EXIT STRING: Aborted (signal {signal})",
    ],
    source: "prterun; MPICH's hydra",
    meaning: "The signal that ended the process in the line above.",
    kind: Kind::TrainingLog,
};

/// mpirun saw a process fail.
pub static MPI_FAILED: Signal = Signal {
    name: "mpi-failed",
    templates: &[
        "detected that one or more processes exited with non-zero status",
        "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
        "Primary job  terminated normally, but 1 process returned",
    ],
    source: "Open MPI mpirun, prterun; MPICH's hydra",
    meaning: "A process ended with an error; details follow.",
    kind: Kind::TrainingLog,
};

/// mpirun names the process.
pub static MPI_PROCESS: Signal = Signal {
    name: "mpi-process",
    templates: &["Process name: [{name...}"],
    source: "Open MPI mpirun, prterun",
    meaning: "The process that failed first: its rank is the last number.",
    kind: Kind::TrainingLog,
};

/// mpirun reports the exit code.
pub static MPI_CODE: Signal = Signal {
    name: "mpi-code",
    templates: &["Exit code:    {code}", "=   EXIT CODE: {code}"],
    source: "Open MPI mpirun, prterun; MPICH's hydra",
    meaning: "The exit code of the process that failed first.",
    kind: Kind::TrainingLog,
};

/// Other launchers report how a worker ended.
pub static WORKER_ENDED: Signal = Signal {
    name: "worker-ended",
    templates: &[
        "srun: error: {host}: task {rank}: {what...}",
        "srun: error: {host}: tasks {ranks}: {what...}",
        "Terminating remaining workers after failure of Process {rank}.",
        "exits with return code = {code}",
        "ProcessExitedException: process {rank} terminated with signal {signal}",
        "A worker died or was killed while executing a task",
        "The actor died unexpectedly before finishing this task",
    ],
    source: "Slurm srun, Horovod, DeepSpeed's launcher, Ray",
    meaning: "A worker ended with an error.",
    kind: Kind::TrainingLog,
};

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
    &WATCHDOG_TIMEOUT,
    &TIMEOUT_STATUS,
    &WORK_STATUS,
    &WATCHDOG_STUCK,
    &OPERATIONS_FAILED,
    &STORE_TIMEOUT,
    &GLOO_TIMEOUT,
    &DESYNC,
    &MISSING_RANKS,
    &HOROVOD_STALL,
    &RECORDED_MISMATCH,
    &MISMATCHED_COLLECTIVE,
    &MESSAGE_TRUNCATED,
    &BOOTSTRAP_TRUNCATED,
    &SIZE_MISMATCH,
    &FINGERPRINT,
    &CLOSED,
    &SOCKET_CALL,
    &REMOTE_ERROR,
    &PEER_DIED,
    &PROXY_FAILED,
    &GLOO_CLOSED,
    &STORE_CLOSED,
    &ELASTIC_FAILED,
    &ELASTIC_ROOT,
    &ELASTIC_RANK,
    &ELASTIC_EXIT,
    &ELASTIC_TABLE,
    &ELASTIC_TERM,
    &MPI_SIGNAL,
    &MPI_SIGNAL_NAME,
    &MPI_FAILED,
    &MPI_PROCESS,
    &MPI_CODE,
    &WORKER_ENDED,
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
