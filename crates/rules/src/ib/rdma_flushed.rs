//! Transfers over RDMA were thrown away after an earlier error.

use evidence::Source;
use evidence::signals::ib::{ASYNC_EVENT, COMPLETION};

use super::blame::{event, failed_over, first_status, status};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "rdma-flushed",
    title: "transfers over RDMA were thrown away after an earlier error",
    severity: Severity::Error,
    role: Role::Consequence,
    needs: &[Source::JobOutput],
    why: "Once a connection is in error, the adapter throws away all transfers that wait on it (completion status 5). The \
          error itself is not in this input: it was the first completion with another status, on this rank or on its peer.",
    fix: "Give plumb the logs of all ranks: the first completion with a status other than 5, an async event, or a process \
          that ended is the cause.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1737",
        "rdma-core libibverbs/verbs.h (IBV_WC_WR_FLUSH_ERR)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.find_signals(&[&COMPLETION], Source::JobOutput)?;
    let found: Vec<_> = log.case.sightings_of(&COMPLETION).filter(|it| status(it) == Some(5)).collect();
    let events =
        log.case.sightings_of(&ASYNC_EVENT).any(|it| matches!(event(it), Some(0..=3 | 8 | 10 | 14 | 19)));
    if found.is_empty() || events || first_status(log).is_some() || failed_over(log) {
        return Ok(Vec::new());
    }
    let message = "transfers were thrown away after an earlier error that is not in this input (status 5)";
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &found).or("peer-process-died")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_where_the_error_is_missing() {
        let flushed = "a:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4> with error 5, opcode 1, len 0, vendor err 249\n";
        assert_eq!(findings(&RULE, flushed).len(), 1);
        quiet(&RULE, &format!("{flushed}{}", flushed.replace("error 5", "error 12")));
        quiet(&RULE, &format!("{flushed}a:1:2 [0] NCCL WARN NET/IB : Got async event : port error\n"));
    }
}
