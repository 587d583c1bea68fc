//! Ranks on several hosts connect to 127.0.0.1.

use std::collections::BTreeSet;

use evidence::signals::ended::{CLOSED, ELASTIC_TABLE};
use evidence::signals::interface::{GLOO_LOOPBACK, GLOO_MESH_FAILED, OLD_INTERFACE, OLD_INTERFACES};
use evidence::{Quote, Source};
use job::failure::peer;

use super::address::{announced, got_through, is_loopback};
use crate::blocked::failures::{Cause, verdict};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "loopback-interface-used",
    title: "ranks on several hosts use the loopback interface",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "On every host 127.0.0.1 is that host itself: a rank that connects to it reaches its own machine and gets `Connection refused`.",
    fix: "Name the interface that reaches the other hosts, or exclude the others: NCCL_SOCKET_IFNAME=eth0 or ^lo,docker (for Gloo: \
          GLOO_SOCKET_IFNAME, which takes names only). If the variable is not set, the host has no other interface with an address: check \
          `ip addr` inside the container.",
    references: &[
        "https://github.com/horovod/horovod/issues/789",
        "https://github.com/NVIDIA/nccl/issues/286",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let gloo = log.find_signals(&[&GLOO_LOOPBACK], Source::JobOutput)?;
    if let Some(it) = verdict(log).into_iter().find(|it| it.cause == Cause::Loopback) {
        // On one host a refused 127.0.0.1 only means that the other process is gone.
        let chosen = log.job.settings.named("NCCL_SOCKET_IFNAME").any(|it| it.text() == "lo")
            && log.job.size.spans_nodes() != Some(false);
        if gloo.is_empty() && on_one_host(log) {
            return Ok(Vec::new());
        }
        let sure = log.job.size.has_several_hosts() || !gloo.is_empty() || chosen;
        let confidence = if sure { Confidence::Likely } else { Confidence::Possible };
        let peer = if it.peer.is_empty() { "127.0.0.1" } else { it.peer };
        let message = format!("connections to {peer} fail: on every host that is the host itself");
        let finding = Finding::new(confidence, message)
            .by(log, &it.sightings)
            .seen_all(gloo.iter().map(|it| &it.quote));
        let finding =
            finding.seen_all(it.interface.iter().map(|it| it.1)).seen_all(listed(log).iter().map(|it| it.0));
        return Ok(vec![if confidence == Confidence::Possible {
            finding.or("peer-process-died")
        } else {
            finding
        }]);
    }
    if let (Some(first), Some(mesh)) = (gloo.first(), log.case.sightings_of(&GLOO_MESH_FAILED).next()) {
        let message = "Gloo announces 127.0.0.1 because the host name has no other address, and its ranks cannot reach each other";
        return Ok(vec![Finding::new(Confidence::Likely, message).seen(&first.quote).seen(&mesh.quote)]);
    }
    let lo = listed(log);
    let hosts: BTreeSet<&str> = lo.iter().map(|it| it.1).collect();
    if hosts.is_empty() {
        return Ok(Vec::new());
    }
    let list = hosts.into_iter().collect::<Vec<_>>().join(", ");
    let message = format!("the loopback interface is used on {list}, in a job with several hosts");
    Ok(vec![Finding::new(Confidence::Likely, message).seen_all(lo.iter().map(|it| it.0)).about_nic("lo")])
}

/// Whether every rank is known to run on one host, whatever NCCL counts as a node: there a refused 127.0.0.1 only means that the
/// other process is gone.
fn on_one_host(log: &Log) -> bool {
    let size = &log.job.size;
    let members = log.case.world().map_or(0, |it| it.members.len());
    let all_seen = size.n_ranks().is_some_and(|it| members >= it as usize);
    // The launcher names one host, and ranks were connected over the loopback interface before.
    let hosts: BTreeSet<&str> =
        log.case.sightings_of(&ELASTIC_TABLE).map(|it| it.get("host")).filter(|it| !it.is_empty()).collect();
    let open =
        || log.case.sightings_of(&CLOSED).filter_map(peer).any(|it| it == "localhost" || is_loopback(it));
    size.hosts.len() < 2 && (all_seen || size.spans_nodes() == Some(false) || (hosts.len() == 1 && open()))
}

/// Lines that list the loopback interface, with their hosts, of a job that needs another and has not got through.
pub(crate) fn listed(log: &Log) -> Vec<(&Quote, &str)> {
    if !log.job.size.has_several_hosts() || got_through(log) {
        return Vec::new();
    }
    let announced = announced(log).into_iter().filter(|it| is_loopback(&it.interface.address));
    let mut lo: Vec<(&Quote, &str)> = announced.map(|it| (it.quote, &*it.process.host)).collect();
    for sighting in
        log.case.sightings.iter().filter(|it| [&OLD_INTERFACE, &OLD_INTERFACES].contains(&it.signal))
    {
        let listed = sighting.get("name") == "lo"
            || sighting.get("list").split_whitespace().any(|it| it.starts_with("lo("));
        if let (true, Some(evidence::ProcessId { host, .. })) = (listed, &sighting.process) {
            lo.push((&sighting.quote, host));
        }
    }
    lo
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    const LO: &str = "a:1:1 [0] NCCL INFO Bootstrap: Using lo:127.0.0.1<0>\nb:1:1 [0] NCCL INFO Bootstrap: Using lo:127.0.0.1<0>\n";

    #[test]
    fn fires_between_hosts() {
        assert_eq!(
            findings(&RULE, LO)[0].message,
            "the loopback interface is used on a, b, in a job with several hosts"
        );
        let refused = "b:1:1 [0] misc/socket.cc:583 NCCL WARN socketPollConnect: connect to 127.0.0.1<48313> returned Connection refused, exceeded error retry count after 35 attempts\n";
        let found = findings(&RULE, &format!("{LO}{refused}"));
        assert_eq!(
            (found[0].message.as_str(), found[0].confidence),
            ("connections to 127.0.0.1 fail: on every host that is the host itself", Confidence::Likely)
        );
    }

    #[test]
    fn fires_on_the_lists_of_old_releases() {
        let log = "a:1:2 [0] NCCL INFO CUDA Dev 0, IP Interfaces : lo(SOC) eth0(PXB)\nb:1:2 [0] NCCL INFO comm 0x1 rank 2 nranks 4\n";
        assert_eq!(findings(&RULE, log).len(), 1);
    }

    #[test]
    fn fires_for_gloo() {
        let log = "[rank8]:[W ProcessGroupGloo.cpp:721] Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback.\n\
                   RuntimeError: Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:14215\n";
        assert_eq!(findings(&RULE, log)[0].confidence, Confidence::Likely);
    }

    #[test]
    fn quiet_on_one_host_and_when_it_works() {
        quiet(
            &RULE,
            "a:1:1 [0] NCCL INFO Bootstrap: Using lo:127.0.0.1<0>\na:2:2 [0] NCCL INFO Bootstrap: Using lo:127.0.0.1<0>\n",
        );
        quiet(
            &RULE,
            &format!("{LO}a:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 60 - Init COMPLETE\n"),
        );
    }

    #[test]
    fn fires_for_gloo_without_an_address_in_the_error() {
        let warning = "[rank9]:[W ProcessGroupGloo.cpp:721] Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback.\n";
        let mesh = "[rank8]:[E ProcessGroupGloo.cpp:144] Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n";
        assert_eq!(findings(&RULE, &format!("{warning}{mesh}"))[0].confidence, Confidence::Likely);
        quiet(&RULE, warning);
        let old =
            "[/src/gloo/gloo/transport/tcp/pair.cc:761] connect [127.0.1.1]:60817: Connection refused\n";
        assert_eq!(findings(&RULE, old).len(), 1);
    }
}
