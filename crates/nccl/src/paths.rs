//! The paths between the devices of a machine, found as NCCL finds them.
//!
//! From each device a breadth-first search over the system; then some paths are changed, see `detour`.

mod detour;
mod nearest;
mod order;
mod path;
mod reach;
mod rows;

use std::collections::HashMap;
use std::fmt;

use fabric::Version;
use fabric::machine::{BusId, Gpu, Machine, Maker, Nic, Place};

use crate::decisions::by_index;
use crate::merge::devices;
use crate::nics::Near;
use crate::topo::{System, single, used_sockets};

use crate::Settings;
use fabric::Network;
use order::{gpus_in_order, nics_in_order};
use reach::{middle, search};
use rows::Rows;

pub use path::Path;

/// One end of a path, by its position in the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// A GPU, by its position in [`Machine::gpus`].
    Gpu(usize),
    /// The plane of `NVSwitch`es.
    Switch,
    /// A socket, by its position in [`Machine::sockets`].
    Socket(usize),
    /// A network device, by its position in [`Machine::nics`].
    Nic(usize),
}

/// A GPU or a NIC that ranks can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VisibleDevice {
    /// Its position in [`Machine::gpus`] or [`Machine::nics`].
    pub position: usize,
    /// The number it has for the ranks: in a pod, counted from 0 among the pod's own.
    pub number: u32,
}

/// The devices that ranks see which are one node to NCCL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VisibleDevices {
    /// In the order of their ranks.
    pub gpus: Vec<VisibleDevice>,
    /// In the order of the machine.
    pub nics: Vec<VisibleDevice>,
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

/// The paths between all devices of a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Paths {
    pub(crate) settings: Settings,
    gpus: Vec<VisibleDevice>,
    nics: Vec<VisibleDevice>,
    /// The NICs that the ranks see, before the network makes devices of them.
    pub(crate) seen: Vec<VisibleDevice>,
    rows: Rows,
    matrix: Vec<Path>,
    /// The links of each path, by their numbers in the system.
    routes: Vec<Box<[u32]>>,
    pub(crate) system: System,
    /// From GPUs to GPUs and NICs by the wires alone: before some are changed to go through the CPU or another GPU.
    wires: Vec<Path>,
    /// From GPUs to GPUs and NICs: the GPU between them.
    by: Vec<Option<u16>>,
    /// How many machines these are, of an NVLink domain.
    pub(crate) machines: usize,
    /// Whether NICs of the same position on these machines have one GUID: NCCL counts them as one card.
    pub(crate) same_cards: bool,
    /// The socket nearest to each GPU.
    local_sockets: Vec<Option<usize>>,
    pub(crate) near: Near,
    pub(crate) about: About,
}

/// What the decisions need to know of the devices.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct About {
    pub(crate) cpu: Maker,
    pub(crate) compute: Vec<Option<u32>>,
    pub(crate) gpu_direct: Vec<Option<bool>>,
    pub(crate) nic_direct: Vec<Option<bool>>,
    /// What each NIC gives, in GB/s.
    pub(crate) nic_rates: Vec<f32>,
    /// The latency each NIC declares, in microseconds.
    pub(crate) nic_latencies: Vec<f32>,
    /// The vendor of each socket.
    pub(crate) makers: Vec<Maker>,
    /// GPUs of a model without peer access.
    pub(crate) alone: Vec<bool>,
    /// Of each NIC the first with the same port, counted on its machine.
    pub(crate) cards: Vec<usize>,
    /// The bus id of each GPU.
    pub(crate) buses: Vec<Option<BusId>>,
    /// The slowest link that leads from each GPU to a CPU without a switch between, in GB/s; 0 without any.
    pub(crate) cpu_links: Vec<f64>,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a machine with {} {}: at most {} are possible", self.count, self.what, self.limit)
    }
}

impl std::error::Error for TooLarge {}

impl TooLarge {
    fn check(machine: &Machine) -> Result<(), Self> {
        for (what, count, limit) in [
            ("GPUs and NICs", machine.gpus.len().saturating_add(machine.nics.len()), Paths::DEVICES),
            ("sockets", machine.sockets.len(), Paths::SOCKETS),
            ("PCIe switches and bridges", machine.bridges.len(), Paths::BRIDGES),
            ("bundles of NVLink", machine.nvlinks.len(), Paths::NVLINKS),
        ] {
            if count > limit {
                return Err(Self { what, count, limit });
            }
        }
        Ok(())
    }
}

impl VisibleDevices {
    /// The whole machine.
    pub fn whole(machine: &Machine) -> Self {
        let gpus = by_index(machine).into_iter();
        let nics = machine.nics.iter().enumerate();
        Self {
            gpus: gpus
                .map(|position| VisibleDevice { position, number: machine.gpus[position].index })
                .collect(),
            nics: nics.map(|(position, it)| VisibleDevice { position, number: it.index }).collect(),
        }
    }
}

impl Paths {
    /// The most GPUs and NICs a machine can have. NCCL itself holds 640 of a kind, 256 before 2.27.
    pub const DEVICES: usize = 384;
    /// The most sockets.
    pub const SOCKETS: usize = 64;
    /// The most PCI Express switches and bridges.
    pub const BRIDGES: usize = 1024;
    /// The most bundles of NVLink.
    pub const NVLINKS: usize = 32_768;

    /// The paths on a machine whose GPUs all belong to one job.
    pub fn new(machine: &Machine, settings: &Settings) -> Result<Self, TooLarge> {
        Self::within(machine, settings, &VisibleDevices::whole(machine))
    }

    /// The paths as ranks see them that have only a part of the machine: the rest is not there for NCCL.
    pub fn within(
        machine: &Machine,
        settings: &Settings,
        visible: &VisibleDevices,
    ) -> Result<Self, TooLarge> {
        Self::joined(machine, settings, visible, 1)
    }

    /// The paths of what is left of a node that NCCL has cut: its GPUs keep their order.
    pub(crate) fn trimmed(
        machine: &Machine,
        settings: &Settings,
        visible: &VisibleDevices,
    ) -> Result<Self, TooLarge> {
        TooLarge::check(machine)?;
        let gpus = once_each(&visible.gpus, machine.gpus.len());
        let seen = once_each(&visible.nics, machine.nics.len());
        let devices = devices(machine, settings, &seen, 1);
        let nics = nics_in_order(&devices);
        let machine = &*devices.machine;
        Ok(Self::find(machine, Self { seen, ..Self::empty(machine, settings, gpus, nics, 1) }))
    }

    /// The paths of a description that is several machines one after the other.
    pub(crate) fn joined(
        machine: &Machine,
        settings: &Settings,
        visible: &VisibleDevices,
        machines: usize,
    ) -> Result<Self, TooLarge> {
        TooLarge::check(machine)?;
        let seen = once_each(&visible.nics, machine.nics.len());
        let devices = devices(machine, settings, &seen, machines);
        let nics = nics_in_order(&devices);
        let machine = &*devices.machine;
        let gpus = once_each(&visible.gpus, machine.gpus.len());
        let gpus = gpus_in_order(machine, settings, gpus, &nics, machines);
        Ok(Self::find(machine, Self { seen, ..Self::empty(machine, settings, gpus, nics, machines) }))
    }

    fn find(machine: &Machine, mut paths: Self) -> Self {
        let (settings, machines) = (paths.settings.clone(), paths.machines);
        let (gpus, nics) = (positions(&paths.gpus), positions(&paths.nics));
        let system = System::new(machine, &settings, (&gpus, &nics), machines);
        paths.search_all(&system);
        paths.system = system;
        paths.local_sockets = (0..machine.gpus.len()).map(|it| paths.find_local_socket(it)).collect();
        paths.find_chip_paths();
        paths.keep_wires();
        paths.lead_peers_through_cpu();
        paths.near = Near::new(&paths, machine);
        paths.lead_to_nics();
        paths
    }

    /// Devices without paths; they are in the order of the system.
    fn empty(
        machine: &Machine,
        settings: &Settings,
        gpus: Vec<VisibleDevice>,
        nics: Vec<VisibleDevice>,
        machines: usize,
    ) -> Self {
        let rows = Rows::new(machine, &gpus, &nics);
        let used = used_sockets(machine, &positions(&gpus), &positions(&nics));
        let first = machine.sockets.iter().zip(used).find(|it| it.1);
        let socket = settings.network(machine) == Network::Socket;
        Self {
            settings: settings.clone(),
            matrix: vec![Path::NONE; rows.all() * rows.all()],
            routes: vec![Box::default(); rows.all() * rows.all()],
            system: System::default(),
            wires: Vec::new(),
            machines,
            same_cards: false,
            by: vec![None; gpus.len() * rows.devices],
            local_sockets: Vec::new(),
            near: Near::default(),
            rows,
            gpus,
            nics,
            seen: Vec::new(),
            about: About {
                cpu: first.map_or(Maker::Unknown, |it| it.0.maker),
                compute: machine.gpus.iter().map(|it| it.compute).collect(),
                gpu_direct: machine.gpus.iter().map(|it| it.gpudirect).collect(),
                // Sockets copy through host memory (`src/transport/net_socket.cc`, `ncclNetSocketGetProperties`: `NCCL_PTR_HOST`).
                nic_direct: machine
                    .nics
                    .iter()
                    .map(|it| if socket { Some(false) } else { it.gpudirect })
                    .collect(),
                nic_rates: machine.nics.iter().map(|it| single(fabric::link::nic(it.rate))).collect(),
                nic_latencies: machine.nics.iter().map(|it| latency(it.latency, settings)).collect(),
                makers: machine.sockets.iter().map(|it| it.maker).collect(),
                alone: machine.gpus.iter().map(|it| has_no_peer_access(it.model.as_deref())).collect(),
                cards: cards(machine, machines),
                buses: machine.gpus.iter().map(|it| it.bus).collect(),
                cpu_links: machine.gpus.iter().map(link_to_cpu).collect(),
            },
        }
    }

    /// The path between two devices; [`Path::NONE`] for one that is not there.
    pub fn between(&self, from: Device, to: Device) -> Path {
        self.cell(from, to).and_then(|it| self.matrix.get(it)).copied().unwrap_or(Path::NONE)
    }

    /// The path between two GPUs.
    pub fn gpu_to_gpu(&self, from: usize, to: usize) -> Path {
        self.between(Device::Gpu(from), Device::Gpu(to))
    }

    /// The path a GPU sends to a NIC, by another GPU if that is better (PXN).
    pub fn gpu_to_nic(&self, gpu: usize, nic: usize) -> Path {
        self.between(Device::Gpu(gpu), Device::Nic(nic))
    }

    /// The path between two GPUs by the wires alone, whether peer access may be used or not.
    pub fn gpu_wires(&self, from: usize, to: usize) -> Path {
        self.wires(from, Device::Gpu(to))
    }

    /// The path from a GPU to a NIC by the wires alone, without PXN and whether GPUDirect may be used or not.
    pub fn nic_wires(&self, gpu: usize, nic: usize) -> Path {
        self.wires(gpu, Device::Nic(nic))
    }

    /// The path a GPU receives from a NIC. There is no PXN in this direction.
    pub fn nic_to_gpu(&self, nic: usize, gpu: usize) -> Path {
        self.between(Device::Nic(nic), Device::Gpu(gpu))
    }

    /// The path from a GPU to a socket.
    pub fn gpu_to_socket(&self, gpu: usize, socket: usize) -> Path {
        self.between(Device::Gpu(gpu), Device::Socket(socket))
    }

    /// The GPU in the middle of a path over NVLink, if there is one.
    pub fn middle(&self, from: usize, to: usize) -> Option<usize> {
        self.by(from, Device::Gpu(to))
    }

    /// The GPU that sends to a NIC for another one, if it is not the GPU itself.
    pub fn relay(&self, gpu: usize, nic: usize) -> Option<usize> {
        self.by(gpu, Device::Nic(nic))
    }

    /// The GPUs that take part, in the order of the machine.
    pub fn gpus(&self) -> &[VisibleDevice] {
        &self.gpus
    }

    /// The compute capability of a GPU. An unknown one counts as an A100's.
    pub(crate) fn compute(&self, gpu: usize) -> u32 {
        self.about.compute.get(gpu).copied().flatten().unwrap_or(80)
    }

    /// How many machines of an NVLink domain these are; one if there is none.
    pub fn machines(&self) -> usize {
        self.machines
    }

    /// Which machine of an NVLink domain a GPU is in.
    pub(crate) fn machine_of_gpu(&self, gpu: usize) -> usize {
        gpu / (self.about.compute.len() / self.machines).max(1)
    }

    /// Which machine of an NVLink domain a NIC is in.
    pub(crate) fn machine_of_nic(&self, nic: usize) -> usize {
        nic / (self.about.nic_rates.len() / self.machines).max(1)
    }

    /// The position of a NIC on its machine of an NVLink domain.
    pub(crate) fn rail(&self, nic: usize) -> usize {
        nic % (self.about.nic_rates.len() / self.machines).max(1)
    }

    /// A number that NICs of one card share.
    pub(crate) fn asic(&self, nic: usize) -> usize {
        let each = (self.about.nic_rates.len() / self.machines).max(1);
        let card = self.about.cards.get(nic).copied().unwrap_or(nic % each);
        if self.same_cards { card } else { nic / each * each + card }
    }

    /// Whether the driver lets two GPUs access each other's memory.
    pub(crate) fn are_peers(&self, one: usize, other: usize) -> bool {
        // With 2 NCCL does not ask NVML (`ncclTopoCheckP2p`).
        let asked = self.settings.number("NCCL_IGNORE_DISABLED_P2P", 0) != 2;
        let alone = |it: &usize| asked && self.about.alone.get(*it) == Some(&true);
        one == other || ![one, other].iter().any(alone)
    }

    /// Whether NCCL counts two GPUs as peers when it looks for paths. 2.18 only warns where NVML says that they are not, unless
    /// `NCCL_IGNORE_DISABLED_P2P` is set (`ncclTopoCheckP2p`).
    pub(crate) fn count_as_peers(&self, one: usize, other: usize) -> bool {
        let warns =
            !self.settings.since(2, 19, 1) && self.settings.number("NCCL_IGNORE_DISABLED_P2P", 0) == 0;
        warns || self.are_peers(one, other)
    }

    pub(crate) fn visible_gpu(&self, gpu: usize) -> Option<VisibleDevice> {
        self.rows.of(Device::Gpu(gpu)).and_then(|it| self.gpus.get(it)).copied()
    }

    /// The NICs that the network of the job drives, in the order in which NCCL finds them.
    pub fn nics(&self) -> &[VisibleDevice] {
        &self.nics
    }

    /// The release these paths are for.
    pub fn version(&self) -> Version {
        self.settings.version
    }

    /// The number a NIC has where the ranks run.
    pub fn nic_number(&self, nic: usize) -> Option<u32> {
        self.nics.iter().find(|it| it.position == nic).map(|it| it.number)
    }

    /// The socket nearest to a GPU.
    pub fn local_socket(&self, gpu: usize) -> Option<usize> {
        self.local_sockets.get(gpu).copied().flatten()
    }

    /// The fewest hops; since 2.30.7 of those with the largest bandwidth.
    fn find_local_socket(&self, gpu: usize) -> Option<usize> {
        let hops = |socket: &usize| self.gpu_to_socket(gpu, *socket).hops;
        let candidates = if self.settings.since(2, 30, 7) {
            let first = self.rows.devices;
            let columns = self.nearest(Device::Gpu(gpu), first..first + self.rows.sockets);
            columns.into_iter().map(|it| it - first).collect::<Vec<_>>()
        } else {
            (0..self.rows.sockets).collect()
        };
        candidates.into_iter().filter(|it| hops(it) > 0).min_by_key(hops)
    }

    fn cell(&self, from: Device, to: Device) -> Option<usize> {
        Some(self.rows.of(from)? * self.rows.all() + self.rows.of(to)?)
    }

    pub(crate) fn set(&mut self, from: Device, to: Device, path: Path) {
        if let Some(cell) = self.cell(from, to) {
            self.matrix[cell] = path;
        }
    }

    fn set_route(&mut self, from: Device, to: Device, route: Vec<u32>) {
        if let Some(cell) = self.cell(from, to) {
            self.routes[cell] = route.into();
        }
    }

    /// The links of a path, by their numbers in the system.
    pub(crate) fn route(&self, from: Device, to: Device) -> &[u32] {
        self.cell(from, to).and_then(|it| self.routes.get(it)).map_or(&[], |it| it)
    }

    /// The cell of a GPU in the tables that lead from GPUs to GPUs and NICs.
    fn gpu_cell(&self, gpu: usize, to: Device) -> Option<usize> {
        let column = self.rows.of(to).filter(|it| *it < self.rows.devices)?;
        Some(self.rows.of(Device::Gpu(gpu))? * self.rows.devices + column)
    }

    fn wires(&self, gpu: usize, to: Device) -> Path {
        self.gpu_cell(gpu, to).and_then(|it| self.wires.get(it)).copied().unwrap_or(Path::NONE)
    }

    fn by(&self, gpu: usize, to: Device) -> Option<usize> {
        self.gpu_cell(gpu, to).and_then(|it| self.by.get(it).copied().flatten()).map(usize::from)
    }

    pub(crate) fn set_by(&mut self, gpu: usize, to: Device, by: Option<usize>) {
        if let Some(cell) = self.gpu_cell(gpu, to) {
            self.by[cell] = by.and_then(|it| u16::try_from(it).ok());
        }
    }

    fn keep_wires(&mut self) {
        let all = self.rows.all();
        let rows = (0..self.gpus.len()).map(|row| &self.matrix[row * all..row * all + self.rows.devices]);
        self.wires = rows.flatten().copied().collect();
    }

    fn search_all(&mut self, system: &System) {
        let gpus = self.gpus.iter().map(|it| Device::Gpu(it.position));
        let nics = self.nics.iter().map(|it| Device::Nic(it.position));
        let sockets = (0..self.rows.sockets).map(Device::Socket);
        let devices: Vec<(Device, usize)> = gpus
            .chain([Device::Switch])
            .chain(sockets)
            .chain(nics)
            .filter_map(|it| Some((it, system.node_of(it)?)))
            .collect();
        for &(to, base) in &devices {
            let reached = search(system, base, &self.settings);
            for &(from, node) in &devices {
                let Some(found) = reached.get(node).and_then(Option::as_ref) else { continue };
                self.set(from, to, found.path);
                self.set_route(from, to, found.route.clone());
                if let (Device::Gpu(gpu), Device::Gpu(_)) = (from, to) {
                    self.set_by(gpu, to, middle(system, &reached, found));
                }
            }
        }
    }
}

impl System {
    fn node_of(&self, device: Device) -> Option<usize> {
        match device {
            Device::Gpu(it) => self.gpus.get(it).copied().flatten(),
            Device::Switch => self.switch,
            Device::Socket(it) => self.sockets.get(it).copied().flatten(),
            Device::Nic(it) => self.nics.get(it).copied().flatten(),
        }
    }
}

/// Whether the driver refuses peer access to GPUs of this model.
fn has_no_peer_access(model: Option<&str>) -> bool {
    model.is_some_and(|it| fabric::gpu::peer_access_in_text(it) == Some(false))
}

/// Of each NIC the first with the same GUID and port, counted on its machine (`src/graph/search.cc`, `ncclTopoSearchRecNet`).
fn cards(machine: &Machine, machines: usize) -> Vec<usize> {
    let each = (machine.nics.len() / machines).max(1);
    let of_host = |nics: &[Nic]| {
        let mut first = HashMap::new();
        let card = |(nic, it): (usize, &Nic)| it.port.map_or(nic, |port| *first.entry(port).or_insert(nic));
        nics.iter().enumerate().map(card).collect::<Vec<usize>>()
    };
    machine.nics.chunks(each).flat_map(of_host).collect()
}

fn link_to_cpu(gpu: &Gpu) -> f64 {
    let pci = gpu.link.filter(|_| matches!(gpu.at, Place::Socket(_))).map(fabric::link::pci);
    pci.into_iter().chain(gpu.c2c).reduce(f64::min).unwrap_or(0.0)
}

/// The latency of a NIC as NCCL keeps it: since 2.24.3 as a whole number (`src/graph/topo.cc`, `ncclTopoPopulateNics`).
fn latency(declared: Option<f64>, settings: &Settings) -> f32 {
    let declared = declared.unwrap_or(0.0);
    single(if settings.since(2, 24, 3) { declared.trunc() } else { declared })
}

pub(crate) fn positions(devices: &[VisibleDevice]) -> Vec<usize> {
    devices.iter().map(|it| it.position).collect()
}

/// Those that exist, each once.
fn once_each(devices: &[VisibleDevice], limit: usize) -> Vec<VisibleDevice> {
    let mut seen = vec![false; limit];
    let new =
        |it: &&VisibleDevice| seen.get_mut(it.position).is_some_and(|seen| !std::mem::replace(seen, true));
    devices.iter().filter(new).copied().collect()
}
