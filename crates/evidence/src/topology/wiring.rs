//! From the matrix of `nvidia-smi topo -m` to a machine that has the same paths.
//!
//! `PIX` is one switch, `PXB` a switch above switches, `PHB` and `NODE` one NUMA node, `SYS` two. Each is a relation
//! that groups devices, so a machine can be built from the groups; where NVLink joins two GPUs the matrix hides how
//! they are attached to PCI Express, and only third devices show it.

use std::collections::BTreeMap;

use fabric::Machine;
use fabric::machine::{Bridge, Place, Socket};

use super::table::{Relation, Table};
use super::{Trouble, blank_gpu, blank_nic, number, nvlinks};
use crate::plain::TopologyMatrix;
use crate::source::Spot;

/// The machine, and what is unusual about the matrix.
pub(super) fn machine(
    matrix: &TopologyMatrix,
    line: &dyn Fn(Spot) -> u64,
) -> Result<(Machine, Vec<String>), Trouble> {
    let mut notes = Vec::new();
    let table = Table::check(matrix, line, &mut notes)?;
    let mut machine = Machine::default();
    machine.hidden.nvlink = matrix.hides_nvlink;
    let sockets = sockets(&table, matrix, &mut machine, &mut notes);
    let positions = positions(&table, &sockets, &mut machine);
    let order = devices(&table, matrix, &sockets, &positions, &mut machine);
    let gpus = order.len();
    let between = |a: usize, b: usize| match (order.get(a), order.get(b)) {
        (Some(a), Some(b)) => table.relation(*a, *b),
        _ => None,
    };
    machine.nvlinks = nvlinks::of_pairs(
        gpus,
        &|a, b| match between(a, b) {
            Some(Relation::NvLinks(n)) => n,
            _ => 0,
        },
        &mut notes,
    );
    if matrix.hides_nvlink {
        notes.push(
            "This is `nvidia-smi topo -mp`, which shows PCI Express even where NVLink connects GPUs."
                .to_owned(),
        );
    }
    contradictions(&table, &machine, &positions, &mut notes);
    unknowns(&table, matrix, &mut machine);
    Ok((machine, notes))
}

/// What a row says about its NUMA node: the number, otherwise its CPUs.
type Home<'a> = (Option<u32>, Option<&'a str>);

/// The NUMA node of each device. NCCL goes by the number of the node, whatever path `nvidia-smi` prints: where a row names it,
/// it counts before the paths.
fn sockets(
    table: &Table,
    matrix: &TopologyMatrix,
    machine: &mut Machine,
    notes: &mut Vec<String>,
) -> Vec<usize> {
    let home = |device: usize| -> Home<'_> {
        let beside = table.row(device, matrix).map(|it| &it.beside);
        (beside.and_then(|it| it.numa), beside.and_then(|it| it.cpus.as_deref()))
    };
    // In a virtual machine with one node SYS is what nvidia-smi prints for any two devices.
    let gpus: Vec<usize> = (0..table.len()).filter(|it| table.is_gpu(*it)).collect();
    let node = gpus.first().and_then(|it| home(*it).0);
    let flat = node.is_some()
        && gpus.iter().all(|it| home(*it).0 == node)
        && gpus.iter().any(|a| gpus.iter().any(|b| table.relation(*a, *b) == Some(Relation::Sys)));
    let groups = table.groups(Relation::Phb);
    let mut sockets: Vec<(Home<'_>, Vec<usize>)> = Vec::new();
    let mut socket_of = vec![0; groups.len()];
    let (mut far, mut beside) = (Vec::new(), Vec::new());
    for group in (0..groups.len()).filter(|it| groups.get(*it) == Some(it)) {
        let all: Vec<usize> = (0..groups.len()).filter(|it| groups.get(*it) == Some(&group)).collect();
        let mut homes = all.iter().map(|it| home(*it)).filter(|it| *it != (None, None));
        let mine = homes.next().unwrap_or((None, None));
        if let Some(other) = homes.find(|it| it.0 != mine.0)
            && let (Some(a), Some(b)) = (mine.0, other.0)
        {
            let name = table.name(group);
            notes.push(format!("Devices near {name} are on one NUMA node by their paths, but on {a} and {b} by their NUMA affinity."));
        }
        let apart = |others: &[usize]| {
            let is_far = |a: usize, b: usize| table.relation(a, b) == Some(Relation::Sys);
            all.iter().flat_map(|a| others.iter().map(move |b| (*a, *b))).find(|(a, b)| is_far(*a, *b))
        };
        let fits = |(theirs, others): &(Home<'_>, Vec<usize>)| match (mine, *theirs) {
            ((Some(a), _), (Some(b), _)) => a == b,
            _ if flat => true,
            ((None, Some(a)), (None, Some(b))) if a != b => false,
            _ => apart(others).is_none(),
        };
        // A GPU whose row is missing is shown beside the one before it.
        let before = (0..group).rev().find(|it| table.is_gpu(*it)).and_then(|it| socket_of.get(it).copied());
        let before = before.filter(|at| {
            table.is_gpu(group) && table.row(group, matrix).is_none() && sockets.get(*at).is_some_and(fits)
        });
        if let (Some(_), [one]) = (before, all.as_slice()) {
            beside.push(table.name(*one));
        }
        let found = before.or_else(|| sockets.iter().position(fits));
        let at = found.unwrap_or(sockets.len());
        if found.is_none() {
            sockets.push((mine, Vec::new()));
        }
        if let Some(it) = sockets.get_mut(at) {
            far.extend(apart(&it.1).filter(|_| mine.0.is_some()));
            it.0 = (it.0.0.or(mine.0), it.0.1.or(mine.1));
            it.1.extend(&all);
        }
        for device in all {
            socket_of.get_mut(device).into_iter().for_each(|it| *it = at);
        }
    }
    if let Some((a, b)) = far.first() {
        let more = if far.len() == 1 { String::new() } else { ", as others".to_owned() };
        notes.push(format!(
            "{} to {} is SYS{more}, although both are at one NUMA node: NCCL goes by the node and calls this path PHB.",
            table.name(*b),
            table.name(*a)
        ));
    }
    let others = sockets.len() > 1 || (0..table.len()).any(|it| !table.is_gpu(it));
    if !beside.is_empty() && others {
        let (was, are) = if beside.len() == 1 { ("is", "it is") } else { ("are", "they are") };
        notes.push(format!(
            "Where {} {was} attached is in the missing rows: {are} shown beside the GPU before.",
            beside.join(", ")
        ));
    }
    for ((numa, cpus), devices) in &sockets {
        let same = devices.iter().filter_map(|it| home(*it).1).all(|it| Some(it) == *cpus);
        let cpus = cpus.filter(|_| same).map(Into::into);
        machine.sockets.push(Socket { numa: *numa, cpus, ..Socket::default() });
    }
    socket_of
}

/// Where each device is attached, and the switches for it.
fn positions(table: &Table, sockets: &[usize], machine: &mut Machine) -> Vec<Place> {
    let (lower, upper) = (table.groups(Relation::Pix), table.groups(Relation::Pxb));
    let size = |groups: &[usize], group: usize| groups.iter().filter(|it| **it == group).count();
    let mut add = |at: Place| {
        machine.bridges.push(Bridge { at, bus: None, link: None });
        Place::Bridge(machine.bridges.len() - 1)
    };
    let (mut above, mut below) = (BTreeMap::new(), BTreeMap::new());
    let mut positions = Vec::new();
    for (device, socket) in sockets.iter().enumerate() {
        let socket = Place::Socket(*socket);
        let (Some(low), Some(high)) = (lower.get(device), upper.get(device)) else { continue };
        let switched = size(&lower, *low);
        let nested = size(&upper, *high) > switched;
        let at = if nested { *above.entry(*high).or_insert_with(|| add(socket)) } else { socket };
        let at = if nested || switched > 1 { *below.entry(*low).or_insert_with(|| add(at)) } else { at };
        positions.push(at);
    }
    positions
}

/// Puts GPUs and NICs into the machine. Returns the column of each GPU.
fn devices(
    table: &Table,
    matrix: &TopologyMatrix,
    sockets: &[usize],
    positions: &[Place],
    machine: &mut Machine,
) -> Vec<usize> {
    let index = |name: &str| name.trim_start_matches(|it: char| !it.is_ascii_digit()).parse().ok();
    let mut gpus: Vec<usize> = (0..table.len()).filter(|it| table.is_gpu(*it)).collect();
    gpus.sort_by_key(|it| (sockets.get(*it), *it));
    for (order, device) in gpus.iter().enumerate() {
        let Some(at) = positions.get(*device) else { continue };
        let index = index(table.name(*device)).unwrap_or_else(|| number(order));
        machine.gpus.push(blank_gpu(index, *at));
    }
    for (device, at) in positions.iter().enumerate().filter(|it| !table.is_gpu(it.0)) {
        let short = table.name(device);
        let name = matrix.legend.iter().find(|it| *it.column == *short).map_or(short, |it| &it.device);
        machine.nics.push(blank_nic(name, number(machine.nics.len()), *at));
    }
    gpus
}

/// The relation of two positions in the machine, apart from NVLink.
pub(super) fn relation(machine: &Machine, a: Place, b: Place) -> Relation {
    let (above_a, above_b) = (machine.bridges_above(a), machine.bridges_above(b));
    match above_a.iter().find(|it| above_b.contains(it)) {
        Some(common) if above_a.first() == Some(common) && above_b.first() == Some(common) => Relation::Pix,
        Some(_) => Relation::Pxb,
        None if machine.socket_of(a) == machine.socket_of(b) => Relation::Phb,
        None => Relation::Sys,
    }
}

/// Says which paths of the matrix the machine cannot have.
fn contradictions(table: &Table, machine: &Machine, positions: &[Place], notes: &mut Vec<String>) {
    let mut n = 0;
    for (a, at) in positions.iter().enumerate() {
        for (b, other) in positions.iter().enumerate().skip(a + 1) {
            let Some(said) = table.relation(a, b).filter(|it| !matches!(it, Relation::NvLinks(_))) else {
                continue;
            };
            let built = relation(machine, *at, *other);
            let socket = machine.socket_of(*at).and_then(|it| machine.sockets.get(it));
            let by_number =
                said == Relation::Sys && built == Relation::Phb && socket.is_some_and(|it| it.numa.is_some());
            if built != said && !by_number {
                n += 1;
                if n <= 3 {
                    let (a, b) = (table.name(a), table.name(b));
                    notes.push(format!(
                        "{a} to {b} is {}, but through other devices they are {}: the matrix contradicts itself.",
                        word(said),
                        word(built)
                    ));
                }
            }
        }
    }
    if n > 3 {
        notes.push(format!("{} more pairs contradict others.", n - 3));
    }
}

fn word(relation: Relation) -> &'static str {
    match relation {
        Relation::Pix => "PIX",
        Relation::Pxb => "PXB",
        Relation::Phb => "PHB or NODE",
        Relation::Sys => "SYS",
        Relation::NvLinks(_) => "NVLink",
    }
}

fn unknowns(table: &Table, matrix: &TopologyMatrix, machine: &mut Machine) {
    let mut say = |text: &str| machine.unknown.push(text.to_owned());
    say("Models of GPUs and CPUs, PCI Express generation and width, and rates of NICs are not in a matrix.");
    if machine.nics.is_empty() {
        say("The matrix shows no NIC; there may be some that nvidia-smi does not list.");
    }
    if table.has_nvlinks() {
        say(
            "How GPUs that NVLink joins are attached to PCI Express is visible only where a NIC is near them.",
        );
    }
    let homeless = matrix.rows.iter().filter(|it| it.name.starts_with("GPU")).map(|it| &it.beside);
    if homeless.clone().any(|it| it.numa.is_none()) {
        say(if homeless.clone().all(|it| it.numa.is_none() && it.cpus.is_some()) {
            "The matrix has no NUMA affinity; NUMA nodes are taken from the CPU affinity and the paths."
        } else {
            "NUMA nodes are taken from the paths, where a row does not name one."
        });
    }
    let short = machine.nics.iter().filter(|it| it.name.starts_with("NIC")).count();
    if short > 0 {
        say("The legend that gives NICs their names is missing.");
    }
}
