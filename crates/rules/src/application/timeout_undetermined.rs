//! A collective timed out and no line shows why.

use std::collections::BTreeSet;

use evidence::signals::collectives::{
    DESYNC, GLOO_TIMEOUT, HOROVOD_STALL, MISSING_RANKS, OPERATIONS_FAILED, STORE_TIMEOUT, TIMEOUT_STATUS,
    WATCHDOG_STUCK, WATCHDOG_TIMEOUT,
};
use evidence::signals::ended::{CLOSED, REMOTE_ERROR, SOCKET_CALL};
use evidence::signals::launch::UNIQUE_ID_WAIT;
use evidence::{Sighting, Source};

use job::FailureKind;
use job::finished::left_early;
use job::watchdog::{progress, timeouts};

use super::end_of_log;
use crate::sentence::list_of_ranks;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};
use job::failure::precedes;

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "timeout-undetermined",
    title: "a collective timed out and the input does not show why",
    severity: Severity::Error,
    role: Role::Waiting,
    needs: &[Source::JobOutput],
    why: "NCCL has no timeout: PyTorch's watchdog ends ranks that wait too long. The ranks that report it are the ones that wait; the \
          cause is in a rank that did not join: busy (saving, tokenising, compiling), in another collective, hanging, or dead.",
    fix: "Give plumb the logs of all ranks: the one with the lowest `last enqueued` is the one to check. For the next run set \
          TORCH_FR_BUFFER_SIZE=2000 (older PyTorch: TORCH_NCCL_TRACE_BUFFER_SIZE) and TORCH_NCCL_DUMP_ON_TIMEOUT=1, and give plumb the \
          dumps of all ranks beside the logs; `py-spy dump --pid` shows where a rank hangs now. If a rank is only slow, raise init_process_group(timeout=...) (`ddp_timeout`).",
    references: &[
        "https://pytorch.org/tutorials/unstable/flight_recorder_tutorial.html",
        "PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    ],
    checks: &[Check::Log(check)],
};

/// Every rank came, so none is missing.
const ALL_ENQUEUED: &str = "Compare what the ranks called: all of them had enqueued this collective, and it does not move (sizes, \
     types, order): set TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 and give plumb the dumps. If all called the \
     same, it is the path between them: look for the network errors of the nodes (`dmesg -T`, counters of the NICs) and for a rank that \
     is stopped (`py-spy dump --pid`).";

/// The rank that lags is known.
const BEHIND: &str = "Look at the ranks named: `py-spy dump --pid` shows where such a rank is now; its log shows what it did last. If it is only slow \
     (saving, tokenising, compiling), raise init_process_group(timeout=...) (`ddp_timeout`).";

fn check(log: &Log) -> Checked {
    let signals = [
        &WATCHDOG_TIMEOUT,
        &TIMEOUT_STATUS,
        &WATCHDOG_STUCK,
        &GLOO_TIMEOUT,
        &DESYNC,
        &MISSING_RANKS,
        &HOROVOD_STALL,
        &OPERATIONS_FAILED,
        &STORE_TIMEOUT,
    ];
    let found = log.find_signals(&signals, Source::JobOutput)?;
    let of = |signal| found.iter().copied().filter(|it| it.signal == signal).collect::<Vec<&Sighting>>();
    let works = timeouts(&log.case);
    let named = of(&DESYNC).into_iter().chain(of(&MISSING_RANKS)).next();
    let main = [
        &WATCHDOG_TIMEOUT,
        &TIMEOUT_STATUS,
        &WATCHDOG_STUCK,
        &GLOO_TIMEOUT,
        &HOROVOD_STALL,
        &STORE_TIMEOUT,
        &OPERATIONS_FAILED,
    ];
    let mut evidence = main.iter().map(|it| of(it)).find(|it| !it.is_empty()).unwrap_or_default();
    // Other rules report ranks that wait for the id of a communicator, and the error that ends a process.
    let only_store = works.is_empty() && evidence.iter().all(|it| *it.signal == STORE_TIMEOUT);
    let not_a_timeout = evidence.iter().all(|it| *it.signal == OPERATIONS_FAILED)
        && log.case.first_of(&[&CLOSED, &REMOTE_ERROR, &SOCKET_CALL]).is_some();
    if (only_store
        && (evidence.is_empty() || log.case.first_of(&[&UNIQUE_ID_WAIT]).is_some())
        && named.is_none())
        || (not_a_timeout && named.is_none())
    {
        return Ok(Vec::new());
    }
    let what = match works.first() {
        Some(work) => {
            let number = work.sequence.map(|it| format!(" number {it}")).unwrap_or_default();
            let same =
                works.iter().filter(|it| (it.sequence, it.operation) == (work.sequence, work.operation));
            let waiting: BTreeSet<u32> = same.filter_map(|it| it.rank).collect();
            let waiting: Vec<u32> = waiting.into_iter().collect();
            let after = work.timeout_ms.map(|it| format!(" after {} s", it / 1000)).unwrap_or_default();
            let who = if waiting.is_empty() { "a rank".to_owned() } else { list_of_ranks(&waiting) };
            format!(
                "{who} timed out{after} in {}{number}",
                if work.operation.is_empty() { "a collective" } else { work.operation }
            )
        }
        None => match evidence.first() {
            Some(it) if *it.signal == TIMEOUT_STATUS => format!("work number {} timed out", it.get("work")),
            Some(it) if *it.signal == WATCHDOG_STUCK => {
                "the watchdog itself hangs: a CUDA call does not return".to_owned()
            }
            Some(it) if *it.signal == HOROVOD_STALL => {
                "some ranks submitted tensors that others did not".to_owned()
            }
            Some(it) if *it.signal == GLOO_TIMEOUT => {
                format!("a {} of gloo timed out after {} ms", it.get("what"), it.get("ms"))
            }
            Some(it) if *it.signal == STORE_TIMEOUT => {
                "a rank waited for a key in the store that no rank wrote".to_owned()
            }
            _ => "a collective failed or timed out".to_owned(),
        },
    };
    let mut finding;
    if let Some(named) = named {
        let ranks = named_ranks(named);
        finding =
            Finding::new(Confidence::Likely, format!("{what}; {} did not join it", list_of_ranks(&ranks)));
        finding = ranks.iter().take(16).fold(finding.seen(&named.quote), Finding::about_rank);
    } else {
        let all = progress(&log.case);
        let last = all.values().map(|it| it.enqueued).max().unwrap_or_default();
        let behind: Vec<u32> = all.iter().filter(|it| it.1.enqueued < last).map(|it| *it.0).collect();
        let few = behind.len() * 2 < all.len();
        let silent = behind.is_empty().then(|| silent(log)).flatten();
        let blame = match (behind.is_empty(), few) {
            (false, true) => format!("; {} had not enqueued number {last}", list_of_ranks(&behind)),
            (false, false) => {
                format!("; {} of {} ranks had not enqueued number {last}", behind.len(), all.len())
            }
            (true, _) if silent.is_some() => String::new(),
            (true, _) if all.len() > 1 => format!("; all {} ranks that report had enqueued it", all.len()),
            (true, _) => String::new(),
        };
        let end = silent.and_then(|it| end_of_log(log, it.0));
        let absent =
            silent.map(|(rank, what)| format!("; rank {rank} {what}{}", end.as_ref().map_or("", |it| &it.0)));
        let absent = absent.unwrap_or_default();
        finding = Finding::new(Confidence::Likely, format!("{what}{blame}{absent}"));
        if few {
            finding = behind.iter().fold(finding, Finding::about_rank);
        }
        finding = silent.into_iter().fold(finding, |it, silent| it.about_rank(silent.0));
        finding = end.and_then(|it| it.1).iter().fold(finding, Finding::seen);
        if !behind.is_empty() && !few {
            finding = finding.or("collective-mismatch");
        }
        // The advice follows what the logs show.
        let world = log.job.size.n_ranks().map_or(usize::MAX, |it| it as usize);
        if let Some((_, what)) = silent {
            finding = finding.fix(match what {
                ENDED => super::peer_process_died::RULE.fix,
                FINISHED => super::rank_finished_early::RULE.fix,
                _ => BEHIND,
            });
        } else if behind.is_empty() && all.len() > 1 && all.len() >= world {
            finding = finding.fix(ALL_ENQUEUED);
        } else if log.has(Source::AllRanks) && few {
            finding = finding.fix(BEHIND);
        }
        evidence.extend(all.iter().filter(|it| behind.contains(it.0)).map(|it| it.1.sighting).take(2));
        evidence.rotate_right(if few { behind.len().min(2) } else { 0 });
    }
    if evidence.iter().any(|it| *it.signal == HOROVOD_STALL) {
        finding = finding.or("collective-mismatch");
    }
    // A connection that closed before is the earlier sign.
    let closed = log.case.sightings_of(&CLOSED).next();
    if closed.is_some_and(|closed| evidence.iter().all(|it| precedes(closed, it))) {
        finding.confidence = Confidence::Possible;
    }
    Ok(vec![finding.seen_all(evidence.iter().map(|it| &it.quote)).or("timeout-rank0-save")])
}

const ENDED: &str = "had ended";
const FINISHED: &str = "had finished";

/// The rank that the others waited for, where it does not report anything itself.
fn silent(log: &Log) -> Option<(u32, &'static str)> {
    let first = log.job.first_failure.as_ref()?;
    let reports =
        |rank| log.case.sightings_of(&WATCHDOG_TIMEOUT).any(|it| log.case.rank_of(it) == Some(rank));
    let rank = first.rank.filter(|it| !reports(*it))?;
    match first.kind {
        FailureKind::Finished => Some((rank, FINISHED)),
        FailureKind::Absent if left_early(&log.case).is_some_and(|it| it.ranks.contains(&rank)) => {
            Some((rank, FINISHED))
        }
        FailureKind::Behind | FailureKind::Absent => Some((rank, "reports nothing")),
        FailureKind::Ended => Some((rank, ENDED)),
        FailureKind::Own | FailureKind::Reported => None,
    }
}

/// `[0, 2] finished collective #4, but ...`, `missing ranks: {1}`
fn named_ranks(sighting: &Sighting) -> Vec<u32> {
    let text = if *sighting.signal == DESYNC {
        let before = sighting.quote.text.split("] finished").next().unwrap_or_default();
        let before = before.split("] joined").next().unwrap_or_default();
        before.rsplit('[').next().unwrap_or_default()
    } else {
        sighting.get("ranks")
    };
    text.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    fn timeout(rank: u32) -> String {
        format!(
            "[rank{rank}]:[E1115 02:53:14.26 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=65536, NumelOut=65536, Timeout(ms)=15000) ran for 15004 milliseconds before timing out.\n"
        )
    }

    fn status(rank: u32, enqueued: u32) -> String {
        format!(
            "[rank{rank}]:[E1115 02:53:17.34 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a dump signal due to a collective timeout from  rank 1 and we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: 3.This is most likely caused by\n"
        )
    }

    #[test]
    fn the_rank_that_is_behind_is_named() {
        let text = timeout(0) + &timeout(1) + &status(0, 4) + &status(1, 4) + &status(2, 3);
        let it = &findings(&RULE, &text)[0];
        assert_eq!(
            it.message,
            "ranks 0, 1 timed out after 15 s in ALLREDUCE number 4; rank 2 had not enqueued number 4"
        );
        assert_eq!(it.entities[0].name, "2");
    }

    #[test]
    fn one_rank_that_waits_for_all_others_may_be_the_odd_one() {
        let text = timeout(1) + &status(0, 3) + &status(1, 4) + &status(2, 3);
        assert!(findings(&RULE, &text)[0].also.contains(&"collective-mismatch"));
    }

    #[test]
    fn desync_reports_and_flight_recorders_name_ranks() {
        let desync = timeout(0)
            + "\t     [2, 3] finished collective #3, but didn't join collective #4 (count from 1)\n";
        assert!(findings(&RULE, &desync)[0].message.ends_with("ranks 2, 3 did not join it"));
        let recorder = "Not all ranks joining collective 5 at entry 4\ncollective: nccl:all_reduce\nmissing ranks: {1}\n";
        assert!(findings(&RULE, recorder)[0].message.ends_with("rank 1 did not join it"));
    }

    #[test]
    fn old_and_short_forms() {
        for text in [
            "[rank7]:[E1129 11:56:57.642513817 ProcessGroupNCCL.cpp:1834] [PG ID 0 PG GUID 0(default_pg) Rank 7] Timeout at NCCL work: 28956, last enqueued NCCL work: 28956, last completed NCCL work: 28955.\n",
            "[E ProcessGroupNCCL.cpp:341] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels\n",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete\n",
        ] {
            assert_eq!(findings(&RULE, text)[0].confidence, Confidence::Likely, "{text}");
        }
    }

    #[test]
    fn an_error_is_not_a_timeout() {
        let text = "n:1:2 [0] misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer b<1>\n\
                    [rank0]:[E1115 02:55:42.2 ProcessGroupNCCL.cpp:750] [Rank 0] Some NCCL operations have failed or timed out.\n";
        quiet(&RULE, text);
    }

    #[test]
    fn the_end_of_a_process_that_lost_its_peer_is_not_a_timeout() {
        quiet(
            &RULE,
            "[rank5]:[E207 19:37:09.983540349 ProcessGroupNCCL.cpp:681] [Rank 5] Some NCCL operations have failed or timed out.\n\
             socketProgressOpt: Call to recv from 10.0.0.5<49901> failed : Broken pipe\n",
        );
        let aborted = "RuntimeError: NCCL communicator was aborted on rank 0. Original reason for failure was: timeout\n";
        assert_eq!(findings(&RULE, aborted).len(), 1);
    }
}
