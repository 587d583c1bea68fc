//! Communication of groups of ranks: which links a group uses, how many groups share them, and how long a call takes.
//!
//! What links and NCCL reach is what the collective half of this crate knows (`data/constants.toml`).

use fabric::Collective;
use fabric::machine::NicKind;

use super::constants::Constants;
use super::hardware::{Cluster, Inter, Intra};
use super::measured::{Measured, Shape};
use crate::constants::{self as collectives, Constants as Collectives};

/// The links of a cluster, in SI units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Links<'m> {
    /// What a long ring reaches inside a node.
    ring: f64,
    /// What a ring of n loses over n^2.
    small: f64,
    /// What switches that add up reach, for very many GPUs.
    nvls: Option<f64>,
    /// What all NICs of a node reach, with what they lose for each doubling of nodes.
    node: f64,
    congestion: f64,
    /// A step inside a node and one between nodes.
    steps: (f64, f64),
    /// One call.
    launch: f64,
    /// The longest time in which a pipeline inside a node fills; none where that grows with its steps.
    fill: Option<f64>,
    /// How much longer filling takes over a network, over the latency of all steps.
    fill_network: f64,
    /// What sends reach of a ring over NVLink, and of a GPU's part of the NICs.
    sends: (f64, f64),
    /// Whether tokens for several experts of a node are sent once to it.
    once: bool,
    /// GPUs that NCCL counts as a node.
    local: f64,
    /// GPUs of the job that share the NICs of a node.
    on_node: f64,
    /// What the NICs of a node reach for groups that have one GPU beside each NIC and others farther away, and how many GPUs are
    /// beside each.
    far: Option<(f64, f64)>,
    /// GPUs of the job.
    all: f64,
    /// What was measured comes before what is modelled.
    measured: Option<&'m Measured>,
    /// What is left of the bandwidth that was measured.
    share: f64,
}

/// A group of ranks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group<'a> {
    links: &'a Links<'a>,
    ranks: f64,
    local: f64,
    nodes: f64,
    /// Bus bandwidth of long messages.
    bandwidth: f64,
}

impl<'m> Links<'m> {
    pub(crate) fn new(constants: &Constants, cluster: &Cluster) -> Self {
        let known = collectives::constants();
        let latency = &known.latency;
        let (ring, inner, fill, nvls) = match cluster.intra {
            Intra::NvLink { bandwidth, nvls } => {
                let each = if cluster.gpu.compute >= 100 { known.nvls.blackwell } else { known.nvls.hopper };
                let sums = 2.0 * bandwidth.0 * known.nvls.share * each * 1e9;
                let fill = Some(known.fill.nvlink * 1e-6);
                (bandwidth.0 * known.ring.share, latency.nvlink, fill, nvls.then_some(sums))
            }
            Intra::Pci { bandwidth } => (bandwidth.0 * known.ring.peer, latency.pci, None, None),
            Intra::Host { bandwidth } => (bandwidth.0 * known.ring.shared_memory, latency.pci, None, None),
        };
        let node = cluster.inter.map_or(0.0, |it| network(known, &it));
        Self {
            ring: ring * 1e9,
            small: known.ring.small,
            nvls,
            node: node * 1e9,
            congestion: constants.comm.congestion,
            steps: (inner * 1e-6, cluster.inter.map_or(0.0, |it| step(known, &it) * 1e-6)),
            launch: latency.launch * 1e-6,
            fill,
            fill_network: 2.0 * known.fill.network.sqrt(),
            sends: (known.pairs.nvlink, known.pairs.network),
            once: cluster.inter.is_some_and(|it| matches!(it.kind, NicKind::InfiniBand | NicKind::Roce)),
            #[allow(clippy::cast_precision_loss, reason = "GPUs of a domain")]
            local: cluster.local() as f64,
            #[allow(clippy::cast_precision_loss, reason = "GPUs of a node")]
            on_node: cluster.on_node() as f64,
            #[allow(clippy::cast_precision_loss, reason = "ranks are far below 2^53")]
            all: cluster.ranks() as f64,
            far: cluster.inter.and_then(|it| far(constants, cluster, &it)),
            measured: None,
            share: 1.0,
        }
    }

    /// The same with this share of the bandwidth of all links.
    pub(crate) fn with_bandwidth(self, share: f64) -> Self {
        Self {
            ring: self.ring * share,
            nvls: self.nvls.map(|it| it * share),
            node: self.node * share,
            far: self.far.map(|it| (it.0 * share, it.1)),
            share: self.share * share,
            ..self
        }
    }

    /// With measured times, for the groups that they fit.
    pub(crate) fn with(self, measured: &'m Measured) -> Self {
        Self { measured: (!measured.is_empty()).then_some(measured), ..self }
    }

    /// Ranks that are `stride` apart.
    pub(crate) fn group(&self, ranks: f64, stride: f64) -> Group<'_> {
        let local = (self.local / stride).floor().clamp(1.0, ranks);
        let nodes = (ranks / local).ceil();
        let inside = self.ring * (1.0 - self.small / (local * local).max(4.0));
        // Rings of several GPUs, none of which share a NIC, enter a node through one and leave it from a GPU far from that NIC.
        let far = self.far.filter(|it| local > 1.0 && stride >= it.1);
        let node = far.map_or(self.node, |it| it.0.min(self.node));
        // Every GPU of a node is in such a group: together they share its NICs.
        let outside = node * local / self.on_node / (1.0 + self.congestion * nodes.log2());
        let bandwidth = match (local > 1.0, nodes > 1.0) {
            (true, true) => inside.min(outside),
            (false, true) => outside,
            _ => inside,
        };
        Group { links: self, ranks, local, nodes, bandwidth }
    }

    /// Whether tokens for several experts of a node are sent once to it.
    pub(crate) fn sends_once(&self) -> bool {
        self.once
    }

    /// A send of this many bytes from each of `stride` ranks to the ones `stride` further.
    pub(crate) fn send(&self, bytes: f64, stride: f64, crosses: bool) -> f64 {
        let (rate, step) = if crosses {
            (self.node * self.sends.1 / stride.min(self.on_node), self.steps.1)
        } else {
            (self.ring * self.sends.0, self.steps.0)
        };
        self.launch + step + bytes / rate
    }

    /// Whether ranks that are `stride` apart are in different nodes, for some of `count` of them.
    pub(crate) fn crosses(&self, stride: f64, count: f64) -> bool {
        stride * count > self.local
    }
}

impl Group<'_> {
    /// How many ranks it has.
    pub(crate) fn ranks(&self) -> f64 {
        self.ranks
    }

    /// What a measurement must have to fit this group.
    pub(crate) fn shape(&self) -> Shape {
        let links = self.links;
        let same = |one: f64, other: f64| (one - other).abs() < 0.5;
        let whole = same(self.local, links.local)
            && (same(links.local, links.on_node) || same(self.ranks, links.all));
        Shape {
            ranks: self.ranks,
            nodes: self.nodes,
            alone: self.nodes < 2.0 || whole,
            switches: links.nvls.is_some() && self.nodes < 2.0,
        }
    }

    fn measured(&self, collective: Collective, bytes: f64) -> Option<f64> {
        let time = self.links.measured?.time(collective, self.shape(), bytes)?;
        Some(time / self.links.share)
    }

    /// Every rank has `bytes` and gets the sum of all.
    pub(crate) fn all_reduce(&self, bytes: f64) -> f64 {
        if self.ranks < 2.0 {
            return 0.0;
        }
        if let Some(time) = self.measured(Collective::AllReduce, bytes) {
            return time;
        }
        let moved = 2.0 * (self.ranks - 1.0) / self.ranks * bytes;
        let ring = self.time(2.0 * (self.ranks - self.nodes), 2.0 * (self.nodes - 1.0), moved);
        if self.nodes > 1.0 {
            let tree = self.time(2.0 * (self.local - 1.0), 2.0 * self.nodes.log2().ceil(), moved);
            return ring.min(tree);
        }
        match self.links.nvls {
            // Switches that add up need few steps, and pay from five GPUs on.
            Some(most) if self.local >= 5.0 => {
                let bandwidth = most * (self.local - 1.0) / (self.local + 1.0);
                let sums = Self { bandwidth, ..*self };
                ring.min(sums.time(self.local, 0.0, moved))
            }
            _ => ring,
        }
    }

    /// Every rank gets `bytes`, of which each has a part; or each gets a part of the sum of what all have.
    pub(crate) fn gather(&self, bytes: f64) -> f64 {
        if self.ranks < 2.0 {
            return 0.0;
        }
        if let Some(time) = self.measured(Collective::AllGather, bytes) {
            return time;
        }
        let moved = (self.ranks - 1.0) / self.ranks * bytes;
        self.time(self.ranks - self.nodes, self.nodes - 1.0, moved)
    }

    /// Every rank sends `bytes` of a token to each of `used` random ranks.
    pub(crate) fn exchange(&self, bytes: f64, used: f64) -> f64 {
        if self.ranks < 2.0 {
            return 0.0;
        }
        if let Some(time) = self.measured(Collective::AllToAll, bytes * used) {
            return time;
        }
        // Of every rank, what leaves the node shares its NICs with that of the node's other ranks. DeepEP sends a token once to
        // each node that needs it; it does not run on EFA and TCP.
        let remote = if self.links.once {
            (self.nodes - 1.0) * (1.0 - (1.0 - 1.0 / self.nodes).powf(used))
        } else {
            used * (1.0 - 1.0 / self.nodes)
        };
        let near = used * (self.ranks - 1.0) / self.ranks - used * (1.0 - 1.0 / self.nodes);
        let (inner, outer) = self.links.sends;
        // What comes from other nodes is passed on inside.
        let inside = bytes * (near + if self.links.once { used - used / self.nodes } else { 0.0 })
            / (self.links.ring * inner);
        let outside =
            if remote > 0.0 { bytes * remote * self.links.on_node / (self.links.node * outer) } else { 0.0 };
        self.links.launch + self.links.steps.0 + self.links.steps.1 + inside.max(outside)
    }

    /// `hops` steps inside nodes and `across` between them, and bytes over the slowest link.
    fn time(&self, hops: f64, across: f64, moved: f64) -> f64 {
        let links = self.links;
        let steps = hops * links.steps.0 + across * links.steps.1;
        let wire = moved / self.bandwidth;
        let most = match links.fill {
            Some(fill) if self.nodes < 2.0 => fill,
            _ => links.fill_network * steps,
        };
        links.launch + steps + (2.0 * (steps * wire).sqrt()).min(most) + wire
    }
}

/// What the NICs of a node reach for rings that leave it from a GPU far from the NIC, and how many GPUs are beside each NIC: two behind
/// one switch where there are few NICs. Where every GPU has a NIC, published steps show nothing of it, and of other GPUs than A100 no
/// measurement does.
fn far(constants: &Constants, cluster: &Cluster, inter: &Inter) -> Option<(f64, f64)> {
    let beside = (f64::from(cluster.gpus_there) / f64::from(inter.nics)).min(2.0);
    (beside > 1.0 && cluster.gpu.is_a100())
        .then(|| (f64::from(inter.nics) * constants.comm.far * 1e9, beside))
}

/// What the NICs of a node reach, in GB/s.
fn network(known: &Collectives, inter: &Inter) -> f64 {
    let rate = f64::from(inter.nics) * inter.rate.0 / 8.0;
    match inter.kind {
        NicKind::Ethernet => (rate * known.network.tcp).min(known.network.tcp_most),
        _ if inter.gpudirect => rate * known.network.share,
        _ => rate * known.network.host,
    }
}

/// A step between nodes, in microseconds.
fn step(known: &Collectives, inter: &Inter) -> f64 {
    let latency = &known.latency;
    match inter.kind {
        // The first generation of EFA has up to eight NICs of 100 Gbps, the second 32 of them.
        NicKind::Efa if inter.rate.0 <= 100.0 && inter.nics <= 8 => latency.efa_1,
        NicKind::Efa => latency.efa,
        NicKind::GpuDirectTcp => latency.gpudirect_tcp,
        NicKind::Slingshot => latency.slingshot,
        NicKind::Ethernet => latency.tcp,
        NicKind::InfiniBand | NicKind::Roce | NicKind::Unknown => latency.infiniband,
    }
}
