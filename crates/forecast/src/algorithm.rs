//! How NCCL could run a collective on a cluster, each candidate with its latency and its ceiling.

use fabric::machine::{NicKind, PciLink};
use fabric::{Collective, link};

use crate::cluster::{Between, Cluster, Inside};
use crate::constants::constants;

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
    /// Whether it rests on measurements.
    pub(crate) measured: bool,
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
        }
    }
}

/// All algorithms NCCL could use, in its own order.
pub(crate) fn candidates(collective: Collective, cluster: &Cluster) -> Vec<Candidate> {
    let job = Job::new(cluster);
    if job.ranks < 2 {
        return Vec::new();
    }
    match collective {
        Collective::AllReduce => {
            let allowed = cluster.allowed;
            let all = job.all_reduce();
            let wanted = |it: &Candidate| match it.algorithm {
                Algorithm::Ring => allowed.ring,
                Algorithm::Tree => allowed.tree,
                Algorithm::Nvls | Algorithm::NvlsTree => allowed.nvls,
                Algorithm::Pairs => true,
            };
            // Where nothing asked for is possible, as a tree inside one node, NCCL uses the ring here.
            if all.iter().any(wanted) { all.into_iter().filter(|it| wanted(it)).collect() } else { all }
        }
        Collective::AllGather | Collective::ReduceScatter => vec![job.ring(1.0, true)],
        Collective::Broadcast | Collective::Reduce => vec![job.ring(1.0, false)],
        // One that sends to all, or all to one, has the same share of its links leave the node.
        Collective::AllToAll | Collective::Gather | Collective::Scatter => vec![job.pairs()],
        Collective::SendRecv => vec![job.neighbours()],
    }
}

/// What all candidates need.
struct Job<'a> {
    cluster: &'a Cluster,
    /// All ranks.
    ranks: u32,
    /// What NCCL counts as nodes.
    nodes: u32,
    /// Ranks of one.
    local: u32,
    /// A ring inside a node: its bandwidth, what limits it, whether it was measured.
    inside: (f64, Ceiling, bool),
    /// The network of one node, all its NICs together.
    outside: Option<(f64, Ceiling, bool)>,
    /// A step inside a node and one between nodes.
    step: (f64, f64),
}

impl<'a> Job<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let latency = &constants().latency;
        let inner = if matches!(cluster.inside, Inside::Pci { .. }) { latency.pci } else { latency.nvlink };
        let nodes = cluster.groups();
        let outside = cluster.between.filter(|_| nodes > 1).map(|it| network(cluster, it));
        Self {
            cluster,
            ranks: cluster.ranks().unwrap_or(u32::MAX),
            nodes,
            local: cluster.local(),
            inside: inside(cluster),
            outside,
            step: (inner, cluster.between.map_or(0.0, network_step)),
        }
    }

    /// The lower of what a node and its network reach.
    fn limit(&self, outside_share: f64) -> (f64, Ceiling, bool) {
        let inside = (self.local > 1).then_some(self.inside);
        let outside =
            self.outside.map(|(bandwidth, why, measured)| (bandwidth * outside_share, why, measured));
        match (inside, outside) {
            (Some(a), Some(b)) if a.0 <= b.0 => (a.0, a.1, a.2 && b.2),
            (Some(a), Some(b)) => (b.0, b.1, a.2 && b.2),
            (a, b) => a.or(b).unwrap_or(self.inside),
        }
    }

    fn candidate(
        &self,
        algorithm: Algorithm,
        launch: f64,
        steps: f64,
        limit: (f64, Ceiling, bool),
    ) -> Candidate {
        let fill = &constants().fill;
        let few = self.local == 1 || self.cluster.compute.is_some_and(|it| it < 80);
        // Up to this multiple of the latency of all steps.
        let most = |multiple: f64| 2.0 * steps * multiple.sqrt();
        let fill = if few {
            most(fill.few)
        } else if self.nodes == 1 {
            fill.nvlink
        } else {
            most(fill.network)
        };
        let launch = constants().latency.launch + launch;
        Candidate { algorithm, launch, steps, fill, bandwidth: limit.0, ceiling: limit.1, measured: limit.2 }
    }

    fn ring(&self, rounds: f64, measured: bool) -> Candidate {
        let (ranks, nodes) = (f64::from(self.ranks), f64::from(self.nodes));
        let steps = rounds * ((ranks - nodes) * self.step.0 + (nodes - 1.0) * self.step.1);
        let mut candidate = self.candidate(Algorithm::Ring, 0.0, steps, self.limit(1.0));
        candidate.measured &= measured;
        candidate
    }

    fn all_reduce(&self) -> Vec<Candidate> {
        let mut candidates = vec![self.ring(2.0, true)];
        let nvls = self.nvls();
        if self.nodes == 1 {
            if let Some(bandwidth) = nvls.filter(|_| f64::from(self.local) >= self.nvls_from()) {
                let limit = (bandwidth, Ceiling::Nvls, self.local <= 8);
                candidates.push(self.candidate(
                    Algorithm::Nvls,
                    constants().latency.nvls,
                    constants().latency.nvls_step,
                    limit,
                ));
            }
            return candidates;
        }
        let network = &constants().network;
        let depth = f64::from(self.nodes).log2().ceil();
        // In a tree of two nodes each NIC carries every byte once; in a larger one, as in a ring, nearly twice.
        let factor = Collective::AllReduce.bus_factor(self.ranks);
        let share = if self.nodes == 2 { factor * network.tree } else { factor / 2.0 * network.deep_tree };
        let hops = f64::from(self.local - 1) * self.step.0;
        let steps = 2.0 * (hops + depth * self.step.1);
        let mut limit = self.limit(share);
        // A chain carries every byte up and down again.
        let chain = self.inside.0 * constants().ring.chain;
        if self.local > 1 && limit.0 > chain {
            limit = (chain, self.inside.1, self.inside.2);
        }
        candidates.push(self.candidate(Algorithm::Tree, 0.0, steps, limit));
        if let (Some(inside), Some((outside, why, measured))) = (nvls, self.outside) {
            let limit = if inside < outside * share {
                (inside, Ceiling::Nvls, measured)
            } else {
                (outside * share, why, measured)
            };
            let steps = constants().latency.nvls_step + 2.0 * depth * self.step.1;
            candidates.push(self.candidate(Algorithm::NvlsTree, constants().latency.nvls, steps, limit));
        }
        candidates
    }

    /// What NVLS reaches inside a node: each GPU sends its data once and one share of the sum to all.
    fn nvls(&self) -> Option<f64> {
        let compute = self.cluster.compute.filter(|it| *it >= 90)?;
        let Inside::Switch { bandwidth, .. } = self.cluster.inside else { return None };
        let nvls = &constants().nvls;
        let efficiency = if compute >= 100 { nvls.blackwell } else { nvls.hopper };
        let n = f64::from(self.local);
        (self.local > 2).then(|| 2.0 * bandwidth * nvls.share * efficiency * (n - 1.0) / (n + 1.0))
    }

    /// The number of ranks from which NCCL prefers NVLS to a ring.
    fn nvls_from(&self) -> f64 {
        let nvls = &constants().nvls;
        if self.cluster.compute.is_some_and(|it| it >= 100) { nvls.blackwell_from } else { nvls.hopper_from }
    }

    /// Every rank sends to every other: most of it leaves the node.
    fn pairs(&self) -> Candidate {
        let (ranks, local) = (f64::from(self.ranks), f64::from(self.local));
        let away = (ranks - local) / (ranks - 1.0);
        let share = if away > 0.0 { 1.0 / (local * away) } else { 1.0 };
        let steps = 2.0 * self.step.0 + if self.nodes > 1 { 2.0 * self.step.1 } else { 0.0 };
        Candidate { measured: false, ..self.candidate(Algorithm::Pairs, 0.0, steps, self.limit(share)) }
    }

    /// Every rank sends to the next: one pair crosses each border between nodes.
    fn neighbours(&self) -> Candidate {
        // One GPU uses the NICs near it, not all of the node.
        let share = 1.0 / f64::from(self.local);
        let steps = self.step.0 + if self.nodes > 1 { self.step.1 } else { 0.0 };
        Candidate { measured: false, ..self.candidate(Algorithm::Pairs, 0.0, steps, self.limit(share)) }
    }
}

/// A ring over the GPUs of one node.
fn inside(cluster: &Cluster) -> (f64, Ceiling, bool) {
    let ring = &constants().ring;
    let n = f64::from(cluster.local());
    match &cluster.inside {
        Inside::Switch { bandwidth, domain, .. } => (
            bandwidth * ring.share * (1.0 - ring.small / (n * n)),
            Ceiling::NvLink,
            *domain <= cluster.gpus_there,
        ),
        Inside::Mesh { bandwidth, .. } => {
            let rings = cluster.mesh_rings();
            let each =
                if cluster.compute.is_some_and(|it| it < 80) { ring.mesh } else { bandwidth * ring.share };
            let detours = f64::from(rings.detours) * (1.0 - ring.detour);
            let bandwidth = each * (f64::from(rings.count) - detours);
            if bandwidth > 0.0 {
                (bandwidth, Ceiling::NvLink, true)
            } else {
                // GPUs that NVLink does not join in a ring.
                pci(cluster, true)
            }
        }
        Inside::Pci { peer_to_peer } => pci(cluster, *peer_to_peer),
    }
}

fn pci(cluster: &Cluster, peer_to_peer: bool) -> (f64, Ceiling, bool) {
    let ring = &constants().ring;
    // For an unknown link NCCL assumes its lowest.
    let link = cluster.pci.unwrap_or_else(|| link::pci(PciLink { gigatransfers: 0.0, width: 0 }));
    if peer_to_peer {
        (link * ring.peer, Ceiling::Pci, false)
    } else {
        (link * ring.shared_memory, Ceiling::HostMemory, false)
    }
}

/// All NICs that the GPUs of one pod can use.
fn network(cluster: &Cluster, between: Between) -> (f64, Ceiling, bool) {
    let network = &constants().network;
    // The GPUs of a part of the machine use the NICs near them.
    let near = (f64::from(between.nics) * f64::from(cluster.gpus) / f64::from(cluster.gpus_there.max(1)))
        .ceil()
        .max(1.0);
    // A domain of several machines has the NICs of all of them.
    let machines = f64::from(cluster.local()) / f64::from(cluster.gpus);
    let fair = f64::from(between.nics) / f64::from(cluster.pods);
    let wire = near.min(fair) * between.gbps / 8.0 * machines;
    if between.kind == NicKind::Ethernet {
        return ((wire * network.tcp).min(network.tcp_most), Ceiling::Tcp, false);
    }
    let through = cluster.pci.map_or(f64::INFINITY, |it| it * network.pci * f64::from(cluster.local()));
    let (wire, why) = if through < wire { (through, Ceiling::GpuPci) } else { (wire, Ceiling::Nics) };
    if between.gpudirect {
        (wire * network.share, why, true)
    } else {
        (wire * network.host, Ceiling::NoGpuDirect, false)
    }
}

fn network_step(between: Between) -> f64 {
    let latency = &constants().latency;
    match (between.kind, between.efa) {
        (NicKind::Efa, Some(1)) => latency.efa_1,
        (NicKind::Efa, _) => latency.efa,
        (NicKind::Ethernet, _) => latency.tcp,
        (NicKind::InfiniBand | NicKind::Roce | NicKind::GpuDirectTcp | NicKind::Unknown, _) => {
            latency.infiniband
        }
    }
}
