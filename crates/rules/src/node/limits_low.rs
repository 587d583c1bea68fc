//! Small limits on open files, processes, CPUs or memory.

use evidence::node::NodeState;
use evidence::{Missing, Source};

use super::facts::{bytes, count};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-limits-low",
    title: "limits on files, processes, CPUs or memory are small for training",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::Limits],
    why: "NCCL opens files and threads for every peer, and raises its soft limit on open files to the hard one itself. Where the hard limit is \
          small, or processes, CPUs or memory are limited, ranks fail with `Too many open files`, cannot start threads, are slow or are killed.",
    fix: "Raise nofile and nproc in /etc/security/limits.conf or the unit of slurmd, sshd or the container runtime (LimitNOFILE, LimitNPROC, \
          TasksMax); give the pod or job all CPUs and the memory of its share of the node.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        "NCCL src/bootstrap.cc (setFilesLimit)",
    ],
    checks: &[Check::Node(check)],
};

/// Connections of a rank to the rest of a job with 1,000 ranks.
const FILES: u64 = 4096;
const PROCESSES: u64 = 4096;

fn check(state: &NodeState) -> Checked {
    if state.limits.open_files.is_none() && state.limits.processes.is_none() {
        return Err(Missing(Source::Limits));
    }
    let mut found = Vec::new();
    let gpus = count(state);
    let severity = if gpus > 0 { Severity::Warning } else { Severity::Info };
    let mut say = |message: String| found.push(Finding::new(Confidence::Certain, message).severity(severity));
    if let Some(hard) = state.limits.open_files.and_then(|it| it.hard).filter(|it| *it < FILES) {
        say(format!("at most {hard} open files (hard limit); jobs with many ranks need {FILES} or more"));
    }
    if let Some(soft) = state.limits.processes.and_then(|it| it.soft).filter(|it| *it < PROCESSES) {
        say(format!("at most {soft} processes and threads; {PROCESSES} or more are usual"));
    }
    let quota = state.cpu.cgroup.cpus.zip(state.cpu.online);
    if let Some((quota, online)) =
        quota.filter(|(quota, online)| gpus > 0 && *quota < f64::from(*online) * 0.5)
    {
        say(format!("the control group gives {quota:.1} of {online} CPUs"));
    }
    let memory = state.cpu.cgroup.memory_bytes.zip(state.memory.total_bytes);
    if let Some((limit, total)) = memory.filter(|(limit, total)| gpus > 0 && *limit < total / 4) {
        say(format!("the control group gives {} of {} memory", bytes(limit), bytes(total)));
    }
    Ok(found)
}
