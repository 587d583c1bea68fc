//! An NVLink domain of several machines (MNNVL): to NCCL they are one node.
//!
//! The ranks of a domain join the descriptions of their machines (`src/graph/topo.cc`, `ncclTopoGetSystem`): the GPUs of all reach each
//! other by the same `NVSwitch`es, the sockets and NICs of one machine are not joined to those of another.

use fabric::machine::{Machine, NvEnd, NvLink, Place, Socket};

use crate::{Paths, Settings, TooLarge, VisibleDevice, VisibleDevices};

/// How many machines form one domain, as far as the catalogue knows them.
pub(crate) fn in_catalogue(machine: &Machine) -> u32 {
    let known = machine.name.as_deref().and_then(fabric::catalogue::wiring);
    known.and_then(|it| it.domain).unwrap_or(1)
}

/// How many machines one domain has where NCCL uses it. Descriptions are joined since 2.21.5; 2.18 and 2.19 know no domains. It takes
/// memory that can be exported (`src/mnnvl.cc`, `ncclMnnvlCheck`), and the GPUs of every rank.
pub(crate) fn machines_in_domain(settings: &Settings, machines: &[Machine], domain: u32, nodes: u32) -> u32 {
    let wanted = settings.number("NCCL_MNNVL_ENABLE", 2) != 0 && settings.since(2, 21, 5) && settings.cumem();
    let peers = settings.number("NCCL_P2P_DISABLE", 0) != 1 && settings.text("NCCL_P2P_LEVEL") != Some("LOC");
    let linked = machines.iter().all(Machine::has_nvswitch);
    if wanted && peers && linked && nodes > 1 { domain.clamp(1, nodes) } else { 1 }
}

/// A machine of a domain: its description, and the NICs that its ranks see.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) nics: &'a [VisibleDevice],
}

/// How many devices each machine of a domain has room for, where several descriptions are one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Room {
    sockets: usize,
    bridges: usize,
    pub(crate) gpus: usize,
    nics: usize,
}

impl Room {
    /// Enough for each of these machines.
    pub(crate) fn of<'a>(machines: impl IntoIterator<Item = &'a Machine>) -> Self {
        machines.into_iter().fold(Self::default(), |room, it| Self {
            sockets: room.sockets.max(it.sockets.len()),
            bridges: room.bridges.max(it.bridges.len()),
            gpus: room.gpus.max(it.gpus.len()),
            nics: room.nics.max(it.nics.len()),
        })
    }
}

/// The paths of machines as one node with these GPUs, whose positions count on from machine to machine by the room each has.
pub(crate) fn paths(
    members: &[Member<'_>],
    settings: &Settings,
    room: Room,
    gpus: Vec<VisibleDevice>,
) -> Result<Paths, TooLarge> {
    let joined = join(members.iter().map(|it| it.machine), room);
    let of = |(host, member): (usize, &Member<'_>)| {
        let at = host * room.nics;
        member.nics.iter().map(|it| VisibleDevice { position: it.position + at, ..*it }).collect::<Vec<_>>()
    };
    let nics = members.iter().enumerate().flat_map(of).collect();
    Paths::joined(&joined, settings, &VisibleDevices { gpus, nics }, members.len())
}

/// A machine this many times.
pub(crate) fn repeat(machine: &Machine, times: usize) -> Machine {
    join(std::iter::repeat_n(machine, times), Room::of([machine]))
}

/// Several machines one after the other. Where one has fewer devices than there is room for, copies fill it; no rank sees them.
fn join<'a>(machines: impl Iterator<Item = &'a Machine> + Clone, room: Room) -> Machine {
    let mut all = Machine::default();
    let bridge = machines.clone().find_map(|it| it.bridges.first());
    let nic = machines.clone().find_map(|it| it.nics.first());
    for (host, machine) in machines.enumerate() {
        if host == 0 {
            (all.name, all.nics_merged) = (machine.name.clone(), machine.nics_merged);
        }
        let (sockets, bridges) = (host * room.sockets, host * room.bridges);
        let gpus = host * room.gpus;
        let place = |at: Place| match at {
            Place::Socket(it) => Place::Socket(it + sockets),
            Place::Bridge(it) => Place::Bridge(it + bridges),
        };
        all.sockets.extend(filled(&machine.sockets, Some(&Socket::default()), room.sockets));
        all.bridges.extend(filled(&machine.bridges, bridge, room.bridges).into_iter().map(|mut it| {
            it.at = place(it.at);
            it
        }));
        all.gpus.extend(filled(&machine.gpus, None, room.gpus).into_iter().map(|mut it| {
            it.at = place(it.at);
            it
        }));
        all.nics.extend(filled(&machine.nics, nic, room.nics).into_iter().map(|mut it| {
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

/// These, and copies of the first, or of another, until there are so many.
fn filled<T: Clone>(those: &[T], other: Option<&T>, wanted: usize) -> Vec<T> {
    let mut filled = those.to_vec();
    if let Some(copy) = those.first().or(other) {
        filled.resize(wanted.max(those.len()), copy.clone());
    }
    filled
}
