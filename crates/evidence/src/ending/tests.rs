use super::{Kind, read};

fn kind(line: &str) -> Option<Kind> {
    read(line).map(|it| it.kind)
}

#[test]
fn exceptions_of_every_framework() {
    for line in [
        "RuntimeError: NCCL error in: ../torch/lib/c10d/ProcessGroupNCCL.cpp:825, unhandled cuda error, NCCL version 2.7.8",
        "[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, unhandled system error",
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: NCCL operation ncclGroupEnd() failed: unhandled system error",
        "horovod.common.exceptions.HorovodInternalError: ncclCommInitRank failed: unhandled system error",
        "ray.exceptions.RayTaskError(ValueError): ray::TrainTrainable.train() (pid=1, ip=10.0.0.1)",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        "2025-05-05 10:11:12,345 - ERROR - ValueError: loss is nan",
        "AssertionError",
        "subprocess.CalledProcessError: Command '['python']' died with <Signals.SIGKILL: 9>.",
        "ERROR:root:KeyError: 'labels'",
        "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: x",
    ] {
        assert!(kind(line).is_some_and(Kind::is_death), "{line}: {:?}", read(line));
    }
}

#[test]
fn exit_codes_and_signals() {
    for (line, want, code) in [
        ("srun: error: node-a: task 3: Exited with exit code 1", Kind::Exit, 1),
        ("command terminated with exit code 137", Kind::Killed, -9),
        ("[ERROR] [launch.py:325:sigkill_handler] ['python'] exits with return code = -9", Kind::Killed, -9),
        ("failed (exitcode: -11) local_rank: 0 (pid: 9) of binary: /usr/bin/python", Kind::Crash, -11),
        ("Segmentation fault (core dumped)", Kind::Crash, -11),
        ("run.sh: line 3:  4711 Killed                  python train.py", Kind::Killed, -9),
        ("[node-a:1234] Signal: Segmentation fault (11)", Kind::Crash, -11),
        (
            "mpirun noticed that process rank 3 with PID 0 on node n2 exited on signal 9 (Killed).",
            Kind::Killed,
            -9,
        ),
        (
            "W0505 10:12:00.1 140 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 2001 closing signal SIGTERM",
            Kind::Killed,
            -15,
        ),
        ("Exited (137) 2 minutes ago", Kind::Killed, -9),
        ("  exitcode  : 1 (pid: 3)", Kind::Exit, 1),
        ("State=FAILED ExitCode=0:9", Kind::Killed, -9),
    ] {
        let found = read(line);
        assert_eq!(
            found.as_ref().map(|it| (it.kind, it.code)),
            Some((want, Some(code))),
            "{line}: {found:?}"
        );
    }
    let found = read("srun: error: node-a: task 3: Exited with exit code 1").unwrap();
    assert_eq!((found.host, found.rank), (Some("node-a"), Some(3)));
}

#[test]
fn schedulers_runtimes_and_tests() {
    for line in [
        "node-a: Test NCCL failure all_reduce.cu:44 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '",
        "*** Process received signal ***",
        "slurmstepd: error: *** STEP 1234.0 ON node-a CANCELLED AT 2025-05-05T10:11:12 DUE TO TIME LIMIT ***",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        "free(): invalid pointer",
        "Fatal Python error: Aborted",
        "    reason: OOMKilled",
        "Warning  BackOff  2m  kubelet  Back-off restarting failed container",
        "=>> PBS: job killed: walltime 3600 exceeded limit 3600",
        "panic: runtime error: invalid memory address or nil pointer dereference",
        "F0505 10:11:12.1 77 hlo.cc:1] Check failed: ok()",
        "Warning  Preempted  pod/train-0  by a pod on node a",
    ] {
        assert!(kind(line).is_some_and(Kind::is_death), "{line}: {:?}", read(line));
    }
}

#[test]
fn what_healthy_jobs_print() {
    for line in [
        "step 10 | loss 2.1 | grad_error 0.0",
        "UserWarning: torch.distributed is deprecated, errors may follow",
        "errors: 0, failed: 0",
        "0 errors",
        "[INFO] signal handler installed for SIGTERM",
        "    raise RuntimeError(\"x\")",
        "Exited with exit code 0",
        "W1115 02:54:41.123456 1 socket.cpp:697] [c10d] The client socket has failed to connect to [::]:29500, retrying",
        "tensorboard --on-error=ignore",
        "checkpointing to /data/failed_runs/x",
        "Training completed",
        "# Out of bounds values : 0 OK",
        "the job runs without error",
        "error_rate: 0.01",
        "Enabled faulthandler: tracebacks will be dumped on fatal errors",
        "WARNING scheduler.py:1242] Sequence group 0 is preempted by PreemptionMode.RECOMPUTE mode because there is no space",
    ] {
        assert!(kind(line).is_none_or(|it| it == Kind::Finished), "{line}: {:?}", read(line));
    }
}
