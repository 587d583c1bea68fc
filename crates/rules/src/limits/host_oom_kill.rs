//! A process was killed because the host had no memory left.

use evidence::Source;
use evidence::signals::limits::{HOST_OOM, KILLED_ALONE, LAUNCHER_ENDED, SIGKILL};
use job::FailureKind;
use job::whose::rank_of_pid;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "host-oom-kill",
    title: "a process was killed for lack of host memory",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput, Source::KernelLog],
    why: "The kernel, or the memory limit of the container or Slurm step, ended a process with SIGKILL. Such a process leaves no \
          traceback; the other ranks report closed connections or time out.",
    fix: "`dmesg -T | grep -i 'killed process'`, `kubectl describe pod` (OOMKilled) or `sacct -o MaxRSS,State` confirm it. Give the job \
          more host memory (`--mem`, resources.limits.memory; a /dev/shm of medium Memory counts too), or use less: load the model once \
          per node or straight to the GPU (low_cpu_mem_usage, meta device), fewer DataLoader workers, no optimizer offload to the CPU.",
    references: &[
        "https://docs.kernel.org/admin-guide/mm/concepts.html#oom-killer",
        "https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let said = log.find_signals(&[&HOST_OOM, &SIGKILL, &KILLED_ALONE], Source::JobOutput)?;
    let denied = |text: &str| {
        ["OOMKilled: false", "OOMKilled\": false", "OOMKilled\":false"].iter().any(|it| text.contains(it))
    };
    let certain: Vec<_> =
        said.iter().copied().filter(|it| *it.signal == HOST_OOM && !denied(&it.quote.text)).collect();
    let alone = |it: &evidence::Sighting| *it.signal == KILLED_ALONE && it.quote.text.trim() == "Killed";
    let killed: Vec<_> = said.iter().copied().filter(|it| *it.signal == SIGKILL || alone(it)).collect();
    if let Some(first) = certain.first() {
        let victim = certain.iter().find(|it| !it.get("name").is_empty());
        let rank = victim.and_then(|it| rank_of_pid(&log.case, it.get("pid")));
        let message = match (victim, rank) {
            (Some(it), Some(rank)) => format!(
                "rank {rank} ({}, pid {}) was killed for lack of host memory",
                it.get("name"),
                it.get("pid")
            ),
            (Some(it), None) => {
                format!("{} (pid {}) was killed for lack of host memory", it.get("name"), it.get("pid"))
            }
            (None, _) if first.quote.text.contains("oom") || first.quote.text.contains("OOM") => {
                "a process was killed for lack of host memory".to_owned()
            }
            (None, _) => "the host ran out of memory".to_owned(),
        };
        let finding = Finding::new(Confidence::Certain, message)
            .seen_all(victim.map(|it| &it.quote))
            .by(log, &certain)
            .by(log, &killed);
        return Ok(vec![match rank {
            Some(rank) => finding.about_rank(rank),
            None => finding,
        }]);
    }
    // After another failure the launcher itself kills what is left.
    let other_first = log.case.sightings_of(&LAUNCHER_ENDED).any(|it| !matches!(it.get("code"), "" | "-9"));
    let forced = log.case.sightings_of(&LAUNCHER_ENDED).any(|it| it.get("signal").starts_with("SIGKILL"));
    let first_killed = log.case.sightings_of(&LAUNCHER_ENDED).any(|it| it.get("code") == "-9");
    if other_first || (forced && !first_killed) {
        return Ok(Vec::new());
    }
    let Some(first) = killed.first() else { return Ok(Vec::new()) };
    let ended = log.job.first_failure.as_ref().filter(|it| it.kind == FailureKind::Ended);
    let who = match (ended.and_then(|it| it.rank), first.get("local"), first.get("pid")) {
        (Some(rank), ..) => format!("rank {rank}"),
        (None, "", "") => "a process".to_owned(),
        (None, "", pid) => format!("process {pid}"),
        (None, local, _) => format!("local rank {local}"),
    };
    let message = format!("{who} was killed (SIGKILL), usually because the host ran out of memory");
    Ok(vec![Finding::new(Confidence::Possible, message).by(log, &killed).or("peer-process-died")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn is_certain_when_someone_says_so() {
        for line in [
            "[Tue Jan  2 03:04:05 2024] Out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:1kB\n",
            "[ 9.1] Memory cgroup out of memory: Killed process 4242 (python3) total-vm:1kB\n",
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=191.batch cgroup. Some of your processes may have been killed\n",
            "srun: error: n: task 0: Out Of Memory\n",
            "    Reason:       OOMKilled\n",
        ] {
            assert_eq!(findings(&RULE, line)[0].confidence, Confidence::Certain, "{line}");
        }
        let named = "Out of memory: Killed process 4242 (python) total-vm:1kB\n";
        assert_eq!(findings(&RULE, named)[0].message, "python (pid 4242) was killed for lack of host memory");
    }

    #[test]
    fn a_kill_alone_is_only_possible() {
        let torchrun = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 3 (pid: 81) of binary: /x/python\n";
        let found = findings(&RULE, torchrun);
        assert_eq!(found[0].confidence, Confidence::Possible);
        assert!(found[0].message.starts_with("local rank 3 was killed"));
    }

    #[test]
    fn what_shells_and_containers_say() {
        for line in [
            "Epoch: [0][511/1736] Loss 0.5117\nKilled\n",
            "srun: error: n: task 3: Killed\n",
            "container trainer exited with code 137\n",
        ] {
            assert_eq!(findings(&RULE, line)[0].confidence, Confidence::Possible, "{line}");
        }
        let evicted = "The node was low on resource: memory. Container worker was using 1Gi\n";
        assert_eq!(findings(&RULE, evicted)[0].confidence, Confidence::Certain);
        quiet(&RULE, "Killed 3 stale sessions\n");
    }

    #[test]
    fn the_launchers_own_kill_is_a_consequence() {
        quiet(
            &RULE,
            "failed (exitcode: 1) local_rank: 2 (pid: 3190) of binary: /x/python3\n  exitcode  : -9 (pid: 3187)\n\
             traceback : Signal 9 (SIGKILL) received by PID 3187\n",
        );
        quiet(
            &RULE,
            "W api.py:1] Unable to shutdown process 7 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL\n\
             traceback : Signal 9 (SIGKILL) received by PID 7\n",
        );
    }

    #[test]
    fn other_ends_are_not_it() {
        quiet(&RULE, "failed (exitcode: 1) local_rank: 2 (pid: 3190) of binary: /x/python3\n");
        quiet(
            &RULE,
            "W torch/distributed/elastic/multiprocessing/api.py:858] Sending process 2336 closing signal SIGTERM\n",
        );
        quiet(&RULE, "\"OOMKilled\": false,\n");
    }
}
