//! What kind of network an interface or an address belongs to, and which ones the processes announced.

use std::collections::BTreeMap;

use evidence::nccl::Interface;
use evidence::{Process, Quote};

use crate::Log;

/// An interface that a process uses for the setup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Announced<'a> {
    pub(crate) process: &'a Process,
    pub(crate) interface: &'a Interface,
    pub(crate) quote: &'a Quote,
}

/// The interfaces of the setup. Where several are listed, NCCL takes the first.
pub(crate) fn announced(log: &Log) -> Vec<Announced<'_>> {
    let lists = log
        .case
        .processes
        .iter()
        .flat_map(|process| process.facts.bootstrap.iter().map(move |seen| (process, seen)));
    lists
        .filter_map(|(process, seen)| {
            Some(Announced { process, interface: seen.value.first()?, quote: &seen.quote })
        })
        .collect()
}

/// The interfaces by address, from the setup's lines and from those of the socket network.
pub(crate) fn owners(log: &Log) -> BTreeMap<&str, (&Interface, &Quote)> {
    let lists =
        log.case.processes.iter().flat_map(|it| it.facts.bootstrap.iter().chain(it.facts.sockets.iter()));
    let mut owners = BTreeMap::new();
    for (interface, quote) in lists.flat_map(|seen| seen.value.iter().map(|it| (it, &seen.quote))) {
        owners.entry(&*interface.address).or_insert((interface, quote));
    }
    owners
}

/// Whether some rank got past the setup, so that the hosts did reach each other.
pub(crate) fn got_through(log: &Log) -> bool {
    let mut members = log.case.communicators.iter().flat_map(|it| it.members.values());
    let through = members.any(|it| {
        let facts = &it.facts;
        it.is_complete()
            || !facts.links.is_empty()
            || facts.layout.is_some()
            || facts.bootstrap_timings.is_some()
    });
    through || log.case.training.loss_lines > 0
}

/// An address without its port: `10.0.0.4<56849>`, `[10.0.0.4]:29500`, `10.0.0.4:1024`.
pub(crate) fn without_port(peer: &str) -> &str {
    let peer = peer.split('<').next().unwrap_or(peer).trim();
    if let Some(inner) = peer.strip_prefix('[') {
        return inner.split(']').next().unwrap_or(inner);
    }
    match peer.split_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit()) => host,
        _ => peer,
    }
}

/// An address that no host has: how a host name made of digits is read.
pub(crate) fn is_number(address: &str) -> bool {
    matches!(ipv4(address), Some([0, a, b, c]) if (a, b, c) != (0, 0, 0))
}

/// The four numbers of an IPv4 address, also of one written as IPv6.
pub(crate) fn ipv4(address: &str) -> Option<[u8; 4]> {
    let address = address.trim().trim_start_matches("::ffff:");
    let mut numbers = address.split('/').next()?.split('.');
    let parts = [numbers.next()?, numbers.next()?, numbers.next()?, numbers.next()?];
    let mut out = [0; 4];
    for (slot, part) in out.iter_mut().zip(parts) {
        *slot = part.parse().ok()?;
    }
    numbers.next().is_none().then_some(out)
}

/// `127.0.0.1`, `::1`
pub(crate) fn is_loopback(address: &str) -> bool {
    matches!(ipv4(address), Some([127, ..])) || address == "::1"
}

/// An address that is valid on one link only.
pub(crate) fn is_link_local(address: &str) -> bool {
    matches!(ipv4(address), Some([169, 254, ..])) || address.starts_with("fe80:")
}

/// An address that Docker gives to its bridges and to containers on them: 172.17.0.0/16, then 172.18 and so on.
/// 172.31 is left out, which is the default network of EC2.
pub(crate) fn is_bridge_address(address: &str) -> bool {
    matches!(ipv4(address), Some([172, 17..=30, 0, _]))
}

/// An interface between containers or virtual machines of one host.
pub(crate) fn is_bridge(name: &str) -> bool {
    ["docker", "br-", "virbr", "cni", "podman", "lxcbr", "lxdbr", "cbr", "veth", "vmnet"]
        .iter()
        .any(|it| name.starts_with(it))
}

/// IP over `InfiniBand`: `ib0`, `ibp12s0`, `ibs17`.
pub(crate) fn is_ipoib(name: &str) -> bool {
    name.starts_with("ib")
}

/// A tunnel, a service processor's USB port or another interface that reaches no other node.
pub(crate) fn is_tunnel_or_service_port(name: &str) -> bool {
    ["usb", "tun", "tap", "wg", "tailscale", "zt", "ip6tnl", "sit", "gre", "bmc"]
        .iter()
        .any(|it| name.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::{ipv4, is_bridge_address, is_link_local, is_loopback, is_number, without_port};

    #[test]
    fn addresses() {
        assert_eq!(without_port("10.0.0.4<56849>"), "10.0.0.4");
        assert_eq!(without_port("[node-a]:29500"), "node-a");
        assert_eq!(ipv4("::ffff:10.0.0.4"), Some([10, 0, 0, 4]));
        assert_eq!(ipv4("10.0.0.4/20"), Some([10, 0, 0, 4]));
        assert_eq!(ipv4("node-a"), None);
        assert!(is_loopback("127.0.0.1") && !is_loopback("10.0.0.1"));
        assert!(is_link_local("fe80::1%eth1") && is_link_local("169.254.3.1"));
        assert!(
            is_bridge_address("172.17.0.2")
                && !is_bridge_address("172.17.120.71")
                && !is_bridge_address("172.31.0.4")
        );
    }

    #[test]
    fn ports_and_numbers() {
        assert_eq!(without_port("172.17.0.1:1024"), "172.17.0.1");
        assert_eq!(without_port("fe80::1%ib1<17943>"), "fe80::1%ib1");
        assert!(is_number("::ffff:0.104.1.2") && !is_number("0.0.0.0") && !is_number("10.0.0.5"));
    }
}
