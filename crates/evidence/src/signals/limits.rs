//! Memory, shared memory, files, locked memory.

use super::Signal;
use crate::source::Kind;

/// NCCL found no space in /dev/shm.
pub static SHM_FULL: Signal = Signal {
    name: "shm-full",
    templates: &[
        "Call to posix_fallocate failed : No space left on device",
        "Call to posix_fallocate failed: No space left on device",
        "Error: failed to extend {file} to {bytes} bytes, error: {why...}",
        "Error: failed to extend {file} to {bytes} bytes",
        "Error while creating shared memory segment {file} (size {bytes}), error: {why...}",
        "Error while creating shared memory segment {file} (size {bytes})",
        "fallocate: Failed to extend {file} to {bytes} bytes, error: {why...}",
        "Unable to allocate shared memory ({bytes} bytes) : {why...}",
    ],
    source: "NCCL include/shm.h (up to 2.12), src/misc/shmutils.cc (2.13 to 2.29), src/os/linux.cc (2.30)",
    meaning: "NCCL could not create a buffer in /dev/shm: it is full or too small.",
    kind: Kind::NcclLog,
};

/// A rank may not create its buffer in /dev/shm.
pub static SHM_DENIED: Signal = Signal {
    name: "shm-denied",
    templates: &[
        "Call to shm_open failed : Permission denied",
        "Call to shm_open failed: Permission denied",
        "Call to open failed : Permission denied",
        "Call to open failed: Permission denied",
        "Error while creating shared memory segment {file} (size {bytes}), error: Permission denied",
        "Error while creating shared memory segment {file} (size {bytes}), error: Read-only file system",
        "Error: failed to create shared memory file {file}, error Permission denied",
        "Error: failed to create shared memory file {file}, error Read-only file system",
        "Call to shm_open failed : Read-only file system",
        "Call to open failed : Read-only file system",
        "Call to open failed: Read-only file system",
    ],
    source: "NCCL src/include/shm.h (up to 2.11), src/misc/shmutils.cc (2.12 to 2.29), src/os/linux.cc (2.30)",
    meaning: "The process may not create files in /dev/shm.",
    kind: Kind::NcclLog,
};

/// A rank does not find the buffer that another rank made in /dev/shm.
pub static SHM_NOT_FOUND: Signal = Signal {
    name: "shm-not-found",
    templates: &[
        "Error while attaching to shared memory segment {file} (size {bytes}), error: {why...}",
        "Error while attaching to shared memory segment {file} (size {bytes})",
    ],
    source: "NCCL src/include/shm.h, src/misc/shmutils.cc, src/os/linux.cc, all releases",
    meaning: "Two ranks that NCCL takes for one node do not share /dev/shm.",
    kind: Kind::NcclLog,
};

/// No more threads can be started.
pub static THREAD_REFUSED: Signal = Signal {
    name: "thread-refused",
    templates: &[
        "NCCL WARN Thread creation failed{why...}",
        "Call to pthread_create failed : Resource temporarily unavailable",
        "Call to pthread_create failed: Resource temporarily unavailable",
        "RuntimeError: can't start new thread",
        "RuntimeError: Resource temporarily unavailable",
        "what():  Resource temporarily unavailable",
        "blas_thread_init: pthread_create failed for thread {n} of {m}: Resource temporarily unavailable",
        "libgomp: Thread creation failed: Resource temporarily unavailable",
        "fork: retry: Resource temporarily unavailable",
        "BlockingIOError: [Errno 11] Resource temporarily unavailable",
    ],
    source: "NCCL src/include/checks.h and src/include/utils.h, Python, OpenBLAS, libgomp, shells",
    meaning: "The limit on processes and threads of the user or container is reached.",
    kind: Kind::TrainingLog,
};

/// A process died on a page of /dev/shm that could not be allocated.
pub static SHM_BUS_ERROR: Signal = Signal {
    name: "shm-bus-error",
    templates: &[
        "is killed by signal: Bus",
        "Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)",
        "It is possible that dataloader's workers are out of shared memory",
        "out of shared memory. Please try to raise your shared memory limit",
        "unable to write to file </torch_",
        "unable to allocate shared memory(shm) for file </torch_",
        "unable to allocate shared memory (shm) for file </torch_",
        "unable to open shared memory object </torch_{file}> in read-write mode: No space left on device",
        "No space left on device: '/dev/shm/",
        "No space left on device: '/psm_",
        "Please check that /dev/shm or the directory you specified has more available memory",
        "(the shared-memory backing",
        "Fatal Python error: Bus error",
        "Signal 7 (SIGBUS) received by PID",
        "received signal SIGBUS, Bus error",
        "failed (exitcode: -7)",
        "Signal: Bus error (7)",
        "Caught signal 7 (Bus error",
        "Bus error (core dumped)",
    ],
    source: "PyTorch DataLoader and torchrun, Python, UCX, Open MPI, gdb",
    meaning: "A worker wrote to shared memory for which there was no space left.",
    kind: Kind::TrainingLog,
};

/// Python found no space left, and does not say where.
pub static NO_SPACE: Signal = Signal {
    name: "no-space-unnamed",
    templates: &["OSError: [Errno 28] No space left on device"],
    source: "Python",
    meaning: "A disk or /dev/shm is full.",
    kind: Kind::TrainingLog,
};

/// A traceback that goes through shared memory.
pub static SHARED_MEMORY_FRAME: Signal = Signal {
    name: "shared-memory-frame",
    templates: &[
        "/multiprocessing/shared_memory.py\", line {line}",
        "/multiprocessing/heap.py\", line {line}",
        "/multiprocessing/synchronize.py\", line {line}",
        "/torch/multiprocessing/reductions.py\", line {line}",
    ],
    source: "Python tracebacks",
    meaning: "The failure happened while a process created shared memory.",
    kind: Kind::TrainingLog,
};

/// `df` shows that /dev/shm is full.
pub static SHM_FULL_BY_DF: Signal = Signal {
    name: "shm-full-by-df",
    templates: &["100% /dev/shm", "99% /dev/shm"],
    source: "df -h",
    meaning: "There is no space left in /dev/shm.",
    kind: Kind::Notes,
};

/// Ray avoids a small /dev/shm.
pub static SHM_SMALL_FOR_RAY: Signal = Signal {
    name: "shm-small-for-ray",
    templates: &["because /dev/shm has only {bytes} bytes available"],
    source: "Ray",
    meaning: "/dev/shm is too small for Ray's object store, which uses the disk instead.",
    kind: Kind::TrainingLog,
};

/// No more files or sockets can be opened.
pub static TOO_MANY_OPEN_FILES: Signal = Signal {
    name: "too-many-open-files",
    templates: &["Too many open files", "too many open files", "received 0 items of ancdata"],
    source: "the C library (EMFILE), printed by NCCL, PyTorch and Python",
    meaning: "The limit of open files is reached; sockets count as files.",
    kind: Kind::TrainingLog,
};

/// `ulimit -n`, as pasted.
pub static OPEN_FILE_LIMIT: Signal = Signal {
    name: "open-file-limit",
    templates: &["open files {unit}-n) {value}", "ulimit -n => {value}", "ulimit -n: {value}"],
    source: "ulimit -a",
    meaning: "How many files a process may open.",
    kind: Kind::Notes,
};

/// The kernel or the cluster's manager killed a process for memory.
pub static HOST_OOM: Signal = Signal {
    name: "host-oom",
    templates: &[
        "Out of memory: Killed process {pid} ({name})",
        "Out of memory: Kill process {pid} ({name})",
        "Memory cgroup out of memory: Killed process {pid} ({name})",
        "Memory cgroup out of memory: Kill process {pid} ({name})",
        "invoked oom-killer: ",
        "oom-kill:constraint={constraint}",
        "oom_reaper: reaped process {pid} ({name})",
        "oom-kill event(s) in ",
        "oom_kill event in ",
        "oom_kill events in ",
        "killed by the cgroup out-of-memory handler",
        "tasks have been OOM Killed",
        "task {task}: Out Of Memory",
        "OOMKilled",
        "killed due to memory pressure (OOM)",
        "was killed due to the node running low on memory",
        "exceeded memory limit (",
        "Exceeded job memory limit",
        "Exceeded step memory limit",
        "The node was low on resource: memory",
        "TERM_MEMLIMIT: job killed",
        "systemd-oomd killed ",
    ],
    source: "Linux, systemd, Slurm, LSF, Kubernetes, Ray",
    meaning: "A process was killed because the host or its container had no memory left.",
    kind: Kind::KernelLog,
};

/// A process was killed with SIGKILL; the line does not say by whom.
pub static SIGKILL: Signal = Signal {
    name: "sigkill",
    templates: &[
        "failed (exitcode: -9) local_rank: {local}",
        "Signal 9 (SIGKILL) received by PID {pid}",
        "exitcode  : -9 (pid: {pid})",
        "is killed by signal: Killed",
        "exited on signal 9 (Killed)",
        "exits with return code = -9",
        "died with <Signals.SIGKILL: 9>",
        "command terminated with exit code 137",
        "Exit Code:    137",
        "exitCode: 137",
        "terminated by signal SIGKILL",
        "terminated with signal SIGKILL",
        "killed by SIGKILL by OOM killer",
        "interrupted by signal 9: SIGKILL",
        "exited with code 137",
        "exit with status code 137",
        "Exited (137)",
        "exit code: 137",
        "exit status 137",
        "task {task}: Killed",
        "zsh: killed ",
        ": line {line}: {pid} Killed  ",
    ],
    source: "torchrun, DeepSpeed, Open MPI, Horovod, Slurm, PyTorch DataLoader, Docker, Kubernetes",
    meaning: "A process was killed, usually by the kernel for lack of host memory.",
    kind: Kind::TrainingLog,
};

/// The word that a shell prints for a killed process, alone on its line.
pub static KILLED_ALONE: Signal = Signal {
    name: "killed-alone",
    templates: &["Killed"],
    source: "shells; the line must hold nothing else",
    meaning: "A process was killed, usually for lack of host memory.",
    kind: Kind::TrainingLog,
};

/// The first process that failed, or the launcher's own kill of those that were left.
pub static LAUNCHER_ENDED: Signal = Signal {
    name: "launcher-ended",
    templates: &[
        "failed (exitcode: {code}) local_rank: {local}",
        "forcefully exiting via Signals.{signal}",
        "forcefully exitting via Signals.{signal}",
    ],
    source: "torchrun",
    meaning: "torchrun names the first failure, and kills processes that do not end by themselves.",
    kind: Kind::TrainingLog,
};

/// NCCL's service thread lost its files.
pub static PROXY_POLL_FAILED: Signal = Signal {
    name: "proxy-poll-failed",
    templates: &["[Proxy Service] Poll failed: {why...}", "[Proxy Service UDS] Poll failed: {why...}"],
    source: "NCCL src/proxy.cc",
    meaning: "A thread of NCCL can no longer wait for its connections, usually because one could not be opened.",
    kind: Kind::NcclLog,
};

/// NCCL found no free GPU memory.
pub static GPU_OOM_IN_NCCL: Signal = Signal {
    name: "gpu-oom-in-nccl",
    templates: &["Cuda failure 'out of memory'", "Cuda failure 2 'out of memory'"],
    source: "NCCL src/include/alloc.h and others, all releases",
    meaning: "The GPU has no memory left for NCCL's buffers.",
    kind: Kind::NcclLog,
};

/// NCCL got no GPU memory, whatever the reason.
pub static GPU_ALLOCATION_FAILED: Signal = Signal {
    name: "gpu-allocation-failed",
    templates: &[
        "Failed to CUDA calloc async {bytes} bytes",
        "Failed to CUDA calloc {bytes} bytes",
        "Failed to CUDA malloc {bytes} bytes",
    ],
    source: "NCCL src/include/alloc.h, 2.14 and later, after any CUDA error of the allocation",
    meaning: "NCCL could not allocate GPU memory; the `Cuda failure` before it says why.",
    kind: Kind::NcclLog,
};

/// nccl-tests found no free GPU memory.
pub static GPU_OOM_IN_TESTS: Signal = Signal {
    name: "gpu-oom-in-tests",
    templates: &[
        "Test CUDA failure {place} 'out of memory'",
        "Cuda failure common.cu:{line} 'out of memory'",
    ],
    source: "nccl-tests src/common.cu",
    meaning: "The test's own buffers do not fit into GPU memory.",
    kind: Kind::NcclTests,
};

/// Memory could not be locked for the HCA.
pub static LOCKED_MEMORY_REFUSED: Signal = Signal {
    name: "locked-memory-refused",
    templates: &[
        "Please set max locked memory (ulimit -l) to 'unlimited' (current: {limit})",
        "ibv_create_cq(cqe={n}) failed: Cannot allocate memory",
        "ibv_create_cq() failed: Cannot allocate memory",
        "ibv_create_qp() failed: Cannot allocate memory",
        "Call to ibv_create_cq failed with error Cannot allocate memory",
        "Call to ibv_create_qp failed with error Cannot allocate memory",
        "Call to ibv_create_srq failed with error Cannot allocate memory",
        "Call to ibv_reg_mr failed with error Cannot allocate memory",
        "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
        "Call to ibv_alloc_pd failed with error Cannot allocate memory",
        "ibv_reg_mr() failed: Cannot allocate memory",
        "ibv_reg_mr(address={address}) failed: Cannot allocate memory",
        "Failure to post internal receive buffers",
        "memlock limits are set too low",
        "allocate some locked memory",
        "RLIMIT_MEMLOCK is {bytes} bytes",
    ],
    source: "NCCL src/misc/ibvwrap.cc, UCX, libfabric (EFA), Open MPI, libibverbs",
    meaning: "The process may not lock as much memory as RDMA needs.",
    kind: Kind::NcclLog,
};

/// The same failures in releases that do not say why.
pub static VERBS_REFUSED: Signal = Signal {
    name: "verbs-refused",
    templates: &["Call to ibv_create_qp failed", "Call to ibv_create_cq failed", "Call to ibv_reg_mr failed"],
    source: "NCCL src/misc/ibvwrap.cc",
    meaning: "An RDMA object could not be created; releases before 2.12 do not say why.",
    kind: Kind::NcclLog,
};

/// The EFA plugin could not register memory for lack of memory.
pub static REGISTRATION_WITHOUT_MEMORY: Signal = Signal {
    name: "registration-without-memory",
    templates: &[
        "Unable to register memory (type = 1) for device {device}. RC: 12, Error: Cannot allocate memory",
        "Unable to register MR: Cannot allocate memory",
        "Unable to register MR of {bytes} bytes: Cannot allocate memory",
        "Unable to register memory (type = 1) for device {device}. RC: -12, Error: Cannot allocate memory",
    ],
    source: "aws-ofi-nccl, register_mr_buffers; libfabric prov/efa/src/efa_mr.c",
    meaning: "Host memory could not be registered with the EFA adapter.",
    kind: Kind::NcclLog,
};

/// `ulimit -l`, as pasted.
pub static LOCKED_MEMORY_LIMIT: Signal = Signal {
    name: "locked-memory-limit",
    templates: &[
        "max locked memory {unit}-l) {value}",
        "ulimit -l => {value}",
        "ulimit -l: {value}",
        "Max locked memory {value...}",
    ],
    source: "ulimit -a, /proc/PID/limits",
    meaning: "How much memory a process may lock.",
    kind: Kind::Notes,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[
    &GPU_ALLOCATION_FAILED,
    &GPU_OOM_IN_NCCL,
    &GPU_OOM_IN_TESTS,
    &HOST_OOM,
    &KILLED_ALONE,
    &LAUNCHER_ENDED,
    &LOCKED_MEMORY_LIMIT,
    &LOCKED_MEMORY_REFUSED,
    &NO_SPACE,
    &OPEN_FILE_LIMIT,
    &PROXY_POLL_FAILED,
    &REGISTRATION_WITHOUT_MEMORY,
    &SHARED_MEMORY_FRAME,
    &SHM_BUS_ERROR,
    &SHM_DENIED,
    &SHM_FULL,
    &SHM_FULL_BY_DF,
    &SHM_NOT_FOUND,
    &SHM_SMALL_FOR_RAY,
    &SIGKILL,
    &THREAD_REFUSED,
    &TOO_MANY_OPEN_FILES,
    &VERBS_REFUSED,
];
