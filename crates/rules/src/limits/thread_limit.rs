//! No more threads or processes can be started.

use evidence::Source;
use evidence::signals::limits::THREAD_REFUSED;

use crate::cuda::who;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "thread-limit",
    title: "the limit on processes and threads is reached",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL starts several threads for each communicator, and frameworks many more. The container (pids.max) or the user \
          (ulimit -u) allows no more of them.",
    fix: "Raise the limit: `docker run --pids-limit=-1`, podPidsLimit of the kubelet, TasksMax= of the service, `ulimit -u \
          unlimited`. Or start fewer threads: OMP_NUM_THREADS=1, fewer DataLoader workers.",
    references: &["https://docs.docker.com/reference/cli/docker/container/run/", "NCCL src/include/checks.h"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&THREAD_REFUSED], Source::JobOutput)?;
    let found: Vec<_> =
        found.into_iter().filter(|it| !it.get("why").contains("Cannot allocate memory")).collect();
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let message = format!("{} could not start another thread or process", who(log, first));
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &found)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_in_nccl_and_elsewhere() {
        for line in [
            "n:1:2 [0] init.cc:1 NCCL WARN Call to pthread_create failed: Resource temporarily unavailable\n",
            "n:1:2 [0] init.cc:1 (f) NCCL WARN Thread creation failed: Resource temporarily unavailable\n",
            "RuntimeError: can't start new thread\n",
            "OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 64: Resource temporarily unavailable\n",
        ] {
            assert_eq!(findings(&RULE, line).len(), 1, "{line}");
        }
        quiet(
            &RULE,
            "n:1:2 [0] socket.cc:1 NCCL INFO Call to accept failed: Resource temporarily unavailable\n",
        );
    }
}
