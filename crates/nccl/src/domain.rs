//! An NVLink domain of several machines (MNNVL): to NCCL they are one node.
//!
//! The ranks of a domain join the descriptions of their machines (`src/graph/topo.cc`, `ncclTopoGetSystem`): the GPUs of all reach each
//! other by the same `NVSwitch`es, the sockets and NICs of one machine are not joined to those of another.

use fabric::machine::{Machine, NvEnd, NvLink, Place};

use crate::{Paths, Settings, TooLarge, VisibleDevice, VisibleDevices};

/// How many machines form one domain, as far as the catalogue knows them.
pub(crate) fn in_catalogue(machine: &Machine) -> u32 {
    let known = machine.name.as_deref().and_then(fabric::catalogue::wiring);
    known.and_then(|it| it.domain).unwrap_or(1)
}

/// How many machines one domain has where NCCL uses it. Descriptions are joined since 2.21.5.
pub(crate) fn machines_in_domain(settings: &Settings, machine: &Machine, domain: u32, nodes: u32) -> u32 {
    let wanted = settings.number("NCCL_MNNVL_ENABLE", 2) != 0 && settings.since(2, 21, 5);
    let peers = settings.number("NCCL_P2P_DISABLE", 0) != 1 && settings.text("NCCL_P2P_LEVEL") != Some("LOC");
    if wanted && peers && machine.has_nvswitch() && nodes > 1 { domain.clamp(1, nodes) } else { 1 }
}

/// The paths of this many machines as one node with these GPUs, whose positions count on from machine to machine; `one` has those of
/// a single machine.
pub(crate) fn paths(
    one: &Paths,
    machine: &Machine,
    machines: usize,
    gpus: Vec<VisibleDevice>,
) -> Result<Paths, TooLarge> {
    let joined = repeat(machine, machines);
    let each = machine.nics.len();
    let of = |host: usize| {
        one.nics().iter().map(move |it| VisibleDevice { position: it.position + host * each, ..*it })
    };
    let visible = VisibleDevices { gpus, nics: (0..machines).flat_map(of).collect() };
    Paths::joined(&joined, &one.settings, &visible, machines)
}

/// A machine this many times.
pub(crate) fn repeat(machine: &Machine, times: usize) -> Machine {
    let mut all = Machine { name: machine.name.clone(), ..Machine::default() };
    for host in 0..times {
        let (sockets, bridges) = (host * machine.sockets.len(), host * machine.bridges.len());
        let gpus = host * machine.gpus.len();
        let place = |at: Place| match at {
            Place::Socket(it) => Place::Socket(it + sockets),
            Place::Bridge(it) => Place::Bridge(it + bridges),
        };
        all.sockets.extend(machine.sockets.iter().cloned());
        all.bridges.extend(machine.bridges.iter().cloned().map(|mut it| {
            it.at = place(it.at);
            it
        }));
        all.gpus.extend(machine.gpus.iter().cloned().map(|mut it| {
            it.at = place(it.at);
            it
        }));
        all.nics.extend(machine.nics.iter().cloned().map(|mut it| {
            it.at = place(it.at);
            it
        }));
        all.nvlinks.extend(machine.nvlinks.iter().map(|it| NvLink {
            from: it.from + gpus,
            to: match it.to {
                NvEnd::Gpu(to) => NvEnd::Gpu(to + gpus),
                NvEnd::Socket(to) => NvEnd::Socket(to + sockets),
                NvEnd::Switch => NvEnd::Switch,
            },
            ..*it
        }));
    }
    all
}
