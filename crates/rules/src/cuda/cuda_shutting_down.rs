//! A process ends while NCCL still calls CUDA.

use evidence::Source;
use evidence::signals::cuda::CUDA_FAILURE;

use super::{Owner, failures_of, who};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "cuda-shutting-down",
    title: "a process ended while NCCL was at work",
    severity: Severity::Error,
    role: Role::Consequence,
    needs: &[Source::JobOutput],
    why: "CUDA is being unloaded, or its context was destroyed, while a thread of NCCL still uses it: the process is ending, \
          after another failure or without destroying its communicators.",
    fix: "Find what ended the process first. If nothing failed: call `torch.distributed.destroy_process_group()` \
          (ncclCommDestroy) before the program ends.",
    references: &["https://github.com/NVIDIA/nccl-tests/issues/188"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.find_signals(&[&CUDA_FAILURE], Source::JobOutput)?;
    let found = failures_of(log, Owner::Ending);
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let message =
        format!("{} was ending while NCCL was at work: {}", who(log, first.sighting), first.error());
    let lines: Vec<_> = found.iter().map(|it| it.sighting).collect();
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &lines).or("peer-process-died")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_the_end_only() {
        let line = "n:1:2 [0] proxy.cc:1 NCCL WARN Cuda failure 4 'driver shutting down'\n";
        assert_eq!(
            findings(&RULE, line)[0].message,
            "process 1 on n was ending while NCCL was at work: driver shutting down (CUDA error 4)"
        );
        quiet(&RULE, "n:1:2 [0] proxy.cc:1 NCCL WARN Cuda failure 999 'unknown error'\n");
    }
}
