//! Changes of a machine's description: GPUs that another part of a log adds, GPUs that a communicator does not use.

use std::collections::{BTreeMap, BTreeSet};

use fabric::Machine;
use fabric::machine::{Bridge, Gpu, NvEnd, NvLink, Place};

/// Adds the GPUs of another node of the same machine, which has the same NICs. `false` if it is another machine.
pub(super) fn join(machine: &mut Machine, other: &Machine) -> bool {
    let nics = |it: &Machine| it.nics.iter().map(|it| (it.index, it.bus)).collect::<Vec<_>>();
    let twice = |gpu: &Gpu| machine.gpus.iter().any(|it| it.bus == gpu.bus);
    if nics(machine) != nics(other)
        || machine.sockets.len() != other.sockets.len()
        || other.gpus.iter().any(twice)
    {
        return false;
    }
    let mut bridges = Vec::new();
    for bridge in &other.bridges {
        let at = moved(bridge.at, &bridges);
        let known = machine.bridges.iter().position(|it| it.bus.is_some() && it.bus == bridge.bus);
        bridges.push(known.unwrap_or_else(|| {
            machine.bridges.push(Bridge { at, ..bridge.clone() });
            machine.bridges.len() - 1
        }));
    }
    let first = machine.gpus.len();
    for gpu in &other.gpus {
        let index = gpu.index.saturating_add(u32::try_from(first).unwrap_or(0));
        machine.gpus.push(Gpu { at: moved(gpu.at, &bridges), index, ..gpu.clone() });
    }
    for link in &other.nvlinks {
        let to = match link.to {
            NvEnd::Gpu(it) => NvEnd::Gpu(it + first),
            end => end,
        };
        machine.nvlinks.push(NvLink { from: link.from + first, to, ..*link });
    }
    true
}

fn moved(at: Place, bridges: &[usize]) -> Place {
    match at {
        Place::Bridge(it) => bridges.get(it).copied().map_or(at, Place::Bridge),
        socket @ Place::Socket(_) => socket,
    }
}

/// The machine with these GPUs alone, by their positions, as NCCL keeps those of a communicator. They are numbered in this order.
pub(super) fn with_gpus(machine: &Machine, kept: &[usize]) -> Machine {
    let new = |old: usize| kept.iter().position(|it| *it == old);
    let mut sorted = kept.to_vec();
    sorted.sort_unstable();
    let place = |old: usize| sorted.iter().position(|it| *it == old);
    let gpus = sorted.iter().filter_map(|&old| {
        let index = u32::try_from(new(old)?).ok()?;
        Some(Gpu { index, ..machine.gpus.get(old)?.clone() })
    });
    let links = machine.nvlinks.iter().filter_map(|link| {
        let to = match link.to {
            NvEnd::Gpu(it) => NvEnd::Gpu(place(it)?),
            end => end,
        };
        Some(NvLink { from: place(link.from)?, to, ..*link })
    });
    Machine { gpus: gpus.collect(), nvlinks: links.collect(), ..machine.clone() }
}

/// Numbers GPUs by their ranks, which need not follow the buses.
pub(super) fn number_by_rank(machine: &mut Machine) {
    let Some(ranks) = machine.gpus.iter().map(|it| it.rank).collect::<Option<Vec<u32>>>() else { return };
    let mut sorted = ranks.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != ranks.len() {
        return;
    }
    for (gpu, rank) in machine.gpus.iter_mut().zip(ranks) {
        let place = sorted.iter().position(|it| *it == rank).unwrap_or(0);
        gpu.index = u32::try_from(place).unwrap_or(0);
    }
}

/// Numbers GPUs as NVML does, if ranks have GPUs in the order of these numbers: by them NCCL chooses among NICs that are as near
/// (`ncclTopoGetLocalNet` in `src/graph/search.cc`), and the system has only the GPUs of the communicator.
pub(super) fn number_by_device(machine: &mut Machine, devices: &BTreeMap<u64, u32>) {
    let device = |it: &Gpu| devices.get(&it.bus?.0).copied();
    let Some(numbers) = machine.gpus.iter().map(device).collect::<Option<Vec<u32>>>() else { return };
    let order = |numbers: &[u32]| {
        let mut order: Vec<usize> = (0..numbers.len()).collect();
        order.sort_by_key(|it| numbers[*it]);
        order
    };
    let indices: Vec<u32> = machine.gpus.iter().map(|it| it.index).collect();
    let several = numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len();
    if several && order(&numbers) == order(&indices) {
        machine.gpus.iter_mut().zip(numbers).for_each(|(gpu, number)| gpu.index = number);
    }
}

/// Takes what a description leaves open about NICs from the system that NCCL printed: the plugin declares it, not the XML.
pub(super) fn complete_nics(machine: &mut Machine, printed: &Machine) {
    // NCCL has made no device of several NICs.
    machine.nics_merged |= machine.nics.len() == printed.nics.len();
    for nic in &mut machine.nics {
        let Some(other) = printed.nics.iter().find(|it| it.index == nic.index) else { continue };
        nic.rate = nic.rate.or(other.rate);
        nic.gpudirect = nic.gpudirect.or(other.gpudirect);
        nic.latency = nic.latency.or(other.latency);
    }
}

#[cfg(test)]
mod tests {
    use fabric::catalogue;
    use fabric::machine::NvEnd;

    use super::with_gpus;

    #[test]
    fn a_part_keeps_its_links() {
        let whole = catalogue::machine("p3dn.24xlarge").unwrap();
        let part = with_gpus(&whole, &[3, 0]);
        assert_eq!(part.gpus.iter().map(|it| it.index).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(part.gpus[1].bus, whole.gpus[3].bus);
        let joined = |from: usize, to: usize| {
            let link = whole.nvlinks.iter().find(|it| it.from == from && it.to == NvEnd::Gpu(to));
            link.map(|it| it.count)
        };
        let kept: Vec<_> = part.nvlinks.iter().map(|it| (it.from, it.to, it.count)).collect();
        let count = joined(0, 3).unwrap();
        assert_eq!(kept, [(0, NvEnd::Gpu(1), count), (1, NvEnd::Gpu(0), count)]);
    }
}
