//! NCCL reports no GPUDirect for the ring although every connection in this log uses it.

use evidence::{Communicator, Source};

use super::machine;
use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "gpudirect-missing-on-another-rank",
    title: "another rank does not use GPUDirect RDMA",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Connections],
    why: "NCCL computes `use ring PXN a GDR b` over all ranks: b is 0 if the network connection of a single rank does not use GPUDirect. \
          That rank copies everything through host memory, and the ring runs at its speed.",
    fix: "Collect the logs of the other ranks and search them for `via NET/.../N` without /GDRDMA (`kubectl logs -l LABEL --prefix \
          --tail=-1`). In pods with one GPU and one EFA each, the usual reason is an EFA device that is not under the PCIe switch of the \
          pod's GPU: give a pod all GPUs and EFA devices of a node, or use a driver that aligns them (EFA DRA driver).",
    references: &[
        "NCCL src/transport/generic.cc",
        "https://docs.aws.amazon.com/eks/latest/userguide/device-management-efa.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    for communicator in log.connections()? {
        let Some((rank, summary)) = refused(communicator) else { continue };
        let net = || {
            communicator.links().filter_map(|(rank, link)| Some((rank, link, link.transport()?.network()?)))
        };
        let own = || net().filter(|it| it.0 == rank && !it.1.point_to_point);
        if own().count() == 0 || !own().all(|it| it.2.2) {
            continue;
        }
        let finding = if let Some((other, link, _)) = net().find(|it| !it.2.2) {
            let message = format!(
                "rank {rank} uses GPUDirect on every connection, but NCCL reports GDR 0 for the ring: rank {other} does not use it"
            );
            Finding::new(Confidence::Certain, message).seen(&link.quote).about_rank(other)
        } else {
            let given = communicator.members.len();
            let of = communicator.n_ranks.map_or_else(String::new, |it| format!(" of {it}"));
            let message = format!(
                "rank {rank} uses GPUDirect on every connection, but NCCL reports GDR 0 for the ring: a rank whose log is missing does not use it (ranks in this input: {given}{of})"
            );
            Finding::new(Confidence::Likely, message)
        };
        let link = own().next().map(|it| &it.1.quote);
        let finding = finding.seen(summary).seen_all(link);
        let loss = expected::loss_across(log, expected::without_gpudirect);
        return Ok(vec![finding.seen_all(machine(log).and_then(|it| it.1)).with_numbers(&RULE, loss)]);
    }
    Ok(Vec::new())
}

/// A rank that reports `GDR 0` for the ring, and the line.
fn refused(communicator: &Communicator) -> Option<(u32, &evidence::Quote)> {
    communicator
        .members
        .iter()
        .find_map(|(rank, member)| Some((*rank, member.facts.ring_without_gpudirect()?)))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    fn log(via: &str, gdr: u32) -> String {
        format!(
            "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1 commId 0x2 - Init START\n\
             a:1:2 [0] NCCL INFO Channel 00/0 : 3[0] -> 0[0] [receive] via {via}\n\
             a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via {via}\n\
             a:1:2 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR {gdr}\n"
        )
    }

    #[test]
    fn fires_when_only_the_summary_lacks_it() {
        let found = findings(&RULE, &log("NET/Libfabric/0/GDRDMA", 0));
        assert_eq!(found[0].confidence, Confidence::Likely);
    }

    #[test]
    fn quiet_when_summary_and_connections_agree() {
        quiet(&RULE, &log("NET/Libfabric/0/GDRDMA", 1));
        quiet(&RULE, &log("NET/Libfabric/0", 0));
        quiet(&RULE, &log("P2P/CUMEM", 0));
    }
}
