//! All traffic between nodes goes through one network device of several.

use std::collections::BTreeSet;

use evidence::plugin::aws_ofi::PLUGIN;
use evidence::plugin::is_socket;
use evidence::{Communicator, Quote, Source};
use job::size::NodeLayout;

use crate::efa::machine;
use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "single-nic-used",
    title: "only one of several network devices is used",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Connections],
    why: "Every channel leaves the node through the same device, so the others carry nothing and the bandwidth between nodes is that of one.",
    fix: "Check that all devices are attached and visible (`fi_info -p efa -t FI_EP_RDM`, `ibv_devices`, `vpc.amazonaws.com/efa: N`), that \
          the topology file matches (p4d-24xl-topo.xml), that NCCL_IB_HCA does not name only one, and that NCCL_MAX_NCHANNELS is not set \
          low.",
    references: &["https://github.com/NVIDIA/nccl/issues/527", "https://github.com/NVIDIA/nccl/issues/1519"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    for communicator in log.connections()? {
        let Some(used) = only_device(communicator) else { continue };
        let seen_by_plugin =
            log.case.processes.iter().filter_map(|it| it.facts.plugin.provider.first()?.value.nics).max();
        let adapters =
            log.case.processes.iter().filter_map(|it| it.facts.hcas.first().map(|it| it.value.len())).max();
        let sockets = log
            .case
            .processes
            .iter()
            .filter_map(|it| it.facts.sockets.first().map(|it| it.value.len()))
            .max();
        let adapters = if is_socket(used.network) { sockets } else { adapters };
        let (count, named, confidence) = if PLUGIN.gives(used.network) {
            // A pod with one device uses one.
            let known = machine(log);
            let count = match (known, seen_by_plugin) {
                (Some((machine, _)), Some(seen)) => seen.min(machine.nics),
                (Some((machine, _)), None) => machine.nics,
                (None, seen) => seen.unwrap_or(0),
            };
            (count, known.and_then(|it| it.1), Confidence::Likely)
        } else {
            // A machine without NVLink has one flow, for which one NIC is enough.
            (adapters.and_then(|it| u32::try_from(it).ok()).unwrap_or(0), None, Confidence::Possible)
        };
        if count < 2 {
            continue;
        }
        let message = format!(
            "all {} channels between nodes use {} device {}, one of {count}",
            used.channels, used.network, used.device
        );
        let finding =
            Finding::new(confidence, message).seen(used.quote).seen_all(used.counts).seen_all(named);
        let finding =
            if confidence == Confidence::Possible { finding.severity(Severity::Info) } else { finding };
        let interfaces = log.expected().map_or(1, expected::Expected::interfaces);
        let loss = expected::loss_across(log, expected::with_nics(interfaces));
        let finding = finding.with_numbers(&RULE, loss);
        return Ok(vec![finding.about_nic(used.device).or("topo-file-missing")]);
    }
    Ok(Vec::new())
}

/// The one device that all channels of a communicator use.
struct Used<'a> {
    network: &'a str,
    device: u32,
    channels: u32,
    quote: &'a Quote,
    counts: Option<&'a Quote>,
}

/// Whether every channel is seen to leave the node, and all through one device.
fn only_device(communicator: &Communicator) -> Option<Used<'_>> {
    let counts = communicator.members.values().find_map(|it| it.facts.channels.as_ref());
    let local = NodeLayout::of_communicator(communicator).is_some_and(|it| it.ranks_per_node > 1)
        || communicator.links().any(|it| it.1.transport().is_some_and(|it| !it.is_net()));
    let mut devices = BTreeSet::new();
    let mut channels = 0_u64;
    let mut first = None;
    for (_, link) in communicator.links().filter(|it| !it.1.point_to_point) {
        if let Some((network, device, _)) = link.transport().and_then(|it| it.network()) {
            devices.insert(device);
            channels |= link.channels;
            first = first.or(Some((network, device, &link.quote)));
        }
    }
    let (network, device, quote) = first?;
    // Old releases do not count their channels, and print all of them.
    let expected = match counts {
        Some(counts) => counts.value.coll,
        None if is_socket(network) => channels.count_ones(),
        None => return None,
    };
    let all = channels.count_ones() >= expected && expected > 1;
    let several_ranks = local || is_socket(network);
    (several_ranks && all && devices.len() == 1).then_some(Used {
        network,
        device,
        channels: expected,
        quote,
        counts: counts.map(|it| &it.quote),
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::testing::{findings, quiet};

    fn log(second: u32, channels: u32) -> String {
        format!(
            "NCCL INFO NET/OFI Running on P4d platform, Setting NCCL_TOPO_FILE environment variable to /x/p4d-24xl-topo.xml\n\
             NCCL INFO Channel 00 : 0[101c0] -> 8[101c0] [receive] via NET/AWS Libfabric/0/GDRDMA\n\
             NCCL INFO Channel 01 : 0[101c0] -> 8[101c0] [send] via NET/AWS Libfabric/{second}/GDRDMA\n\
             NCCL INFO Channel 00 : 9[101d0] -> 8[101c0] via P2P/IPC/read\n\
             NCCL INFO {channels} coll channels, 2 p2p channels, 1 p2p channels per peer\n"
        )
    }

    #[test]
    fn fires_when_every_channel_uses_one_device() {
        let found = findings(&RULE, &log(0, 2));
        assert_eq!(found[0].message, "all 2 channels between nodes use AWS Libfabric device 0, one of 4");
    }

    #[test]
    fn one_interface_of_two_is_a_note() {
        let log = "a:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:10.0.1.1<0>\n\
                   a:1:2 [3] NCCL INFO Ring 00 : 3[b01000] -> 4[201000] [send] via NET/Socket/0\n\
                   a:1:2 [3] NCCL INFO Ring 01 : 3[b01000] -> 4[201000] [send] via NET/Socket/0\n";
        assert_eq!(findings(&RULE, log)[0].severity, Some(Severity::Info));
        quiet(
            &RULE,
            &log.replace(
                "Ring 01 : 3[b01000] -> 4[201000] [send] via NET/Socket/0",
                "Ring 01 : 3[b01000] -> 4[201000] [send] via NET/Socket/1",
            ),
        );
    }

    #[test]
    fn quiet_with_more_devices_and_where_most_channels_are_not_shown() {
        quiet(&RULE, &log(1, 2));
        quiet(&RULE, &log(0, 8));
    }

    #[test]
    fn a_pod_with_one_device_uses_one() {
        quiet(
            &RULE,
            &format!(
                "NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 1 nics)\n{}",
                log(0, 2)
            ),
        );
    }
}
