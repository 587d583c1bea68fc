//! The order of GPUs and NICs in NCCL's system.

use fabric::machine::{Bridge, Machine, Place};

use super::VisibleDevice;
use crate::Settings;
use crate::merge::Devices;

/// The NICs in the order of the tree: by socket, by switch, by index. A NIC next to switches is before the first with a larger bus id,
/// one on a PCI device of NCCL's own making after all.
pub(super) fn nics_in_order(devices: &Devices<'_>) -> Vec<VisibleDevice> {
    let machine = &*devices.machine;
    let mut nics: Vec<(Vec<Step>, VisibleDevice)> = Vec::new();
    for &device in &devices.nics {
        let Some(nic) = machine.nics.get(device.position) else { continue };
        let later = |it: &Bridge| it.at == nic.at && it.bus > nic.bus;
        let next = nic.bus.map_or(Some(0), |_| machine.bridges.iter().position(later));
        let next = next.filter(|_| !devices.added.contains(&device.position));
        let index = if devices.added.contains(&device.position) { device.number } else { nic.index };
        let mut steps = vec![(next.unwrap_or(usize::MAX), false, index)];
        let above = machine.bridges_above(nic.at);
        steps.extend(above.iter().map(|it| (*it, true, 0)));
        let top = above.last().and_then(|it| machine.bridges.get(*it)).map_or(nic.at, |it| it.at);
        steps.push(match top {
            Place::Socket(socket) => (socket, true, 0),
            Place::Bridge(_) => (usize::MAX, true, 0),
        });
        steps.reverse();
        nics.push((steps, device));
    }
    nics.sort();
    nics.into_iter().map(|it| it.1).collect()
}

/// A step from the root of the tree to a NIC: the number of a socket or bridge, or of the bridge after the NIC; whether it is
/// not the NIC; the index of the NIC.
type Step = (usize, bool, u32);

/// The GPUs, given in the order of their ranks, in the order of the tree. Since 2.22.3 each rank describes its own GPU and all NICs,
/// and the descriptions are joined rank by rank (`src/graph/topo.cc`, `ncclTopoGetSystem`): what has neither a NIC nor the first rank
/// below it comes later.
pub(super) fn gpus_in_order(
    machine: &Machine,
    settings: &Settings,
    mut gpus: Vec<VisibleDevice>,
    nics: &[VisibleDevice],
    machines: usize,
) -> Vec<VisibleDevice> {
    let ranks: Vec<usize> = gpus.iter().map(|it| it.position).collect();
    gpus.sort_by_key(|it| it.position);
    if !settings.since(2, 22, 3) {
        return gpus;
    }
    let all: Vec<Vec<Child>> = (0..machine.gpus.len()).map(|it| children(machine, it)).collect();
    let with_nics: Vec<Child> = nics
        .iter()
        .filter_map(|it| machine.nics.get(it.position))
        .flat_map(|nic| places(machine, nic.at))
        .collect();
    let each = (machine.gpus.len() / machines).max(1);
    let key = |gpu: usize| -> Vec<(bool, usize)> {
        let ranks: Vec<usize> = ranks.iter().copied().filter(|it| it / each == gpu / each).collect();
        let below = |child: &Child, it: usize| all[it].contains(child);
        let step = |child: &Child| {
            let first = ranks.iter().position(|it| below(child, *it)).unwrap_or(usize::MAX);
            if first == 0 || with_nics.contains(child) {
                (false, (0..all.len()).find(|it| below(child, *it)).unwrap_or(usize::MAX))
            } else {
                (true, first)
            }
        };
        std::iter::once((false, gpu / each)).chain(all[gpu].iter().map(step)).collect()
    };
    gpus.sort_by_cached_key(|it| key(it.position));
    gpus
}

/// A node of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Child {
    Socket(usize),
    Bridge(usize),
    Gpu(usize),
}

/// The nodes from the root of the tree to a GPU.
fn children(machine: &Machine, gpu: usize) -> Vec<Child> {
    let mut steps = places(machine, machine.gpus[gpu].at);
    steps.push(Child::Gpu(gpu));
    steps
}

/// The nodes from the root of the tree to a place.
fn places(machine: &Machine, at: Place) -> Vec<Child> {
    let above = machine.bridges_above(at);
    let mut steps: Vec<Child> = machine.socket_of(at).map(Child::Socket).into_iter().collect();
    steps.extend(above.iter().rev().map(|it| Child::Bridge(*it)));
    steps
}
