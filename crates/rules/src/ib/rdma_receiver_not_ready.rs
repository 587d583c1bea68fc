//! A peer is reachable over RDMA but took no data for too long.

use evidence::Source;
use evidence::signals::ib::COMPLETION;

use super::blame::{failed_over, first_status, status};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "rdma-receiver-not-ready",
    title: "a peer is reachable but takes no data",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The peer's adapter answers, but it had no receive buffer ready until the sender gave up (completion status 13). The \
          network works; the process of the peer is stopped, stuck or overloaded.",
    fix: "Look at the process of the peer: is it stopped (`ps -o stat`), in a debugger, swapping, or waiting for something? \
          NCCL_IB_RETRY_CNT does not help.",
    references: &[
        "rdma-core libibverbs/verbs.h (IBV_WC_RNR_RETRY_EXC_ERR)",
        "NCCL src/transport/net_ib/p2p.cc",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.find_signals(&[&COMPLETION], Source::JobOutput)?;
    let found: Vec<_> = log.case.sightings_of(&COMPLETION).filter(|it| status(it) == Some(13)).collect();
    let Some(first) = found.first().filter(|_| first_status(log) == Some(13) && !failed_over(log)) else {
        return Ok(Vec::new());
    };
    let peer = first.get("peer").split('<').next().unwrap_or_default();
    let peer = if peer.is_empty() { "a peer" } else { peer };
    let message = format!("{peer} is reachable but had no receive buffer ready (status 13)");
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &found).or("peer-process-died")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn names_the_peer() {
        let line = "a:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4> with error 13, opcode 1, len 0, vendor err 135\n";
        assert_eq!(
            findings(&RULE, line)[0].message,
            "10.0.0.2 is reachable but had no receive buffer ready (status 13)"
        );
        quiet(&RULE, &line.replace("error 13", "error 12"));
    }
}
