//! How near NICs are to each other in NCCL's description (`src/graph/topo.cc`, `ncclTopoGetPath`).

use fabric::machine::{BusId, Machine, Place};

/// How near NICs are to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Near {
    /// Ports of one card, or what looks like that by its bus ids.
    Port,
    /// Directly below one switch.
    Pix,
    /// Below one switch, with others between.
    Pxb,
    /// At one CPU.
    Phb,
    /// At different CPUs.
    Sys,
}

/// What is above a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Socket(usize),
    Bridge(usize),
    /// A card, by its bus id.
    Card(BusId),
    /// A card whose bus id is not known, by the position of its only NIC.
    Unknown(usize),
}

/// How near some NICs are, and what is above all of them; `None` for the card itself.
pub(super) fn near(machine: &Machine, nics: &[usize]) -> (Near, Option<Place>) {
    let chains: Vec<Vec<Step>> = nics.iter().map(|it| chain(machine, *it)).collect();
    let Some(first) = chains.first() else { return (Near::Sys, None) };
    let same = |level: &usize| chains.iter().all(|it| it.get(*level) == first.get(*level));
    let Some(split) = (0..first.len()).find(|level| !same(level)) else { return (Near::Port, None) };
    let above = split.checked_sub(1).and_then(|it| match first[it] {
        Step::Socket(it) => Some(Place::Socket(it)),
        Step::Bridge(it) => Some(Place::Bridge(it)),
        Step::Card(_) | Step::Unknown(_) => None,
    });
    // Functions of one device: bus ids that differ in the last digit alone.
    let device = |chain: &Vec<Step>| bus(machine, *chain.get(split)?).map(|it| it.0 >> 4);
    let known = device(first);
    if known.is_some() && chains.iter().all(|it| device(it) == known) {
        return (Near::Port, above);
    }
    let kind = match above {
        None => Near::Sys,
        Some(Place::Socket(_)) => Near::Phb,
        Some(place) if nics.iter().all(|it| machine.nics[*it].at == place) => Near::Pix,
        Some(_) => Near::Pxb,
    };
    (kind, above)
}

/// From the CPU down to the card.
fn chain(machine: &Machine, nic: usize) -> Vec<Step> {
    let it = &machine.nics[nic];
    let mut chain: Vec<Step> = machine.socket_of(it.at).map(Step::Socket).into_iter().collect();
    chain.extend(machine.bridges_above(it.at).into_iter().rev().map(Step::Bridge));
    chain.push(match it.bus {
        Some(bus) => Step::Card(bus),
        None => Step::Unknown(nic),
    });
    chain
}

fn bus(machine: &Machine, step: Step) -> Option<BusId> {
    match step {
        Step::Bridge(it) => machine.bridges.get(it)?.bus,
        Step::Card(bus) => Some(bus),
        Step::Socket(_) | Step::Unknown(_) => None,
    }
}
