//! A peer answered over EFA and does not any more: it ended first.

use evidence::Source;
use evidence::signals::efa::EFA_PEER_GONE;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "efa-peer-gone",
    title: "a peer no longer answers over EFA",
    severity: Severity::Error,
    role: Role::Consequence,
    needs: &[Source::JobOutput],
    why: "The connection worked before, so the network and the security group are correct. The process on the other side ended, or its \
          machine failed; this rank only noticed.",
    fix: "Find the rank that stopped first in the logs of the other ranks, and read the kernel messages of its node.",
    references: &["libfabric prov/efa/src/efa_strerror.c", "https://github.com/ofiwg/libfabric/pull/9666"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&EFA_PEER_GONE], Source::JobOutput)?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let message = "EFA lost a peer that had answered before: its process ended or its machine failed";
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &found).or("peer-process-died")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    const GONE: &str = "a:1:2 [0] x:1 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 103. Error: 13 (Unresponsive remote \
                        (was previously responsive)). Completed length: 0\n";

    #[test]
    fn fires_and_does_not_blame_the_security_group() {
        assert_eq!(findings(&RULE, GONE).len(), 1);
        assert!(!ids(GONE).contains(&"efa-security-group"));
    }

    #[test]
    fn a_peer_that_never_answered_is_something_else() {
        quiet(&RULE, "libfabric:1:2::efa:cq:x():1<warn> Unreachable remote (never received a response)\n");
    }
}
