//! A GPU uses a NIC that is not the one next to it.

use evidence::plugin::is_socket;
use evidence::{Process, Source};
use nccl::{Path, PathType};

use crate::expected::{self, Expected};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "far-nic",
    title: "a GPU uses a distant network device",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Connections],
    why: "Between a GPU and a NIC of another PCIe switch every byte crosses the CPU, and between sockets also the link between them. NCCL \
          uses GPUDirect RDMA only where both are below a common PCIe switch.",
    fix: "Let NCCL see the real PCIe tree (NCCL_TOPO_FILE for virtual machines; the plugin provides it on EC2) and all NICs, and do not \
          pin the NIC with NCCL_IB_HCA, NCCL_NET_GDR_LEVEL or NCCL_CROSS_NIC. If a pod has only some of the GPUs, give it the NICs below \
          the same switch.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca",
        "NCCL src/graph/topo.cc (ncclTopoGetLocalNet)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let communicators = log.connections()?;
    let Some(expected) = log.expected().filter(|it| it.wired) else { return Ok(Vec::new()) };
    let mut findings = Vec::new();
    for (rank, member) in communicators.iter().flat_map(|it| &it.members) {
        // A pod with some of the NICs numbers them by itself.
        let sees_all =
            log.case.processes.get(member.process).and_then(nics_seen) == Some(expected.machine.nics.len());
        let Some(gpu) = expected.gpu_of(member).filter(|_| sees_all) else { continue };
        // Connections for send and receive may use a distant NIC: that is normal.
        for link in member.facts.links.iter().filter(|it| !it.point_to_point) {
            let Some((network, device, false)) = link.transport().and_then(|it| it.network()) else {
                continue;
            };
            let nic = expected.machine.nics.iter().position(|it| it.index == device);
            let Some((used, best)) = nic.and_then(|nic| far(expected, gpu, nic)) else { continue };
            if is_socket(network) || !findings.is_empty() {
                continue;
            }
            let message = format!(
                "rank {rank} on GPU {} uses {network} device {device} over a {} path ({} GB/s); the nearest device has a {} path ({} GB/s)",
                expected.machine.gpus[gpu].index,
                used.kind,
                expected::number(used.bandwidth),
                best.kind,
                expected::number(best.bandwidth)
            );
            let loss = expected::loss_across(log, expected::without_gpudirect);
            let finding = Finding::new(Confidence::Likely, message)
                .seen(&link.quote)
                .seen_all(expected.named_by.as_ref());
            let finding = finding.about_rank(rank).about_nic(device).with_numbers(&RULE, loss);
            findings.push(finding.or("topo-file-missing").or("vm-no-topology"));
        }
    }
    Ok(findings)
}

/// The paths to this NIC and to the one next to the GPU, if the first crosses a CPU and the other does not.
fn far(expected: &Expected, gpu: usize, nic: usize) -> Option<(Path, Path)> {
    let near = *expected.nics(gpu)?.nics.first()?;
    let (used, best) = (expected.to_nic(gpu, nic)?, expected.to_nic(gpu, near)?);
    let crosses = |it: &Path| matches!(it.kind, PathType::Phb | PathType::Sys);
    (crosses(&used) && !crosses(&best)).then_some((used, best))
}

/// How many network devices a process sees, as NCCL or its InfiniBand transport lists them.
fn nics_seen(process: &Process) -> Option<usize> {
    let listed = process.facts.hcas.iter().map(|it| it.value.len()).max();
    let reported = Some(process.facts.hca_gpudirect.iter().count()).filter(|it| *it > 0);
    listed.or(reported)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    fn log(device: u32, nics: u32, direct: &str) -> String {
        let mut text =
            "a:1:2 [0] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/p4d.xml\n"
                .to_owned();
        for nic in 0..nics {
            text.push_str(&format!(
                "a:1:2 [0] NCCL INFO NET/Libfabric : GPU Direct RDMA Enabled for HCA {nic} 'rdmap{nic}'\n"
            ));
        }
        text + &format!(
            "a:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 101c0 commId 0x2 - Init START\n\
             a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n\
             a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/{device}{direct}\n"
        )
    }

    #[test]
    fn fires_across_the_cpu() {
        let found = findings(&RULE, &log(3, 4, ""));
        assert!(
            found[0].message.starts_with("rank 0 on GPU 0 uses Libfabric device 3 over a SYS path"),
            "{}",
            found[0].message
        );
        assert!(found[0].why.as_ref().unwrap().starts_with("Expected loss: "));
    }

    #[test]
    fn quiet_next_to_it_with_gpudirect_and_in_a_part() {
        quiet(&RULE, &log(0, 4, "/GDRDMA"));
        quiet(&RULE, &log(0, 4, ""));
        quiet(&RULE, &log(3, 4, "/GDRDMA"));
        quiet(&RULE, &log(3, 1, ""));
        quiet(&RULE, &log(3, 4, "").replace("p4d.24xlarge", "p4d.unknown"));
    }
}
