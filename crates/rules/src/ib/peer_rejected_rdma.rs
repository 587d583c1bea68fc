//! An adapter refused a transfer of its peer.

use evidence::signals::ib::{ASYNC_EVENT, COMPLETION, FATAL_EVENT_REPEATED};
use evidence::{Sighting, Source};
use messages::values::{self, Table};

use super::blame::{event, failed_over, first_status, status};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "peer-rejected-rdma",
    title: "an adapter refused a transfer of its peer",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The path works: the peer's adapter received the request and refused it (completion status 9, 10 or 11; there it is \
          an event such as `local access violation work queue error`). The memory that the request names is not registered \
          there any more, or not for this access: GPU memory that GPUDirect does not reach, a rank that freed its buffers or \
          failed, or ranks that differ in release or settings.",
    fix: "Look first at the log of the peer: did it fail before? Run once with NCCL_NET_GDR_LEVEL=LOC on all ranks: if the \
          error is gone, GPUDirect is the cause (ACS, IOMMU, nvidia_peermem, firmware). Use one NCCL release and the same \
          NCCL_IB_* settings on all ranks, and exclude adapters of other networks with NCCL_IB_HCA.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1710",
        "https://github.com/NVIDIA/nccl/issues/1905",
        "NCCL src/transport/net_ib/common.cc (ncclIbAsyncThreadMain)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&COMPLETION, &ASYNC_EVENT, &FATAL_EVENT_REPEATED], Source::JobOutput)?;
    let refused: Vec<_> =
        found.iter().copied().filter(|it| matches!(status(it), Some(9 | 10 | 11 | 16))).collect();
    let refusing: Vec<_> = found.iter().copied().filter(|it| matches!(event(it), Some(2 | 3))).collect();
    // Another first status has a rule of its own.
    let other = first_status(log).is_some_and(|it| !matches!(it, 9 | 10 | 11 | 16));
    if failed_over(log) || other || (refused.is_empty() && refusing.is_empty()) {
        return Ok(Vec::new());
    }
    let text = |it: &&Sighting| {
        let table = if *it.signal == COMPLETION { Table::VerbsStatus } else { Table::VerbsEvent };
        values::in_text(table, &it.quote.text).map(|it| it.text.to_string()).unwrap_or_default()
    };
    let message = match (refused.first(), refusing.first()) {
        (Some(first), _) => {
            let peer = first.get("peer").split('<').next().unwrap_or_default();
            let peer = if peer.is_empty() { "a peer" } else { peer };
            let number = status(first).map(|it| format!(", status {it}")).unwrap_or_default();
            format!("the adapter of {peer} refused a transfer ({}{number})", text(first))
        }
        (None, Some(first)) => {
            let host = first.process.as_ref().map_or("a host", |it| &*it.host);
            format!("an adapter of {host} refused a transfer of a peer ({})", text(first))
        }
        (None, None) => return Ok(Vec::new()),
    };
    let repeated: Vec<_> = found.iter().copied().filter(|it| *it.signal == FATAL_EVENT_REPEATED).collect();
    let finding = Finding::new(Confidence::Likely, message).by(log, &refused).by(log, &refusing);
    Ok(vec![finding.by(log, &repeated).or("acs-breaks-gdr").or("config-mismatch-between-ranks")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_on_both_sides() {
        let sender = "a:1:2 [0] transport/net_ib.cc:1 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<4> with status=10 opcode=1 len=0 vendor err 136 (Send) hca mlx5_0\n";
        assert_eq!(
            findings(&RULE, sender)[0].message,
            "the adapter of 10.0.0.2 refused a transfer (remote access error, status 10)"
        );
        for event in [
            "b:1:2 [0] transport/net_ib.cc:1 NCCL WARN NET/IB : mlx5_0:1 async fatal event on QP (0x7f): local access violation work queue error\n",
            "b:1:2 [0] transport/net_ib.cc:1 NCCL WARN NET/IB : Got async event : invalid request local work queue error\n",
        ] {
            assert!(findings(&RULE, event)[0].message.starts_with("an adapter of b refused a transfer"));
        }
        assert_eq!(ids(sender)[0], "peer-rejected-rdma");
        let named =
            sender.replace("status=10 opcode=1", "status=IBV_WC_REM_INV_REQ_ERR(9) opcode=IBV_WC_SEND(0)");
        assert_eq!(findings(&RULE, &named).len(), 1);
    }

    #[test]
    fn another_first_status_is_the_cause() {
        let line = |status: u32| {
            format!(
                "a:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4> with error {status}, opcode 1, len 0, vendor err 81\n"
            )
        };
        quiet(&RULE, &format!("{}{}", line(4), line(10)));
        quiet(&RULE, &line(12));
        quiet(&RULE, &line(5));
    }
}
