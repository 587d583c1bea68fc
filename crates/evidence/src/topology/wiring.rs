//! From the matrix of `nvidia-smi topo -m` to a machine that has the same paths.
//!
//! `PIX` is one switch, `PXB` a switch above switches, `PHB` and `NODE` one NUMA node, `SYS` two. Each is a relation
//! that groups devices, so a machine can be built from the groups; where NVLink joins two GPUs the matrix hides how
//! they are attached to PCI Express, and only third devices show it.

use std::collections::BTreeMap;

use fabric::Machine;
use fabric::machine::{Bridge, Place, Socket};

use super::{Trouble, blank_gpu, blank_nic, number, nvlinks};
use crate::plain::{MatrixRow, TopologyMatrix};
use crate::source::Spot;

/// What the matrix says about a pair, old names and new ones alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Relation {
    /// One switch.
    Pix,
    /// Several switches.
    Pxb,
    /// One host bridge, or several of one NUMA node: to NCCL they are the same.
    Phb,
    /// Two NUMA nodes.
    Sys,
    /// That many NVLinks.
    NvLinks(u32),
}

impl Relation {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "PIX" | "PSB" => Self::Pix,
            "PXB" => Self::Pxb,
            "PHB" | "NODE" => Self::Phb,
            "SYS" | "SOC" => Self::Sys,
            _ => Self::NvLinks(text.strip_prefix("NV")?.parse().ok()?),
        })
    }
}

/// A matrix that is whole and symmetric.
#[derive(Debug)]
struct Table<'a> {
    names: &'a [Box<str>],
    /// By row and column; `None` on the diagonal and between NICs whose rows are missing.
    relations: Vec<Vec<Option<Relation>>>,
    /// The row of each column.
    rows: Vec<Option<usize>>,
}

/// The machine, and what is unusual about the matrix.
pub(super) fn machine(
    matrix: &TopologyMatrix,
    line: &dyn Fn(Spot) -> u64,
) -> Result<(Machine, Vec<String>), Trouble> {
    let mut notes = Vec::new();
    let table = Table::check(matrix, line, &mut notes)?;
    let mut machine = Machine::default();
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
    contradictions(&table, &machine, &positions, &mut notes);
    unknowns(&table, matrix, &mut machine);
    Ok((machine, notes))
}

impl<'a> Table<'a> {
    fn check(
        matrix: &'a TopologyMatrix,
        line: &dyn Fn(Spot) -> u64,
        notes: &mut Vec<String>,
    ) -> Result<Self, Trouble> {
        let names = &*matrix.columns;
        let header = line(matrix.quote.spot);
        let column: BTreeMap<&str, usize> = names.iter().zip(0..).map(|(name, at)| (&**name, at)).collect();
        if column.len() < names.len() {
            return Err(Trouble::at(header, "the header names a device twice"));
        }
        let mut rows = vec![None; names.len()];
        for (at, MatrixRow { name, paths, beside }) in matrix.rows.iter().enumerate() {
            let here = line(beside.spot);
            let trouble = |text: String| Err(Trouble::at(here, text));
            let Some(slot) = column.get(&**name).and_then(|it| rows.get_mut(*it)) else {
                return trouble(format!("{name} has a row but no column: the header (line {header}) is cut"));
            };
            if slot.replace(at).is_some() {
                return trouble(format!("{name} has a second row: the rows of two matrices are mixed"));
            }
            if paths.len() < names.len() {
                let stop = beside.stopped_at.as_deref();
                let stop = stop.map(|it| format!(", then `{it}`")).unwrap_or_default();
                let (found, wanted) = (paths.len(), names.len());
                return trouble(format!("the row of {name} has {found} of {wanted} paths{stop}"));
            }
            if beside.cut {
                notes.push(format!("Line {here}: the row of {name} ends before its NUMA node."));
            }
        }
        let lost: Vec<&str> = names.iter().zip(&rows).filter(|it| it.1.is_none()).map(|it| &**it.0).collect();
        let lost_gpus: Vec<&str> = lost.iter().copied().filter(|it| it.starts_with("GPU")).collect();
        if !lost_gpus.is_empty() {
            let row = if lost_gpus.len() == 1 { "row" } else { "rows" };
            let text = format!("the header names {}, but its {row} is missing", lost_gpus.join(", "));
            let text =
                if lost_gpus.len() == 1 { text } else { text.replace("its rows is", "their rows are") };
            return Err(Trouble::at(header, text));
        }
        if !lost.is_empty() {
            notes.push(format!("The rows of {} are missing: the text is cut.", lost.join(", ")));
        }
        let mut table = Self { names, relations: vec![vec![None; names.len()]; names.len()], rows };
        table.fill(matrix, line)?;
        Ok(table)
    }

    fn fill(&mut self, matrix: &TopologyMatrix, line: &dyn Fn(Spot) -> u64) -> Result<(), Trouble> {
        let line_of = |row: usize| matrix.rows.get(row).map_or(0, |it| line(it.beside.spot));
        let cell = |row: usize, column: usize| matrix.rows.get(row).and_then(|it| it.paths.get(column));
        for (a, row) in self.rows.iter().enumerate() {
            let Some(row) = *row else { continue };
            for b in 0..self.names.len() {
                let (name, other) = (self.name(a), self.name(b));
                let Some(text) = cell(row, b) else { continue };
                if (&**text == "X") != (a == b) {
                    let problem = format!("{name} to {other} is `{text}`; `X` means the device itself");
                    return Err(Trouble::at(line_of(row), problem));
                }
                let back = self.rows.get(b).copied().flatten();
                let mirrored = back.and_then(|it| cell(it, a));
                let (here, there) = (Relation::parse(text), mirrored.and_then(|it| Relation::parse(it)));
                if mirrored.is_some() && here != there {
                    let mirrored = mirrored.map(|it| &**it).unwrap_or_default();
                    return Err(Trouble::at(
                        line_of(row),
                        format!(
                            "{name} to {other} is {text} in the row of {name} and {mirrored} in the row of {other} (line {})",
                            back.map_or(0, line_of)
                        ),
                    ));
                }
                for (from, to) in [(a, b), (b, a)] {
                    if let Some(slot) = self.relations.get_mut(from).and_then(|it| it.get_mut(to)) {
                        *slot = here;
                    }
                }
            }
        }
        Ok(())
    }

    fn name(&self, device: usize) -> &str {
        self.names.get(device).map_or("", |it| it)
    }

    fn is_gpu(&self, device: usize) -> bool {
        self.name(device).starts_with("GPU")
    }

    fn relation(&self, a: usize, b: usize) -> Option<Relation> {
        self.relations.get(a)?.get(b).copied().flatten()
    }

    /// Groups devices that are this near, directly or through others: the smallest member represents its group.
    fn groups(&self, near: Relation) -> Vec<usize> {
        let mut group: Vec<Option<usize>> = vec![None; self.names.len()];
        for first in 0..self.names.len() {
            let mut open = vec![first];
            while let Some(device) = open.pop() {
                let Some(slot) = group.get_mut(device).filter(|it| it.is_none()) else { continue };
                *slot = Some(first);
                open.extend((0..self.names.len()).filter(|it| {
                    group.get(*it) == Some(&None) && self.relation(device, *it).is_some_and(|it| it <= near)
                }));
            }
        }
        group.into_iter().enumerate().map(|(at, it)| it.unwrap_or(at)).collect()
    }
}

/// What a row says about its NUMA node: the number, otherwise its CPUs.
type Home<'a> = (Option<u32>, Option<&'a str>);

/// The socket of each device.
fn sockets(
    table: &Table<'_>,
    matrix: &TopologyMatrix,
    machine: &mut Machine,
    notes: &mut Vec<String>,
) -> Vec<usize> {
    let home = |device: usize| -> Home<'_> {
        let beside =
            table.rows.get(device).copied().flatten().and_then(|it| matrix.rows.get(it)).map(|it| &it.beside);
        (beside.and_then(|it| it.numa), beside.and_then(|it| it.cpus.as_deref()))
    };
    let groups = table.groups(Relation::Phb);
    let mut sockets: Vec<(Home<'_>, Vec<usize>)> = Vec::new();
    let mut socket_of = vec![0; groups.len()];
    let mut split = Vec::new();
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
            all.iter().any(|a| others.iter().any(|b| table.relation(*a, *b) == Some(Relation::Sys)))
        };
        let alike = |theirs: Home<'_>| match (mine, theirs) {
            ((Some(a), _), (Some(b), _)) => a == b,
            ((None, Some(a)), (None, Some(b))) => a == b,
            _ => true,
        };
        let found = sockets.iter().position(|(theirs, others)| alike(*theirs) && !apart(others));
        if found.is_none()
            && mine != (None, None)
            && let Some((_, others)) = sockets.iter().find(|it| it.0 == mine)
        {
            let (a, b) = (table.name(others.first().copied().unwrap_or_default()), table.name(group));
            split.push(format!(
                "{a} and {b} have one NUMA affinity, but their path is SYS: they are shown on different nodes"
            ));
        }
        let at = found.unwrap_or(sockets.len());
        if found.is_none() {
            sockets.push((mine, Vec::new()));
        }
        for device in all {
            if let Some(slot) = socket_of.get_mut(device) {
                *slot = at;
            }
            if let Some(it) = sockets.get_mut(at) {
                if it.0 == (None, None) {
                    it.0 = mine;
                }
                it.1.push(device);
            }
        }
    }
    let more = match split.len() {
        0 | 1 => String::new(),
        n => format!(" (and {} more pairs)", n - 1),
    };
    notes.extend(split.into_iter().next().map(|it| format!("{it}{more}.")));
    for ((numa, cpus), devices) in &sockets {
        let same = devices.iter().filter_map(|it| home(*it).1).all(|it| Some(it) == *cpus);
        let cpus = cpus.filter(|_| same).map(Into::into);
        machine.sockets.push(Socket { numa: *numa, cpus, ..Socket::default() });
    }
    socket_of
}

/// Where each device is attached, and the switches for it.
fn positions(table: &Table<'_>, sockets: &[usize], machine: &mut Machine) -> Vec<Place> {
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
    table: &Table<'_>,
    matrix: &TopologyMatrix,
    sockets: &[usize],
    positions: &[Place],
    machine: &mut Machine,
) -> Vec<usize> {
    let index = |name: &str| name.trim_start_matches(|it: char| !it.is_ascii_digit()).parse().ok();
    let mut gpus: Vec<usize> = (0..table.names.len()).filter(|it| table.is_gpu(*it)).collect();
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
fn contradictions(table: &Table<'_>, machine: &Machine, positions: &[Place], notes: &mut Vec<String>) {
    let mut n = 0;
    for (a, at) in positions.iter().enumerate() {
        for (b, other) in positions.iter().enumerate().skip(a + 1) {
            let Some(said) = table.relation(a, b).filter(|it| !matches!(it, Relation::NvLinks(_))) else {
                continue;
            };
            let built = relation(machine, *at, *other);
            if built != said {
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

fn unknowns(table: &Table<'_>, matrix: &TopologyMatrix, machine: &mut Machine) {
    let mut say = |text: &str| machine.unknown.push(text.to_owned());
    say("Models of GPUs and CPUs, PCI Express generation and width, and rates of NICs are not in a matrix.");
    if machine.nics.is_empty() {
        say("The matrix shows no NIC; there may be some that nvidia-smi does not list.");
    }
    if table.relations.iter().flatten().any(|it| matches!(it, Some(Relation::NvLinks(_)))) {
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
