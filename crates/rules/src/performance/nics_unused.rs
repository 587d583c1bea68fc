//! Some of the network devices of a machine carry nothing.

use std::collections::BTreeSet;

use evidence::plugin::is_socket;
use evidence::{Communicator, Source};
use job::size::NodeLayout;

use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nics-unused",
    title: "some network devices of the machine carry nothing",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Connections],
    why: "GPUs joined by NVSwitch spread the traffic between nodes over all network devices that NCCL sees. Every collective loses the \
          bandwidth of a device that is not used.",
    fix: "Check that all devices are attached and visible in the container (`fi_info -p efa -t FI_EP_RDM`, `ibv_devices`, `vpc.amazonaws.com/efa: N`), \
          that NCCL_IB_HCA names all of them, and that NCCL_MAX_NCHANNELS is not smaller than their number.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1519",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let communicators = log.connections()?;
    let Some(expected) = log.expected().filter(|it| it.wired && it.machine.has_nvswitch()) else {
        return Ok(Vec::new());
    };
    let all = u32::try_from(expected.machine.nics.len()).unwrap_or(0);
    for communicator in communicators.iter().filter(|it| whole_nodes(it, expected.gpus())) {
        let links = || communicator.links().filter(|it| !it.1.point_to_point);
        let used: BTreeSet<u32> = links()
            .filter_map(|it| it.1.transport()?.network())
            .filter(|it| !is_socket(it.0))
            .map(|it| it.1)
            .collect();
        let channels = links().fold(0_u64, |all, it| all | it.1.channels).count_ones();
        let n = u32::try_from(used.len()).unwrap_or(u32::MAX);
        // Another rule reports a single device.
        if n < 2 || n >= all || channels < all {
            continue;
        }
        let message = format!(
            "traffic between nodes uses {n} of the {all} network devices of {}, in {channels} channels",
            expected.name
        );
        let quotes = links()
            .filter(|it| it.1.transport().is_some_and(fabric::Transport::is_net))
            .map(|it| &it.1.quote);
        let loss = expected::loss_across(log, expected::with_nics(n.saturating_mul(expected.interfaces())));
        let finding =
            Finding::new(Confidence::Likely, message).seen_all(quotes).seen_all(expected.named_by.as_ref());
        return Ok(vec![finding.with_numbers(&RULE, loss).or("topo-file-missing").or("efa-nics-unexpected")]);
    }
    Ok(Vec::new())
}

/// Whether the job uses all GPUs of several machines, and the lines of every rank are here.
fn whole_nodes(communicator: &Communicator, gpus: u32) -> bool {
    NodeLayout::of_communicator(communicator).is_some_and(|it| it.nodes > 1 && it.ranks_per_node == gpus)
        && communicator.absent().is_empty()
        && communicator.members.values().all(|it| !it.guessed)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    /// Two p4d.24xlarge whose channels leave by these devices.
    fn log(devices: &[u32]) -> String {
        let mut text =
            "a:1:1 [0] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/p4d.xml\n"
                .to_owned();
        for rank in 0..16 {
            let host = if rank < 8 { "a" } else { "b" };
            let id = format!("{host}:{rank}:{rank} [0] NCCL INFO");
            text.push_str(&format!(
                "{id} ncclCommInitRank comm 0x{rank}1 rank {rank} nranks 16 cudaDev {local} nvmlDev {local} busId 101c0 commId 0x2 - Init START\n\
                 {id} comm 0x{rank}1 rank {rank} nRanks 16 nNodes 2 localRanks 8 localRank {local} MNNVL 0\n",
                local = rank % 8
            ));
            if rank % 8 == 0 {
                for (channel, device) in devices.iter().enumerate() {
                    text.push_str(&format!(
                        "{id} Channel 0{channel}/0 : {rank}[0] -> {}[0] [send] via NET/Libfabric/{device}/GDRDMA\n",
                        (rank + 8) % 16
                    ));
                }
            }
        }
        text
    }

    #[test]
    fn fires_when_devices_are_left_out() {
        let found = findings(&RULE, &log(&[0, 1, 0, 1]));
        assert_eq!(
            found[0].message,
            "traffic between nodes uses 2 of the 4 network devices of p4d.24xlarge, in 4 channels"
        );
        assert!(found[0].why.as_ref().unwrap().contains("times less"));
    }

    #[test]
    fn quiet_when_all_are_used_or_channels_are_few() {
        quiet(&RULE, &log(&[0, 1, 2, 3]));
        quiet(&RULE, &log(&[0, 1]));
        quiet(&RULE, &log(&[0, 0, 0, 0]));
        quiet(&RULE, &log(&[0, 1, 0, 1]).replace("localRanks 8", "localRanks 4"));
    }
}
