//! The setup runs over an interface that does not reach the other nodes.

use evidence::Source;
use evidence::signals::blocked::{CLIENT_FAILED, OTHER_CONNECT_FAILED};
use evidence::signals::ended::GLOO_CLOSED;
use evidence::signals::interface::{GLOO_LOOPBACK, GLOO_MESH_FAILED, NO_INTERFACE_IN_SUBNET};

use super::address::{
    announced, got_through, is_ipoib, is_link_local, is_loopback, is_tunnel_or_service_port,
};
use super::docker_bridge_network::in_a_container_network;
use crate::blocked::failures::{Cause, verdict};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "bootstrap-on-wrong-interface",
    title: "the setup runs over an interface that does not reach the other nodes",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "NCCL finds the other ranks by TCP over the first interface that is up. If that is IP over InfiniBand without a route, a tunnel \
          or a service processor's port, the ranks wait for each other until something times out.",
    fix: "Set NCCL_SOCKET_IFNAME to the interface that carries the node's own address (`ip route get ADDRESS_OF_ANOTHER_NODE` names it), \
          the same on all nodes. This affects the setup and sockets only: data still goes over InfiniBand or EFA.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1000",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let signals = [&NO_INTERFACE_IN_SUBNET, &GLOO_MESH_FAILED, &OTHER_CONNECT_FAILED, &CLIENT_FAILED];
    let mut subnet = log.find_signals(&signals, Source::NcclLog)?;
    subnet.retain(|it| *it.signal == NO_INTERFACE_IN_SUBNET);
    let verdict = verdict(log);
    if let Some(it) = verdict.iter().find(|it| it.cause == Cause::WrongInterface) {
        let message = match &it.interface {
            Some((interface, _)) => {
                format!("connections to {} fail: it is the address of {}", it.peer, interface.name)
            }
            None if it.peer.is_empty() => {
                "connections over the interface that NCCL uses for the setup fail".to_owned()
            }
            None => format!("connections to {} fail: it is a link-local address", it.peer),
        };
        let finding = Finding::new(Confidence::Likely, message).by(log, &it.sightings).or("peer-unreachable");
        return Ok(vec![finding.seen_all(it.interface.iter().map(|it| it.1))]);
    }
    if !subnet.is_empty() && !in_a_container_network(log) {
        let address =
            subnet.iter().map(|it| it.get("address")).find(|it| !it.is_empty()).unwrap_or("in NCCL_COMM_ID");
        let message = format!("no interface is in the subnet of the address {address}");
        let finding = Finding::new(Confidence::Likely, message).by(log, &subnet).or("docker-bridge-network");
        return Ok(vec![finding.fix(
            "With NCCL_COMM_ID, NCCL looks for an interface in the subnet of that address. Set NCCL_COMM_ID to an address of rank 0 in a subnet that all nodes share, or do not set it (PyTorch and MPI do not need it).",
        )]);
    }
    // Gloo takes the address of the host name, or of GLOO_SOCKET_IFNAME; it does not say which of them is wrong.
    if let Some(mesh) = log.case.sightings_of(&GLOO_MESH_FAILED).next()
        && verdict.is_empty()
        && log.case.first_of(&[&GLOO_LOOPBACK, &GLOO_CLOSED]).is_none()
    {
        let message = "Gloo's ranks cannot reach each other at the addresses they announce";
        let finding = Finding::new(Confidence::Possible, message).seen(&mesh.quote);
        return Ok(vec![finding.or("loopback-interface-used").or("peer-unreachable").fix(
            "Set GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME) to the interface that carries the node's address, on every node; check that /etc/hosts does not map the host name to 127.0.1.1.",
        )]);
    }
    // A setup that succeeds proves that the interface works; many clusters do use IP over InfiniBand.
    if !verdict.is_empty() || got_through(log) {
        return Ok(Vec::new());
    }
    let doubtful = announced(log).into_iter().find(|it| {
        let (name, address) = (&*it.interface.name, &*it.interface.address);
        is_ipoib(name) || is_tunnel_or_service_port(name) || (is_link_local(address) && !is_loopback(address))
    });
    let Some(it) = doubtful else { return Ok(Vec::new()) };
    let alone = !log.job.size.has_several_hosts() && log.job.size.n_ranks().is_some_and(|it| it == 1);
    if alone {
        return Ok(Vec::new());
    }
    let message = format!(
        "{} uses {} ({}) for the setup, and the log ends before any rank finished it",
        it.process.name(),
        it.interface.name,
        it.interface.address
    );
    Ok(vec![
        Finding::new(Confidence::Possible, message)
            .severity(if log.job.outcome.state.is_bad() { Severity::Error } else { Severity::Warning })
            .seen(it.quote)
            .about_nic(&it.interface.name),
    ])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};
    use crate::{Confidence, Severity};

    #[test]
    fn fires_when_an_infiniband_address_is_not_reached() {
        let log = "a:1:1 [0] NCCL INFO Bootstrap : Using ib0:192.168.7.101<0>\nb:1:1 [0] NCCL INFO Bootstrap : Using ib0:192.168.7.102<0>\n\
                   b:1:1 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 192.168.7.101<3884> failed : No route to host\n";
        let found = findings(&RULE, log);
        assert_eq!(found[0].confidence, Confidence::Likely);
        assert_eq!(found[0].message, "connections to 192.168.7.101 fail: it is the address of ib0");
    }

    #[test]
    fn a_log_that_ends_in_the_setup_is_a_doubt() {
        let found = findings(&RULE, "a:1:1 [0] NCCL INFO Bootstrap : Using ibp9s0:192.168.7.102<0>\n");
        assert_eq!((found[0].confidence, found[0].severity), (Confidence::Possible, Some(Severity::Warning)));
    }

    #[test]
    fn quiet_when_the_setup_ended_well_or_on_an_ordinary_interface() {
        quiet(
            &RULE,
            "a:1:1 [0] NCCL INFO Bootstrap : Using ib0:192.168.7.102<0>\n\
             a:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 60 - Init COMPLETE\n",
        );
        quiet(&RULE, "a:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n");
    }

    #[test]
    fn gloo_alone_is_a_doubt() {
        let line = "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n";
        assert_eq!(findings(&RULE, line)[0].confidence, Confidence::Possible);
        let closed = "RuntimeError: Gloo connectFullMesh failed with [pair.cc:9] Connection closed by peer [10.0.0.5]:38412\n";
        quiet(&RULE, closed);
    }
}
