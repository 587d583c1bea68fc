//! The system as the graph search sees it: links with what is left of their bandwidth, and paths as lists of links.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use fabric::machine::Maker;

use crate::decisions::connects_beside;
use crate::topo::{LinkKind, Node, single};
use crate::{Device, PathType, Paths, Settings};

/// A path with its links.
#[derive(Debug, Clone, Default)]
pub(super) struct Route {
    /// The number of its type in this release.
    pub(super) kind: u8,
    pub(super) bandwidth: f32,
    pub(super) links: Box<[u32]>,
}

/// A link, one way, with what is left of its bandwidth.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchLink {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: LinkKind,
    pub(super) left: f32,
    /// The link back.
    back: Option<usize>,
}

/// A NIC.
#[derive(Debug, Clone)]
pub(super) struct Net {
    /// Its position in the machine.
    pub(super) position: usize,
    /// NICs with the same number here are one card to NCCL.
    pub(super) asic: usize,
    /// Its machine in an NVLink domain.
    pub(super) machine: usize,
    /// Its number on that machine.
    pub(super) rail: usize,
    /// What is left of its rate.
    pub(super) left: f32,
    pub(super) latency: f32,
    /// The GPU that counts as its neighbour.
    pub(super) local_gpu: Option<usize>,
    /// The GPUs nearest to it.
    pub(super) near_gpus: Vec<usize>,
}

/// NICs to try, by the farthest type and the GPU.
pub(super) type Selected = HashMap<(u8, Option<usize>), Rc<[usize]>>;

/// The ends of a path in the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Gpu(usize),
    Net(usize),
    Switch,
}

/// The system that is searched.
#[derive(Debug)]
pub(super) struct Model<'a> {
    pub(super) paths: &'a Paths,
    pub(super) settings: &'a Settings,
    /// Whether there are other nodes.
    pub(super) inter: bool,
    /// Whether the network reduces.
    pub(super) collnet: bool,
    pub(super) gpus: usize,
    pub(super) nets: Vec<Net>,
    pub(super) has_switch: bool,
    pub(super) links: Vec<SearchLink>,
    /// Which channels a GPU is in, a bit for each.
    pub(super) used: Vec<u64>,
    /// The most a path has: NCCL's `maxBw`.
    pub(super) max_bw: f32,
    /// The most a GPU has: NCCL's `totalBw`.
    pub(super) total_bw: f32,
    /// The lowest compute capability.
    pub(super) compute: u32,
    /// Path types of this release, nearest first: the index is NCCL's number.
    pub(super) types: Vec<PathType>,
    pub(super) cpu: Maker,
    gpu_gpu: Vec<Rc<Route>>,
    gpu_net: Vec<Rc<Route>>,
    net_gpu: Vec<Rc<Route>>,
    gpu_switch: Vec<Rc<Route>>,
    switch_gpu: Vec<Rc<Route>>,
    old_gpus: Vec<bool>,
    /// The PCI link of each GPU and the one back.
    pci: Vec<Option<(usize, usize)>>,
    pub(super) selected: RefCell<Selected>,
}

impl<'a> Model<'a> {
    /// The model of a node; `inter` if the communicator has ranks elsewhere, `collnet` if the network reduces.
    pub(super) fn new(paths: &'a Paths, inter: bool, collnet: bool) -> Self {
        let settings = &paths.settings;
        let mut types: Vec<PathType> =
            PathType::ALL.into_iter().filter(|it| it.is_in(settings.version)).collect();
        types.sort_by_key(|it| it.order(settings.version));
        let computes = paths.gpus().iter().map(|it| paths.compute(it.position));
        let mut model = Self {
            settings,
            inter,
            collnet,
            gpus: paths.gpus().len(),
            nets: Vec::new(),
            has_switch: paths.system.switch.is_some(),
            links: links(paths),
            used: vec![0; paths.gpus().len()],
            max_bw: 0.0,
            total_bw: 0.0,
            compute: computes.min().unwrap_or(0),
            types,
            cpu: paths.about.cpu,
            gpu_gpu: Vec::new(),
            gpu_net: Vec::new(),
            net_gpu: Vec::new(),
            gpu_switch: Vec::new(),
            switch_gpu: Vec::new(),
            old_gpus: Vec::new(),
            pci: Vec::new(),
            selected: RefCell::default(),
            paths,
        };
        model.add_nets();
        model.add_routes();
        model.add_boards();
        model.set_bandwidths();
        model
    }

    /// The number of a path type in this release.
    pub(super) fn number(&self, kind: PathType) -> u8 {
        let known = self.types.iter().position(|it| *it == kind);
        known.and_then(|it| u8::try_from(it).ok()).unwrap_or(u8::MAX)
    }

    fn add_nets(&mut self) {
        // Up to 2.28.3 a node that has all ranks has no NICs for the search (`ncclTopoTrimSystem`).
        if !self.inter && !self.settings.since(2, 28, 7) {
            return;
        }
        let gpus = self.paths.gpus();
        let index = |position: usize| gpus.iter().position(|it| it.position == position);
        for nic in self.paths.nics() {
            let near = self.paths.near.gpus.get(nic.position);
            self.nets.push(Net {
                position: nic.position,
                asic: self.paths.asic(nic.position),
                machine: self.paths.machine_of_nic(nic.position),
                rail: self.paths.rail(nic.position),
                left: self.paths.about.nic_rates.get(nic.position).copied().unwrap_or(0.0),
                latency: self.paths.about.nic_latencies.get(nic.position).copied().unwrap_or(0.0),
                local_gpu: self.paths.local_gpu(nic.position).and_then(index),
                near_gpus: near.into_iter().flatten().filter_map(|it| index(*it)).collect(),
            });
        }
    }

    fn add_routes(&mut self) {
        let gpus: Vec<usize> = self.paths.gpus().iter().map(|it| it.position).collect();
        for &from in &gpus {
            for &to in &gpus {
                let mut route = self.find(Device::Gpu(from), Device::Gpu(to));
                if from != to && !connects_beside(self.paths, from, to, !self.nets.is_empty()) {
                    route.kind = self.number(PathType::Net);
                }
                self.gpu_gpu.push(route.into());
            }
            for net in 0..self.nets.len() {
                let nic = Device::Nic(self.nets[net].position);
                self.gpu_net.push(self.find(Device::Gpu(from), nic).into());
            }
            self.gpu_switch.push(self.find(Device::Gpu(from), Device::Switch).into());
            self.switch_gpu.push(self.find(Device::Switch, Device::Gpu(from)).into());
        }
        for net in 0..self.nets.len() {
            let nic = Device::Nic(self.nets[net].position);
            for &to in &gpus {
                self.net_gpu.push(self.find(nic, Device::Gpu(to)).into());
            }
        }
    }

    fn find(&self, from: Device, to: Device) -> Route {
        let path = self.paths.between(from, to);
        Route {
            kind: self.number(path.kind),
            bandwidth: single(path.bandwidth),
            links: self.paths.route(from, to).into(),
        }
    }

    /// Which nodes are GPUs older than the A100, and the PCI link of each GPU. Since 2.30 both are the board's.
    fn add_boards(&mut self) {
        let system = &self.paths.system;
        self.old_gpus = vec![false; system.nodes.len()];
        for gpu in self.paths.gpus() {
            let Some(board) = system.boards.get(gpu.position).copied().flatten() else { continue };
            self.old_gpus[board] = self.paths.compute(gpu.position) < 80;
            let pci = self.links.iter().position(|it| it.from == board && it.kind == LinkKind::Pci);
            let back = pci.and_then(|pci| {
                self.links.iter().position(|it| it.from == self.links[pci].to && it.to == board)
            });
            self.pci.push(pci.zip(back));
        }
    }

    /// What a channel and a GPU can have at most (`ncclTopoSearchInit`).
    fn set_bandwidths(&mut self) {
        let local = single(fabric::link::local());
        if !self.inter && self.gpus == 1 {
            self.max_bw = local;
            // Since 2.21.5.
            self.total_bw = if self.settings.since(2, 21, 5) { local } else { 0.0 };
            return;
        }
        let routes = if self.inter { &self.gpu_net } else { &self.gpu_gpu };
        let long = routes.iter().filter(|it| !it.links.is_empty());
        self.max_bw = long.map(|it| it.bandwidth).fold(0.0, f32::max);
        let system = &self.paths.system;
        for gpu in self.paths.gpus() {
            let Some(board) = system.boards.get(gpu.position).copied().flatten() else { continue };
            let (mut nvlink, mut pci) = (0.0_f32, 0.0_f32);
            for link in self.links.iter().filter(|it| it.from == board) {
                match link.kind {
                    LinkKind::NvLink => nvlink += link.left,
                    LinkKind::Pci => pci = link.left,
                    _ => {}
                }
            }
            self.total_bw = self.total_bw.max(pci.max(nvlink));
        }
    }

    pub(super) fn gpu_gpu(&self, from: usize, to: usize) -> &Rc<Route> {
        &self.gpu_gpu[from * self.gpus + to]
    }

    pub(super) fn gpu_net(&self, gpu: usize, net: usize) -> &Rc<Route> {
        &self.gpu_net[gpu * self.nets.len() + net]
    }

    pub(super) fn net_gpu(&self, net: usize, gpu: usize) -> &Rc<Route> {
        &self.net_gpu[net * self.gpus + gpu]
    }

    pub(super) fn route(&self, from: End, to: End) -> Option<&Rc<Route>> {
        match (from, to) {
            (End::Gpu(from), End::Gpu(to)) => Some(self.gpu_gpu(from, to)),
            (End::Gpu(gpu), End::Net(net)) => Some(self.gpu_net(gpu, net)),
            (End::Net(net), End::Gpu(gpu)) => Some(self.net_gpu(net, gpu)),
            (End::Gpu(gpu), End::Switch) => self.gpu_switch.get(gpu),
            (End::Switch, End::Gpu(gpu)) => self.switch_gpu.get(gpu),
            _ => None,
        }
    }

    /// What is left of a GPU's PCI link in the slower direction, as a whole number.
    #[expect(clippy::cast_possible_truncation, reason = "NCCL compares whole GB/s")]
    pub(super) fn pci_left(&self, gpu: usize) -> i32 {
        let link = self.pci.get(gpu).copied().flatten();
        link.map_or(-1, |(up, down)| self.links[up].left.min(self.links[down].left) as i32)
    }

    /// Takes `bandwidth` from the first links of a path, as far as they have it; a negative one gives it back. Returns how
    /// many links had it (`followPath`).
    pub(super) fn take(&mut self, path: &Route, first: usize, start: End, bandwidth: f32) -> usize {
        let phb = self.types.get(usize::from(path.kind)) == Some(&PathType::Phb);
        let nodes = &self.paths.system.nodes;
        let from_gpu = matches!(start, End::Gpu(_));
        // Traffic between GPUs, or from a GPU, through the root of an Intel CPU costs more of PCI Express.
        let cpu = |it: &&u32| match nodes[self.links[**it as usize].to] {
            Node::Socket(socket) => Some(self.paths.about.makers.get(socket).copied().unwrap_or_default()),
            _ => None,
        };
        let intel =
            phb && from_gpu && path.links.iter().filter_map(|it| cpu(&it)).any(|it| it == Maker::Intel);
        let pci_bandwidth = if intel { bandwidth * 6.0 / 5.0 } else { bandwidth };
        for (step, &number) in path.links.iter().take(first).enumerate() {
            let link = self.links[number as usize];
            let forward = if link.kind == LinkKind::Pci { pci_bandwidth } else { bandwidth };
            let mut backward = 0.0;
            // A GPU older than the A100 answers what a NIC writes.
            if !from_gpu && self.old_gpus[link.to] {
                backward += forward / 8.0;
            }
            if link.kind == LinkKind::NvLink && self.shares_nvlink(link.to) {
                backward += forward;
            }
            let back = link.back.filter(|_| backward != 0.0);
            if link.left < forward || back.is_some_and(|it| self.links[it].left < backward) {
                return step;
            }
            subtract(&mut self.links[number as usize].left, forward);
            if let Some(back) = back {
                subtract(&mut self.links[back].left, backward);
            }
        }
        first
    }

    /// Whether NVLink joins the GPUs in two islands (`ncclTopoSplitNvLink`).
    pub(super) fn nvlink_is_split(&self) -> bool {
        let nvlink = self.number(PathType::Nvl);
        let mut island: Vec<usize> = (0..self.gpus).collect();
        for gpu in 0..self.gpus {
            for other in gpu + 1..self.gpus {
                if self.gpu_gpu(gpu, other).kind == nvlink {
                    island[other] = island[gpu];
                }
            }
        }
        let large = |it: &usize| island.iter().filter(|of| *of == it).count() > 1;
        (0..self.gpus).filter(large).count() == 2
    }

    /// NVLink to a CPU counts both ways: on Power9, up to 2.18 on every CPU.
    fn shares_nvlink(&self, node: usize) -> bool {
        let Node::Socket(socket) = self.paths.system.nodes[node] else { return false };
        !self.settings.since(2, 19, 1) || self.paths.about.makers.get(socket) == Some(&Maker::Power)
    }
}

/// All links of the system, one node after the other.
fn links(paths: &Paths) -> Vec<SearchLink> {
    let system = &paths.system;
    let first = system.first_links();
    let all =
        system.links.iter().enumerate().flat_map(|(from, links)| links.iter().map(move |it| (from, *it)));
    all.map(|(from, it)| SearchLink {
        from,
        to: it.to,
        kind: it.kind,
        left: single(it.bandwidth),
        back: system.back(from, it).map(|back| first[it.to] as usize + back),
    })
    .collect()
}

/// NCCL keeps three decimals, so that what was taken and given back leaves no trace.
fn subtract(from: &mut f32, what: f32) {
    *from = ((*from - what) * 1000.0).round() / 1000.0;
}
