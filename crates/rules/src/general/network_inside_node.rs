//! Ranks of one node exchange data over the network.

use evidence::Source;
use job::Invariant;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "network-inside-node",
    title: "ranks of one node exchange data over the network",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Connections],
    why: "Inside a node NVLink, PCIe peer access and shared memory are faster than a NIC or a socket. NCCL uses the network there only if \
          both are refused or switched off, or if NCCL_NET_DISABLE_INTRA=0 allows it.",
    fix: "Unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE. If neither is set, give the containers of one node a common /dev/shm (`--ipc=host`, \
          one pod per node) and all GPUs.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-shm-disable",
        "NCCL src/graph/paths.cc (ncclTopoCheckNet)",
    ],
    checks: &[Check::Log(check)],
};

/// Variables that take the other paths away.
static SETTINGS: &[&str] =
    &["NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_NET_DISABLE_INTRA"];

fn check(log: &Log) -> Checked {
    log.connections()?;
    let found = log.job.violations.iter().find_map(|it| match &it.invariant {
        Invariant::NetworkInsideNode { ranks, via, pairs } => Some((ranks, via, *pairs, &it.quotes)),
        _ => None,
    });
    let Some(([from, to], via, pairs, quotes)) = found else { return Ok(Vec::new()) };
    let others = match pairs {
        0 | 1 => String::new(),
        2 => " (and 1 more pair)".to_owned(),
        n => format!(" (and {} more pairs)", n - 1),
    };
    let set: Vec<_> = SETTINGS
        .iter()
        .filter_map(|name| log.job.settings.named(name).find(|it| it.value.is_some()))
        .collect();
    let names: Vec<String> = set.iter().map(|it| format!("{}={}", it.name, it.text())).collect();
    let setting = if names.is_empty() { String::new() } else { format!("; {} is set", names.join(", ")) };
    let message =
        format!("ranks {from} and {to} are on one node and exchange data via {via}{others}{setting}");
    let confidence = if set.is_empty() { Confidence::Likely } else { Confidence::Certain };
    let finding = Finding::new(confidence, message).seen_all(quotes).about_rank(from).about_rank(to);
    let finding = finding.seen_all(set.iter().filter_map(|it| it.quote()));
    Ok(vec![set.iter().fold(finding, |finding, it| finding.about_variable(&it.name))])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    fn log(nodes: u32, via: &str) -> String {
        format!(
            "n:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes {nodes} localRanks 2 localRank 0 MNNVL 0\n\
             n:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via {via}\n"
        )
    }

    #[test]
    fn fires_inside_a_node_and_names_the_setting() {
        assert_eq!(
            findings(&RULE, &log(1, "NET/Socket/0"))[0].message,
            "ranks 0 and 1 are on one node and exchange data via NET/Socket/0"
        );
        let set = "n:1:1 [0] NCCL INFO NCCL_SHM_DISABLE set by environment to 1.\n";
        assert!(
            findings(&RULE, &(log(1, "NET/IB/0") + set))[0].message.ends_with("; NCCL_SHM_DISABLE=1 is set")
        );
    }

    #[test]
    fn quiet_between_nodes_and_over_other_paths() {
        quiet(&RULE, &log(2, "NET/Socket/0"));
        quiet(&RULE, &log(1, "SHM/direct/direct"));
    }
}
