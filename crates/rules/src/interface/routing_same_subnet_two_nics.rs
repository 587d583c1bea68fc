//! Two interfaces are in one subnet, and the kernel chooses between them.

use std::collections::BTreeMap;

use evidence::signals::interface::{INTERFACE_ADDRESS, LINK_ROUTE};
use evidence::{Quote, Source};

use super::address::{announced, ipv4, is_bridge};
use crate::blocked::failures::verdict;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "routing-same-subnet-two-nics",
    title: "two interfaces of a host are in the same subnet",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL binds only its listening sockets to the chosen interface. Outgoing packets follow the routing table: with two routes to one \
          subnet the kernel takes the first, which may be the slow interface or one that does not reach the peer, and it may differ from \
          node to node.",
    fix: "Give the two interfaces netmasks that do not overlap (for example /24 in place of /20), or a larger metric to the one that NCCL \
          should not use (`ip route change SUBNET dev NIC metric 200`). Several fast interfaces in one subnet need a routing table for \
          each (`ip rule`) and arp_ignore=2.",
    references: &["https://github.com/NVIDIA/nccl/issues/1581", "https://github.com/NVIDIA/nccl/issues/1269"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let seen = log.find_signals(&[&LINK_ROUTE, &INTERFACE_ADDRESS], Source::JobOutput)?;
    let mut subnets: BTreeMap<(u32, u32), BTreeMap<&str, &Quote>> = BTreeMap::new();
    for sighting in &seen {
        let (subnet, device) = if *sighting.signal == LINK_ROUTE {
            route(&sighting.quote.text)
        } else {
            address(&sighting.quote.text)
        };
        if let (Some(subnet), Some(device)) = (subnet, device)
            && !is_bridge(device)
            && (8..31).contains(&subnet.1)
        {
            subnets.entry(subnet).or_default().entry(device).or_insert(&sighting.quote);
        }
    }
    let failed = !verdict(log).is_empty();
    if let Some(((network, bits), devices)) = subnets.iter().find(|it| it.1.len() > 1) {
        let names: Vec<&str> = devices.keys().copied().collect();
        let message = format!("{} are in the same subnet {}/{bits}", names.join(" and "), dotted(*network));
        let severity = if failed { Severity::Error } else { Severity::Warning };
        let finding =
            Finding::new(Confidence::Likely, message).severity(severity).seen_all(devices.values().copied());
        return Ok(vec![names.iter().fold(finding, Finding::about_nic)]);
    }
    Ok(if failed { from_the_log(log) } else { Vec::new() })
}

/// A log does not show netmasks. Interfaces whose addresses differ in the last number only are a hint, once something failed.
fn from_the_log(log: &Log) -> Vec<Finding> {
    for process in &log.case.processes {
        let Some(list) = process.facts.sockets.first() else { continue };
        let mut nets: BTreeMap<[u8; 3], Vec<&str>> = BTreeMap::new();
        let mut addresses = Vec::new();
        for it in &list.value {
            if let Some([a, b, c, d]) = ipv4(&it.address).filter(|_| !is_bridge(&it.name))
                && !addresses.contains(&[a, b, c, d])
            {
                addresses.push([a, b, c, d]);
                nets.entry([a, b, c]).or_default().push(&it.name);
            }
        }
        if let Some((_, names)) = nets.iter().find(|it| it.1.len() > 1) {
            let message = format!(
                "{} of {} seem to be in one subnet, and connections fail",
                names.join(" and "),
                process.name()
            );
            return vec![
                Finding::new(Confidence::Possible, message)
                    .seen(&list.quote)
                    .seen_all(announced(log).first().map(|it| it.quote)),
            ];
        }
    }
    Vec::new()
}

type Subnet = (u32, u32);

/// `192.168.0.0/20 dev eno1 proto kernel scope link src 192.168.1.8`, or a row of `route -n`.
fn route(line: &str) -> (Option<Subnet>, Option<&str>) {
    let words: Vec<&str> = line.split_whitespace().collect();
    if let Some(at) = words.iter().position(|it| *it == "dev") {
        let network = at.checked_sub(1).and_then(|it| words.get(it)).and_then(|it| cidr(it));
        return (network, words.get(at + 1).copied());
    }
    let Some(at) = words.iter().position(|it| it.starts_with("255.")) else { return (None, None) };
    let network =
        at.checked_sub(2).and_then(|it| words.get(it)).and_then(|it| ipv4(it)).map(u32::from_be_bytes);
    let bits = words.get(at).and_then(|it| ipv4(it)).map(|it| u32::from_be_bytes(it).leading_ones());
    (network.zip(bits), words.last().copied())
}

/// `inet 192.168.1.8/20 brd 192.168.15.255 scope global eno1`
fn address(line: &str) -> (Option<Subnet>, Option<&str>) {
    let mut words = line.split_whitespace();
    let network = words.by_ref().skip_while(|it| *it != "inet").nth(1).and_then(cidr);
    let device = words
        .skip_while(|it| *it != "global")
        .skip(1)
        .find(|it| !matches!(*it, "noprefixroute" | "dynamic" | "secondary"));
    (network, device)
}

fn cidr(text: &str) -> Option<Subnet> {
    let (address, bits) = text.split_once('/')?;
    let bits: u32 = bits.parse().ok().filter(|it| *it <= 32)?;
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    Some((u32::from_be_bytes(ipv4(address)?) & mask, bits))
}

fn dotted(network: u32) -> String {
    network.to_be_bytes().map(|it| it.to_string()).join(".")
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_two_routes_to_one_subnet() {
        let notes = "192.168.0.0/20 dev eno1 proto kernel scope link src 192.168.1.8 metric 100\n\
                     192.168.0.0/20 dev ens2f0 proto kernel scope link src 192.168.2.8 metric 100\n";
        assert_eq!(
            findings(&RULE, notes)[0].message,
            "eno1 and ens2f0 are in the same subnet 192.168.0.0/20"
        );
        let table = "192.168.0.0     0.0.0.0         255.255.240.0   U     100    0        0 eno1\n\
                     192.168.0.0     0.0.0.0         255.255.240.0   U     100    0        0 ens2f0\n";
        assert_eq!(findings(&RULE, table).len(), 1);
        let addresses = "    inet 10.0.1.4/16 brd 10.0.255.255 scope global dynamic eth0\n    inet 10.0.2.4/16 scope global eth1\n";
        assert_eq!(findings(&RULE, addresses)[0].message, "eth0 and eth1 are in the same subnet 10.0.0.0/16");
    }

    #[test]
    fn quiet_on_different_subnets_and_on_a_healthy_log() {
        quiet(
            &RULE,
            "10.0.1.0/24 dev eth0 proto kernel scope link src 10.0.1.4\n10.0.2.0/24 dev eth1 proto kernel scope link src 10.0.2.4\n\
             172.17.0.0/16 dev docker0 proto kernel scope link src 172.17.0.1 linkdown\n",
        );
        quiet(&RULE, "a:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.1.4<0> [1]eth1:10.0.1.5<0>\n");
    }
}
