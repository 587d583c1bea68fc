//! Some ranks wait for one that never joined.

use std::collections::BTreeSet;

use evidence::signals::blocked::{LOOK_UP_FAILED, NAME_NOT_RESOLVED};
use evidence::signals::launch::{
    CLIENTS_JOINED, MONITORED_BARRIER, RENDEZVOUS_TIMEOUT, STORE_BARRIER, STORE_BARRIER_DONE,
    STORE_BARRIER_TIMEOUT, TASKS_ABSENT, UNIQUE_ID_WAIT,
};
use evidence::{Absent, Communicator, Quote, Sighting, Source};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "rank-never-joined",
    title: "not all ranks of the job joined",
    severity: Severity::Error,
    role: Role::Missing,
    needs: &[Source::JobOutput],
    why: "A job starts when all its ranks have joined. The ranks that joined wait and report nothing wrong; the cause is in the rank that \
          did not join: it was not started, it died at import, it has another world size, or it cannot reach the master.",
    fix: "Check the logs of the ranks named here: were they started (`kubectl get pods`, `squeue`, the hostfile), did they end with a \
          traceback, and do they have the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT as the others?",
    references: &["https://pytorch.org/docs/stable/distributed.html", "NCCL src/bootstrap.cc"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let signals = [
        &STORE_BARRIER,
        &STORE_BARRIER_TIMEOUT,
        &CLIENTS_JOINED,
        &RENDEZVOUS_TIMEOUT,
        &MONITORED_BARRIER,
        &UNIQUE_ID_WAIT,
        &TASKS_ABSENT,
    ];
    let found = log.find_signals(&signals, Source::JobOutput)?;
    let of = |signal| found.iter().copied().filter(|it| it.signal == signal).collect::<Vec<_>>();
    let waiting = unfinished(log, &of(&STORE_BARRIER));
    let timed_out = of(&STORE_BARRIER_TIMEOUT);
    let joined = of(&CLIENTS_JOINED);
    let barrier = of(&MONITORED_BARRIER);
    let finding = if !waiting.is_empty() || !timed_out.is_empty() {
        store_barrier(log, &[timed_out, waiting].concat())
    } else if let Some(first) = joined.first() {
        let (present, world) = (first.get("joined"), first.get("world"));
        let message =
            format!("{present} of {world} ranks connected to rank 0's store{}", named(&silent(log, first)));
        // A name without an address is the cause, and another rule reports it.
        let named = log.case.first_of(&[&LOOK_UP_FAILED, &NAME_NOT_RESOLVED]).is_some();
        let confidence = if named { Confidence::Possible } else { Confidence::Certain };
        about(Finding::new(confidence, message).by(log, &joined), silent(log, first).iter())
    } else if let Some(first) = barrier.first() {
        // `Rank 3`, `Ranks 1, 3`
        let ranks = first.get("ranks").trim_start_matches('s').trim();
        let message = format!("rank {ranks} did not reach a barrier within {} ms", first.get("ms"));
        let ranks = ranks.split([',', ' ']).filter_map(|it| it.parse().ok());
        about(Finding::new(Confidence::Certain, message).seen_all(barrier.iter().map(|it| &it.quote)), ranks)
    } else if let Some(finding) = log.case.communicators.iter().find_map(|it| half_begun(log, it)) {
        finding
    } else if let Some(first) = of(&RENDEZVOUS_TIMEOUT).first() {
        let message = "not all nodes joined the rendezvous in time";
        Finding::new(Confidence::Likely, message)
            .seen(&first.quote)
            .or("peer-unreachable")
            .or("dns-master-addr")
    } else if let Some(first) = of(&TASKS_ABSENT).first() {
        tasks(log, first, &of(&TASKS_ABSENT))
    } else if let Some(first) = of(&UNIQUE_ID_WAIT).iter().find(|it| !lost_the_store(it)) {
        let message = format!(
            "rank {} did not publish the communicator's id while others waited for it",
            first.get("from")
        );
        let finding = Finding::new(Confidence::Possible, message).by(log, &of(&UNIQUE_ID_WAIT));
        finding.about_rank(first.get("from")).or("timeout-rank0-preprocessing").or("peer-process-died")
    } else {
        return Ok(Vec::new());
    };
    Ok(vec![finding])
}

/// Whether the connection to rank 0 broke while this rank waited for the id: rank 0 is gone.
pub(crate) fn lost_the_store(sighting: &Sighting) -> bool {
    let error = sighting.get("error");
    ["reset by peer", "Broken pipe", "likely closed"].iter().any(|it| error.contains(it))
}

/// Processes of JAX that did not reach a barrier. Any but the first barrier only shows that some are late.
fn tasks(log: &Log, first: &Sighting, found: &[&Sighting]) -> Finding {
    let barrier = found.iter().map(|it| it.get("barrier")).find(|it| !it.is_empty()).unwrap_or_default();
    let beginning = ["PjRT_Client_Connect", "Wait_for_all_tasks_to_register", "WaitForAllTasks"];
    let sure = first.get("barrier").is_empty() || beginning.iter().any(|it| barrier.contains(it));
    let message = match barrier {
        "" => "not all processes registered with the coordinator in time".to_owned(),
        _ => format!("not all processes reached the barrier {barrier} in time"),
    };
    let confidence = if sure { Confidence::Likely } else { Confidence::Possible };
    Finding::new(confidence, message).by(log, found).or("peer-process-died")
}

/// Waits at a barrier that no later line calls complete.
fn unfinished<'a>(log: &Log, waiting: &[&'a Sighting]) -> Vec<&'a Sighting> {
    let done: BTreeSet<&str> = log.case.sightings_of(&STORE_BARRIER_DONE).map(|it| it.get("key")).collect();
    waiting.iter().copied().filter(|it| !done.contains(it.get("key"))).collect()
}

fn store_barrier(log: &Log, found: &[&Sighting]) -> Finding {
    let number = |it: &Sighting, name: &str| it.get(name).trim_matches([':', ' ']).parse::<u32>().ok();
    let world = found.iter().filter_map(|it| number(it, "world")).max().unwrap_or_default();
    let count = found.iter().filter_map(|it| number(it, "count")).max().unwrap_or_default();
    let present: BTreeSet<u32> = found.iter().filter_map(|it| number(it, "rank")).collect();
    let gave_up = found.iter().any(|it| *it.signal == STORE_BARRIER_TIMEOUT);
    if count > world {
        let message = format!(
            "{count} workers joined a job of {world}: a second launch shares its store, or the world size is wrong"
        );
        let finding = Finding::new(Confidence::Likely, message).by(log, found);
        return finding
            .why("The store counts more workers than the world size: two launches with the same address and port, a restart that found the store file of the previous run, or processes started once by the launcher and once by the program.")
            .fix("Use a new MASTER_PORT (or delete the `file://` store), start each rank once, and give all the same WORLD_SIZE.");
    }
    // Ranks can be named only when every rank that joined has a line here.
    let known = u32::try_from(present.len()) == Ok(count);
    let absent = if known { Absent::new(world, present) } else { Absent::default() };
    let message = format!("{count} of {world} ranks joined the process group{}", named(&absent));
    // A late rank may still join after lines that only report waiting.
    let sure = gave_up || (found.len() > 1 && count < world);
    about(
        Finding::new(if sure { Confidence::Likely } else { Confidence::Possible }, message).by(log, found),
        absent.iter(),
    )
}

/// `: rank 4 is missing`
fn named(ranks: &Absent) -> String {
    let list = |n| ranks.iter().take(n).map(|it| it.to_string()).collect::<Vec<_>>().join(", ");
    match ranks.len() {
        0 => String::new(),
        1 => format!(": rank {ranks} is missing"),
        2..=8 => format!(": ranks {} are missing", list(8)),
        n => format!(": ranks {} and {} more are missing", list(3), n - 3),
    }
}

fn about(finding: Finding, ranks: impl Iterator<Item = u32>) -> Finding {
    ranks.take(16).fold(finding, Finding::about_rank)
}

/// Ranks without a line, when as many are missing as the store says.
fn silent(log: &Log, joined: &Sighting) -> Absent {
    let (Some(present), Some(world)) = (joined.number("joined"), joined.number("world")) else {
        return Absent::default();
    };
    let Ok(size) = u32::try_from(world) else { return Absent::default() };
    let mut seen: BTreeSet<u32> = log.case.sightings.iter().filter_map(|it| log.case.rank_of(it)).collect();
    seen.insert(0);
    let silent = Absent::new(size, seen);
    if silent.len() == world - present.min(world) { silent } else { Absent::default() }
}

/// A communicator that some ranks began to create, none finished, and some never began.
fn half_begun(log: &Log, communicator: &Communicator) -> Option<Finding> {
    let absent = communicator.absent();
    let members = communicator.members.values();
    // A rank that knows the layout has reached all others.
    let stuck = members.clone().all(|it| {
        let facts = &it.facts;
        facts.start.is_some()
            && !it.is_complete()
            && facts.layout.is_none()
            && facts.links.is_empty()
            && facts.bootstrap_timings.is_none()
            && facts.trees.is_none()
            && facts.channels.is_none()
    });
    let enough = communicator.members.len() >= 2
        && absent.len() < communicator.members.len() as u64
        && !absent.is_empty();
    let failed = log.case.processes.iter().any(|it| it.facts.warnings.count > 0);
    if !stuck || !enough || failed {
        return None;
    }
    let message = format!(
        "{} of {} ranks began to create communicator {} and none finished{}",
        communicator.members.len(),
        communicator.n_ranks.unwrap_or_default(),
        communicator.name,
        named(&absent)
    );
    let quotes: Vec<&Quote> = members.filter_map(|it| it.facts.start.as_ref()).collect();
    let finding =
        Finding::new(Confidence::Likely, message).seen_all(quotes).about_communicator(&communicator.name);
    Some(about(finding, absent.iter()))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn the_barrier_names_who_is_missing() {
        let old = |rank| {
            format!(
                "INFO:root:Waiting in store based barrier to initialize process group for rank: {rank}, key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)\n"
            )
        };
        let it = findings(&RULE, &format!("{}{}{}", old(0), old(3), old(1)));
        assert_eq!(it[0].message, "3 of 4 ranks joined the process group: rank 2 is missing");
        let new = "torch.distributed.DistStoreError: Timed out initializing process group in store based barrier on rank 0, for key: store_based_barrier_key:1 (world_size=2, num_workers_joined=1, timeout=0:10:00 error=wait timeout)\n";
        assert_eq!(
            findings(&RULE, new)[0].message,
            "1 of 2 ranks joined the process group: rank 1 is missing"
        );
        let done = "INFO:root:Rank 0: Completed store-based barrier for key:store_based_barrier_key:1 with 4 nodes.\n";
        quiet(&RULE, &format!("{}{}{done}", old(0), old(1)));
    }

    #[test]
    fn too_many_workers() {
        let text = "RuntimeError: Timed out initializing process group in store based barrier on rank: 2, for key: store_based_barrier_key:1 (world_size=2, worker_count=4, timeout=0:30:00)\n";
        assert!(findings(&RULE, text)[0].message.starts_with("4 workers joined a job of 2"));
    }

    #[test]
    fn the_store_counts() {
        let text = "[rank0]: torch.distributed.DistStoreError: Timed out after 21 seconds waiting for clients. 3/4 clients joined.\n\
                    [rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 20000ms, keys: /default_pg/0//cuda//0\n\
                    [rank2]:[W1115 02:55:19.344196466 socket.cpp:494] [c10d] waitForInput: socket SocketImpl(fd=46, addr=[b]:34802, remote=[a]:29500) timed out after 20000ms\n";
        let it = findings(&RULE, text);
        assert_eq!(
            (it[0].message.as_str(), it[0].confidence),
            ("3 of 4 ranks connected to rank 0's store: rank 3 is missing", Confidence::Certain)
        );
    }

    #[test]
    fn a_communicator_that_one_rank_never_began() {
        let start = |rank| {
            format!(
                "n{rank}:1:1 [0] NCCL INFO ncclCommInitRankConfig comm 0x{rank}1 rank {rank} nranks 3 cudaDev 0 nvmlDev 0 busId 60 commId 0x4116 - Init START\n"
            )
        };
        let text = format!("{}{}", start(0), start(2));
        assert!(findings(&RULE, &text)[0].message.ends_with("none finished: rank 1 is missing"));
        quiet(&RULE, &start(0));
        quiet(
            &RULE,
            &format!(
                "{text}n0:1:1 [0] NCCL INFO Bootstrap timings total 0.2 (create 0.0, send 0.0, recv 0.0, ring 0.0, delay 0.0)\n"
            ),
        );
    }

    #[test]
    fn barriers_that_name_ranks() {
        let text =
            "[rank0]: RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 1800000 ms\n";
        assert_eq!(findings(&RULE, text)[0].message, "rank 1, 3 did not reach a barrier within 1800000 ms");
    }

    #[test]
    fn the_coordinator_of_jax() {
        let old = "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out task names:\n";
        assert_eq!(
            findings(&RULE, old)[0].message,
            "not all processes reached the barrier PjRT_Client_Connect in time"
        );
        let later = "DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: multihost_broadcast_sync0. Timed out task names:\n";
        assert_eq!(findings(&RULE, later)[0].confidence, Confidence::Possible);
        let new = "Stopping coordination service as cluster registration failed. This may be due to 1) some tasks crashed earlier before connecting\n";
        assert_eq!(findings(&RULE, new)[0].confidence, Confidence::Likely);
    }

    #[test]
    fn a_connection_that_broke_is_not_an_absence() {
        quiet(
            &RULE,
            "[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer. This may indicate a possible application crash on rank 0 or a network set up issue.\n",
        );
    }
}
