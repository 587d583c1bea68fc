//! A collective does what a CUDA graph cannot hold while the stream is captured.

use evidence::Source;
use evidence::signals::cuda::CUDA_FAILURE;

use super::{Owner, failures_of};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "collective-in-graph-capture",
    title: "a collective is captured before its connections exist",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "While a stream is captured into a CUDA graph, only work that the graph can hold is allowed. Since 2.22 NCCL makes \
          its connections at the first collective of a kind: the first one must not be captured.",
    fix: "Run each collective once before the capture (PyTorch: a few warm-up steps on a side stream), or set \
          NCCL_RUNTIME_CONNECT=0 so that NCCL connects when the communicator is made.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-runtime-connect",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/cudagraph.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.find_signals(&[&CUDA_FAILURE], Source::JobOutput)?;
    let found = failures_of(log, Owner::Capture);
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let message = format!("a CUDA call of NCCL failed while a stream was captured: {}", first.error());
    let lines: Vec<_> = found.iter().map(|it| it.sighting).collect();
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &lines)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_the_errors_of_a_capture() {
        let line = "n:1:2 [0] init.cc:1 NCCL WARN Cuda failure 900 'operation not permitted when stream is capturing'\n";
        assert_eq!(findings(&RULE, line).len(), 1);
        quiet(&RULE, "n:1:2 [0] init.cc:1 NCCL WARN Cuda failure 800 'operation not permitted'\n");
    }
}
