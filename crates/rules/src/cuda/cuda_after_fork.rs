//! CUDA is used in a process that was forked from one that already used it.

use evidence::Source;
use evidence::signals::cuda::CUDA_FORKED;

use super::{Owner, failures_of, who};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "cuda-after-fork",
    title: "CUDA is used after fork()",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "CUDA does not work in a process that was forked from one in which it was already in use: every call fails with an \
          initialization error.",
    fix: "Start worker processes with `spawn` or `forkserver` (`torch.multiprocessing.set_start_method('spawn')`), or do not \
          touch CUDA before the fork.",
    references: &[
        "https://pytorch.org/docs/stable/notes/multiprocessing.html",
        "https://github.com/NVIDIA/nccl/issues/1029",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let said = log.find_signals(&[&CUDA_FORKED], Source::JobOutput)?;
    let found = failures_of(log, Owner::Fork);
    let lines: Vec<_> = found.iter().map(|it| it.sighting).collect();
    if !said.is_empty() {
        let message = "a process uses CUDA after it was forked from one that already did";
        return Ok(vec![Finding::new(Confidence::Certain, message).by(log, &said).by(log, &lines)]);
    }
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let message = format!("CUDA is not usable in {}: {}", who(log, first.sighting), first.error());
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &lines)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_in_nccl_and_in_pytorch() {
        let nccl = "n:1:2 [0] init.cc:1 NCCL WARN Cuda failure 'initialization error'\n";
        assert_eq!(
            findings(&RULE, nccl)[0].message,
            "CUDA is not usable in process 1 on n: initialization error (CUDA error 3)"
        );
        let torch = "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method\n";
        assert_eq!(findings(&RULE, torch).len(), 1);
        quiet(&RULE, "n:1:2 [0] init.cc:1 NCCL WARN Cuda failure 802 'system not yet initialized'\n");
    }
}
