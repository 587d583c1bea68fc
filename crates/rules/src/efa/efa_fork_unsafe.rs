//! The EFA provider ends a process that calls `fork()` without its protection.

use evidence::Source;
use evidence::signals::efa::{FORK_UNSAFE, WORKER_CRASHED};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "efa-fork-unsafe",
    title: "fork() was called while EFA is not fork-safe",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "Memory registered with EFA must not be shared with a child process on kernels before 5.13. The provider detects the fork and \
          ends the job rather than risk wrong data.",
    fix: "Set `FI_EFA_FORK_SAFE=1` (libfabric 1.13 and later; `RDMAV_FORK_SAFE=1` before) for every process that uses libfabric. \
          aws-ofi-nccl sets it itself; for MPI and other programs that use EFA, set it yourself. Do not set FI_EFA_USE_HUGE_PAGE=1 with \
          it.",
    references: &[
        "https://github.com/jeffhammond/mukautuva/issues/3",
        "libfabric prov/efa/src/efa_fork_support.c",
        "https://ofiwg.github.io/libfabric/main/man/fi_efa.7.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&FORK_UNSAFE], Source::JobOutput)?;
    let Some(first) = found.first() else { return Ok(crashed(log).into_iter().collect()) };
    let message = if first.quote.text.contains("huge page") {
        "fork support and huge pages are both requested from the EFA provider, which cannot do both"
    } else {
        "a process called fork() while it used EFA without fork support, and the provider ended it"
    };
    Ok(vec![Finding::new(Confidence::Certain, message).by(log, &found)])
}

/// A worker that crashed where EFA reads by RDMA and nothing makes it safe to fork.
fn crashed(log: &Log) -> Option<Finding> {
    let crashed: Vec<_> = log.case.sightings_of(&WORKER_CRASHED).collect();
    let rdma = log.job.settings.named("FI_EFA_USE_DEVICE_RDMA").find(|it| it.text() == "1")?;
    let safe = ["FI_EFA_FORK_SAFE", "RDMAV_FORK_SAFE", "IBV_FORK_SAFE"];
    if crashed.is_empty() || safe.iter().any(|it| log.job.settings.named(it).next().is_some()) {
        return None;
    }
    let message = "a forked worker crashed; EFA's RDMA is on, and no setting makes fork() safe";
    Some(
        Finding::new(Confidence::Likely, message)
            .by(log, &crashed)
            .seen_all(rdma.quote())
            .or("host-oom-kill"),
    )
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_the_banner_of_both_ages() {
        for name in ["libfabric", "Libfabric"] {
            let banner = format!(
                "A process has executed an operation involving a call\nto the fork() system call to create a child process.\n\n\
                 As a result, the {name} EFA provider is operating in\na condition that could result in memory corruption or\n\
                 other system errors.\n\nFor the {name} EFA provider to work safely when fork()\nis called, you will need to set\n"
            );
            assert_eq!(findings(&RULE, &banner).len(), 1);
        }
    }

    #[test]
    fn a_worker_that_crashed_without_protection() {
        let crash = "RuntimeError: DataLoader worker (pid 9) is killed by signal: Segmentation fault.\n";
        assert_eq!(findings(&RULE, &format!("FI_EFA_USE_DEVICE_RDMA=1 FI_PROVIDER=efa\n{crash}")).len(), 1);
        quiet(&RULE, &format!("FI_EFA_USE_DEVICE_RDMA=1\nRDMAV_FORK_SAFE=1\n{crash}"));
        quiet(&RULE, crash);
    }

    #[test]
    fn the_note_of_open_mpi_is_another_one() {
        quiet(
            &RULE,
            "A process has executed an operation involving a call to the\n\"fork()\" system call to create a child process.  Open MPI \
             is currently\noperating in a condition that could result in memory corruption or\nother system errors\n",
        );
        quiet(&RULE, "a:1:2 [0] NCCL INFO NET/OFI Setting FI_EFA_FORK_SAFE environment variable to 1\n");
    }
}
