//! Ranks of one communicator do not agree about what they share.

use std::collections::BTreeMap;

use evidence::signals::launch::{BOOTSTRAP_MISMATCH, RANK_TWICE};
use evidence::{Process, Quote, Source};
use job::{Invariant, Violation};

use crate::sentence::list_of_ranks;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "ranks-disagree",
    title: "ranks of one communicator disagree",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "All ranks of a communicator must have the same size and number of channels, and each rank number once. Where they differ, they \
          wait for messages that no rank sends.",
    fix: "Give all ranks the same WORLD_SIZE, each its own RANK, and the same NCCL release and NCCL_* variables; a second job on the \
          same MASTER_ADDR and MASTER_PORT also mixes ranks up.",
    references: &["NCCL src/bootstrap.cc", "NCCL src/init.cc"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.nccl_log()?;
    let mut findings = Vec::new();
    if let Some(first) = log.case.sightings_of(&BOOTSTRAP_MISMATCH).next() {
        let message =
            format!("ranks reported different {}s to the root: {}", first.get("what"), first.get("counts"));
        findings.push(Finding::new(Confidence::Certain, message).seen(&first.quote));
    }
    if let Some(first) = log.case.sightings_of(&RANK_TWICE).next() {
        let message = format!("two processes claim to be rank {} of {}", first.get("rank"), first.get("n"));
        findings.push(
            Finding::new(Confidence::Certain, message).seen(&first.quote).about_rank(first.get("rank")),
        );
    }
    findings.extend(log.job.violations.iter().filter_map(|it| contradiction(log, it)));
    for communicator in &log.case.communicators {
        let mut counts: BTreeMap<u32, (Vec<u32>, &Quote)> = BTreeMap::new();
        for (rank, member) in communicator.members.iter().filter(|it| !it.1.guessed) {
            if let Some(channels) = &member.facts.channels {
                counts.entry(channels.value.coll).or_insert((Vec::new(), &channels.quote)).0.push(*rank);
            }
        }
        if counts.len() > 1 {
            let parts: Vec<String> =
                counts.iter().map(|(n, (ranks, _))| format!("{n} on {}", list_of_ranks(ranks))).collect();
            let message =
                format!("channels of communicator {} differ: {}", communicator.name, parts.join(", "));
            let finding = Finding::new(Confidence::Likely, message)
                .severity(Severity::Warning)
                .or("config-mismatch-between-ranks");
            findings.push(finding.seen_all(counts.values().map(|it| it.1)));
            break;
        }
    }
    Ok(findings)
}

/// A number that the lines of one communicator contradict.
fn contradiction(log: &Log, violation: &Violation) -> Option<Finding> {
    let numbers = |all: &[u32]| all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let finding = match &violation.invariant {
        Invariant::SizesDiffer { communicator, sizes } => {
            let message =
                format!("ranks give communicator {communicator} different sizes: {}", numbers(sizes));
            Finding::new(Confidence::Certain, message).about_communicator(communicator)
        }
        Invariant::NodeCountsDiffer { communicator, nodes } => {
            let message = format!(
                "ranks of communicator {communicator} count different numbers of nodes: {}",
                numbers(nodes)
            );
            Finding::new(Confidence::Likely, message).about_communicator(communicator)
        }
        Invariant::RankOfTwoProcesses { communicator, rank, processes } => {
            let all: Vec<&Process> = processes.iter().filter_map(|it| log.case.processes.get(*it)).collect();
            let names: Vec<String> = all.iter().map(|it| format!("{} on {}", it.pid, it.host)).collect();
            let message = format!(
                "{} processes are rank {rank} of communicator {communicator}: {}",
                names.len(),
                names.join(" and ")
            );
            let finding =
                Finding::new(Confidence::Likely, message).about_rank(rank).about_communicator(communicator);
            all.iter().fold(finding, |it, process| it.about_host(&process.host)).or("several-jobs")
        }
        Invariant::RankBeyondSize { rank, size } => {
            let message =
                format!("rank {rank} is in a communicator of {size} ranks: the last one is {}", size - 1);
            Finding::new(Confidence::Likely, message).about_rank(rank).fix(DAMAGED)
        }
        Invariant::SizeImplausible { size } => {
            let message = format!("a communicator of {size} ranks is not plausible");
            Finding::new(Confidence::Likely, message).severity(Severity::Warning).fix(DAMAGED)
        }
        Invariant::LayoutImpossible { rank } => {
            let message = format!("rank {rank} reports ranks and nodes that no job can have");
            Finding::new(Confidence::Likely, message)
                .severity(Severity::Warning)
                .about_rank(rank)
                .fix(DAMAGED)
        }
        _ => return None,
    };
    Some(finding.seen_all(&violation.quotes))
}

const DAMAGED: &str = "Look at the line: if it is damaged or two lines are joined, plumb's answer about this job is not reliable; give it the log \
    of each rank in a file of its own (NCCL_DEBUG_FILE=/tmp/nccl.%h.%p). Otherwise check RANK and WORLD_SIZE of that process.";

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    fn rank(rank: u32, n: u32, channels: u32) -> String {
        format!(
            "n{rank}:1:1 [0] NCCL INFO ncclCommInitRank comm 0x{rank}1 rank {rank} nranks {n} cudaDev 0 nvmlDev 0 busId 60 commId 0x4116 - Init START\n\
             n{rank}:1:1 [0] NCCL INFO {channels} coll channels, 0 nvls channels, 8 p2p channels, 8 p2p channels per peer\n"
        )
    }

    #[test]
    fn channels_and_sizes() {
        let it = findings(&RULE, &(rank(0, 2, 8) + &rank(1, 2, 4)));
        assert_eq!(it[0].message, "channels of communicator 0x4116 differ: 4 on rank 1, 8 on rank 0");
        assert!(
            findings(&RULE, &(rank(0, 2, 8) + &rank(1, 4, 8)))[0].message.contains("different sizes: 2, 4")
        );
        quiet(&RULE, &(rank(0, 2, 8) + &rank(1, 2, 8)));
    }

    #[test]
    fn numbers_that_cannot_be() {
        let message = |log: &str| findings(&RULE, log)[0].message.clone();
        assert_eq!(message(&rank(9, 8, 2)), "rank 9 is in a communicator of 8 ranks: the last one is 7");
        let billion = rank(0, 1_000_000_000, 2);
        assert_eq!(message(&billion), "a communicator of 1000000000 ranks is not plausible");
        let second = rank(0, 2, 8).replace("n0:", "n1:").replace("0x01", "0x71");
        assert_eq!(
            message(&(rank(0, 2, 8) + &second)),
            "2 processes are rank 0 of communicator 0x4116: 1 on n0 and 1 on n1"
        );
    }

    #[test]
    fn the_root_says_so() {
        let text =
            "n:1:1 [0] bootstrap.cc:190 NCCL WARN Bootstrap Root : mismatch in rank count from procs 6 : 3\n";
        assert_eq!(
            findings(&RULE, text)[0].message,
            "ranks reported different rank counts to the root: 6 : 3"
        );
        let twice =
            "n:1:1 [0] bootstrap.cc:1 NCCL WARN Bootstrap Root : rank 3 of 8 ranks has already checked in\n";
        assert_eq!(findings(&RULE, twice)[0].message, "two processes claim to be rank 3 of 8");
    }
}
