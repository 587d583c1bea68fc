//! Chooses the network address of this host for connections between ranks.
//!
//! A choice has the syntax of `NCCL_SOCKET_IFNAME`, or is an address or a subnet, which can be the same on hosts whose
//! interfaces have different names:
//!
//! | choice | means |
//! | --- | --- |
//! | `eth`, `eth,ens` | names that begin with it |
//! | `=eth0` | this name only |
//! | `^docker,virbr` | all names but those that begin with it (`^=`: all but these names) |
//! | `10.77.0.5`, `fe80::1%eth0` | this address |
//! | `10.77.0.0/24`, `fd00::/8` | the address in this subnet |

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::system;
use crate::{Cause, Error};

const STAGE: &str = "choosing the network";

/// A network interface of this host and one of its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// For example `eth0`.
    pub name: String,
    /// The index of the kernel, which is the scope of link-local addresses.
    pub index: u32,
    /// One of its addresses.
    pub address: IpAddr,
    /// The length of the subnet prefix in bits.
    pub prefix: u8,
    /// Whether it is up and has a carrier.
    pub up: bool,
    /// Whether it is a loopback interface.
    pub loopback: bool,
}

/// The parsed choice of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Choice {
    picks: Vec<Pick>,
    excluded: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pick {
    Begins(String),
    Name(String),
    Address(IpAddr, Option<String>),
    Subnet(IpAddr, u8),
}

/// Names of bridges, tunnels and container networks, which seldom lead to another host.
const VIRTUAL: [&str; 17] = [
    "docker",
    "veth",
    "br-",
    "virbr",
    "vnet",
    "cni",
    "flannel",
    "cali",
    "cilium",
    "lxc",
    "lxd",
    "podman",
    "kube",
    "tun",
    "tap",
    "wg",
    "tailscale",
];

impl Interface {
    /// The interface for `choice`, or the most likely one.
    ///
    /// `loopback`: all ranks are on this host, so loopback may be used without a choice. Bridges and tunnels are used only
    /// if there is nothing else.
    pub fn choose(choice: Option<&str>, loopback: bool) -> Result<Self, Error> {
        let all = system::interfaces()
            .map_err(|it| Error::system(STAGE, "cannot list the network interfaces", it))?;
        pick(&all, choice, loopback)
    }

    /// The socket address to listen on.
    pub fn socket(&self, port: u16) -> SocketAddr {
        self.reach(self.address, port)
    }

    /// A socket address that is reached over this interface: link-local ones need its scope.
    pub(super) fn reach(&self, address: IpAddr, port: u16) -> SocketAddr {
        match address {
            IpAddr::V4(it) => SocketAddrV4::new(it, port).into(),
            IpAddr::V6(it) => {
                let scope = if it.is_unicast_link_local() { self.index } else { 0 };
                SocketAddrV6::new(it, port, 0, scope).into()
            }
        }
    }

    fn link_local(&self) -> bool {
        match self.address {
            IpAddr::V4(it) => it.is_link_local(),
            IpAddr::V6(it) => it.is_unicast_link_local(),
        }
    }

    /// The interface with the lowest preference is used.
    fn preference(&self, loopback: bool) -> (bool, u8, bool) {
        let virtual_like = VIRTUAL.iter().any(|it| self.name.starts_with(it));
        let class = match self.name.as_str() {
            _ if self.loopback => {
                if loopback {
                    0
                } else {
                    4
                }
            }
            _ if virtual_like => 3,
            name if name.starts_with("ib") => 1,
            _ => 2,
        };
        (self.link_local(), class, self.address.is_ipv6())
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.name, self.address, self.prefix)?;
        if self.up { Ok(()) } else { write!(f, " (down)") }
    }
}

impl Choice {
    fn read(text: &str) -> Result<Self, Error> {
        let invalid = || {
            Error::new(
                Cause::Usage,
                STAGE,
                format!("`{text}` is not the name of an interface, an address or a subnet"),
            )
        };
        let (rest, excluded) = text.trim().strip_prefix('^').map_or((text.trim(), false), |it| (it, true));
        let (rest, exact) = rest.strip_prefix('=').map_or((rest, false), |it| (it, true));
        let picks: Vec<Pick> = rest
            .split(',')
            .map(str::trim)
            .filter(|it| !it.is_empty())
            .map(|it| Pick::read(it, exact).ok_or_else(invalid))
            .collect::<Result<_, _>>()?;
        if picks.is_empty() { Err(invalid()) } else { Ok(Self { picks, excluded }) }
    }

    fn fits(&self, it: &Interface) -> bool {
        self.picks.iter().any(|pick| pick.fits(it)) != self.excluded
    }
}

impl Pick {
    fn read(text: &str, exact: bool) -> Option<Self> {
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            return bits.parse().ok().filter(|it| *it <= most).map(|it| Self::Subnet(address, it));
        }
        let (address, scope) = text.split_once('%').map_or((text, None), |(it, scope)| (it, Some(scope)));
        if let Ok(address) = address.parse() {
            return Some(Self::Address(address, scope.map(str::to_owned)));
        }
        Some(if exact { Self::Name(text.to_owned()) } else { Self::Begins(text.to_owned()) })
    }

    fn fits(&self, it: &Interface) -> bool {
        match self {
            Self::Begins(name) => it.name.starts_with(name),
            Self::Name(name) => it.name == *name,
            Self::Address(address, scope) => {
                it.address == *address
                    && scope.as_ref().is_none_or(|scope| it.name == *scope || it.index.to_string() == *scope)
            }
            Self::Subnet(subnet, bits) => within(it.address, *subnet, *bits),
        }
    }
}

fn within(address: IpAddr, subnet: IpAddr, bits: u8) -> bool {
    match (address, subnet) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let mask = u32::MAX.checked_shl(u32::from(32 - bits.min(32))).unwrap_or(0);
            Ipv4Addr::to_bits(a) & mask == Ipv4Addr::to_bits(b) & mask
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let mask = u128::MAX.checked_shl(u32::from(128 - bits.min(128))).unwrap_or(0);
            Ipv6Addr::to_bits(a) & mask == Ipv6Addr::to_bits(b) & mask
        }
        _ => false,
    }
}

fn pick(all: &[Interface], choice: Option<&str>, loopback: bool) -> Result<Interface, Error> {
    let wanted = choice.map(Choice::read).transpose()?;
    // A named interface may be loopback; otherwise loopback is used only if all ranks are on this host.
    let named = wanted.as_ref().is_some_and(|it| !it.excluded);
    all.iter()
        .filter(|it| it.up && wanted.as_ref().is_none_or(|choice| choice.fits(it)))
        .filter(|it| named || loopback || !it.loopback)
        .min_by_key(|it| it.preference(loopback))
        .cloned()
        .ok_or_else(|| {
            let what = match choice {
                Some(text) => format!("no interface that is up matches `{text}`"),
                None => "no interface that is up leads to other hosts".to_owned(),
            };
            let list: Vec<String> = all.iter().map(ToString::to_string).collect();
            let list = if list.is_empty() { "none with an address".to_owned() } else { list.join(", ") };
            Error::new(Cause::Usage, STAGE, format!("{what}; this host has {list}"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str, up: bool) -> Interface {
        let address: IpAddr = address.parse().expect("an address");
        Interface { name: name.into(), index: 7, address, prefix: 24, up, loopback: name == "lo" }
    }

    fn machine() -> Vec<Interface> {
        [
            ("lo", "127.0.0.1", true),
            ("docker0", "172.17.0.1", true),
            ("eth1", "fe80::2", true),
            ("eth1", "fd00::2", true),
            ("eth1", "10.77.0.5", true),
            ("eth0", "192.0.2.2", false),
            ("lo", "::1", true),
            ("eth10", "10.78.0.5", true),
        ]
        .map(|(name, address, up)| interface(name, address, up))
        .to_vec()
    }

    fn check(choice: Option<&str>, loopback: bool) -> String {
        match pick(&machine(), choice, loopback) {
            Ok(it) => format!("{} {}", it.name, it.address),
            Err(error) => error.detail,
        }
    }

    #[test]
    fn the_default_leads_to_other_hosts() {
        assert_eq!(check(None, false), "eth1 10.77.0.5");
        assert_eq!(check(Some("^eth1"), false), "docker0 172.17.0.1", "the last resort");
        assert_eq!(check(Some("^=eth1"), false), "eth10 10.78.0.5");
    }

    #[test]
    fn the_default_is_loopback_if_all_ranks_are_here() {
        assert_eq!(check(None, true), "lo 127.0.0.1");
        let mut down = machine();
        down.iter_mut().filter(|it| it.loopback).for_each(|it| it.up = false);
        assert_eq!(pick(&down, None, true).expect("another").name, "eth1");
        assert!(pick(&machine()[..1], None, false).is_err(), "loopback reaches no other host");
    }

    #[test]
    fn infiniband_comes_first() {
        let mut all = machine();
        all.push(interface("ib0", "10.79.0.5", true));
        assert_eq!(pick(&all, None, false).expect("one").name, "ib0");
        all.last_mut().expect("ib0").address = "fe80::9".parse().expect("an address");
        assert_eq!(
            pick(&all, None, false).expect("one").name,
            "eth1",
            "but not without an address of its own"
        );
    }

    #[test]
    fn names_are_read_as_nccl_reads_them() {
        assert_eq!(check(Some("eth1"), true), "eth1 10.77.0.5");
        assert_eq!(check(Some("=eth10"), false), "eth10 10.78.0.5");
        assert_eq!(check(Some("docker,veth"), false), "docker0 172.17.0.1");
        assert_eq!(check(Some("lo"), false), "lo 127.0.0.1");
    }

    #[test]
    fn addresses_and_subnets_are_choices_too() {
        assert_eq!(check(Some("10.78.0.5"), false), "eth10 10.78.0.5");
        assert_eq!(check(Some("10.77.0.9/24"), false), "eth1 10.77.0.5");
        assert_eq!(check(Some("10.1.0.0/16,fd00::/8"), false), "eth1 fd00::2");
        assert_eq!(check(Some("fe80::2%eth1"), false), "eth1 fe80::2");
        assert_eq!(check(Some("::1"), false), "lo ::1");
        assert_eq!(check(Some("0.0.0.0/0"), false), "eth1 10.77.0.5");
    }

    #[test]
    fn a_choice_without_a_match_lists_the_interfaces() {
        let text = check(Some("eth0"), false);
        assert!(
            text.starts_with("no interface that is up matches `eth0`; this host has lo 127.0.0.1/24, "),
            "{text}"
        );
        assert!(text.contains("eth0 192.0.2.2/24 (down)"), "{text}");
        for wrong in ["", "^", "=,", "10.0.0.0/33", "nonsense/24"] {
            assert!(
                check(Some(wrong), false)
                    .ends_with("is not the name of an interface, an address or a subnet"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn link_local_addresses_get_the_scope_of_the_interface() {
        assert_eq!(interface("eth0", "fe80::2", true).socket(9).to_string(), "[fe80::2%7]:9");
        assert_eq!(interface("eth0", "fd00::2", true).socket(9).to_string(), "[fd00::2]:9");
    }

    #[test]
    fn this_machine_has_a_loopback() {
        let it = Interface::choose(Some("127.0.0.1"), false).expect("loopback");
        assert!(it.loopback && it.up && it.index > 0 && it.prefix == 8, "{it:?}");
    }
}
