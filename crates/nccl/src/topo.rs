//! The machine as NCCL's system: nodes and links with a bandwidth.

use fabric::link;
use fabric::machine::{BusId, Machine, NvEnd, PciLink, Place};

use crate::{PathType, Settings};

/// A node of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    /// A GPU, by its position in the machine.
    Gpu(usize),
    /// The board a GPU is on; NCCL has it since 2.30.
    Board(usize),
    /// A PCI Express switch or bridge.
    Bridge,
    /// The plane of `NVSwitch`es.
    Switch,
    /// A socket, by its position in the machine.
    Socket(usize),
    /// A network card, which may have several ports.
    Card,
    /// A port of it, by its position in the machine.
    Nic(usize),
}

/// A link of the system, one way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Link {
    pub(crate) to: usize,
    pub(crate) kind: LinkKind,
    pub(crate) bandwidth: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkKind {
    Local,
    NvLink,
    C2c,
    Pci,
    Sockets,
    Port,
}

/// Nodes with their links, and where to find the devices.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct System {
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: Vec<Vec<Link>>,
    pub(crate) gpus: Vec<Option<usize>>,
    pub(crate) boards: Vec<Option<usize>>,
    pub(crate) nics: Vec<Option<usize>>,
    /// Sockets with nothing below them are left out, as NCCL does.
    pub(crate) sockets: Vec<Option<usize>>,
    pub(crate) switch: Option<usize>,
}

impl LinkKind {
    /// The type of a path of this link alone. A NIC and its port count as one.
    pub(crate) fn path(self) -> PathType {
        match self {
            Self::Local | Self::Port => PathType::Loc,
            Self::NvLink => PathType::Nvl,
            Self::C2c => PathType::C2c,
            Self::Pci => PathType::Pix,
            Self::Sockets => PathType::Sys,
        }
    }
}

impl System {
    /// The system of a machine with these GPUs and NICs of it.
    pub(crate) fn new(
        machine: &Machine,
        settings: &Settings,
        (gpus, nics): (&[usize], &[usize]),
        machines: usize,
    ) -> Self {
        let mut system = Self {
            gpus: vec![None; machine.gpus.len()],
            boards: vec![None; machine.gpus.len()],
            nics: vec![None; machine.nics.len()],
            ..Self::default()
        };
        for (socket, used) in used_sockets(machine, gpus, nics).into_iter().enumerate() {
            let node = used.then(|| system.add(Node::Socket(socket)));
            system.sockets.push(node);
        }
        let bridges: Vec<usize> = machine.bridges.iter().map(|_| system.add(Node::Bridge)).collect();
        let mut above = vec![None; system.nodes.len()];
        let node_at = |system: &Self, at: Place| match at {
            Place::Socket(socket) => system.sockets.get(socket).copied().flatten(),
            Place::Bridge(bridge) => bridges.get(bridge).copied(),
        };
        for (bridge, &node) in machine.bridges.iter().zip(&bridges) {
            let parent = node_at(&system, bridge.at).filter(|it| *it != node);
            system.hang(node, parent, pci(bridge.link), &mut above);
        }
        for &index in gpus {
            let Some(gpu) = machine.gpus.get(index) else { continue };
            let node = system.add(Node::Gpu(index));
            system.gpus[index] = Some(node);
            let board = if settings.since(2, 30, 0) {
                let board = system.add(Node::Board(index));
                system.join(node, board, LinkKind::Local, link::local());
                board
            } else {
                node
            };
            system.boards[index] = Some(board);
            let parent = node_at(&system, gpu.at);
            system.hang(board, parent, pci(gpu.link), &mut above);
        }
        // Up to 2.23.4 the functions of a device are one card (`src/graph/topo.cc`, `ncclTopoAddPci`).
        let function = if settings.since(2, 24, 3) { 0 } else { 0xf };
        system.add_nics(machine, (nics, function), &node_at, &mut above);
        system.add_nvlinks(machine, settings);
        system.add_chip_links(machine, settings, gpus);
        system.join_sockets(machine, settings, machines);
        system.put_upward_last(&above);
        system
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.links.push(Vec::new());
        self.nodes.len() - 1
    }

    fn hang(&mut self, node: usize, parent: Option<usize>, bandwidth: f64, above: &mut Vec<Option<usize>>) {
        if let Some(parent) = parent {
            self.join(node, parent, LinkKind::Pci, bandwidth);
            above.resize(self.nodes.len(), None);
            above[node] = Some(parent);
        }
    }

    /// Links both ways.
    fn join(&mut self, one: usize, other: usize, kind: LinkKind, bandwidth: f64) {
        self.connect(one, other, kind, bandwidth);
        self.connect(other, one, kind, bandwidth);
    }

    /// A link one way. Links of one kind between two nodes are one with their bandwidths added; the fastest come first.
    fn connect(&mut self, from: usize, to: usize, kind: LinkKind, bandwidth: f64) {
        if bandwidth.is_nan() || bandwidth <= 0.0 {
            return;
        }
        let links = &mut self.links[from];
        let known = links.iter().position(|it| it.to == to && it.kind == kind);
        let mut row = known.unwrap_or(links.len());
        match known {
            Some(known) => {
                links[known].bandwidth = f64::from(single(links[known].bandwidth) + single(bandwidth));
            }
            None => links.push(Link { to, kind, bandwidth }),
        }
        while row > 0 && links[row - 1].bandwidth < links[row].bandwidth {
            links.swap(row - 1, row);
            row -= 1;
        }
    }

    fn add_nics(
        &mut self,
        machine: &Machine,
        (nics, function): (&[usize], u64),
        node_at: &dyn Fn(&Self, Place) -> Option<usize>,
        above: &mut Vec<Option<usize>>,
    ) {
        // The ports of a card share its bus id. One without is a card of its own, or, straight at a socket and with no
        // known link, one of the virtual devices there.
        let mut cards: Vec<((Place, Option<BusId>), usize)> = Vec::new();
        for &index in nics {
            let Some(nic) = machine.nics.get(index) else { continue };
            let is_virtual = nic.bus.is_none() && nic.link.is_none() && matches!(nic.at, Place::Socket(_));
            let key = (nic.at, nic.bus.map(|it| BusId(it.0 & !function)));
            let known = cards.iter().find(|it| it.0 == key && (is_virtual || nic.bus.is_some()));
            let card = match known {
                Some(known) => known.1,
                None => {
                    let card = self.add(Node::Card);
                    let bandwidth = if is_virtual { link::local() } else { pci(nic.link) };
                    let parent = node_at(self, nic.at);
                    self.hang(card, parent, bandwidth, above);
                    cards.push((key, card));
                    card
                }
            };
            let port = self.add(Node::Nic(index));
            self.nics[index] = Some(port);
            self.join(card, port, LinkKind::Port, link::nic(nic.rate));
        }
    }

    fn add_nvlinks(&mut self, machine: &Machine, settings: &Settings) {
        let board = |system: &Self, gpu: usize| system.boards.get(gpu).copied().flatten();
        for it in &machine.nvlinks {
            let (Some(from), Some(gpu)) = (board(self, it.from), machine.gpus.get(it.from)) else { continue };
            // A GPU with NVLink of an unknown model counts as an A100.
            let one = link::nvlink(gpu.compute.unwrap_or(80), settings.version);
            let bandwidth = f64::from(single(one) * single(f64::from(it.count)));
            match it.to {
                NvEnd::Gpu(other) => {
                    if let Some(to) = board(self, other).filter(|it| *it != from) {
                        self.connect(from, to, LinkKind::NvLink, bandwidth);
                    }
                }
                NvEnd::Switch => {
                    let switch = match self.switch {
                        Some(switch) => switch,
                        None => self.add(Node::Switch),
                    };
                    self.switch = Some(switch);
                    self.join(from, switch, LinkKind::NvLink, bandwidth);
                }
                NvEnd::Socket(socket) => {
                    if let Some(socket) = self.sockets.get(socket).copied().flatten() {
                        self.join(from, socket, LinkKind::NvLink, bandwidth);
                    }
                }
            }
        }
        // A link that only one of its two GPUs reports has no reverse: NCCL stops at it, here it does not count.
        for from in 0..self.nodes.len() {
            let kept: Vec<Link> = self.links[from]
                .iter()
                .filter(|it| self.links[it.to].iter().any(|back| back.to == from && back.kind == it.kind))
                .copied()
                .collect();
            self.links[from] = kept;
        }
    }

    fn add_chip_links(&mut self, machine: &Machine, settings: &Settings, gpus: &[usize]) {
        // 2.18 does not know these links.
        if !settings.since(2, 19, 1) {
            return;
        }
        let kind = if settings.since(2, 26, 0) { LinkKind::C2c } else { LinkKind::NvLink };
        for &index in gpus {
            let Some(gpu) = machine.gpus.get(index) else { continue };
            let socket = machine.socket_of(gpu.at).and_then(|it| self.sockets.get(it).copied().flatten());
            if let (Some(bandwidth), Some(board), Some(socket)) = (gpu.c2c, self.boards[index], socket) {
                self.join(board, socket, kind, bandwidth);
            }
        }
    }

    /// Joins the sockets of each machine.
    fn join_sockets(&mut self, machine: &Machine, settings: &Settings, machines: usize) {
        let each = (machine.sockets.len() / machines).max(1);
        for (index, (socket, one)) in machine.sockets.iter().zip(self.sockets.clone()).enumerate() {
            let bandwidth = link::between_sockets(socket.maker, socket.model, settings.version);
            for (there, other) in self.sockets.clone().into_iter().enumerate() {
                if let (Some(one), Some(other)) = (one, other)
                    && one != other
                    && index / each == there / each
                {
                    self.connect(one, other, LinkKind::Sockets, bandwidth);
                }
            }
        }
    }

    /// The number of the first link of each node, where all links are counted one node after the other.
    pub(crate) fn first_links(&self) -> Vec<u32> {
        let mut count = 0;
        let first = |links: &Vec<Link>| {
            let first = count;
            count += u32::try_from(links.len()).unwrap_or(u32::MAX);
            first
        };
        self.links.iter().map(first).collect()
    }

    /// The link back: the first of the same kind from where a link leads to where it begins.
    pub(crate) fn back(&self, from: usize, link: Link) -> Option<usize> {
        self.links[link.to].iter().position(|it| it.to == from && it.kind == link.kind)
    }

    /// NCCL searches downwards before upwards: of two paths that are equal otherwise, the first found stays.
    fn put_upward_last(&mut self, above: &[Option<usize>]) {
        for (node, parent) in above.iter().enumerate() {
            let links = &mut self.links[node];
            if let Some(up) = parent.and_then(|parent| links.iter().position(|it| it.to == parent)) {
                links[up..].rotate_left(1);
            }
        }
    }
}

/// A number with the precision NCCL computes with.
#[expect(clippy::cast_possible_truncation, reason = "NCCL keeps bandwidths in single precision")]
pub(crate) fn single(it: f64) -> f32 {
    it as f32
}

/// Which sockets have one of these GPUs or NICs below them.
pub(crate) fn used_sockets(machine: &Machine, gpus: &[usize], nics: &[usize]) -> Vec<bool> {
    let mut used = vec![false; machine.sockets.len()];
    let gpus = gpus.iter().filter_map(|it| machine.gpus.get(*it)).map(|it| it.at);
    let nics = nics.iter().filter_map(|it| machine.nics.get(*it)).map(|it| it.at);
    for socket in gpus.chain(nics).filter_map(|it| machine.socket_of(it)) {
        used[socket] = true;
    }
    used
}

/// The bandwidth of a PCI Express link. An unknown one counts as one of unknown speed with 16 lanes, as NCCL has it.
fn pci(it: Option<PciLink>) -> f64 {
    link::pci(it.unwrap_or(PciLink { gigatransfers: 0.0, width: 16 }))
}
