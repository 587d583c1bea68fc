//! Each rank sees one GPU of a machine whose GPUs are joined by NVLink.

use std::collections::BTreeSet;

use evidence::{Missing, Source};
use job::size::NodeLayout;
use nccl::Loss;

use crate::expected::{self, Expected, Numbers};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "one-gpu-of-many",
    title: "every rank is a separate node on a machine with NVLink",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Instance],
    why: "NCCL counts pods with different host names as different nodes. Ranks that share a machine then communicate over its network \
          devices instead of NVLink, which is many times slower, and compete for its EFA devices.",
    fix: "Check whether the pods share a machine: `kubectl get pods -o wide`, or the instance ids. If so, start one pod with all GPUs and \
          EFA devices of the node and one process per GPU in it (torchrun --nproc-per-node). NCCL_HOSTID alone is not enough: NVLink \
          between pods also needs a shared /dev/shm and all GPUs visible.",
    references: &[
        "NCCL src/misc/utils.cc (host hash)",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.nccl_log()?;
    let expected = log.expected().ok_or(Missing(Source::Instance))?;
    let gpus = expected.gpus();
    if gpus < 2 || expected.machine.nvlinks.is_empty() {
        return Ok(Vec::new());
    }
    let (Some(world), Some(layout)) = (log.case.world(), &log.job.size.reported) else {
        return Ok(Vec::new());
    };
    let NodeLayout { ranks, nodes, ranks_per_node } = layout.value;
    if ranks < 2 || nodes != ranks || ranks_per_node != 1 {
        return Ok(Vec::new());
    }
    let message = format!(
        "NCCL counts the {ranks} ranks as {nodes} nodes with one GPU each, on {}, which has {gpus} GPUs joined by NVLink: ranks that share a machine do not use NVLink",
        expected.name
    );
    // Pods of one machine have different GPUs; ranks on separate machines usually have the same.
    let buses: BTreeSet<u64> = world.members.values().filter_map(|it| it.line()?.bus_id).collect();
    let all_seen = world.absent().is_empty() && ranks <= gpus;
    let confidence = match buses.len() {
        1 if world.members.len() > 1 => return Ok(Vec::new()),
        n if all_seen && n == world.members.len() => Confidence::Likely,
        _ => Confidence::Possible,
    };
    let finding =
        Finding::new(confidence, message).seen_all(layout.quote()).seen_all(expected.named_by.as_ref());
    Ok(vec![finding.with_numbers(&RULE, lost(log, expected, ranks))])
}

/// What pods of one GPU lose against one pod with as many GPUs of the same machines.
fn lost(log: &Log, expected: &Expected, ranks: u32) -> Option<Numbers> {
    let (nodes, gpus) = match ranks.checked_div(expected.gpus())? {
        0 => (1, ranks),
        nodes => (nodes, expected.gpus()),
    };
    let together = expected.cluster(nodes, gpus)?;
    let apart = together.clone().with_pods(gpus, 1).ok()?;
    let loss = expected::loss(&together, &apart)?;
    let nics = log.case.processes.iter().find_map(|it| it.facts.plugin.provider.first()?.value.nics);
    let network =
        expected.pods(gpus, nics)?.losses().into_iter().find(|it| matches!(it, Loss::Network { .. }));
    let network = network.map(|it| format!("If the pods share a machine, {it}. ")).unwrap_or_default();
    let price = log.priced().and_then(|it| it.apart(nodes, gpus));
    Some(Numbers { sentence: format!("{network}{}", loss.sentence), price, ..loss })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    fn log(machine: &str, nodes: u32, local: u32) -> String {
        format!(
            "a:1:2 [0] NCCL INFO NET/OFI Running on {machine} platform, topology file /x/t.xml\n\
             a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 4 nNodes {nodes} localRanks {local} localRank 0 MNNVL 0\n"
        )
    }

    #[test]
    fn fires_when_every_rank_is_a_node() {
        assert_eq!(findings(&RULE, &log("p4d.24xlarge", 4, 1)).len(), 1);
    }

    #[test]
    fn quiet_with_local_ranks_and_without_nvlink() {
        quiet(&RULE, &log("p4d.24xlarge", 1, 4));
        quiet(&RULE, &log("g6e.12xlarge", 4, 1));
    }

    #[test]
    fn says_what_is_lost() {
        let found = findings(&RULE, &log("p4d.24xlarge", 4, 1));
        let why = found[0].why.as_ref().unwrap();
        assert!(why.contains("times less"), "{why}");
        assert!(why.contains("instead of NVLink at 240.0 GB/s"), "{why}");
    }

    #[test]
    fn bus_ids_show_whether_pods_share_a_machine() {
        let ranks = |buses: [&str; 2]| {
            let rank = |rank: usize| {
                format!(
                    "p{rank}:1:2 [0] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/t.xml\n\
                     p{rank}:1:2 [0] NCCL INFO comm 0x1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId {} commId 0x2 - Init START\n\
                     p{rank}:1:2 [0] NCCL INFO comm 0x1 rank {rank} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n",
                    buses[rank]
                )
            };
            rank(0) + &rank(1)
        };
        assert_eq!(findings(&RULE, &ranks(["101c0", "101d0"]))[0].confidence, Confidence::Likely);
        quiet(&RULE, &ranks(["101c0", "101c0"]));
    }
}
