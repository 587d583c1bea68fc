//! A rank ended well while the others still waited for it.

use evidence::Source;
use evidence::signals::collectives::WATCHDOG_TIMEOUT;
use evidence::signals::ended::{CLOSED, REMOTE_ERROR};
use job::FailureKind;
use job::failure::{Exit, exits};
use job::finished::left_early;

use crate::sentence::list_of_ranks;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "rank-finished-early",
    title: "a rank finished while others still waited for it",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "This rank destroyed its communicator, as a program does at its end, and left. The others called one more collective, which \
          cannot end without it: they lose the connection or wait until a timeout. The network is not the cause.",
    fix: "Give all ranks the same number of steps: `drop_last=True` and a DistributedSampler that pads, the same length of every shard, one \
          decision to stop that all ranks share (all_reduce of the flag), or `torch.distributed.algorithms.Join` for uneven inputs.",
    references: &[
        "https://docs.pytorch.org/tutorials/advanced/generic_join.html",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/comms.html#ncclcommdestroy",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.find_signals(&[&CLOSED, &REMOTE_ERROR, &WATCHDOG_TIMEOUT], Source::JobOutput)?;
    let Some(left) = left_early(&log.case) else { return Ok(Vec::new()) };
    // A failure of its own explains more.
    let failed = log.job.first_failure.as_ref().is_some_and(|it| it.kind == FailureKind::Own);
    if failed || exits(&log.case).iter().any(Exit::is_own) {
        return Ok(Vec::new());
    }
    let waits = if left.waiting.len() == 1 { "waits" } else { "wait" };
    let message = format!(
        "{} finished and destroyed its communicator; {} still {waits} for it",
        list_of_ranks(&left.ranks),
        list_of_ranks(&left.waiting)
    );
    let finding = Finding::new(Confidence::Likely, message).seen(left.quote);
    let shown =
        [&WATCHDOG_TIMEOUT, &CLOSED, &REMOTE_ERROR].into_iter().flat_map(|it| log.case.sightings_of(it));
    let finding = finding.seen_all(shown.map(|it| &it.quote));
    Ok(vec![left.ranks.iter().take(16).fold(finding, Finding::about_rank)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    const LOG: &str = "a:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init COMPLETE\n\
                       b:2:2 [0] NCCL INFO ncclCommInitRank comm 0x2 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init COMPLETE\n\
                       b:2:2 [0] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 0 busId 1000 - Destroy COMPLETE\n\
                       [2026-11-15 02:54:41] a:1:2 [0] misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer b<5>\n";

    #[test]
    fn the_rank_that_left_is_named_and_did_not_die() {
        assert_eq!(
            findings(&RULE, LOG)[0].message,
            "rank 1 finished and destroyed its communicator; rank 0 still waits for it"
        );
        assert!(!ids(LOG).contains(&"peer-process-died"));
    }

    #[test]
    fn a_failure_of_a_rank_comes_first() {
        quiet(&RULE, &format!("{LOG}[rank1]: ValueError: loss is nan\n"));
        quiet(&RULE, LOG.split("b:2:2 [0] NCCL INFO comm").next().unwrap());
    }
}
