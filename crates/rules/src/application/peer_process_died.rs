//! Ranks lost the connection to a process that ended.

use std::collections::BTreeSet;

use evidence::signals::collectives::{TIMEOUT_STATUS, WATCHDOG_TIMEOUT};
use evidence::signals::ended::{CLOSED, GLOO_CLOSED, PEER_DIED, PROXY_FAILED, REMOTE_ERROR, SOCKET_CALL};
use evidence::signals::launch::UNIQUE_ID_WAIT;
use evidence::{Process, Sighting, Source};

use super::end_of_log;
use crate::launch::rank_never_joined::lost_the_store;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};
use job::FailureKind;
use job::culprit::silent_peer;
use job::failure::{Exit, exits, is_messenger, peer, precedes};
use job::finished::left_early;

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "peer-process-died",
    title: "another process of the job ended first",
    severity: Severity::Error,
    role: Role::CutOff,
    needs: &[Source::JobOutput],
    why: "These ranks only report it: their peer's process ended, and they see the closed connection. The cause is usually in the process \
          that ended; if that process is still running, it is in the network between them.",
    fix: "Read the log of the rank that ended first, from its end backwards: a traceback, an out-of-memory error, a crash. If it shows \
          nothing, the process was killed: check `dmesg -T | grep -i -E 'oom|killed process|xid'` on its node, the pod's last state \
          (`kubectl describe pod`: OOMKilled, Evicted) or `sacct`.",
    references: &["https://github.com/NVIDIA/nccl/issues/795", "NCCL src/misc/socket.cc"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let signals =
        [&CLOSED, &SOCKET_CALL, &REMOTE_ERROR, &GLOO_CLOSED, &PEER_DIED, &PROXY_FAILED, &UNIQUE_ID_WAIT];
    let found = log.find_signals(&signals, Source::JobOutput)?;
    let lost: Vec<&Sighting> = found.into_iter().filter(|it| is_end_of_peer(it)).collect();
    let reported = lost.iter().any(|it| *it.signal != PROXY_FAILED);
    let ended: Vec<Exit> = exits(&log.case).into_iter().filter(Exit::is_own).collect();
    let killed = ended.iter().find(|it| it.signal().is_some());
    if !reported && killed.is_none() {
        return Ok(Vec::new());
    }
    // A rank that finished and left did not die.
    if ended.is_empty() && left_early(&log.case).is_some() {
        return Ok(Vec::new());
    }
    // The text of the error mentions a network fault too; a warning that names one explains it.
    let first = log.job.first_failure.as_ref();
    let only_text = lost.iter().all(|it| *it.signal == REMOTE_ERROR) && killed.is_none();
    if only_text && first.as_ref().is_some_and(|it| !is_messenger(&it.quote.text)) {
        return Ok(Vec::new());
    }
    let ranks: BTreeSet<u32> = lost.iter().filter_map(|it| log.case.rank_of(it)).collect();
    let who_lost = match ranks.len() {
        0 => "a rank".to_owned(),
        1 => "1 rank".to_owned(),
        n => format!("{n} ranks"),
    };
    let exit = killed.or(ended.first());
    let suspect = silent_peer(&log.case, &lost);
    // The rank that its peers lost, by its process or as the only one without a line.
    let silent = first.filter(|it| it.kind == FailureKind::Ended && exit.is_none());
    let end = silent.and_then(|it| end_of_log(log, it.rank?));
    let message = if let Some(exit) = exit {
        let name = name(exit.rank, exit.host.as_deref());
        if reported {
            format!("{name} ended with {}; {who_lost} lost the connection to it", exit.describe())
        } else {
            format!("{name} ended with {}", exit.describe())
        }
    } else if let Some(name) =
        suspect.map(Process::name).or_else(|| silent.map(|it| name(it.rank, it.host.as_deref())))
    {
        let log = end.as_ref().map_or("", |it| &it.0);
        format!(
            "{who_lost} lost the connection to {name}, which reports no error itself{log}: it ended or was killed"
        )
    } else {
        let peers: BTreeSet<&str> = lost.iter().filter_map(|it| peer(it)).collect();
        let at = peers.first().map(|it| format!(" at {it}")).unwrap_or_default();
        format!("{who_lost} lost the connection to a process{at} that ended")
    };
    // A watchdog that ends its process after a timeout closes connections too.
    let timeout = log.case.first_of(&[&WATCHDOG_TIMEOUT, &TIMEOUT_STATUS]);
    let after_timeout =
        timeout.is_some_and(|timeout| !lost.iter().any(|it| precedes(it, timeout)) && killed.is_none());
    let confidence = if after_timeout { Confidence::Possible } else { Confidence::Likely };
    let mut finding = Finding::new(confidence, message);
    if let Some(exit) = exit {
        finding = finding.seen(&exit.quote);
        finding = exit.rank.map(|it| finding.clone().about_rank(it)).unwrap_or(finding);
        finding = exit.host.as_ref().map(|it| finding.clone().about_host(it)).unwrap_or(finding);
        if exit.signal() == Some(9) {
            finding = finding.or("host-oom-kill");
        }
    } else if let Some(process) = suspect {
        finding = finding.about_host(&process.host);
        finding = process.rank.map(|it| finding.clone().about_rank(it)).unwrap_or(finding);
    } else if let Some(silent) = silent {
        finding = silent.host.iter().fold(finding, Finding::about_host);
        finding = silent.rank.into_iter().fold(finding, Finding::about_rank);
    }
    if let Some((_, Some(last))) = &end {
        finding = finding.seen(last);
    }
    let shows = |it: &&job::FirstFailure| matches!(it.kind, FailureKind::Own | FailureKind::Ended);
    if let Some(first) = first.filter(shows).filter(|it| !lost.iter().any(|lost| lost.quote == it.quote)) {
        finding = finding.seen(&first.quote);
    }
    Ok(vec![finding.seen_all(lost.iter().map(|it| &it.quote))])
}

/// Whether the line means that the other process ended, rather than that it cannot be reached.
fn is_end_of_peer(sighting: &Sighting) -> bool {
    if *sighting.signal == UNIQUE_ID_WAIT {
        return lost_the_store(sighting);
    }
    let why = sighting.get("why");
    *sighting.signal != SOCKET_CALL || why.contains("Broken pipe") || why.contains("reset by peer")
}

fn name(rank: Option<u32>, host: Option<&str>) -> String {
    match (rank, host) {
        (Some(rank), Some(host)) => format!("rank {rank} on {host}"),
        (Some(rank), None) => format!("rank {rank}"),
        (None, Some(host)) => format!("a process on {host}"),
        (None, None) => "a process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn closed_connections_of_every_age() {
        for text in [
            "m:141:158 [0] include/socket.h:416 NCCL WARN Net : Connection closed by remote peer\n",
            "m:1:2 [1] misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer node-22<47861>\n",
            "m:1:2 [1] misc/socket.cc:518 NCCL WARN Net : Call to recv from 10.0.84.247<58355> failed : Broken pipe\n",
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.1]:8594\n",
        ] {
            assert_eq!(findings(&RULE, text).len(), 1, "{text}");
        }
    }

    #[test]
    fn the_silent_peer_is_named() {
        let text = "a:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\nb:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.2<0>\n\
                    [2026-11-15 02:54:41] a:1:2 [0] misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer b<53964>\n";
        let it = &findings(&RULE, text)[0];
        assert!(
            it.message.contains("lost the connection to process 1 on b, which reports no error itself"),
            "{it:?}"
        );
    }

    #[test]
    fn torchruns_table_names_rank_and_signal() {
        let text = "  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 1)\nRoot Cause (first observed failure):\n\
                    \x20 rank      : 2 (local_rank: 2)\n  exitcode  : -9 (pid: 3)\n";
        let it = &findings(&RULE, text)[0];
        assert_eq!(
            (it.message.as_str(), it.also.as_slice()),
            ("rank 2 ended with signal 9 (SIGKILL)", &["host-oom-kill"][..])
        );
    }

    #[test]
    fn after_a_timeout_it_is_only_a_possibility() {
        let text = "[rank0]:[E1115 02:53:14.26 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, Timeout(ms)=15000) ran for 15004 milliseconds before timing out.\n\
                    [2026-11-15 02:54:17] b:1:2 [0] misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer a<48500>\n";
        assert_eq!(findings(&RULE, text)[0].confidence, Confidence::Possible);
    }

    #[test]
    fn a_network_fault_is_not_a_dead_peer() {
        let text = "[2026-11-15 02:54:51] a:1:2 [0] misc/socket.cc:5 NCCL WARN socketPollConnect: connect to 10.0.0.1<4> returned No route to host, exceeded error retry count\n\
                    [rank1]: torch.distributed.DistBackendError: NCCL error in: x, remote process exited or there was a network error, NCCL version 2.28.9\n";
        quiet(&RULE, text);
    }

    #[test]
    fn a_normal_end_is_quiet() {
        quiet(&RULE, "n:1:2 [0] NCCL INFO [Service thread] Connection closed by localRank 2\n");
        quiet(
            &RULE,
            "n:1:2 [0] misc/socket.cc:5 NCCL WARN Net : Call to recv from 10.0.0.1<1> failed : Connection timed out\n",
        );
    }

    #[test]
    fn frameworks_and_launchers_say_so() {
        for line in [
            "HorovodInternalError: Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce\n",
            "client.h:80] Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task logs\n",
            "UnavailableError: Collective ops is aborted by: /job:worker/replica:0/task:1 is down\n",
            "store by key [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer. This may indicate a possible application crash on rank 0\n",
            "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGSEGV\n",
        ] {
            assert_eq!(findings(&RULE, line).len(), 1, "{line}");
        }
    }
}
