//! A transfer over RDMA failed with a status that no other rule explains.

use evidence::Source;
use evidence::signals::ib::{ASYNC_EVENT, COMPLETION};
use messages::values::{self, Table};

use super::blame::{event, failed_over, first_status, status};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "rdma-transfer-failed",
    title: "a transfer over RDMA failed",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The adapter reports that a transfer or one of its queues failed. The status or event says on which side.",
    fix: "Look at `dmesg` for the adapter on this host and on the peer; update firmware and rdma-core; use one NCCL release \
          and the same settings on all ranks.",
    references: &[
        "rdma-core libibverbs/verbs.h (ibv_wc_status, ibv_event_type)",
        "NCCL src/transport/net_ib/p2p.cc",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&COMPLETION, &ASYNC_EVENT], Source::JobOutput)?;
    let elsewhere = |it: u32| matches!(it, 0 | 4 | 5 | 9..=13 | 16 | 19);
    let failed: Vec<_> = match first_status(log) {
        Some(first) if elsewhere(first) => Vec::new(),
        _ => found.iter().copied().filter(|it| status(it).is_some_and(|it| !elsewhere(it))).collect(),
    };
    let queues: Vec<_> =
        found.iter().copied().filter(|it| matches!(event(it), Some(0 | 1 | 14 | 19))).collect();
    let Some(first) = failed.first().or(queues.first()).filter(|_| !failed_over(log)) else {
        return Ok(Vec::new());
    };
    let table = if *first.signal == COMPLETION { Table::VerbsStatus } else { Table::VerbsEvent };
    let Some(value) = values::in_text(table, &first.quote.text) else { return Ok(Vec::new()) };
    let message = match status(first) {
        Some(number) => format!("a transfer over RDMA failed: {} (status {number})", value.text),
        None => format!("a queue of an adapter failed: {}", value.text),
    };
    let finding = Finding::new(Confidence::Likely, message).by(log, &failed).by(log, &queues);
    Ok(vec![finding.why(&*value.meaning).fix(&*value.remedy)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_on_every_other_status() {
        let line = |status: u32| {
            format!(
                "a:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4> with error {status}, opcode 1, len 0, vendor err 81\n"
            )
        };
        for status in [1, 2, 6, 7, 8, 14, 20, 21] {
            assert_eq!(ids(&line(status))[0], "rdma-transfer-failed", "{status}");
        }
        for status in [4, 5, 9, 10, 11, 12, 13, 19] {
            quiet(&RULE, &line(status));
        }
        assert_eq!(
            findings(&RULE, &line(1))[0].message,
            "a transfer over RDMA failed: local length error (status 1)"
        );
    }

    #[test]
    fn fires_on_queues_that_fail() {
        let line = "a:1:2 [0] NCCL WARN NET/IB : mlx5_0:1 async fatal event on CQ (0x7f): CQ error\n";
        assert_eq!(findings(&RULE, line)[0].message, "a queue of an adapter failed: CQ error");
        quiet(&RULE, "a:1:2 [0] NCCL WARN NET/IB : mlx5_0:1 Got non-fatal async event: SM change(13)\n");
    }
}
