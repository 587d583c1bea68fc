//! A kernel of the program failed, and NCCL was the first to notice.

use evidence::Source;
use evidence::signals::cuda::CUDA_FAILURE;

use super::{Owner, failures_of, who};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "cuda-error-in-program",
    title: "a kernel of the program failed",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "CUDA reports the error of a kernel at a later call, often one of NCCL. After it every CUDA call of the process \
          fails. The network is not the cause, and the other ranks only see closed connections.",
    fix: "Look at the output of this rank before the line: an assertion names its file and line. Run it again with \
          CUDA_LAUNCH_BLOCKING=1, or under `compute-sanitizer`; look for an index out of range (label, token id, embedding) \
          and for buffers that are freed while a collective uses them.",
    references: &[
        "https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer/index.html",
        "https://github.com/NVIDIA/nccl/issues/629",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.find_signals(&[&CUDA_FAILURE], Source::JobOutput)?;
    let found = failures_of(log, Owner::Program);
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let message = format!("a kernel of {} failed: {}", who(log, first.sighting), first.error());
    let lines: Vec<_> = found.iter().map(|it| it.sighting).collect();
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &lines)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_in_every_form() {
        let line =
            "n:1:2 [3] enqueue.cc:1 NCCL WARN Cuda failure 700 'an illegal memory access was encountered'\n";
        assert_eq!(
            findings(&RULE, line)[0].message,
            "a kernel of process 1 on n failed: an illegal memory access was encountered (CUDA error 700)"
        );
        for line in [
            "n:1:2 [3] proxy.cc:1 NCCL WARN Cuda failure 'device-side assert triggered'\n",
            "Last error:\nCuda failure 719 'unspecified launch failure'\n",
            "n:1:2 [3] include/alloc.h:9 NCCL WARN Cuda failure 716 'misaligned address'\n",
        ] {
            assert_eq!(findings(&RULE, line).len(), 1, "{line}");
        }
    }

    #[test]
    fn a_failed_allocation_after_it_is_not_a_lack_of_memory() {
        let log = "n:1:2 [3] include/alloc.h:1 NCCL WARN Cuda failure 700 'an illegal memory access was encountered'\n\
                   n:1:2 [3] include/alloc.h:2 NCCL WARN Failed to CUDA malloc 4 bytes\n";
        assert_eq!(ids(log)[0], "cuda-error-in-program");
        assert!(!ids(log).contains(&"gpu-oom-in-nccl"));
    }

    #[test]
    fn other_errors_are_not_the_programs() {
        quiet(&RULE, "n:1:2 [3] include/alloc.h:1 NCCL WARN Cuda failure 2 'out of memory'\n");
    }
}
