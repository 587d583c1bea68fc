//! Containers announce an address that only their own host can reach.

use std::collections::{BTreeMap, BTreeSet};

use evidence::Source;
use evidence::signals::blocked::{CLIENT_FAILED, OTHER_CONNECT_FAILED};
use evidence::signals::interface::{DOCKER_RUN, NO_INTERFACE_IN_SUBNET};

use super::address::{
    Announced, announced, got_through, is_bridge, is_bridge_address, is_link_local, is_loopback,
};
use crate::blocked::failures::{Cause, verdict};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "docker-bridge-network",
    title: "ranks announce the address of a container bridge",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "A container on Docker's bridge has an address that exists on its own host only, and every host has a bridge with the \
          same addresses. NCCL opens ports of its own choice, so publishing a few does not help.",
    fix: "Run the containers with `--network host` (Kubernetes: `hostNetwork: true`, or a CNI whose pod addresses are routed \
          between nodes). If the bridge is only one interface of many on the host, exclude it: NCCL_SOCKET_IFNAME=^lo,docker,br-,virbr,veth.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/929",
        "https://github.com/NVIDIA/nccl/issues/331",
        "https://docs.docker.com/engine/network/drivers/host/",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let signals = [&NO_INTERFACE_IN_SUBNET, &OTHER_CONNECT_FAILED, &CLIENT_FAILED];
    let mut subnet = log.find_signals(&signals, Source::NcclLog)?;
    subnet.retain(|it| *it.signal == NO_INTERFACE_IN_SUBNET);
    let verdict = verdict(log);
    if let Some(it) = verdict.iter().find(|it| it.cause == Cause::Bridge) {
        let message = match &it.interface {
            Some((interface, _)) => format!(
                "connections to {} fail: it is the address of {} in a container network",
                it.peer, interface.name
            ),
            None if it.peer.is_empty() => "connections over a container bridge fail".to_owned(),
            None => format!("connections to {} fail: it is an address of a container network", it.peer),
        };
        let finding = Finding::new(Confidence::Likely, message).by(log, &it.sightings);
        return Ok(vec![
            finding.seen_all(it.interface.iter().map(|it| it.1)).seen_all(subnet.iter().map(|it| &it.quote)),
        ]);
    }
    if !subnet.is_empty() && in_a_container_network(log) {
        let message = "a container does not have the address that NCCL_COMM_ID names";
        return Ok(vec![Finding::new(Confidence::Likely, message).by(log, &subnet)]);
    }
    if got_through(log) || !log.job.size.has_several_hosts() {
        return Ok(Vec::new());
    }
    let announced = announced(log);
    if let Some((address, shared)) = shared_address(&announced) {
        let message = format!("{} hosts announce the same address {address}", shared.len());
        return Ok(vec![
            Finding::new(Confidence::Likely, message).seen_all(shared.iter().map(|it| it.quote)),
        ]);
    }
    let Some(it) = announced.iter().find(|it| is_bridge(&it.interface.name)) else { return Ok(Vec::new()) };
    let message = format!(
        "{} uses {} ({}), a container bridge, for the setup",
        it.process.name(),
        it.interface.name,
        it.interface.address
    );
    Ok(vec![Finding::new(Confidence::Likely, message).seen(it.quote).about_nic(&it.interface.name)])
}

/// Whether something shows that ranks run in containers with a separate network.
pub(crate) fn in_a_container_network(log: &Log) -> bool {
    let bridge =
        |it: &Announced<'_>| is_bridge(&it.interface.name) || is_bridge_address(&it.interface.address);
    let published = log.case.sightings_of(&DOCKER_RUN).any(|it| {
        let arguments = it.get("arguments");
        let host = ["--network host", "--network=host", "--net host", "--net=host"]
            .iter()
            .any(|it| arguments.contains(it));
        (arguments.contains("-p ") || arguments.contains("--publish")) && !host
    });
    published || announced(log).iter().any(bridge) || verdict(log).iter().any(|it| is_bridge_address(it.peer))
}

/// An address that several hosts announce, with one line of each.
fn shared_address<'a>(announced: &[Announced<'a>]) -> Option<(&'a str, Vec<Announced<'a>>)> {
    let mut by_address: BTreeMap<&str, Vec<Announced<'a>>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for it in announced {
        let (address, host) = (&*it.interface.address, &*it.process.host);
        if !is_loopback(address)
            && !is_link_local(address)
            && !host.is_empty()
            && seen.insert((address, host))
        {
            by_address.entry(address).or_default().push(*it);
        }
    }
    by_address.into_iter().find(|it| it.1.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_on_the_address_of_a_bridge() {
        let log = "b:3:4 [0] misc/socket.cc:480 NCCL WARN socketStartConnect: Connect to 172.17.0.2<3884> failed : Software caused connection abort\n\
                   a:1:1 [0] misc/socket.cc:237 NCCL WARN Net : No interface found in the same subnet as remote address 203.0.113.10<1778>\n";
        assert_eq!(
            findings(&RULE, log)[0].message,
            "connections to 172.17.0.2 fail: it is an address of a container network"
        );
        assert_eq!(ids(log)[0], "docker-bridge-network");
    }

    #[test]
    fn fires_when_hosts_share_an_address() {
        let log = "a:1:1 [0] NCCL INFO Bootstrap: Using br-5c1d:172.18.0.1<0>\nb:1:1 [0] NCCL INFO Bootstrap: Using br-5c1d:172.18.0.1<0>\n";
        assert_eq!(findings(&RULE, log)[0].message, "2 hosts announce the same address 172.18.0.1");
    }

    #[test]
    fn quiet_in_a_single_container_and_when_it_works() {
        quiet(
            &RULE,
            "a:1:1 [0] NCCL INFO Bootstrap : Using eth0:172.17.0.2<0>\na:2:2 [1] NCCL INFO Bootstrap : Using eth0:172.17.0.2<0>\n",
        );
        quiet(
            &RULE,
            "a:1:1 [0] NCCL INFO Bootstrap : Using eth0:172.17.0.2<0>\nb:1:1 [0] NCCL INFO Bootstrap : Using eth0:172.17.0.3<0>\n\
             a:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 60 - Init COMPLETE\n",
        );
    }

    #[test]
    fn fires_on_the_words_of_open_mpi() {
        let old = "[n][[3,1],2][btl_tcp_endpoint.c:796:mca_btl_tcp_endpoint_complete_connect] connect() to 172.17.0.1 failed: Connection refused (111)\n";
        assert_eq!(ids(old)[0], "docker-bridge-network");
        let new =
            "  Message:    connect() to 172.17.0.1:1024 failed\n  Error:      Connection refused (111)\n";
        assert_eq!(ids(new)[0], "docker-bridge-network");
    }
}
