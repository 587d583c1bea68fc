//! NICs that NET/IB makes one device of.
//!
//! From 2.20.3 to 2.23.4 NET/IB itself joins two ports of a card (`src/transport/net_ib.cc`, `ncclIbInit`). Since 2.24.3 NCCL asks it for
//! a virtual device for NICs that are near each other in the description (`src/graph/topo.cc`, `ncclTopoMakeVNics`). Other networks
//! have no such devices: NET/Socket and aws-ofi-nccl offer none (`makeVDevice` is null).

mod near;
mod place;

use std::borrow::Cow;

use fabric::machine::{Machine, NicKind};
use fabric::settings::Network;

use crate::{Settings, VisibleDevice};
use near::{Near, near};
use place::Placed;

/// The NICs of a machine as NCCL counts them.
#[derive(Debug)]
pub(crate) struct Devices<'a> {
    /// The machine. What is one device has the position of its first NIC, with the rate of all; the others are not in the list.
    pub(crate) machine: Cow<'a, Machine>,
    pub(crate) nics: Vec<VisibleDevice>,
    /// Positions of devices that hang on a PCI device of NCCL's own making: it comes after all others below the same switch.
    pub(crate) added: Vec<usize>,
}

/// The devices that the network makes of these NICs of a description of several machines, one after the other.
pub(crate) fn devices<'a>(
    machine: &'a Machine,
    settings: &Settings,
    visible: &[VisibleDevice],
    machines: usize,
) -> Devices<'a> {
    let mut devices = Devices { machine: Cow::Borrowed(machine), nics: Vec::new(), added: Vec::new() };
    let each = (machine.nics.len() / machines.max(1)).max(1);
    let internal =
        settings.network(machine) == Network::Ib && has_no_plugin(settings) && !machine.nics_merged;
    for host in 0..machines.max(1) {
        let own = visible.iter().filter(|it| it.position / each == host).copied();
        let driven = driven(machine, settings, own.collect());
        if internal && settings.since(2, 20, 3) {
            devices.merge(settings, driven);
        } else {
            devices.nics.extend(driven);
        }
    }
    devices
}

/// Whether NCCL's own NET/IB is used, and not a plugin of the same name.
fn has_no_plugin(settings: &Settings) -> bool {
    settings.text("NCCL_NET_PLUGIN").is_none_or(|it| it.is_empty() || it.eq_ignore_ascii_case("none"))
}

/// The NICs the network drives. Where `NCCL_IB_HCA` or `NCCL_SOCKET_IFNAME` leaves out some, NCCL numbers the others from 0; a list that
/// fits none is of other names than the description's.
fn driven(machine: &Machine, settings: &Settings, visible: Vec<VisibleDevice>) -> Vec<VisibleDevice> {
    let network = settings.network(machine);
    let of = |it: &VisibleDevice| machine.nics.get(it.position);
    let all: Vec<VisibleDevice> =
        visible.into_iter().filter(|it| of(it).is_some_and(|nic| network.drives(nic))).collect();
    let selects = match network {
        Network::Ib => Settings::selects_hca,
        Network::Socket => Settings::selects_interface,
        Network::Libfabric => return all,
    };
    let selected = |it: &&VisibleDevice| of(it).is_some_and(|nic| selects(settings, &nic.name));
    let mut kept: Vec<VisibleDevice> = all.iter().filter(selected).copied().collect();
    if kept.is_empty() || kept.len() == all.len() {
        return all;
    }
    kept.sort_by_key(|it| it.number);
    (0..).zip(kept).map(|(number, it)| VisibleDevice { number, ..it }).collect()
}

impl Devices<'_> {
    /// Makes devices of the NICs of one machine.
    fn merge(&mut self, settings: &Settings, mut nics: Vec<VisibleDevice>) {
        nics.sort_by_key(|it| it.number);
        let positions: Vec<usize> = nics.iter().map(|it| it.position).collect();
        let groups = if settings.since(2, 24, 3) {
            by_distance(&self.machine, settings, &positions)
        } else {
            ports(&self.machine, settings, &positions)
        };
        let mut made = 0_u32;
        let mut next = || {
            made += 1;
            made - 1
        };
        let first = u32::try_from(nics.len()).unwrap_or(u32::MAX);
        for group in groups {
            let one = nics[group[0]];
            let members: Vec<usize> = group.iter().map(|it| positions[*it]).collect();
            // 2.24 to 2.26 lose the device of ports that are one card in the description, and use the ports (`ncclTopoAddPci` does not
            // look below a NIC).
            let lost = settings.since(2, 24, 3)
                && !settings.since(2, 27, 3)
                && near(&self.machine, &members).1.is_none();
            if group.len() > 1 && lost {
                next();
                self.nics.extend(group.iter().map(|it| nics[*it]));
                continue;
            }
            // 2.24 to 2.26 make a device of every NIC, also of a single one, and number them after the NICs; from 2.27.3 on only of
            // several. Before, devices are all there is.
            let number = if !settings.since(2, 24, 3) {
                next()
            } else if group.len() > 1 || !settings.since(2, 27, 3) {
                first.saturating_add(next())
            } else {
                one.number
            };
            self.nics.push(VisibleDevice { number, ..one });
            if group.len() > 1 && place::join(self.machine.to_mut(), settings, &members) == Placed::Added {
                self.added.push(one.position);
            }
        }
        self.gather(&positions);
    }
}

impl Devices<'_> {
    /// All devices of a machine that hang on no PCI device are on one card, at the first CPU that has any: NCCL knows it by a number
    /// without the CPU's (`src/graph/topo.cc`, `ncclTopoAddCpu`).
    fn gather(&mut self, nics: &[usize]) {
        let at_cpu = |it: &&usize| {
            let nic = &self.machine.nics[**it];
            nics.contains(*it) && nic.bus.is_none() && nic.link.is_none()
        };
        let gathered: Vec<usize> = self.added.iter().filter(at_cpu).copied().collect();
        let Some(first) = gathered.iter().map(|it| self.machine.nics[*it].at).min() else { return };
        for nic in gathered {
            self.machine.to_mut().nics[nic].at = first;
        }
    }
}

/// 2.20.3 to 2.23.4: each two ports of a card. Since 2.22.3 none are joined where cards have different numbers of ports.
fn ports(machine: &Machine, settings: &Settings, nics: &[usize]) -> Vec<Vec<usize>> {
    let single = || (0..nics.len()).map(|it| vec![it]).collect();
    if settings.number("NCCL_IB_MERGE_NICS", 1) == 0 {
        return single();
    }
    let guid = |it: usize| machine.nics[it].port.map(|it| it.guid);
    let are_one = |one: usize, other: usize| {
        near(machine, &[one, other]).0 == Near::Port
            && same_link_layer(machine, &[one, other])
            && guid(one).zip(guid(other)).is_none_or(|(one, other)| one == other)
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (number, &nic) in nics.iter().enumerate() {
        match groups.iter_mut().find(|it| it.len() < 2 && are_one(nics[it[0]], nic)) {
            Some(group) => group.push(number),
            None => groups.push(vec![number]),
        }
    }
    let mixed = groups.iter().any(|it| it.len() != groups[0].len());
    if mixed && settings.since(2, 22, 3) { single() } else { groups }
}

/// Since 2.24.3: those of `NCCL_NET_FORCE_MERGE`, then each NIC with all that are as near as `NCCL_NET_MERGE_LEVEL`, by default ports of
/// one card (`ncclTopoForceMerge`, `ncclTopoAutoMerge`). With `NCCL_IB_MERGE_NICS=0` NET/IB refuses.
fn by_distance(machine: &Machine, settings: &Settings, nics: &[usize]) -> Vec<Vec<usize>> {
    let merges = settings.number("NCCL_IB_MERGE_NICS", 1) != 0;
    let most = if settings.since(2, 30, 3) { 8 } else { 4 };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut placed = vec![false; nics.len()];
    let forced = settings.text("NCCL_NET_FORCE_MERGE").filter(|_| merges).unwrap_or_default();
    for list in forced.split(';') {
        let named = |number: &usize| {
            let name = |it: &str| it.split(':').next() == Some(&*machine.nics[nics[*number]].name);
            list.split(',').any(name)
        };
        let members: Vec<usize> = (0..nics.len()).filter(|it| !placed[*it]).filter(named).collect();
        let positions: Vec<usize> = members.iter().map(|it| nics[*it]).collect();
        if members.len() > 1 && members.len() <= most && is_possible(machine, &positions) {
            members.iter().for_each(|it| placed[*it] = true);
            groups.push(members);
        }
    }
    let level = level(settings).filter(|_| merges);
    let mut automatic: Vec<Vec<usize>> = Vec::new();
    for number in 0..nics.len() {
        if placed[number] {
            continue;
        }
        placed[number] = true;
        let mut group = vec![number];
        for other in (0..nics.len()).filter(|_| level.is_some()) {
            let one = [nics[number], nics[other]];
            if !placed[other] && Some(near(machine, &one).0) <= level && same_link_layer(machine, &one) {
                placed[other] = true;
                group.push(other);
            }
            if group.len() == most {
                break;
            }
        }
        automatic.push(group);
    }
    groups.extend(automatic);
    groups
}

/// `NCCL_NET_MERGE_LEVEL`; `None` joins nothing. What is between PXB and PHB does not occur between NICs, and a device over two sockets
/// is none that NCCL can use.
fn level(settings: &Settings) -> Option<Near> {
    let Some(text) = settings.text("NCCL_NET_MERGE_LEVEL") else { return Some(Near::Port) };
    let known = [
        ("PORT", Near::Port),
        ("PIX", Near::Pix),
        ("PXB", Near::Pxb),
        ("P2C", Near::Pxb),
        ("PXN", Near::Pxb),
        ("PHB", Near::Phb),
        ("SYS", Near::Phb),
    ];
    known.into_iter().find(|it| text.starts_with(it.0)).map(|it| it.1)
}

fn is_possible(machine: &Machine, nics: &[usize]) -> bool {
    near(machine, nics).0 <= Near::Phb && same_link_layer(machine, nics)
}

/// NET/IB joins neither InfiniBand with Ethernet nor the other way round (`ncclIbMakeVDeviceInternal`).
fn same_link_layer(machine: &Machine, nics: &[usize]) -> bool {
    let kinds = || nics.iter().map(|it| machine.nics[*it].kind);
    !(kinds().any(|it| it == NicKind::InfiniBand) && kinds().any(|it| it == NicKind::Roce))
}
