//! Ranks of one job loaded different NCCL releases.

use std::collections::{BTreeMap, BTreeSet};

use evidence::signals::versions::{
    BAD_ADDRESS_FAMILY, ERROR_VERSION, MISMATCHED_VERSION, NCCL_PACKAGE, SETUP_TRUNCATED,
};
use evidence::{Process, Quote, Sighting, Signal, Source};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nccl-version-mismatch",
    title: "ranks use different NCCL releases",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The ranks exchange structures whose layout changes between releases. Older ones do not check: they read invalid addresses or \
          hang.",
    fix: "Use one image on all nodes. Compare `python -c 'import torch; print(torch.cuda.nccl.version())'` and look for a second \
          libnccl.so in LD_LIBRARY_PATH or LD_PRELOAD.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1267",
        "NCCL src/init.cc (Mismatched NCCL version detected, 2.23+)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let said = log.find_signals(
        &[&MISMATCHED_VERSION, &BAD_ADDRESS_FAMILY, &SETUP_TRUNCATED, &ERROR_VERSION, &NCCL_PACKAGE],
        Source::JobOutput,
    )?;
    let of =
        |signal: &Signal| said.iter().copied().filter(|it| *it.signal == *signal).collect::<Vec<&Sighting>>();
    let stated = of(&MISMATCHED_VERSION);
    let together = one_job(log);
    let versions = loaded(&together);
    if versions.len() > 1 {
        let list: Vec<String> =
            versions.iter().map(|(version, (n, _))| format!("{version} in {n}")).collect();
        let message = format!("processes loaded different NCCL releases: {}", list.join(", "));
        let confidence = if stated.is_empty() && !shares_communicator(log) {
            Confidence::Likely
        } else {
            Confidence::Certain
        };
        let finding = Finding::new(confidence, message).seen_all(stated.iter().map(|it| &it.quote));
        return Ok(vec![finding.seen_all(versions.values().map(|it| it.1))]);
    }
    if let Some(first) = stated.first() {
        let (x, y) = (readable(first.get("x")), readable(first.get("y")));
        let message = format!("NCCL reports that one rank has release {x} and another {y}");
        return Ok(vec![Finding::new(Confidence::Certain, message).by(log, &stated)]);
    }
    // The installed release and the one in vLLM may differ; each is compared with its own kind.
    let (used, installed) = of(&NCCL_PACKAGE).into_iter().partition(|it| it.quote.text.contains("is using"));
    for found in [of(&ERROR_VERSION), installed, used] {
        let different: BTreeSet<&str> = found
            .iter()
            .map(|it| it.get("version").trim_end_matches('.'))
            .filter(|it| !it.is_empty())
            .collect();
        if different.len() > 1 {
            let list: Vec<&str> = different.into_iter().collect();
            let message = format!("the nodes have different NCCL releases: {}", list.join(" and "));
            let finding = Finding::new(Confidence::Likely, message).by(log, &found);
            return Ok(vec![finding.seen_all(of(&BAD_ADDRESS_FAMILY).iter().map(|it| &it.quote))]);
        }
    }
    // A misnamed interface also causes an invalid address family in 2.27.
    let nonsense = of(&BAD_ADDRESS_FAMILY);
    let truncated = of(&SETUP_TRUNCATED);
    if let Some(first) = truncated.first().filter(|_| nonsense.is_empty()) {
        let (received, expected) = (first.get("received"), first.get("expected"));
        let message = format!(
            "a rank sent {received} bytes in the setup where {expected} were expected, as happens with another release"
        );
        return Ok(vec![
            Finding::new(Confidence::Possible, message).by(log, &truncated).or("collective-mismatch"),
        ]);
    }
    let named_interface = log.job.settings.named("NCCL_SOCKET_IFNAME").next().is_some();
    if nonsense.is_empty() || named_interface {
        return Ok(Vec::new());
    }
    let finding = Finding::new(
        Confidence::Likely,
        "a rank received an address with an invalid family, as happens with another NCCL release",
    );
    Ok(vec![finding.by(log, &nonsense).or("socket-ifname-not-found")])
}

/// Processes that are known to belong together; where no communicator shows it, all.
fn one_job(log: &Log) -> Vec<&Process> {
    let shared = log.case.communicators.iter().find(|it| {
        let members: Vec<&Process> =
            it.members.values().filter_map(|it| log.case.processes.get(it.process)).collect();
        loaded(&members).len() > 1
    });
    match shared {
        Some(it) => it.members.values().filter_map(|it| log.case.processes.get(it.process)).collect(),
        // Several jobs in one input may differ: only a job that did not start is suspected.
        None if log
            .case
            .communicators
            .iter()
            .any(|it| it.members.values().any(evidence::Member::is_complete)) =>
        {
            Vec::new()
        }
        None => log.case.processes.iter().collect(),
    }
}

fn shares_communicator(log: &Log) -> bool {
    log.case.communicators.iter().any(|it| {
        let members: Vec<&Process> =
            it.members.values().filter_map(|it| log.case.processes.get(it.process)).collect();
        loaded(&members).len() > 1
    })
}

/// The releases, each with the number of processes and a line.
fn loaded<'a>(processes: &[&'a Process]) -> BTreeMap<&'a str, (u32, &'a Quote)> {
    let mut versions: BTreeMap<&str, (u32, &Quote)> = BTreeMap::new();
    for process in processes {
        if let Some(seen) = process.facts.version.first() {
            versions.entry(&seen.value).or_insert((0, &seen.quote)).0 += 1;
        }
    }
    versions
}

/// `22809` as `2.28.9`.
fn readable(code: &str) -> String {
    match code.parse::<u32>() {
        Ok(code) if code >= 10_000 => format!("{}.{}.{}", code / 10_000, code / 100 % 100, code % 100),
        Ok(code) if code >= 1000 => format!("{}.{}.{}", code / 1000, code / 100 % 10, code % 100),
        _ => code.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_when_processes_differ() {
        let log = "a:1:1 [0] NCCL INFO NCCL version 2.20.5+cuda12.4\nb:1:1 [0] NCCL INFO NCCL version 2.19.3+cuda12.4\n";
        assert_eq!(findings(&RULE, log).len(), 1);
    }

    #[test]
    fn fires_when_nccl_or_the_packages_say_so() {
        let said = "n:1:1 [0] init.cc:897 NCCL WARN Mismatched NCCL version detected : rank 1 version 22803 rank 0 version 22809\n";
        assert_eq!(
            findings(&RULE, said)[0].message,
            "NCCL reports that one rank has release 2.28.3 and another 2.28.9"
        );
        let packages = "node1: nvidia-nccl-cu12==2.20.5\nnode2: nvidia-nccl-cu12==2.19.3\n";
        assert_eq!(
            findings(&RULE, packages)[0].message,
            "the nodes have different NCCL releases: 2.19.3 and 2.20.5"
        );
        let errors = "[rank0]: DistBackendError: NCCL error in: NCCLUtils.cpp:93, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9\n\
                      [rank1]: DistBackendError: NCCL error in: NCCLUtils.cpp:93, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.28.3\n";
        assert_eq!(findings(&RULE, errors).len(), 1);
    }

    #[test]
    fn quiet_when_they_agree_and_for_two_jobs_that_worked() {
        quiet(
            &RULE,
            "a:1:1 [0] NCCL INFO NCCL version 2.20.5+cuda12.4\nb:1:1 [0] NCCL INFO NCCL version 2.20.5+cuda12.4\n",
        );
        quiet(
            &RULE,
            "a:1:1 [0] NCCL INFO NCCL version 2.20.5+cuda12.4\na:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 busId 60 commId 0x5 - Init COMPLETE\n\
             b:1:1 [0] NCCL INFO NCCL version 2.19.3+cuda12.4\nb:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 busId 60 commId 0x6 - Init COMPLETE\n",
        );
    }

    #[test]
    fn a_nonsense_family_beside_a_named_interface_is_something_else() {
        let family = "ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)\n";
        assert_eq!(findings(&RULE, family).len(), 1);
        quiet(&RULE, &format!("n:1:1 [3] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth2\n{family}"));
    }

    #[test]
    fn quiet_on_what_is_installed_beside_what_vllm_brings() {
        quiet(
            &RULE,
            "[pip3] nvidia-nccl-cu12==2.19.3\nINFO pynccl_utils.py:45] vLLM is using nccl==2.18.1\n",
        );
        let two = "(ip=10.0.0.1) vLLM is using nccl==2.18.1\n(ip=10.0.0.2) vLLM is using nccl==2.20.5\n";
        assert_eq!(findings(&RULE, two).len(), 1);
    }
}
