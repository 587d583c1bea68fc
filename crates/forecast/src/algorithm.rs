//! How NCCL could run a collective on a cluster, each candidate with its latency and its ceiling.

use fabric::machine::{NicKind, PciLink};
use fabric::{Collective, link};

use crate::cluster::{Between, Cluster, Inside};
use crate::constants::Constants;
use crate::regime::{Kind, regime};
use crate::shape::Shape;

/// An algorithm that NCCL could use.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    /// `ring`, `tree`, `NVLS`, ...
    pub(crate) algorithm: Algorithm,
    /// What a call costs before anything moves, in microseconds.
    pub(crate) launch: f64,
    /// Steps that follow one another, together, in microseconds.
    pub(crate) steps: f64,
    /// The longest a pipeline takes to fill, in microseconds.
    pub(crate) fill: f64,
    /// Bus bandwidth of long messages, in GB/s.
    pub(crate) bandwidth: f64,
    /// What limits it.
    pub(crate) ceiling: Ceiling,
    /// The protocol for low latency, which reaches only a part of the bandwidth.
    pub(crate) low_latency: bool,
}

/// What a link reaches, and why not more.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Limit {
    bandwidth: f64,
    ceiling: Ceiling,
}

/// An algorithm of NCCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Each rank passes on to the next.
    Ring,
    /// A double binary tree of nodes, a chain inside each.
    Tree,
    /// The switches of NVLink add up.
    Nvls,
    /// A tree of nodes, NVLS inside each.
    NvlsTree,
    /// Every rank to every other.
    Pairs,
}

impl Algorithm {
    /// As NCCL writes it; `pairs` for what is not an algorithm to NCCL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "Ring",
            Self::Tree => "Tree",
            Self::Nvls => "NVLS",
            Self::NvlsTree => "NVLSTree",
            Self::Pairs => "pairs",
        }
    }
}

/// What limits long messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ceiling {
    /// NVLink.
    NvLink,
    /// The adders in the switches of NVLink.
    Nvls,
    /// PCI Express between GPUs.
    Pci,
    /// The memory of the host.
    HostMemory,
    /// The NICs of a node.
    Nics,
    /// The PCI Express link of the GPUs that use the NICs.
    GpuPci,
    /// Copies through host memory on the way to the NIC.
    NoGpuDirect,
    /// TCP.
    Tcp,
    /// The channels that NCCL opens to one peer.
    Channels,
}

impl Ceiling {
    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::NvLink => "NVLink",
            Self::Nvls => "NVLink SHARP in the switches",
            Self::Pci => "PCIe between the GPUs",
            Self::HostMemory => "copies through host memory inside the node",
            Self::Nics => "the NICs of a node",
            Self::GpuPci => "the PCIe link of the GPUs to their NICs",
            Self::NoGpuDirect => "copies through host memory on the way to the NIC (no GPUDirect)",
            Self::Tcp => "TCP",
            Self::Channels => "the channels that NCCL opens to one peer",
        }
    }
}

/// All ways in which NCCL could run a collective.
pub(crate) fn candidates(constants: &Constants, collective: Collective, shape: &Shape<'_>) -> Vec<Candidate> {
    let job = Job::new(constants, shape);
    if job.ranks < 2 {
        return Vec::new();
    }
    match collective {
        Collective::AllReduce => {
            let allowed = shape.cluster.allowed;
            let all = job.all_reduce();
            let wanted = |it: &Candidate| match it.algorithm {
                Algorithm::Ring => allowed.ring,
                Algorithm::Tree => allowed.tree,
                Algorithm::Nvls | Algorithm::NvlsTree => allowed.nvls,
                Algorithm::Pairs => true,
            };
            // Where nothing asked for is possible, NCCL uses the ring here.
            if all.iter().any(wanted) { all.into_iter().filter(|it| wanted(it)).collect() } else { all }
        }
        Collective::AllGather => {
            // Besides what it passes on, every rank copies its own part.
            let copies = 1.0 + constants.ring.copy / (f64::from(job.ranks) - 1.0);
            let slower = |it: Candidate| Candidate { bandwidth: it.bandwidth / copies, ..it };
            job.ring(1.0).into_iter().map(slower).collect()
        }
        Collective::ReduceScatter | Collective::Broadcast | Collective::Reduce => job.ring(1.0),
        // One that sends to all, or all to one, has the same share of its links leave the node.
        Collective::AllToAll | Collective::Gather | Collective::Scatter => vec![job.pairs()],
        Collective::SendRecv => vec![job.neighbours()],
    }
}

/// The name of the regime in which a collective runs.
pub(crate) fn regime_of(collective: Collective, shape: &Shape<'_>) -> String {
    let kind = match collective {
        Collective::AllReduce | Collective::AllGather | Collective::ReduceScatter => Kind::Whole,
        Collective::Broadcast | Collective::Reduce => Kind::Rooted,
        Collective::AllToAll | Collective::Gather | Collective::Scatter | Collective::SendRecv => Kind::Pairs,
    };
    regime(shape.cluster, kind)
}

/// What all candidates need.
struct Job<'a> {
    constants: &'a Constants,
    shape: &'a Shape<'a>,
    cluster: &'a Cluster,
    /// All ranks.
    ranks: u32,
    /// What NCCL counts as nodes.
    nodes: u32,
    /// Ranks of one.
    local: u32,
    /// A ring inside a node.
    inside: Limit,
    /// The network of one node, all its NICs together.
    outside: Option<Limit>,
    /// A step inside a node and one between nodes.
    step: (f64, f64),
}

impl<'a> Job<'a> {
    fn new(constants: &'a Constants, shape: &'a Shape<'a>) -> Self {
        let latency = &constants.latency;
        let cluster = shape.cluster;
        let inner = if matches!(cluster.inside, Inside::Pci { .. }) { latency.pci } else { latency.nvlink };
        let nodes = cluster.groups();
        let outside = cluster.between.filter(|_| nodes > 1).map(|it| network(constants, cluster, it));
        Self {
            constants,
            shape,
            cluster,
            ranks: cluster.ranks().unwrap_or(u32::MAX),
            nodes,
            local: cluster.local(),
            inside: inside(constants, shape),
            outside,
            step: (inner, cluster.between.map_or(0.0, |it| network_step(constants, it))),
        }
    }

    fn is_blackwell(&self) -> bool {
        self.cluster.compute.is_some_and(|it| it >= 100)
    }

    /// The lower of what a node and its network reach.
    fn limit(&self, outside_share: f64) -> Limit {
        let inside = (self.local > 1).then_some(self.inside);
        let outside = self.outside.map(|it| Limit { bandwidth: it.bandwidth * outside_share, ..it });
        match (inside, outside) {
            (Some(a), Some(b)) => {
                if a.bandwidth <= b.bandwidth {
                    a
                } else {
                    b
                }
            }
            (a, b) => a.or(b).unwrap_or(self.inside),
        }
    }

    /// Of long messages, in whole chunks.
    fn candidate(&self, algorithm: Algorithm, launch: f64, steps: f64, limit: Limit) -> Candidate {
        let fill = &self.constants.fill;
        // Up to this multiple of the latency of all steps.
        let most = |multiple: f64| 2.0 * steps * multiple.sqrt();
        let fill = if self.local == 1 {
            most(fill.few)
        } else if self.cluster.compute.is_some_and(|it| it < 80) {
            most(fill.volta)
        } else if matches!(algorithm, Algorithm::Nvls) {
            let each = if self.is_blackwell() { fill.nvls_blackwell } else { fill.nvls_hopper };
            each * f64::from(self.local)
        } else if self.nodes == 1 {
            fill.nvlink
        } else if matches!(algorithm, Algorithm::NvlsTree) {
            most(fill.network) + fill.nvls_tree
        } else {
            most(fill.network)
        };
        let launch = self.constants.latency.launch + launch;
        let Limit { bandwidth, ceiling } = limit;
        Candidate { algorithm, launch, steps, fill, bandwidth, ceiling, low_latency: false }
    }

    /// Of short messages: each few bytes carry a flag, so that nothing waits for a chunk.
    fn low_latency(&self, algorithm: Algorithm, hops: f64, across: f64, limit: Limit) -> Candidate {
        let latency = &self.constants.latency;
        let step =
            if matches!(self.cluster.inside, Inside::Pci { .. }) { latency.pci } else { latency.ll_step };
        Candidate {
            algorithm,
            launch: latency.ll_launch,
            steps: hops * step + across * self.step.1,
            fill: 0.0,
            bandwidth: limit.bandwidth * latency.ll_share,
            ceiling: limit.ceiling,
            low_latency: true,
        }
    }

    fn ring(&self, rounds: f64) -> Vec<Candidate> {
        let (ranks, nodes) = (f64::from(self.ranks), f64::from(self.nodes));
        let (hops, across) = (rounds * (ranks - nodes), rounds * (nodes - 1.0));
        let limit = self.limit(1.0);
        vec![
            self.candidate(Algorithm::Ring, 0.0, hops * self.step.0 + across * self.step.1, limit),
            self.low_latency(Algorithm::Ring, hops, across, limit),
        ]
    }

    fn all_reduce(&self) -> Vec<Candidate> {
        let mut candidates = self.ring(2.0);
        let nvls = self.nvls();
        let latency = &self.constants.latency;
        let nvls_step = latency.nvls_step * f64::from(self.local);
        let depth = f64::from(self.nodes).log2().ceil();
        let (hops, across) = (2.0 * f64::from(self.local - 1), 2.0 * depth);
        if self.nodes == 1 {
            // A tree inside one node is a chain.
            candidates.push(self.low_latency(Algorithm::Tree, hops, across, self.limit(1.0)));
            if let Some(bandwidth) = nvls.filter(|_| f64::from(self.local) >= self.nvls_from()) {
                let limit = Limit { bandwidth, ceiling: Ceiling::Nvls };
                candidates.push(self.candidate(Algorithm::Nvls, latency.nvls, nvls_step, limit));
            }
            return candidates;
        }
        let network = &self.constants.network;
        // In a tree of two nodes each NIC carries every byte once; in a larger one, as in a ring, nearly twice.
        let factor = Collective::AllReduce.bus_factor(self.ranks);
        let share = if self.nodes == 2 { factor * network.tree } else { factor / 2.0 * network.deep_tree };
        let mut limit = self.limit(share);
        // A chain carries every byte up and down again.
        let chain = self.inside.bandwidth * self.constants.ring.chain;
        if self.local > 1 && limit.bandwidth > chain {
            limit = Limit { bandwidth: chain, ceiling: self.inside.ceiling };
        }
        let steps = hops * self.step.0 + across * self.step.1;
        candidates.push(self.candidate(Algorithm::Tree, 0.0, steps, limit));
        candidates.push(self.low_latency(Algorithm::Tree, hops, across, limit));
        if let (Some(inside), Some(outside)) = (nvls, self.outside) {
            let inside =
                if self.is_blackwell() { inside * self.constants.nvls.blackwell_tree } else { inside };
            let outside = Limit { bandwidth: outside.bandwidth * share, ..outside };
            let limit = if inside < outside.bandwidth {
                Limit { bandwidth: inside, ceiling: Ceiling::Nvls }
            } else {
                outside
            };
            let steps = nvls_step + across * self.step.1;
            candidates.push(self.candidate(Algorithm::NvlsTree, latency.nvls_tree, steps, limit));
        }
        candidates
    }

    /// What NVLS reaches inside a node: each GPU sends its data once and one share of the sum to all.
    fn nvls(&self) -> Option<f64> {
        self.cluster.compute.filter(|it| *it >= 90)?;
        let Inside::Switch { bandwidth, .. } = self.cluster.inside else { return None };
        let nvls = &self.constants.nvls;
        let efficiency = if self.is_blackwell() { nvls.blackwell } else { nvls.hopper };
        let n = f64::from(self.local);
        (self.local > 2).then(|| 2.0 * bandwidth * nvls.share * efficiency * (n - 1.0) / (n + 1.0))
    }

    /// The number of ranks from which NCCL prefers NVLS to a ring.
    fn nvls_from(&self) -> f64 {
        let nvls = &self.constants.nvls;
        if self.is_blackwell() { nvls.blackwell_from } else { nvls.hopper_from }
    }

    /// What sends to single ranks reach: `share` of the NICs of a node, and no more than the channels of one peer carry.
    fn sends(&self, share: f64, channels: f64) -> Limit {
        let pairs = &self.constants.pairs;
        let mut limit = self.limit(share * pairs.network);
        if matches!(limit.ceiling, Ceiling::NvLink) {
            limit.bandwidth *= pairs.nvlink;
        }
        let carried = f64::from(self.per_peer()) * pairs.channel * channels;
        if self.nodes > 1 && carried < limit.bandwidth {
            limit = Limit { bandwidth: carried, ceiling: Ceiling::Channels };
        }
        limit
    }

    /// Channels to one peer of another node. Where they are not predicted, as `ncclTopoGetNchannels` in `src/graph/paths.cc` of
    /// NCCL 2.20 to 2.28 has them with 32 channels in all: two, but at most four operations on a channel.
    fn per_peer(&self) -> u32 {
        let usual = if 2 * u64::from(self.ranks) <= 4 * 32 { 2 } else { 1 };
        self.shape.decided().map_or(usual, |it| it.per_peer)
    }

    /// Every rank sends to every other: most of it leaves the node.
    fn pairs(&self) -> Candidate {
        let (ranks, local) = (f64::from(self.ranks), f64::from(self.local));
        let away = (ranks - local) / (ranks - 1.0);
        let (share, channels) = if away > 0.0 { (1.0 / (local * away), 1.0 / away) } else { (1.0, 1.0) };
        let steps = 2.0 * self.step.0 + if self.nodes > 1 { 2.0 * self.step.1 } else { 0.0 };
        self.candidate(Algorithm::Pairs, 0.0, steps, self.sends(share, channels))
    }

    /// Every rank sends to the next: one pair crosses each border between nodes.
    fn neighbours(&self) -> Candidate {
        // One GPU uses the NICs near it, not all of the node.
        let share = 1.0 / f64::from(self.local);
        let steps = self.step.0 + if self.nodes > 1 { self.step.1 } else { 0.0 };
        self.candidate(Algorithm::Pairs, 0.0, steps, self.sends(share, 1.0))
    }
}

/// A ring over the GPUs of one node.
fn inside(constants: &Constants, shape: &Shape<'_>) -> Limit {
    let ring = &constants.ring;
    let cluster = shape.cluster;
    let n = f64::from(cluster.local());
    match &cluster.inside {
        Inside::Switch { bandwidth, .. } => Limit {
            bandwidth: bandwidth * ring.share * (1.0 - ring.small / (n * n)),
            ceiling: Ceiling::NvLink,
        },
        Inside::Mesh { bandwidth, .. } => {
            let rings = shape.rings;
            let each =
                if cluster.compute.is_some_and(|it| it < 80) { ring.mesh } else { bandwidth * ring.share };
            let detours = f64::from(rings.detours) * (1.0 - ring.detour);
            let bandwidth = each * (f64::from(rings.count) - detours);
            if bandwidth > 0.0 {
                Limit { bandwidth, ceiling: Ceiling::NvLink }
            } else {
                // GPUs that NVLink does not join in a ring.
                pci(constants, cluster, true)
            }
        }
        Inside::Pci { peer_to_peer } => pci(constants, cluster, *peer_to_peer),
    }
}

fn pci(constants: &Constants, cluster: &Cluster, peer_to_peer: bool) -> Limit {
    // For an unknown link NCCL assumes its lowest.
    let link = cluster.pci.unwrap_or_else(|| link::pci(PciLink { gigatransfers: 0.0, width: 0 }));
    if peer_to_peer {
        Limit { bandwidth: link * constants.ring.peer, ceiling: Ceiling::Pci }
    } else {
        Limit { bandwidth: link * constants.ring.shared_memory, ceiling: Ceiling::HostMemory }
    }
}

/// The rate of the NICs that the GPUs of one node can use, in GB/s.
pub(crate) fn nics(cluster: &Cluster, between: Between) -> f64 {
    // The GPUs of a part of the machine use the NICs near them.
    let near = (f64::from(between.nics) * f64::from(cluster.gpus) / f64::from(cluster.gpus_there.max(1)))
        .ceil()
        .max(1.0);
    // A domain of several machines has the NICs of all of them.
    let machines = f64::from(cluster.local()) / f64::from(cluster.gpus);
    let fair = f64::from(between.nics) / f64::from(cluster.pods);
    near.min(fair) * between.gbps / 8.0 * machines
}

/// All NICs that the GPUs of one pod can use.
fn network(constants: &Constants, cluster: &Cluster, between: Between) -> Limit {
    let network = &constants.network;
    let wire = nics(cluster, between);
    if between.kind == NicKind::Ethernet {
        return Limit { bandwidth: (wire * network.tcp).min(network.tcp_most), ceiling: Ceiling::Tcp };
    }
    let through = cluster.pci.map_or(f64::INFINITY, |it| it * network.pci * f64::from(cluster.local()));
    let (wire, ceiling) = if through < wire { (through, Ceiling::GpuPci) } else { (wire, Ceiling::Nics) };
    if between.gpudirect {
        Limit { bandwidth: wire * network.share, ceiling }
    } else {
        Limit { bandwidth: wire * network.host, ceiling: Ceiling::NoGpuDirect }
    }
}

fn network_step(constants: &Constants, between: Between) -> f64 {
    let latency = &constants.latency;
    match (between.kind, between.efa) {
        (NicKind::Efa, Some(1)) => latency.efa_1,
        (NicKind::Efa, _) => latency.efa,
        (NicKind::Ethernet, _) => latency.tcp,
        (NicKind::GpuDirectTcp, _) => latency.gpudirect_tcp,
        (NicKind::InfiniBand | NicKind::Roce | NicKind::Unknown, _) => latency.infiniband,
    }
}
