//! A described machine with what the catalogue knows of its instance type.

use evidence::topology::{NO_MODELS, NO_RATES};
use fabric::Machine;
use fabric::machine::{Maker, Nic, NicKind, NvEnd, NvLink, Place};

/// Gives a described machine what the catalogue knows of it.
pub(super) fn complete(machine: &mut Machine, known: &Machine, links_known: bool) {
    machine.name.clone_from(&known.name);
    if machine.gpus.len() == known.gpus.len() {
        if machine.hidden.nvlink && links_known {
            machine.hidden.nvlink = false;
            machine.nvlinks = links_of(known, machine);
            machine.unknown.push("NVLink is that of the instance type.".to_owned());
        }
        for (gpu, known) in machine.gpus.iter_mut().zip(&known.gpus) {
            gpu.model = gpu.model.take().or_else(|| known.model.clone());
            gpu.compute = gpu.compute.or(known.compute);
            gpu.link = gpu.link.or(known.link);
            gpu.gpudirect = gpu.gpudirect.or(known.gpudirect);
        }
    }
    if is_described_without_switches(machine) && is_wired_like(machine, known) {
        machine.bridges.clone_from(&known.bridges);
        machine.nics.clone_from(&known.nics);
        for (gpu, known) in machine.gpus.iter_mut().zip(&known.gpus) {
            gpu.at = known.at;
        }
        machine.unknown.push(
            "The description shows no PCIe switch and no NIC: they are those of the instance type."
                .to_owned(),
        );
    } else if machine.nics.is_empty() && !machine.sockets.is_empty() {
        for nic in &known.nics {
            let socket = known.socket_of(nic.at).unwrap_or(0).min(machine.sockets.len() - 1);
            machine.nics.push(Nic { at: Place::Socket(socket), ..nic.clone() });
        }
        machine.unknown.push(
            "The NICs are those of the instance type; which switch each is below is not known.".to_owned(),
        );
    }
    for bridge in &mut machine.bridges {
        bridge.link = bridge.link.or(known.bridges.first().and_then(|it| it.link));
    }
    for nic in &mut machine.nics {
        if let Some(same) = known.nics.iter().find(|it| it.bus.is_some() && it.bus == nic.bus) {
            nic.name.clone_from(&same.name);
        }
        if let Some(known) = known.nics.first() {
            nic.kind = if nic.kind == NicKind::Unknown { known.kind } else { nic.kind };
            nic.rate = nic.rate.or(known.rate);
            nic.gpudirect = nic.gpudirect.or(known.gpudirect);
            nic.latency = nic.latency.or(known.latency);
            nic.link = nic.link.or(known.link);
        }
    }
    for (socket, known) in machine.sockets.iter_mut().zip(&known.sockets) {
        if socket.maker == Maker::Unknown {
            socket.maker = known.maker;
            socket.model = known.model;
        }
    }
}

/// Drops sentences about what a flag has answered.
pub(super) fn forget_what_is_known(machine: &mut Machine) {
    let (models, rates) =
        (machine.gpus.iter().all(|it| it.model.is_some()), machine.nics.iter().all(|it| it.rate.is_some()));
    machine.unknown.retain(|it| !(models && it == NO_MODELS || rates && it == NO_RATES));
}

/// The NVLinks of one machine in the order of the GPUs of another, which has as many.
fn links_of(known: &Machine, machine: &Machine) -> Vec<NvLink> {
    let place = |of: usize| {
        let index = known.gpus.get(of)?.index;
        machine.gpus.iter().position(|it| it.index == index)
    };
    let link = |it: &NvLink| {
        let to = match it.to {
            NvEnd::Gpu(to) => NvEnd::Gpu(place(to)?),
            to => to,
        };
        Some(NvLink { from: place(it.from)?, to, count: it.count })
    };
    let mut links: Vec<NvLink> = known.nvlinks.iter().filter_map(link).collect();
    links.sort_unstable();
    links
}

/// Whether a description leaves open what is between the sockets and the GPUs, and has no NICs.
fn is_described_without_switches(machine: &Machine) -> bool {
    machine.bridges.is_empty() && machine.nics.is_empty()
}

/// Whether every GPU is at the socket at which the catalogue has it, and the catalogue knows what is in between.
fn is_wired_like(machine: &Machine, known: &Machine) -> bool {
    known.unknown.is_empty()
        && machine.sockets.len() == known.sockets.len()
        && machine.gpus.len() == known.gpus.len()
        && machine.gpus.iter().zip(&known.gpus).all(|(gpu, known_gpu)| {
            gpu.index == known_gpu.index && machine.socket_of(gpu.at) == known.socket_of(known_gpu.at)
        })
}
