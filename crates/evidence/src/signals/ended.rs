//! What is printed when a process has ended: by those that talked to it, and by its launcher.

use super::Signal;
use crate::source::Kind;

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

/// All signals of this family.
pub static ALL: &[&Signal] = &[
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
];
