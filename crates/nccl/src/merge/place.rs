//! Where a device of several NICs is, and how fast (`src/graph/topo.cc`, `ncclTopoGetVNicParent`).

use fabric::machine::{BusId, Machine, PciLink, Place};
use fabric::units::GigabitsPerSecond;

use super::near::{Near, near};
use crate::Settings;

/// Where a device was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// In the place of its first NIC.
    Same,
    /// On a PCI device of NCCL's own making, or on none.
    Added,
}

/// Makes one device of several NICs: the first becomes it.
pub(super) fn join(machine: &mut Machine, settings: &Settings, members: &[usize]) -> Placed {
    let first = members[0];
    let rates: Option<Vec<f64>> = members.iter().map(|it| machine.nics[*it].rate.map(|it| it.0)).collect();
    machine.nics[first].rate = rates.map(|it| GigabitsPerSecond(it.into_iter().sum()));
    let (kind, above) = near(machine, members);
    let Some(above) = above.filter(|_| settings.since(2, 24, 3)) else { return Placed::Same };
    let link = machine.nics[first].link;
    let widened = (settings.since(2, 28, 3) && kind != Near::Port).then(|| width(machine, above, members));
    if let Some(width) = widened.filter(|it| *it > 0) {
        widen(machine, settings, (above, width), members);
    }
    let nic = &mut machine.nics[first];
    nic.at = above;
    // Up to 2.27 a device at the CPU is no PCI device.
    if matches!(above, Place::Socket(_)) && !settings.since(2, 28, 3) {
        (nic.bus, nic.link) = (None, None);
        return Placed::Added;
    }
    nic.link = link.map(|it| PciLink { width: widened.filter(|it| *it > 0).unwrap_or(it.width), ..it });
    let bus = nic.bus;
    machine.nics[first].bus = bus.map(|it| free_bus(machine, it));
    Placed::Added
}

/// The lanes of all NICs together, as far as what is between them and their common switch or CPU has them.
fn width(machine: &Machine, above: Place, members: &[usize]) -> u32 {
    let mut cards: Vec<Option<BusId>> = Vec::new();
    let mut sum = 0;
    for nic in members.iter().map(|it| &machine.nics[*it]).filter(|it| it.at == above) {
        if nic.bus.is_none() || !cards.contains(&nic.bus) {
            cards.push(nic.bus);
            sum += nic.link.map_or(0, |it| it.width);
        }
    }
    for (index, bridge) in machine.bridges.iter().enumerate().filter(|it| it.1.at == above) {
        let inner = Place::Bridge(index);
        if inner == above || !is_above(machine, index, members) {
            continue;
        }
        let (own, below) = (bridge.link.map_or(0, |it| it.width), width(machine, inner, members));
        sum += match (own, below) {
            (own, 0) => own,
            (0, below) => below,
            (own, below) => own.min(below),
        };
    }
    sum
}

fn is_above(machine: &Machine, bridge: usize, members: &[usize]) -> bool {
    members.iter().any(|it| machine.bridges_above(machine.nics[*it].at).contains(&bridge))
}

/// The switch above all gets as many lanes; up to 2.30.4 those between it and the NICs too (`ncclTopoWidenLinks`).
fn widen(machine: &mut Machine, settings: &Settings, (above, width): (Place, u32), members: &[usize]) {
    let mut wide: Vec<usize> = Vec::new();
    for nic in members {
        let bridges = machine.bridges_above(machine.nics[*nic].at);
        let below = bridges.iter().take_while(|it| Place::Bridge(**it) != above).copied();
        wide.extend(below.filter(|_| !settings.since(2, 30, 7)));
    }
    if let Place::Bridge(it) = above {
        wide.push(it);
    }
    for bridge in wide {
        if let Some(link) = machine.bridges.get_mut(bridge).and_then(|it| it.link.as_mut()) {
            link.width = width;
        }
    }
}

/// The next bus id that nothing has.
fn free_bus(machine: &Machine, after: BusId) -> BusId {
    let buses = machine.bridges.iter().map(|it| it.bus).chain(machine.gpus.iter().map(|it| it.bus));
    let used: Vec<BusId> = buses.chain(machine.nics.iter().map(|it| it.bus)).flatten().collect();
    (after.0 + 1..).map(BusId).find(|it| !used.contains(it)).unwrap_or(after)
}
