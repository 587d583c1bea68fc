//! What is printed when ranks wait for each other in vain, or for different things.

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
];
