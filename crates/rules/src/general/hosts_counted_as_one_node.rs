//! NCCL treats different hosts as one node.

use evidence::{Member, Source};
use job::{Invariant, Violation};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "hosts-counted-as-one-node",
    title: "NCCL treats different hosts as one node",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "NCCL uses CUDA peer access and shared memory between ranks that it counts as one node. Between two machines neither works, and \
          between two containers only if they share /dev/shm and see each other's GPUs.",
    fix: "Check that NCCL_HOSTID is not the same on different machines, and that all files are of one job. Containers of one machine that \
          share /dev/shm and all GPUs may be one node: then nothing needs to change.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-hostid",
        "NCCL src/misc/utils.cc (getHostHash)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.nccl_log()?;
    let complete = log
        .case
        .world()
        .is_some_and(|it| it.absent().is_empty() && it.members.values().all(Member::is_complete));
    let finding = log.job.violations.iter().find_map(finding);
    // Where all ranks finished the setup, the containers do share what NCCL needs.
    Ok(finding.map(|it| if complete { it.severity(Severity::Info) } else { it }).into_iter().collect())
}

fn finding(violation: &Violation) -> Option<Finding> {
    let (message, hosts) = match &violation.invariant {
        Invariant::MoreHostsThanNodes { communicator, nodes, hosts } => {
            let shown: Vec<&str> = hosts.iter().take(4).map(|it| &**it).collect();
            let more = if hosts.len() > 4 { format!(" and {} more", hosts.len() - 4) } else { String::new() };
            let message = format!(
                "NCCL counts {nodes} node{} in communicator {communicator}, but its lines come from {} hosts: {}{more}",
                if *nodes == 1 { "" } else { "s" },
                hosts.len(),
                shown.join(", ")
            );
            (message, hosts.as_slice())
        }
        Invariant::InsideAcrossHosts { ranks: [from, to], hosts, via } => {
            let message = format!(
                "rank {from} on {} sends to rank {to} on {} via {via}, which works only inside a node",
                hosts[0], hosts[1]
            );
            (message, hosts.as_slice())
        }
        _ => return None,
    };
    let finding = Finding::new(Confidence::Likely, message).seen_all(&violation.quotes).or("several-jobs");
    Some(hosts.iter().take(8).fold(finding, Finding::about_host))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::testing::{findings, quiet};

    fn rank(host: &str, rank: u32, nodes: u32, end: &str) -> String {
        format!(
            "{host}:1:1 [0] NCCL INFO ncclCommInitRank comm 0x{rank}1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x5 - Init {end}\n\
             {host}:1:1 [0] NCCL INFO comm 0x{rank}1 rank {rank} nRanks 2 nNodes {nodes} localRanks 1 localRank 0 MNNVL 0\n"
        )
    }

    #[test]
    fn two_hosts_are_one_node() {
        let found = findings(&RULE, &(rank("a", 0, 1, "START") + &rank("b", 1, 1, "START")));
        assert_eq!(
            found[0].message,
            "NCCL counts 1 node in communicator 0x5, but its lines come from 2 hosts: a, b"
        );
        assert_eq!((found[0].severity, found[0].evidence.len()), (None, 3));
        let works = findings(&RULE, &(rank("a", 0, 1, "COMPLETE") + &rank("b", 1, 1, "COMPLETE")));
        assert_eq!(works[0].severity, Some(Severity::Info));
    }

    #[test]
    fn quiet_where_the_counts_agree_and_with_host_ids() {
        quiet(&RULE, &(rank("a", 0, 2, "START") + &rank("b", 1, 2, "START")));
        let own = "a:1:1 [0] NCCL INFO NCCL_HOSTID set by environment to x\n";
        quiet(&RULE, &(rank("a", 0, 1, "START") + &rank("b", 1, 1, "START") + own));
    }

    #[test]
    fn peer_access_between_hosts() {
        let start = |host: &str, rank: u32| rank_start(host, rank);
        let link = "a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via P2P/IPC\n";
        assert_eq!(
            findings(&RULE, &(start("a", 0) + &start("b", 1) + link))[0].message,
            "rank 0 on a sends to rank 1 on b via P2P/IPC, which works only inside a node"
        );
    }

    fn rank_start(host: &str, number: u32) -> String {
        rank(host, number, 1, "START").lines().next().map(|it| format!("{it}\n")).unwrap_or_default()
    }
}
