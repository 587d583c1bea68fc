//! Each rank sees one GPU of a machine whose GPUs are joined by NVLink.

use evidence::{Case, Missing, Source};

use super::machine;
use crate::{Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "one-gpu-of-many",
    title: "every rank is a node of its own on a machine with NVLink",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Instance],
    why: "Pods with names of their own are hosts to NCCL. Ranks that share a machine then talk over its network devices instead of NVLink, \
          which is many times slower, and crowd its EFA.",
    fix: "See whether the pods share a machine: `kubectl get pods -o wide`, or the instance ids. If so, start one pod with all GPUs and \
          EFA devices of the node and one process for each GPU in it (torchrun --nproc-per-node). NCCL_HOSTID alone is not enough: NVLink \
          between pods also needs a shared /dev/shm and all GPUs visible.",
    references: &[
        "NCCL src/misc/utils.cc (host hash)",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ],
    check,
};

fn check(case: &Case) -> Result<Vec<Finding>, Missing> {
    case.nccl_log()?;
    let (machine, named) = machine(case).ok_or(Missing(Source::Instance))?;
    if machine.gpus < 2 || machine.nvlink != Some(true) {
        return Ok(Vec::new());
    }
    let Some(world) = case.world() else { return Ok(Vec::new()) };
    let Some(layout) = world.members.values().find_map(|it| it.facts.layout.as_ref()) else {
        return Ok(Vec::new());
    };
    let it = &layout.value;
    if it.n_ranks < 2 || it.n_nodes != it.n_ranks || it.local_ranks != 1 {
        return Ok(Vec::new());
    }
    let message = format!(
        "{} ranks are {} nodes of one GPU each, on {}, which has {} GPUs joined by NVLink: ranks that share a machine do not use it",
        it.n_ranks, it.n_nodes, machine.name, machine.gpus
    );
    Ok(vec![Finding::new(Confidence::Possible, message).seen(&layout.quote).seen(named)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
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
}
