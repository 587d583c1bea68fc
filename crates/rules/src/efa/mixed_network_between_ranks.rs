//! Ranks of one job chose different networks.

use std::collections::BTreeMap;

use evidence::plugin::aws_ofi::PLUGIN;
use evidence::signals::efa::{INVALID_TAG, MIXED_DEVICE_COUNTS, NETWORK_QUOTED, RAILS_DIFFER, WRONG_SOCKET};
use evidence::{Quote, Source};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "mixed-network-between-ranks",
    title: "ranks of one job use different networks",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "Each rank chooses its network by what it finds in its own container, without asking the others. Ranks that chose different \
          networks cannot connect: the job hangs, or fails with invalid addresses.",
    fix: "Use one image, one plugin and the same devices on all ranks, the head node included. Set NCCL_NET (\"AWS Libfabric\" or \
          Libfabric, IB, Socket) so that a rank without that network fails at once instead of using another.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/234",
        "https://github.com/NVIDIA/nccl-tests/issues/188",
        "NCCL src/include/socket.h (socket types)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(
        &[&INVALID_TAG, &RAILS_DIFFER, &WRONG_SOCKET, &MIXED_DEVICE_COUNTS],
        Source::JobOutput,
    )?;
    if let Some(finding) = networks(log) {
        return Ok(vec![finding.by(log, &found)]);
    }
    // A socket of NET/IB (4) met a listener of NET/Socket (3), or the other way round.
    let types = |got: &str, want: &str| matches!((got, want), ("3", "4") | ("4", "3"));
    let met: Vec<_> = found
        .iter()
        .copied()
        .filter(|it| *it.signal == WRONG_SOCKET && types(it.get("got"), it.get("want")))
        .collect();
    if !met.is_empty() {
        let message =
            "a rank that uses InfiniBand and one that uses TCP sockets tried to connect to each other";
        return Ok(vec![Finding::new(Confidence::Certain, message).by(log, &met)]);
    }
    let tags: Vec<_> = found.iter().copied().filter(|it| *it.signal == INVALID_TAG).collect();
    if !tags.is_empty() {
        let message = "a peer sent an address that is not in this plugin's format: the peer uses another network, protocol or plugin release";
        return Ok(vec![Finding::new(Confidence::Likely, message).by(log, &tags)]);
    }
    let rails: Vec<_> = found.iter().copied().filter(|it| *it.signal == RAILS_DIFFER).collect();
    if !rails.is_empty() {
        let message = "a peer uses a different number of EFA devices for a connection than this rank: its devices, plugin or settings differ";
        return Ok(vec![Finding::new(Confidence::Likely, message).by(log, &rails)]);
    }
    if let Some(first) = found.iter().find(|it| *it.signal == MIXED_DEVICE_COUNTS) {
        let message =
            format!("some ranks see {} network devices and others {}", first.get("min"), first.get("max"));
        let severity = if first.warning { Severity::Error } else { Severity::Warning };
        return Ok(vec![Finding::new(Confidence::Certain, message).severity(severity).by(log, &[first])]);
    }
    Ok(plugins(log).into_iter().collect())
}

/// Ranks of one communicator that named different networks.
fn networks(log: &Log) -> Option<Finding> {
    let chosen = log.case.communicators.iter().map(|communicator| {
        communicator
            .members
            .values()
            .filter_map(|it| it.facts.network.as_ref())
            .map(|it| (&*it.value, &it.quote))
            .collect()
    });
    let quoted =
        log.case.sightings_of(&NETWORK_QUOTED).map(|it| (it.get("name"), &it.quote)).collect::<Vec<_>>();
    chosen.chain([quoted]).find_map(|group| {
        let mut networks: BTreeMap<&str, (usize, &Quote)> = BTreeMap::new();
        for (name, quote) in group {
            networks.entry(family(name)).or_insert((0, quote)).0 += 1;
        }
        let list: Vec<String> = networks.iter().map(|(name, (n, _))| format!("{name} in {n}")).collect();
        (networks.len() > 1).then(|| {
            Finding::new(Confidence::Certain, format!("ranks chose different networks: {}", list.join(", ")))
                .seen_all(networks.values().map(|it| it.1))
        })
    })
}

/// All plugins of a job should be of one release: the messages they exchange differ between releases.
fn plugins(log: &Log) -> Option<Finding> {
    let mut releases: BTreeMap<&str, (usize, &Quote)> = BTreeMap::new();
    let mut printed = log.case.processes.iter().filter_map(|it| it.facts.plugin.release.first()).peekable();
    let plugin = printed.peek()?.value.plugin;
    for seen in printed.filter(|it| it.value.plugin == plugin) {
        releases.entry(&seen.value.version).or_insert((0, &seen.quote)).0 += 1;
    }
    let list: Vec<String> = releases.iter().map(|(release, (n, _))| format!("{release} in {n}")).collect();
    (releases.len() > 1).then(|| {
        let finding = Finding::new(
            Confidence::Certain,
            format!("processes loaded different releases of {}: {}", plugin.name, list.join(", ")),
        );
        finding.severity(Severity::Warning).seen_all(releases.values().map(|it| it.1))
    })
}

/// `AWS Libfabric` is the older name of `Libfabric`.
fn family(network: &str) -> &str {
    let network = network.trim().split(" [repeated").next().unwrap_or_default();
    if PLUGIN.gives(network) { "Libfabric" } else { network }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_when_ranks_differ() {
        let log =
            "a:1:1 [0] NCCL INFO Using network AWS Libfabric\nb:1:1 [0] NCCL INFO Using network Socket\n";
        assert_eq!(
            findings(&RULE, log)[0].message,
            "ranks chose different networks: Libfabric in 1, Socket in 1"
        );
    }

    #[test]
    fn fires_on_what_they_say_of_each_other() {
        let socket = "a:1:1 [0] misc/socket.cc:441 NCCL WARN socketFinalizeAccept: wrong type 4 != 3\n";
        assert_eq!(findings(&RULE, socket).len(), 1);
        let tag =
            "a:1:1 [0] create_send_comm:1853 NCCL WARN NET/OFI Received an invalid tag 0 for device 0\n";
        assert_eq!(findings(&RULE, tag).len(), 1);
        let rails = "a:1:1 [1] accept:4909 NCCL WARN NET/OFI Unexpected number of remote rails for dev 3. Expected 4 but got 0\n";
        assert_eq!(findings(&RULE, rails).len(), 1);
    }

    #[test]
    fn quiet_when_they_agree() {
        quiet(
            &RULE,
            "a:1:1 [0] NCCL INFO Using network AWS Libfabric\nb:1:1 [0] NCCL INFO Using network Libfabric\n",
        );
        quiet(&RULE, "a:1:1 [0] misc/socket.cc:441 NCCL WARN socketFinalizeAccept: wrong type 2 != 1\n");
    }
}
