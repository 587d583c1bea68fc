//! The tree NCCL prints of a machine.
//!
//! ```text
//! CPU/0-0 (1/1/2)
//! + PCI[12.0] - PCI/0-ffffff010 (10de20b010de134f)
//!               + PCI[12.0] - GPU/0-201c0 (0)
//!                             + NVL[240.0] - NVS/0-0
//!               + PCI[12.0] - NIC/0-20000
//!                             + NET[12.5] - NET/0-0 (0/1/1/12.500000)
//! + SYS[10.0] - CPU/0-1
//! ```
//!
//! Since 2.30 a GPU is below its device: `+ PCI[12.0] - DEV/0-201c0 (10de20b010de134f)`, then `+ LOC[5000.0] - GPU/0-201c0`, and the
//! links are those of the device.
//!
//! A child's `+` is below the first letter of its parent, except for those of a CPU, which are at the margin.

use std::collections::BTreeMap;

use fabric::Version;
use fabric::link;
use fabric::machine::{Bridge, BusId, Machine, Maker, Nic, NvEnd, NvLink, PciLink, Place, Socket};
use fabric::units::GigabitsPerSecond;

use super::{blank_gpu, blank_nic, number, nvlinks};

/// A tree as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Tree {
    machine: Machine,
    /// What further lines may be below: the column of their `+`, and what it is.
    open: Vec<(usize, Parent)>,
    /// The host, where the tree has several.
    host: Option<u64>,
    /// Hosts beside the first one.
    others: Vec<u64>,
    /// GPU, what is at the other end of its NVLinks, GB/s.
    nvlinks: Vec<(usize, Far, f64)>,
    /// Lines without a parent.
    lost: usize,
}

#[derive(Debug, Clone, Copy)]
enum Parent {
    Socket(usize),
    Bridge(usize),
    Gpu(usize),
    Card {
        at: Place,
        bus: Option<BusId>,
        link: Option<PciLink>,
    },
    /// Of another host, or of a kind that is not known.
    Other,
}

#[derive(Debug, Clone, Copy)]
enum Far {
    Switch,
    Gpu(BusId),
    Cpu,
}

/// `GPU/0-201c0 (0)`: the kind, the host, the number on it, what is in brackets.
struct Label<'a> {
    kind: &'a str,
    host: u64,
    id: u64,
    inside: &'a str,
}

impl<'a> Label<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (name, rest) = text.trim_end().split_once(' ').unwrap_or((text.trim_end(), ""));
        let (kind, id) = name.split_once('/')?;
        // Before 2.23 there is no number of the host.
        let (host, id) = id.split_once('-').unwrap_or(("0", id));
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let inside = rest.trim().trim_start_matches('(').trim_end_matches(')');
        Some(Self { kind, host: hex(host)?, id: hex(id)?, inside })
    }
}

impl Tree {
    /// Takes a line between `=== System` and `====`.
    pub(super) fn take(&mut self, line: &str) {
        let margin = line.len() - line.trim_start_matches(' ').len();
        let text = line.trim_start_matches(' ');
        match text.strip_prefix("+ ") {
            None => self.root(text),
            Some(rest) => {
                let Some((wire, node)) = rest.split_once("] - ") else { return };
                let Some((kind, bandwidth)) = wire.split_once('[') else { return };
                let column = line.len() - node.len();
                let bandwidth = bandwidth.parse().ok().filter(|it: &f64| it.is_finite()).unwrap_or_default();
                self.child(margin, column, kind, bandwidth, node);
            }
        }
    }

    fn root(&mut self, text: &str) {
        let Some(label) = Label::parse(text) else { return };
        self.open.clear();
        let here = *self.host.get_or_insert(label.host);
        if label.kind != "CPU" || label.host != here {
            if label.host != here && !self.others.contains(&label.host) {
                self.others.push(label.host);
            }
            self.open.push((0, Parent::Other));
            return;
        }
        // All ones where the NUMA node is unknown.
        let numa = u32::try_from(label.id).ok().filter(|it| *it < 1 << 16);
        let (maker, model) = cpu(label.inside);
        self.machine.sockets.push(Socket { numa, cpus: None, maker, model });
        self.open.push((0, Parent::Socket(self.machine.sockets.len() - 1)));
    }

    fn child(&mut self, margin: usize, column: usize, kind: &str, bandwidth: f64, node: &str) {
        let Some(parent) = self.open.iter().rposition(|it| it.0 == margin) else {
            self.lost += 1;
            return;
        };
        self.open.truncate(parent + 1);
        let Some((parent, label)) = self.open.last().map(|it| it.1).zip(Label::parse(node)) else { return };
        let attached_to = match parent {
            Parent::Socket(it) => Some(Place::Socket(it)),
            Parent::Bridge(it) => Some(Place::Bridge(it)),
            Parent::Gpu(_) | Parent::Card { .. } | Parent::Other => None,
        };
        // What is local is not a device of the bus: NCCL gives it a bandwidth that no link has.
        let on_bus = bandwidth < link::local();
        let bus = Some(BusId(label.id)).filter(|_| on_bus);
        let pci = pci_link(bandwidth).filter(|_| on_bus);
        let next = match (kind, label.kind, attached_to, parent) {
            ("PCI", "PCI", Some(at), _) => {
                self.machine.bridges.push(Bridge { at, bus, link: pci });
                Parent::Bridge(self.machine.bridges.len() - 1)
            }
            // Since 2.30 a device holds the GPU and its links.
            ("PCI", "GPU" | "DEV", Some(at), _) => {
                let index = number(self.machine.gpus.len());
                let rank = label.inside.parse().ok().filter(|_| label.kind == "GPU");
                let mut gpu = blank_gpu(index, at);
                (gpu.bus, gpu.link, gpu.rank) = (bus, pci, rank);
                self.machine.gpus.push(gpu);
                Parent::Gpu(self.machine.gpus.len() - 1)
            }
            ("LOC", "GPU", _, Parent::Gpu(_)) => return,
            ("PCI", "NIC", Some(at), _) => Parent::Card { at, bus, link: pci },
            ("NET", "NET", _, Parent::Card { at, bus, link }) => {
                let nic = net(&label, bandwidth, at, bus, link);
                // Since 2.30 a NIC that also reduces is there a second time.
                if self.machine.nics.last() != Some(&nic) {
                    self.machine.nics.push(nic);
                }
                return;
            }
            // Up to 2.25 the chip-to-chip link of Grace is written as NVLink.
            ("C2C", "CPU", _, Parent::Gpu(gpu)) => {
                self.chip_to_chip(gpu, bandwidth);
                return;
            }
            ("NVL", "CPU", _, Parent::Gpu(gpu)) if self.is_arm(gpu) => {
                self.chip_to_chip(gpu, bandwidth);
                return;
            }
            ("NVL", far, _, Parent::Gpu(gpu)) => {
                let far = match far {
                    "NVS" => Far::Switch,
                    "GPU" | "DEV" => Far::Gpu(BusId(label.id)),
                    _ => Far::Cpu,
                };
                self.nvlinks.push((gpu, far, bandwidth));
                return;
            }
            // To another socket: the reverse of what its own lines say.
            ("SYS" | "C2C" | "NVL", ..) => return,
            _ => Parent::Other,
        };
        self.open.push((column, next));
    }

    fn chip_to_chip(&mut self, gpu: usize, bandwidth: f64) {
        if let Some(gpu) = self.machine.gpus.get_mut(gpu) {
            gpu.c2c = Some(bandwidth);
        }
    }

    fn is_arm(&self, gpu: usize) -> bool {
        let socket = self.machine.gpus.get(gpu).and_then(|it| self.machine.socket_of(it.at));
        socket.and_then(|it| self.machine.sockets.get(it)).is_some_and(|it| it.maker == Maker::Arm)
    }

    /// How many GPUs and NICs there are so far.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.machine.gpus.len(), self.machine.nics.len())
    }

    /// The machine, and what is unusual about the tree.
    pub(super) fn finish(self, version: Option<Version>) -> (Machine, Vec<String>) {
        let mut notes = Vec::new();
        let mut machine = self.machine;
        if !self.others.is_empty() {
            notes.push(format!("The tree has {} hosts; the first is shown.", self.others.len() + 1));
        }
        if self.lost > 0 {
            notes.push(format!("{} lines of the tree have no parent and are left out.", self.lost));
        }
        // The driver counts GPUs by their bus.
        let mut by_bus: Vec<usize> = (0..machine.gpus.len()).collect();
        by_bus.sort_by_key(|it| machine.gpus.get(*it).and_then(|it| it.bus));
        for (index, at) in (0_u32..).zip(by_bus) {
            if let Some(gpu) = machine.gpus.get_mut(at) {
                gpu.index = index;
            }
        }
        machine.nics.sort_by_key(|it| it.index);
        machine.nics_merged = true;
        let gpus: BTreeMap<BusId, usize> =
            machine.gpus.iter().zip(0..).filter_map(|(gpu, at)| Some((gpu.bus?, at))).collect();
        let speeds: Vec<f64> = self.nvlinks.iter().map(|it| it.2).collect();
        let (compute, counts) = nvlinks::of_bandwidths(&speeds, version);
        for ((from, far, bandwidth), count) in self.nvlinks.iter().zip(counts) {
            let to = match far {
                Far::Switch => Some(NvEnd::Switch),
                Far::Gpu(bus) => gpus.get(bus).map(|it| NvEnd::Gpu(*it)),
                Far::Cpu => {
                    machine.gpus.get(*from).and_then(|it| machine.socket_of(it.at)).map(NvEnd::Socket)
                }
            };
            match (to, count) {
                (Some(to), Some(count)) => machine.nvlinks.push(NvLink { from: *from, to, count }),
                (Some(to), None) => {
                    machine.nvlinks.push(NvLink { from: *from, to, count: 1 });
                    notes.push(format!(
                        "NVLinks of {bandwidth} GB/s together: their number is unknown, 1 is shown."
                    ));
                }
                (None, _) => notes.push("An NVLink goes to a GPU that is not in the tree.".to_owned()),
            }
        }
        notes.dedup();
        for gpu in &mut machine.gpus {
            gpu.compute = compute;
        }
        (machine, notes)
    }
}

/// `arch/vendor/model`, in NCCL's own numbers (`src/graph/topo.h`).
///
/// The model is a class there; the first of each class by CPUID represents it (`src/graph/topo.cc`).
fn cpu(text: &str) -> (Maker, Option<(u32, u32)>) {
    let mut parts = text.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("1"), Some("1"), model) => {
            let model = match model {
                Some("2") => Some((6, 0x55)),
                Some("3") => Some((6, 0x8f)),
                Some("4") => Some((6, 0xcf)),
                _ => None,
            };
            (Maker::Intel, model)
        }
        (Some("1"), Some("2"), _) => (Maker::Amd, None),
        (Some("1"), Some("3"), model) => (Maker::Zhaoxin, model.filter(|it| *it == "1").map(|_| (7, 0x5b))),
        (Some("2"), ..) => (Maker::Power, None),
        (Some("3"), ..) => (Maker::Arm, None),
        _ => (Maker::Unknown, None),
    }
}

/// The most usual link of a bandwidth that NCCL printed: 16 lanes if that is possible.
fn pci_link(bandwidth: f64) -> Option<PciLink> {
    let widths = [16, 8, 4, 2, 1].into_iter();
    let mut all = widths
        .flat_map(|width| (3..=7).filter_map(move |it| Some(PciLink { width, ..PciLink::generation(it)? })));
    all.find(|it| (link::pci(*it) - bandwidth).abs() < 0.06)
}

fn net(label: &Label<'_>, bandwidth: f64, at: Place, bus: Option<BusId>, link: Option<PciLink>) -> Nic {
    let index = u32::try_from(label.id).unwrap_or(u32::MAX);
    // The last number in the brackets has more digits than the one on the link.
    let exact = label.inside.rsplit('/').next().and_then(|it| it.parse::<f64>().ok());
    let speed = exact.filter(|it| (it - bandwidth).abs() < 0.1).unwrap_or(bandwidth);
    let mut nic = blank_nic(&format!("NET {index}"), index, at);
    (nic.bus, nic.link) = (bus, link);
    nic.rate = Some(GigabitsPerSecond(speed * 8.0)).filter(|it| it.0 > 0.0);
    nic
}
