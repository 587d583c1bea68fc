//! Fixed phrases of frameworks, runtimes, schedulers and Kubernetes.

use super::{Found, Kind, find_ignoring_case, is_whole};

/// A phrase, in lower case.
#[derive(Debug)]
pub(super) struct Phrase {
    pub(super) text: &'static str,
    pub(super) kind: Kind,
    /// It also counts in a line that its program calls a warning or less.
    pub(super) always: bool,
}

const fn death(text: &'static str, kind: Kind) -> Phrase {
    Phrase { text, kind, always: false }
}

const fn always(text: &'static str, kind: Kind) -> Phrase {
    Phrase { text, kind, always: true }
}

/// Words without which a line says nothing about an end, besides the phrases.
pub(super) static WORDS: &[&str] = &[
    "error",
    "exception",
    "exit",
    "signal",
    "sig",
    "return code",
    "returncode",
    "fault",
    "killed",
    "aborted",
    "terminated",
    "core dumped",
    "interrupt",
    "with rc",
    "fail",
    "fatal",
    "crash",
    "died",
    "dead",
    "timeout",
    "timed out",
    "hangup",
    "alarm clock",
    "non-zero",
    "nonzero",
    "illegal instruction",
    "trap",
    "panic",
    "abort",
    "kill",
    "unhealthy",
    "unreachable",
    "evict",
    "preempt",
    "oom",
    "out of memory",
    "cancel",
    "finished with code",
    "not found",
    "notfound",
    "expired",
    "refused",
    "lost",
    "stuck",
    "corrupt",
];

/// By who prints them.
static PHRASES: &[Phrase] = &[
    // NCCL through programs: nccl-tests, PyTorch, XLA, Horovod, NVIDIA's samples.
    death("test nccl failure", Kind::Call),
    death("test cuda failure", Kind::Call),
    death(": test failure", Kind::Call),
    death("failed, nccl error", Kind::Call),
    death("failed: nccl error", Kind::Call),
    death("failed: cuda error", Kind::Call),
    death("failed: mpi error", Kind::Call),
    death("nccl error in:", Kind::Call),
    death("nccl error:", Kind::Call),
    death("nccl failure", Kind::Call),
    death("nccl operation ncclgroupend() failed", Kind::Call),
    death("nccl operation nccl", Kind::Call),
    death("unhandled cuda error", Kind::Call),
    death("unhandled system error", Kind::Call),
    death("ncclsystemerror:", Kind::Call),
    death("ncclunhandledcudaerror:", Kind::Call),
    death("ncclinternalerror:", Kind::Call),
    death("ncclinvalidusage:", Kind::Call),
    death("ncclinvalidargument:", Kind::Call),
    death("ncclremoteerror:", Kind::Call),
    death("last nccl warning(error) log entry", Kind::Call),
    death("cuda error:", Kind::Call),
    death("cuda out of memory", Kind::Call),
    death("hip out of memory", Kind::Call),
    death("cuda runtime error", Kind::Call),
    death("cuda failure", Kind::Call),
    death("cuda_error_", Kind::Call),
    death("cudaerror", Kind::Call),
    death("hip error:", Kind::Call),
    death("cublas_status_", Kind::Call),
    death("cudnn_status_", Kind::Call),
    death("device-side assert", Kind::Crash),
    death("illegal memory access", Kind::Crash),
    death("uncorrectable ecc error", Kind::Call),
    // PyTorch.
    death("watchdog caught collective operation timeout", Kind::Hang),
    death("process group watchdog thread terminated", Kind::Crash),
    death("taking the entire process down", Kind::Crash),
    death("to avoid data inconsistency", Kind::Crash),
    death("watchdog got stuck", Kind::Hang),
    death("heartbeat monitor timed out", Kind::Hang),
    death("timed out initializing process group", Kind::Hang),
    death("failed to pass monitoredbarrier", Kind::Hang),
    always("closing signal sig", Kind::Killed),
    death("root cause (first observed failure)", Kind::Exit),
    death("childfailederror", Kind::Exit),
    death("died with <signals.", Kind::Crash),
    death("dataloader worker (pid", Kind::Killed),
    // JAX, XLA, TensorFlow.
    death("terminating process because the jax distributed service detected fatal errors", Kind::Crash),
    death("the jax distributed service", Kind::Crash),
    death("coordination service agent is in error", Kind::Crash),
    death("coordination service has stopped", Kind::Crash),
    death("check failed:", Kind::Crash),
    death("check failure stack trace", Kind::Crash),
    death("stopped sending heartbeats", Kind::Crash),
    death("exiting to ensure a consistent program state", Kind::Hang),
    // Horovod, DeepSpeed, Ray, vLLM, SGLang.
    death("horovod has been shut down", Kind::Crash),
    death("killing subprocess", Kind::Killed),
    always("sigkill_handler", Kind::Killed),
    death("the actor died", Kind::Crash),
    death("the actor is dead", Kind::Crash),
    death("actor died unexpectedly", Kind::Crash),
    death("a worker died", Kind::Crash),
    death("worker died", Kind::Crash),
    death("worker crashed", Kind::Crash),
    death("workers have died", Kind::Crash),
    death("owner died", Kind::Crash),
    death("the node with node id", Kind::Crash),
    death("killed due to the node running low on memory", Kind::Killed),
    death("ray_oom", Kind::Killed),
    death("engine core initialization failed", Kind::Crash),
    death("engine core proc", Kind::Crash),
    death("engine process failed to start", Kind::Crash),
    death("engine loop has died", Kind::Crash),
    death("enginedead", Kind::Crash),
    death("died unexpectedly, shutting down", Kind::Crash),
    death("worker proc vllmworker", Kind::Crash),
    death("scheduler hit an exception", Kind::Crash),
    death("scheduler or detokenizer", Kind::Crash),
    death("detokenizer", Kind::Trouble),
    death("received sigquit from a child process", Kind::Crash),
    death("a child process failed", Kind::Crash),
    death("initialization failed. please see the error messages above", Kind::Crash),
    // Runtimes.
    death("terminate called", Kind::Crash),
    death("fatal python error", Kind::Crash),
    death("python error:", Kind::Crash),
    death("fatal error", Kind::Crash),
    death("fatal signal", Kind::Crash),
    death("double free or corruption", Kind::Crash),
    death("free(): ", Kind::Crash),
    death("malloc(): ", Kind::Crash),
    death("malloc_consolidate()", Kind::Crash),
    death("munmap_chunk()", Kind::Crash),
    death("realloc(): ", Kind::Crash),
    death("corrupted size vs. prev_size", Kind::Crash),
    death("corrupted double-linked list", Kind::Crash),
    death("stack smashing detected", Kind::Crash),
    death("buffer overflow detected", Kind::Crash),
    death("pure virtual method called", Kind::Crash),
    death("symbol lookup error", Kind::Crash),
    death("error while loading shared libraries", Kind::Crash),
    death("version `glibc", Kind::Crash),
    death("assertion `", Kind::Crash),
    death("assertion failed", Kind::Crash),
    death("panic:", Kind::Crash),
    death("panicked at", Kind::Crash),
    death("goroutine 1 [running]", Kind::Crash),
    death("unexpected fault address", Kind::Crash),
    death("process received signal", Kind::Crash),
    death("caught signal", Kind::Crash),
    death("unhandled exception", Kind::Crash),
    death("uncaught exception", Kind::Crash),
    death("exception in thread", Kind::Crash),
    death("exception in worker", Kind::Crash),
    death("traceback (most recent call last)", Kind::Exception),
    death("segfault at", Kind::Crash),
    death("no such file or directory", Kind::Trouble),
    death("command not found", Kind::NotStarted),
    death("can't open file", Kind::NotStarted),
    death("no module named", Kind::NotStarted),
    death("permission denied", Kind::Trouble),
    death("no space left on device", Kind::Trouble),
    death("cannot allocate memory", Kind::Trouble),
    death("bus error", Kind::Crash),
    death("out of memory", Kind::Trouble),
    // mpirun, prterun, hydra.
    death("mpi_abort was invoked", Kind::Crash),
    death("mpi_abort(", Kind::Crash),
    death("called mpi_abort", Kind::Crash),
    death("bad termination of one of your application processes", Kind::Exit),
    death("your application terminated with the exit string", Kind::Exit),
    death("exiting improperly", Kind::Exit),
    death("has exited due to process", Kind::Exit),
    death("having \"init\" and not called \"finalize\"", Kind::Exit),
    death("the job has been aborted", Kind::Exit),
    death("job has been aborted", Kind::Exit),
    death("process returned a non-zero exit code", Kind::Exit),
    death("mpirun was unable", Kind::Exit),
    death("prte was unable", Kind::Exit),
    death("prterun was unable", Kind::Exit),
    death("orte was unable", Kind::Exit),
    death("an orted daemon has", Kind::Exit),
    death("unexpectedly closed", Kind::Exit),
    death("lost communication with", Kind::Crash),
    death("lost connection to", Kind::Trouble),
    death("all nodes which are allocated for this job are already filled", Kind::Exit),
    death("failed to launch", Kind::Exit),
    death("failed to start", Kind::Exit),
    death("errors were encountered", Kind::Trouble),
    death("fatal error in", Kind::Crash),
    death("abort(", Kind::Crash),
    // Slurm.
    always("slurmstepd: error:", Kind::Cancelled),
    always("srun: error:", Kind::Exit),
    always("srun: fatal:", Kind::Exit),
    always("sbatch: error:", Kind::Exit),
    always("salloc: error:", Kind::Exit),
    always("srun: job step aborted", Kind::Cancelled),
    always("force terminated", Kind::Cancelled),
    always("srun: terminating", Kind::Cancelled),
    always("due to time limit", Kind::Cancelled),
    always("due to preemption", Kind::Cancelled),
    always("due to node failure", Kind::Cancelled),
    always("due to job requeue", Kind::Cancelled),
    always("node_fail", Kind::Cancelled),
    always("node failure on", Kind::Cancelled),
    always("oom_kill event", Kind::Killed),
    always("oom-kill event", Kind::Killed),
    always("out_of_memory", Kind::Killed),
    always("out-of-memory handler", Kind::Killed),
    always("exceeded memory limit", Kind::Killed),
    always("exceeded job memory limit", Kind::Killed),
    // LSF, PBS, SGE, Flux, Cobalt.
    always("term_runlimit", Kind::Cancelled),
    always("term_memlimit", Kind::Killed),
    always("term_owner", Kind::Cancelled),
    always("term_admin", Kind::Cancelled),
    always("term_preempt", Kind::Cancelled),
    always("pbs: job killed", Kind::Cancelled),
    always("job killed: walltime", Kind::Cancelled),
    always("exceeded limit", Kind::Cancelled),
    always("exceeded its time limit", Kind::Cancelled),
    always("exceeded walltime", Kind::Cancelled),
    always("job exceeded", Kind::Cancelled),
    always("walltime limit", Kind::Cancelled),
    always("time limit exceeded", Kind::Cancelled),
    always("job.exception", Kind::Cancelled),
    always("job was killed", Kind::Cancelled),
    always("job was cancelled", Kind::Cancelled),
    always("job was canceled", Kind::Cancelled),
    always("job cancelled", Kind::Cancelled),
    always("job failed", Kind::Exit),
    // Kubernetes, containers, clouds, systemd.
    always("oomkilled", Kind::Killed),
    always("oomkilling", Kind::Killed),
    always("crashloopbackoff", Kind::Exit),
    always("runcontainererror", Kind::Exit),
    always("createcontainererror", Kind::Exit),
    always("createcontainerconfigerror", Kind::Exit),
    always("containercannotrun", Kind::Exit),
    always("imagepullbackoff", Kind::Exit),
    always("errimagepull", Kind::Exit),
    always("starterror", Kind::Exit),
    always("back-off restarting failed", Kind::Exit),
    always("backofflimitexceeded", Kind::Exit),
    always("backoff limit", Kind::Exit),
    always("podfailurepolicy", Kind::Exit),
    always("deadlineexceeded", Kind::Cancelled),
    always("was active longer than specified deadline", Kind::Cancelled),
    always("evicted", Kind::Cancelled),
    always("the node was low on resource", Kind::Cancelled),
    always("preempted", Kind::Cancelled),
    always("nodenotready", Kind::Cancelled),
    always("nodelost", Kind::Cancelled),
    always("unexpectedadmissionerror", Kind::Cancelled),
    always("terminationbykubelet", Kind::Cancelled),
    always("failed to run container", Kind::Exit),
    always("oci runtime", Kind::Exit),
    always("error response from daemon", Kind::Exit),
    always("nvidia-container-cli:", Kind::Exit),
    always("executeuserscripterror", Kind::Exit),
    always("algorithmerror", Kind::Exit),
    always("failed to reach running", Kind::Exit),
    always("spot instance interruption", Kind::Cancelled),
    always("instance-termination", Kind::Cancelled),
    always("failed with result '", Kind::Exit),
    always("main process exited", Kind::Exit),
    always("killed process", Kind::Killed),
    always("memory cgroup out of memory", Kind::Killed),
    always("oom-kill:", Kind::Killed),
    always("invoked oom-killer", Kind::Killed),
    always("fallen off the bus", Kind::Crash),
    always("keyboardinterrupt", Kind::Killed),
    // Ends of a good run.
    always("exits successfully", Kind::Finished),
    always("training completed", Kind::Finished),
    always("training complete", Kind::Finished),
    always("training finished", Kind::Finished),
    always("finished training", Kind::Finished),
    always("training done", Kind::Finished),
    always("'train_runtime':", Kind::Finished),
    always("destroy complete", Kind::Finished),
    always("job completed successfully", Kind::Finished),
    always("completed successfully", Kind::Finished),
];

pub(super) fn all() -> impl Iterator<Item = &'static Phrase> {
    PHRASES.iter()
}

/// What a program says beside an error that it has dealt with.
static SURVIVED: &[&str] = &[
    "ignoring exception",
    "exception ignored",
    "(ignored)",
    "going to /tmp instead",
    "falling back to",
    "training continues",
    ", retrying",
    "retrying in ",
    "will retry",
    "will be retried",
    "entering retry",
    "can be ignored",
    "can safely ignore",
    "safely ignored",
];

/// Whether the line itself says that the program goes on.
pub(super) fn is_survived(line: &str) -> bool {
    SURVIVED.iter().any(|it| find_ignoring_case(line, it).is_some())
}

/// The first phrase of the table that stands in the line.
pub(super) fn read(line: &str, mild: bool) -> Option<Found<'_>> {
    let (phrase, at) = PHRASES
        .iter()
        .filter(|it| it.always || !mild)
        .filter(|it| it.kind != Kind::Trouble)
        .find_map(|it| {
        let at = find_ignoring_case(line, it.text)?;
        let before = line.get(..at)?.chars().next_back();
        let inside = it.text.starts_with(|it: char| it.is_ascii_alphanumeric())
            && before.is_some_and(|it| it.is_alphanumeric() || it == '_');
        // The kernel gives the number of the process: `Killed process 884 (python3)`.
        let after = line.get(at + it.text.len()..)?.trim_start();
        let numbered = it.text != "killed process" || after.starts_with(|it: char| it.is_ascii_digit());
        let denied = is_denied(line, at) || is_foreseen(line, at, it.kind) || is_of_a_request(line, it);
        (!inside && numbered && !denied).then_some((it, at))
    })?;
    // The heading of a traceback says only that an exception follows.
    if phrase.text.starts_with("traceback (") {
        return None;
    }
    // A shell names what it could not start before it says so.
    let from = if matches!(phrase.kind, Kind::Exit | Kind::NotStarted) { 0 } else { at };
    Some(Found::new(phrase.kind, line.get(from..)?))
}

/// Whether the words before say that it did not happen, or only might.
fn is_denied(line: &str, at: usize) -> bool {
    static DENIALS: &[&str] = &[
        "no", "not", "without", "if", "avoid", "prevent", "ignore", "ignoring", "never", "unless", "any",
        "when", "may", "might", "could",
    ];
    let before = line.get(..at).unwrap_or_default().to_ascii_lowercase();
    let mut tail = before.split_whitespace().rev();
    let zero = tail.clone().next() == Some("0");
    zero || tail
        .by_ref()
        .take(3)
        .any(|it| DENIALS.contains(&it.trim_matches(|it: char| !it.is_alphanumeric())))
}

/// Whether the words before say what is done in case of a crash.
fn is_foreseen(line: &str, at: usize, kind: Kind) -> bool {
    kind == Kind::Crash && line.get(..at).is_some_and(|it| find_ignoring_case(it, " will be ").is_some())
}

/// A server that answers requests puts some of them back: nobody ended the job.
fn is_of_a_request(line: &str, phrase: &Phrase) -> bool {
    let about = ["sequence group", "kv cache", "kv-cache", "request"];
    phrase.text == "preempted" && about.iter().any(|it| find_ignoring_case(line, it).is_some())
}

/// Words of a failure, in a line that no other form explains.
static TROUBLE: &[&str] = &[
    "error",
    "errors",
    "failed",
    "failure",
    "failing",
    "fails",
    "fatal",
    "abort",
    "aborted",
    "aborting",
    "crash",
    "crashed",
    "killed",
    "died",
    "dead",
    "exception",
    "traceback",
    "panic",
    "terminated",
    "terminating",
    "cancelled",
    "canceled",
    "evicted",
    "preempted",
    "unhealthy",
    "unreachable",
    "lost",
    "refused",
    "timeout",
    "timed out",
    "out of memory",
    "oom",
    "corrupted",
    "stuck",
    "hang",
    "hung",
    "exited",
    "unexpectedly",
    "interrupted",
    "no space left",
    "permission denied",
    "no such file or directory",
    "cannot allocate memory",
    "unable to",
];

/// Whether a line words a failure; counts of zero and names of things do not.
pub(super) fn trouble(line: &str) -> Option<Found<'_>> {
    for word in TROUBLE {
        let Some(at) = find_ignoring_case(line, word) else { continue };
        // `the job will be terminated` is bad news, `will be dumped on fatal errors` is not.
        let crash = matches!(*word, "error" | "errors" | "failure" | "fatal" | "crash" | "exception");
        let foreseen = crash && is_foreseen(line, at, Kind::Crash);
        if !is_whole(line, at, word.len()) || is_denied(line, at) || foreseen {
            continue;
        }
        let before = line.get(..at)?.trim_end();
        let after = line.get(at + word.len()..)?;
        // `errors: 0`, `failed=0`, `0 errors`, `error.py`, `--on-error`, `loss/error`, `error 0.01`
        let value = after.trim_start_matches([' ', ':', '=', '"', '\'', ',', '|']);
        let counted =
            value.starts_with(|it: char| it.is_ascii_digit() || it == '-') && !value.starts_with("-1");
        let zero = before.ends_with(|it: char| it.is_ascii_digit())
            && before.split_whitespace().next_back() == Some("0");
        let glued = before.len() == at && before.ends_with(['-', '/', '.', '_', '@', '$'])
            || after.starts_with(['/', '-', '_']) && after.chars().nth(1).is_some_and(char::is_alphanumeric)
            || after.starts_with('.') && after.chars().nth(1).is_some_and(char::is_alphanumeric);
        let choice = after.trim_start().starts_with("null")
            || value.starts_with("None")
            || value.starts_with("none")
            || value.starts_with("false")
            || value.starts_with("False");
        if counted || zero || glued || choice {
            continue;
        }
        return Some(Found::new(Kind::Trouble, line));
    }
    None
}
