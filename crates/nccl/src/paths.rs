//! The ways between the devices of a machine, found as NCCL finds them.
//!
//! From each device a breadth-first search over the graph; then ways that must not be used are led through the CPU (no
//! peer access, no GPUDirect), and ways to a far NIC through the GPU next to it (PXN).

use std::fmt;

use fabric::Version;
use fabric::machine::{Machine, Maker, Place};

use crate::gpudirect::GpuDirect;
use crate::graph::Graph;
use crate::path_type::merge;
use crate::search::{middle, search};
use crate::{Path, PathType, Settings};

/// One end of a path, by its place in the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// A GPU, by its place in [`Machine::gpus`].
    Gpu(usize),
    /// The plane of `NVSwitch`es.
    Switch,
    /// A socket, by its place in [`Machine::sockets`].
    Socket(usize),
    /// A network device, by its place in [`Machine::nics`].
    Nic(usize),
}

/// A GPU that takes part in a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat {
    /// Its place in [`Machine::gpus`].
    pub gpu: usize,
    /// The number the driver gives it where its rank runs: in a pod, counted from 0 among the pod's own.
    pub number: u32,
}

/// A machine that is larger than NCCL can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    /// What there is too much of: `GPUs and NICs`.
    pub what: &'static str,
    /// How many there are.
    pub count: usize,
    /// How many are possible.
    pub limit: usize,
}

/// The ways between all devices of a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Paths {
    pub(crate) settings: Settings,
    seats: Vec<Seat>,
    nics: Vec<usize>,
    sizes: Sizes,
    matrix: Vec<Path>,
    /// GPU to NIC by PCI Express, before PXN and before a way without GPUDirect leads through the CPU.
    plain: Vec<Path>,
    /// The GPU in the middle of a way between two GPUs over NVLink.
    middle: Vec<Option<usize>>,
    /// The GPU that sends for another to a NIC.
    relay: Vec<Option<usize>>,
    pub(crate) about: About,
}

/// How many devices the machine has.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sizes {
    gpus: usize,
    sockets: usize,
    nics: usize,
}

/// What the decisions need to know of the devices.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct About {
    pub(crate) cpu: Maker,
    pub(crate) compute: Vec<Option<u32>>,
    pub(crate) gpu_direct: Vec<Option<bool>>,
    pub(crate) nic_direct: Vec<Option<bool>>,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a machine with {} {}: at most {} are possible", self.count, self.what, self.limit)
    }
}

impl std::error::Error for TooLarge {}

impl Paths {
    /// The most GPUs and NICs a machine can have. NCCL itself holds 640 of a kind, 256 before 2.27.
    pub const DEVICES: usize = 1024;
    /// The most sockets.
    pub const SOCKETS: usize = 256;
    /// The most PCI Express switches and bridges.
    pub const BRIDGES: usize = 4096;
    /// The most bundles of NVLink.
    pub const NVLINKS: usize = 65_536;

    /// The ways on a machine whose GPUs all belong to one job.
    pub fn new(machine: &Machine, settings: &Settings) -> Result<Self, TooLarge> {
        let seats: Vec<Seat> =
            machine.gpus.iter().enumerate().map(|(gpu, it)| Seat { gpu, number: it.index }).collect();
        Self::with_seats(machine, settings, &seats)
    }

    /// The ways as ranks see them that have only some of the GPUs: the others are not there for NCCL.
    pub fn with_seats(machine: &Machine, settings: &Settings, seats: &[Seat]) -> Result<Self, TooLarge> {
        for (what, count, limit) in [
            ("GPUs and NICs", machine.gpus.len().saturating_add(machine.nics.len()), Self::DEVICES),
            ("sockets", machine.sockets.len(), Self::SOCKETS),
            ("PCIe switches and bridges", machine.bridges.len(), Self::BRIDGES),
            ("bundles of NVLinks", machine.nvlinks.len(), Self::NVLINKS),
        ] {
            if count > limit {
                return Err(TooLarge { what, count, limit });
            }
        }
        let mut kept: Vec<Seat> = Vec::new();
        for seat in seats {
            if seat.gpu < machine.gpus.len() && kept.iter().all(|it| it.gpu != seat.gpu) {
                kept.push(*seat);
            }
        }
        kept.sort_by_key(|it| it.gpu);
        let mut paths = Self::empty(machine, settings, kept);
        let gpus: Vec<usize> = paths.seats.iter().map(|it| it.gpu).collect();
        let graph = Graph::new(machine, settings, &gpus, &paths.nics);
        paths.search_all(&graph);
        paths.lead_peers_through_cpu();
        paths.find_chip_ways();
        paths.plain = paths.gpu_nic_table();
        paths.lead_to_nics();
        Ok(paths)
    }

    fn empty(machine: &Machine, settings: &Settings, seats: Vec<Seat>) -> Self {
        let sizes =
            Sizes { gpus: machine.gpus.len(), sockets: machine.sockets.len(), nics: machine.nics.len() };
        Self {
            settings: settings.clone(),
            seats,
            nics: nics_in_order(machine, settings),
            sizes,
            matrix: vec![Path::NONE; sizes.all() * sizes.all()],
            plain: Vec::new(),
            middle: vec![None; sizes.gpus * sizes.gpus],
            relay: vec![None; sizes.gpus * sizes.nics],
            about: About {
                cpu: machine.sockets.first().map_or(Maker::Unknown, |it| it.maker),
                compute: machine.gpus.iter().map(|it| it.compute).collect(),
                gpu_direct: machine.gpus.iter().map(|it| it.gpudirect).collect(),
                nic_direct: machine.nics.iter().map(|it| it.gpudirect).collect(),
            },
        }
    }

    /// The way between two devices; [`Path::NONE`] for one that is not there.
    pub fn between(&self, from: Device, to: Device) -> Path {
        self.cell(from, to).and_then(|it| self.matrix.get(it)).copied().unwrap_or(Path::NONE)
    }

    /// The way between two GPUs.
    pub fn gpu_to_gpu(&self, from: usize, to: usize) -> Path {
        self.between(Device::Gpu(from), Device::Gpu(to))
    }

    /// The way a GPU sends to a NIC, by another GPU if that is better (PXN).
    pub fn gpu_to_nic(&self, gpu: usize, nic: usize) -> Path {
        self.between(Device::Gpu(gpu), Device::Nic(nic))
    }

    /// The way from a GPU to a NIC by the wires alone, whether it may be used or not.
    pub fn gpu_to_nic_plain(&self, gpu: usize, nic: usize) -> Path {
        if gpu >= self.sizes.gpus || nic >= self.sizes.nics {
            return Path::NONE;
        }
        self.plain.get(gpu * self.sizes.nics + nic).copied().unwrap_or(Path::NONE)
    }

    /// The way a GPU receives from a NIC. There is no PXN this way.
    pub fn nic_to_gpu(&self, nic: usize, gpu: usize) -> Path {
        self.between(Device::Nic(nic), Device::Gpu(gpu))
    }

    /// The way from a GPU to a socket.
    pub fn gpu_to_socket(&self, gpu: usize, socket: usize) -> Path {
        self.between(Device::Gpu(gpu), Device::Socket(socket))
    }

    /// The GPU in the middle of a way over NVLink, if there is one.
    pub fn middle(&self, from: usize, to: usize) -> Option<usize> {
        if from >= self.sizes.gpus || to >= self.sizes.gpus {
            return None;
        }
        self.middle.get(from * self.sizes.gpus + to).copied().flatten()
    }

    /// The GPU that sends to a NIC for another one, if it is not the GPU itself.
    pub fn relay(&self, gpu: usize, nic: usize) -> Option<usize> {
        if gpu >= self.sizes.gpus || nic >= self.sizes.nics {
            return None;
        }
        self.relay.get(gpu * self.sizes.nics + nic).copied().flatten()
    }

    /// The GPUs that take part, in the order of the machine.
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// The NICs that the network of the job drives, in the order in which NCCL meets them.
    pub fn nics(&self) -> &[usize] {
        &self.nics
    }

    /// The release these ways are for.
    pub fn version(&self) -> Version {
        self.settings.version
    }

    /// The socket nearest to a GPU.
    pub fn local_socket(&self, gpu: usize) -> Option<usize> {
        let hops = |socket: &usize| self.gpu_to_socket(gpu, *socket).hops;
        let candidates = if self.settings.since(2, 30, 7) {
            self.nearest(Device::Gpu(gpu), (0..self.sizes.sockets).map(Device::Socket))
        } else {
            (0..self.sizes.sockets).collect()
        };
        candidates.into_iter().filter(|it| hops(it) > 0).min_by_key(hops)
    }

    /// Of some devices of one kind the nearest to another: the largest bandwidth, then the nearest type.
    pub(crate) fn nearest(&self, from: Device, others: impl Iterator<Item = Device>) -> Vec<usize> {
        let mut best = Path::NONE;
        let mut found = Vec::new();
        for other in others {
            let path = self.between(from, other);
            if !path.is_connected() {
                continue;
            }
            let order = path.kind.compare(best.kind, self.version());
            let better = path.bandwidth.total_cmp(&best.bandwidth).then(order.reverse());
            if better.is_gt() {
                best = path;
                found.clear();
            }
            if better.is_ge() {
                found.push(other.place());
            }
        }
        found
    }

    fn cell(&self, from: Device, to: Device) -> Option<usize> {
        Some(self.sizes.row(from)? * self.sizes.all() + self.sizes.row(to)?)
    }

    fn set(&mut self, from: Device, to: Device, path: Path) {
        if let Some(cell) = self.cell(from, to) {
            self.matrix[cell] = path;
        }
    }

    fn search_all(&mut self, graph: &Graph) {
        let gpus = self.seats.iter().map(|it| Device::Gpu(it.gpu));
        let nics = self.nics.iter().map(|it| Device::Nic(*it));
        let sockets = (0..self.sizes.sockets).map(Device::Socket);
        let devices: Vec<(Device, usize)> = gpus
            .chain([Device::Switch])
            .chain(sockets)
            .chain(nics)
            .filter_map(|it| Some((it, graph.node_of(it)?)))
            .collect();
        for &(to, base) in &devices {
            let reached = search(graph, base, &self.settings);
            for &(from, node) in &devices {
                let Some(found) = reached.get(node).copied().flatten() else { continue };
                self.set(from, to, found.path);
                if let (Device::Gpu(from), Device::Gpu(to)) = (from, to) {
                    self.middle[from * self.sizes.gpus + to] = middle(graph, &reached, found);
                }
            }
        }
    }

    /// GPUs that are too far apart for peer access exchange through the memory of the CPU next to the receiver.
    fn lead_peers_through_cpu(&mut self) {
        let level = self.settings.p2p_level(self.about.cpu, self.seats.len()).kind;
        let seats = self.seats.clone();
        for to in &seats {
            let Some(socket) = self.local_socket(to.gpu) else { continue };
            for from in &seats {
                if !self.gpu_to_gpu(from.gpu, to.gpu).kind.within(level, self.version()) {
                    self.lead(Device::Gpu(from.gpu), Device::Socket(socket), Device::Gpu(to.gpu));
                    self.middle[from.gpu * self.sizes.gpus + to.gpu] = None;
                }
            }
        }
    }

    /// Replaces a way by one over `by`.
    fn lead(&mut self, from: Device, by: Device, to: Device) {
        let (first, second) = (self.between(from, by), self.between(by, to));
        if first.is_connected() && second.is_connected() {
            self.set(from, to, first.then(second, self.version()));
        }
    }

    /// A NIC at a CPU with a chip-to-chip link to the GPU is at P2C.
    fn find_chip_ways(&mut self) {
        if !self.settings.since(2, 27, 0) {
            return;
        }
        let version = self.version();
        for nic in self.nics.clone() {
            for seat in self.seats.clone() {
                let Some(socket) = self.local_socket(seat.gpu) else { continue };
                let to_cpu = self.gpu_to_socket(seat.gpu, socket).kind;
                let way = self.gpu_to_nic(seat.gpu, nic).kind;
                let chip = if self.settings.since(2, 27, 5) {
                    let nic_to_cpu = self.between(Device::Nic(nic), Device::Socket(socket)).kind;
                    merge(to_cpu, nic_to_cpu, version) == PathType::P2c
                } else {
                    to_cpu == PathType::C2c && way == PathType::Phb
                };
                if !chip {
                    continue;
                }
                for (from, to) in
                    [(Device::Gpu(seat.gpu), Device::Nic(nic)), (Device::Nic(nic), Device::Gpu(seat.gpu))]
                {
                    let mut path = self.between(from, to);
                    if path.is_connected() && PathType::P2c.within(path.kind, version) {
                        path.kind = PathType::P2c;
                        self.set(from, to, path);
                    }
                }
            }
        }
    }

    /// PXN, and through the CPU where GPUDirect is not possible.
    fn lead_to_nics(&mut self) {
        for nic in self.nics.clone() {
            for seat in self.seats.clone() {
                let gpu = seat.gpu;
                if self.settings.pxn()
                    && let Some(peer) = self.local_gpu(nic).filter(|it| *it != gpu)
                    && self.sends_better(peer, gpu, nic)
                {
                    let (first, second) = (self.gpu_to_gpu(gpu, peer), self.gpu_to_nic(peer, nic));
                    let path = Path { kind: PathType::Pxn, ..first.then(second, self.version()) };
                    self.set(Device::Gpu(gpu), Device::Nic(nic), path);
                    self.relay[gpu * self.sizes.nics + nic] = Some(peer);
                }
                let near = self.gpu_to_nic(gpu, nic).kind.compare(PathType::Phb, self.version()).is_lt();
                if (near || !self.settings.since(2, 21, 0))
                    && self.gpudirect(gpu, nic, false) != GpuDirect::On
                    && let Some(socket) = self.local_socket(gpu)
                {
                    self.lead(Device::Nic(nic), Device::Socket(socket), Device::Gpu(gpu));
                    self.lead(Device::Gpu(gpu), Device::Socket(socket), Device::Nic(nic));
                    self.relay[gpu * self.sizes.nics + nic] = None;
                }
            }
        }
    }

    /// Whether a GPU sends to a NIC better by `peer` than itself.
    fn sends_better(&self, peer: usize, gpu: usize, nic: usize) -> bool {
        let version = self.version();
        let own = self.gpu_to_nic(gpu, nic);
        let theirs = self.gpu_to_nic(peer, nic);
        let limit = if self.settings.since(2, 27, 5) { PathType::Pxn } else { PathType::Pxb };
        self.may_relay(peer, gpu, nic)
            && (theirs.bandwidth > own.bandwidth || !own.kind.within(limit, version))
    }

    /// Whether a GPU is next to a NIC, and joined to another GPU by NVLink.
    pub(crate) fn may_relay(&self, peer: usize, gpu: usize, nic: usize) -> bool {
        let version = self.version();
        let to_nic = self.gpu_to_nic(peer, nic).kind;
        let near =
            to_nic.within(PathType::Pxb, version) || (self.settings.pxn_c2c() && to_nic == PathType::P2c);
        near && self.gpu_to_gpu(peer, gpu).kind.within(PathType::Nvl, version)
    }

    fn gpu_nic_table(&self) -> Vec<Path> {
        (0..self.sizes.gpus)
            .flat_map(|gpu| (0..self.sizes.nics).map(move |nic| (gpu, nic)))
            .map(|(gpu, nic)| self.gpu_to_nic(gpu, nic))
            .collect()
    }
}

impl Sizes {
    fn all(self) -> usize {
        self.gpus + 1 + self.sockets + self.nics
    }

    fn row(self, device: Device) -> Option<usize> {
        match device {
            Device::Gpu(it) => (it < self.gpus).then_some(it),
            Device::Switch => Some(self.gpus),
            Device::Socket(it) => (it < self.sockets).then(|| self.gpus + 1 + it),
            Device::Nic(it) => (it < self.nics).then(|| self.gpus + 1 + self.sockets + it),
        }
    }
}

impl Device {
    fn place(self) -> usize {
        match self {
            Self::Gpu(it) | Self::Socket(it) | Self::Nic(it) => it,
            Self::Switch => 0,
        }
    }
}

impl Graph {
    fn node_of(&self, device: Device) -> Option<usize> {
        match device {
            Device::Gpu(it) => self.gpus.get(it).copied().flatten(),
            Device::Switch => self.switch,
            Device::Socket(it) => self.sockets.get(it).copied(),
            Device::Nic(it) => self.nics.get(it).copied().flatten(),
        }
    }
}

/// The NICs the network drives, in the order of the tree: by socket, by switch, by index.
fn nics_in_order(machine: &Machine, settings: &Settings) -> Vec<usize> {
    let network = settings.network(machine);
    let mut nics: Vec<(Vec<usize>, u32, usize)> = Vec::new();
    for (place, nic) in machine.nics.iter().enumerate().filter(|it| network.drives(it.1)) {
        let mut way = machine.bridges_above(nic.at);
        let top = way.last().and_then(|it| machine.bridges.get(*it)).map_or(nic.at, |it| it.at);
        way.push(match top {
            Place::Socket(socket) => socket,
            Place::Bridge(_) => usize::MAX,
        });
        way.reverse();
        nics.push((way, nic.index, place));
    }
    nics.sort();
    nics.into_iter().map(|it| it.2).collect()
}
