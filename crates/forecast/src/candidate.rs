//! How NCCL could run a collective on a cluster, each candidate with its latency and its ceiling.

use fabric::machine::{NicKind, PciLink};
use fabric::{Collective, link};
use nccl::tuning::Protocol;

use crate::algorithm::{Algorithm, Ceiling};
use crate::cluster::{Between, Cluster, Inside};
use crate::constants::Constants;
use crate::decided::Choice;
use crate::regime::{Kind, regime};
use crate::shape::Shape;

/// An algorithm that NCCL could use.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    /// `ring`, `tree`, `NVLS`, ...
    pub(crate) algorithm: Algorithm,
    /// What the host takes to start a call, while the GPUs may still be at work on the one before, in microseconds: at least and
    /// at most, as one process drives one GPU or all of a node.
    pub(crate) host: (f64, f64),
    /// What a call costs the GPUs before anything moves, in microseconds.
    pub(crate) launch: f64,
    /// Steps that follow one another, together, in microseconds.
    pub(crate) steps: f64,
    /// The longest a pipeline takes to fill, in microseconds.
    pub(crate) fill: f64,
    /// Bus bandwidth of long messages, in GB/s.
    pub(crate) bandwidth: f64,
    /// Bus bandwidth that flushes of each received chunk allow, in GB/s.
    pub(crate) flushed: Option<f64>,
    /// What a chunk takes that is flushed, in microseconds.
    pub(crate) flush: f64,
    /// What limits it.
    pub(crate) ceiling: Ceiling,
    /// Those for low latency reach only a part of the bandwidth.
    pub(crate) protocol: Protocol,
}

/// Peers that one batch of sends and receives has: two of `NCCL_MAX_DEV_WORK_P2P_PER_BATCH` (`src/include/device.h`).
const PEERS_AT_ONCE: f64 = 16.0;

/// What a link reaches, and why not more.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Limit {
    bandwidth: f64,
    ceiling: Ceiling,
}

/// All ways in which NCCL could run a collective, by a release where its decisions are known.
pub(crate) fn candidates(
    constants: &Constants,
    collective: Collective,
    shape: &Shape<'_>,
    choice: Option<Choice>,
) -> Vec<Candidate> {
    let job = Job::new(constants, shape, choice);
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
                Algorithm::Pat | Algorithm::Pairs => true,
            };
            // Where nothing asked for is possible, NCCL uses the ring here.
            if all.iter().any(wanted) { all.into_iter().filter(|it| wanted(it)).collect() } else { all }
        }
        Collective::AllGather => {
            // Besides what it passes on, every rank copies its own part, while a slow link is busy.
            let copies = 1.0 + constants.ring.copy / (f64::from(job.ranks) - 1.0);
            let slow = |it: Ceiling| matches!(it, Ceiling::Pci | Ceiling::HostMemory | Ceiling::NoGpuDirect);
            let slower = |it: Candidate| {
                let copies = if slow(it.ceiling) { 1.0 } else { copies };
                Candidate { bandwidth: it.bandwidth / copies, ..it }
            };
            job.gather().into_iter().map(slower).collect()
        }
        Collective::ReduceScatter => job.gather(),
        Collective::Broadcast | Collective::Reduce => job.chain(),
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
    cluster: &'a Cluster,
    choice: Option<Choice>,
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
    /// A step inside a node, one between nodes by a protocol with flags, and one by Simple.
    step: (f64, f64, f64),
}

impl<'a> Job<'a> {
    fn new(constants: &'a Constants, shape: &'a Shape<'a>, choice: Option<Choice>) -> Self {
        let latency = &constants.latency;
        let cluster = shape.cluster;
        let inner = if matches!(cluster.inside, Inside::Pci { .. }) { latency.pci } else { latency.nvlink };
        let nodes = cluster.groups();
        let outside = cluster.between.filter(|_| nodes > 1).map(|it| network(constants, cluster, it));
        Self {
            constants,
            cluster,
            choice,
            ranks: cluster.ranks().unwrap_or(u32::MAX),
            nodes,
            local: cluster.local(),
            inside: inside(constants, shape),
            outside,
            step: {
                let (flagged, simple) = cluster.between.map_or((0.0, 0.0), |it| network_step(constants, it));
                (inner, flagged, simple)
            },
        }
    }

    /// Whether nodes are NVLink domains of several machines.
    fn is_domain(&self) -> bool {
        self.local > self.cluster.gpus
    }

    fn is_blackwell(&self) -> bool {
        self.cluster.compute.is_some_and(|it| it >= 100)
    }

    /// The lower of what a node and its network reach.
    fn limit(&self, outside_share: f64) -> Limit {
        self.limit_of(self.inside, outside_share)
    }

    fn limit_of(&self, inside: Limit, outside_share: f64) -> Limit {
        let outside = self.outside.map(|it| Limit { bandwidth: it.bandwidth * outside_share, ..it });
        match (Some(inside).filter(|_| self.local > 1), outside) {
            (Some(a), Some(b)) => {
                if a.bandwidth <= b.bandwidth {
                    a
                } else {
                    b
                }
            }
            (a, b) => a.or(b).unwrap_or(inside),
        }
    }

    /// Of long messages, in whole chunks.
    fn candidate(&self, algorithm: Algorithm, launch: f64, steps: f64, limit: Limit) -> Candidate {
        let fill = &self.constants.fill;
        // Up to this multiple of the latency of all steps.
        let most = |multiple: f64| 2.0 * steps * multiple.sqrt();
        let far = self.cluster.between.filter(|_| self.nodes > 1).is_some_and(Between::is_far);
        let fill = if far {
            most(fill.far)
        } else if self.local == 1 {
            most(fill.few)
        } else if self.cluster.compute.is_some_and(|it| it < 80) {
            most(fill.volta)
        } else if matches!(algorithm, Algorithm::Nvls) {
            let each = if self.is_blackwell() { fill.nvls_blackwell } else { fill.nvls_hopper };
            each * f64::from(self.local)
        } else if self.nodes == 1 {
            // Slices of all channels that are under way.
            fill.nvlink * 1e3 / limit.bandwidth
        } else if matches!(algorithm, Algorithm::NvlsTree) {
            let each = if self.is_blackwell() { fill.nvls_blackwell } else { fill.nvls_hopper };
            let depth = f64::from(self.nodes).log2().ceil();
            let level = if self.is_domain() { fill.nvls_domain } else { fill.nvls_tree };
            most(fill.network) + each * f64::from(self.local) * (1.0 + depth * level)
        } else {
            most(fill.network)
        };
        let latency = &self.constants.latency;
        let tcpx = self.cluster.between.is_some_and(|it| self.nodes > 1 && it.is_tcpx());
        let hopper = self.cluster.compute.is_some_and(|it| it >= 90);
        let first = if hopper { latency.launch } else { latency.launch_older };
        let launch = first + launch + if tcpx { latency.tcpx } else { 0.0 };
        let gpus = f64::from(self.cluster.gpus);
        let host = (latency.host, latency.host_slow.max(latency.host_gpu * gpus));
        let Limit { bandwidth, ceiling } = limit;
        let protocol = Protocol::Simple;
        Candidate {
            algorithm,
            host,
            launch,
            steps,
            fill,
            bandwidth,
            flushed: None,
            flush: latency.efa_flush,
            ceiling,
            protocol,
        }
    }

    /// Each few bytes carry a flag, so that nothing waits for a chunk: LL and LL128.
    fn flagged(&self, simple: &Candidate, hops: f64, across: f64) -> [Candidate; 2] {
        let latency = &self.constants.latency;
        let step =
            if matches!(self.cluster.inside, Inside::Pci { .. }) { latency.pci } else { latency.ll_step };
        let ll = Candidate {
            launch: latency.ll_launch,
            steps: hops * step + across * self.step.1,
            fill: 0.0,
            bandwidth: (simple.bandwidth * latency.ll_share).min(self.ll_most()),
            protocol: Protocol::Ll,
            ..simple.clone()
        };
        // Seven of eight words over a network; the cores of a GPU that check the flags limit it inside a node.
        let hopper = self.cluster.compute.is_some_and(|it| it >= 90);
        let share = if hopper { latency.ll128_hopper } else { latency.ll128_ampere };
        let most =
            if self.cluster.compute.is_some_and(|it| it < 80) { latency.ll128_volta } else { f64::INFINITY };
        let inside = if self.local > 1 { (self.inside.bandwidth * share).min(most) } else { f64::INFINITY };
        // Over a network proxies still move chunks.
        let fill = if hopper && self.nodes == 1 { latency.ll128_fill_hopper } else { latency.ll128_fill };
        let ll128 = Candidate {
            steps: hops * self.step.0 + across * self.step.1,
            fill: simple.fill * fill,
            bandwidth: (simple.bandwidth * latency.ll128_share).min(inside),
            protocol: Protocol::Ll128,
            ..simple.clone()
        };
        [ll, ll128]
    }

    /// GB/s that LL reaches at most, which threads limit that check flags.
    fn ll_most(&self) -> f64 {
        let latency = &self.constants.latency;
        match self.cluster.compute {
            _ if self.nodes > 1 => latency.ll_network,
            Some(100..) => 2.0 * latency.ll_hopper,
            Some(90..) => latency.ll_hopper,
            Some(80..) => latency.ll_ampere,
            _ => latency.ll_volta,
        }
    }

    /// By every protocol.
    fn protocols(&self, algorithm: Algorithm, hops: f64, across: f64, limit: Limit) -> Vec<Candidate> {
        let simple = self.candidate(algorithm, 0.0, hops * self.step.0 + across * self.step.2, limit);
        let mut all = self.flagged(&simple, hops, across).to_vec();
        all.push(simple);
        all
    }

    fn ring(&self, rounds: f64) -> Vec<Candidate> {
        let (ranks, nodes) = (f64::from(self.ranks), f64::from(self.nodes));
        let (hops, across) = (rounds * (ranks - nodes), rounds * (nodes - 1.0));
        self.protocols(Algorithm::Ring, hops, across, self.limit(1.0))
    }

    /// From or to one rank. Between two nodes everything goes one way, and copies through host memory have it to themselves.
    fn chain(&self) -> Vec<Candidate> {
        let one_way = self.nodes == 2 && self.cluster.between.is_some_and(|it| !it.gpudirect);
        let network = &self.constants.network;
        let share = if one_way { (network.share / network.host).min(2.0) } else { 1.0 };
        let (ranks, nodes) = (f64::from(self.ranks), f64::from(self.nodes));
        self.protocols(Algorithm::Ring, ranks - nodes, nodes - 1.0, self.limit(share))
    }

    /// Parts travel by trees of all ranks, so that there are few steps.
    fn gather(&self) -> Vec<Candidate> {
        let mut candidates = self.ring(1.0);
        if self.local == 1 {
            let steps = f64::from(self.nodes).log2().ceil() * self.step.2;
            candidates.push(self.candidate(Algorithm::Pat, 0.0, steps, self.limit(1.0)));
        }
        candidates
    }

    fn all_reduce(&self) -> Vec<Candidate> {
        let mut candidates = self.ring(2.0);
        let nvls = self.nvls();
        let latency = &self.constants.latency;
        let nvls_step = latency.nvls_step * f64::from(self.local);
        let depth = f64::from(self.nodes).log2().ceil();
        let (hops, across) = (2.0 * f64::from(self.local - 1), 2.0 * depth);
        // A chain carries every byte up and down again.
        let chain = self.inside.bandwidth * self.constants.ring.chain;
        let chained = |limit: Limit| {
            if self.local > 1 && limit.bandwidth > chain {
                Limit { bandwidth: chain, ceiling: self.inside.ceiling }
            } else {
                limit
            }
        };
        if self.nodes == 1 {
            // A tree inside one node is a chain.
            candidates.extend(self.protocols(Algorithm::Tree, hops, across, chained(self.limit(1.0))));
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
        let limit = chained(self.limit(share));
        candidates.extend(self.protocols(Algorithm::Tree, hops, across, limit));
        if let (Some(inside), Some(outside)) = (nvls, self.outside) {
            let inside =
                if self.is_blackwell() { inside * self.constants.nvls.blackwell_tree } else { inside };
            let outside = Limit { bandwidth: outside.bandwidth * share * self.heads(), ..outside };
            let limit = if inside < outside.bandwidth {
                Limit { bandwidth: inside, ceiling: Ceiling::Nvls }
            } else {
                outside
            };
            let steps = nvls_step + across * self.step.2;
            let it = self.candidate(Algorithm::NvlsTree, latency.nvls_tree, steps, limit);
            candidates.push(Candidate { flushed: self.flushed(factor), ..it });
        }
        candidates
    }

    /// What an NVLS tree reaches where a chunk that is flushed delays the next of its channel and GPU.
    fn flushed(&self, factor: f64) -> Option<f64> {
        let bytes = self.choice?.flushed?;
        #[allow(clippy::cast_precision_loss, reason = "channels and chunks are far below 2^53")]
        let under_way = bytes as f64 / 1e3 * f64::from(self.local);
        Some(under_way / self.constants.latency.efa_flush * factor)
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

    /// What a tree of more than two nodes uses of their NICs. Each channel has one GPU that reaches the network. With two channels
    /// for each GPU its NIC is inside one tree and a leaf of the other; in an NVLink domain with more GPUs than channels most NICs
    /// are idle, and the others send three times what they would in both trees: once up and twice down.
    fn heads(&self) -> f64 {
        let channels = self.choice.map_or(0, |it| it.nvls_channels);
        if self.nodes > 2 && channels > 0 && channels < self.local {
            f64::from(channels) / f64::from(self.local) * 2.0 / 3.0 * self.constants.nvls.domains
        } else {
            1.0
        }
    }

    /// The number of ranks from which NCCL prefers NVLS to a ring.
    fn nvls_from(&self) -> f64 {
        let nvls = &self.constants.nvls;
        if self.is_blackwell() { nvls.blackwell_from } else { nvls.hopper_from }
    }

    /// What sends to single ranks reach: `share` of the NICs of a node, `nvlink` of a ring inside it.
    fn sends(&self, share: f64, nvlink: f64) -> Limit {
        let pairs = &self.constants.pairs;
        let domains = if self.nodes > 1 && self.is_domain() { pairs.domains } else { 1.0 };
        let mut inside = self.inside;
        if matches!(inside.ceiling, Ceiling::NvLink) {
            inside.bandwidth *= nvlink;
        }
        // A GPU that is alone in its node has no others to share the NICs with.
        let network = if self.local > 1 { pairs.network } else { 1.0 };
        self.limit_of(inside, share * network * domains)
    }

    /// Channels to one peer of another node. Where they are not predicted, as `ncclTopoGetNchannels` in `src/graph/paths.cc` of
    /// NCCL 2.20 to 2.28 has them with 32 channels in all: two, but at most four operations on a channel.
    fn per_peer(&self) -> u32 {
        let usual = if 2 * u64::from(self.ranks) <= 4 * 32 { 2 } else { 1 };
        self.choice.map_or(usual, |it| it.per_peer)
    }

    /// GB/s of one channel between two GPUs of a node.
    fn channel_inside(&self) -> f64 {
        let pairs = &self.constants.pairs;
        if self.is_blackwell() { pairs.channel_blackwell } else { pairs.channel_inside }
    }

    /// Every rank sends to every other: most of it leaves the node.
    fn pairs(&self) -> Candidate {
        let (ranks, local) = (f64::from(self.ranks), f64::from(self.local));
        let away = (ranks - local) / (ranks - 1.0);
        let share = if away > 0.0 { 1.0 / (local * away) } else { 1.0 };
        let steps = 2.0 * self.step.0 + if self.nodes > 1 { 2.0 * self.step.2 } else { 0.0 };
        let pairs = &self.constants.pairs;
        let peers = ranks - 1.0;
        let later = pairs.later_peer * (peers - PEERS_AT_ONCE).max(0.0);
        let host = pairs.peer * peers.min(PEERS_AT_ONCE) + later;
        let start = pairs.start * peers.min(PEERS_AT_ONCE) + later;
        let it = self.candidate(Algorithm::Pairs, start, steps, self.sends(share, pairs.nvlink));
        Candidate { host: (it.host.0 + host / 2.0, it.host.1 + host), ..it }
    }

    /// Every rank sends to the next: one pair crosses each border between nodes.
    fn neighbours(&self) -> Candidate {
        let pairs = &self.constants.pairs;
        // One GPU uses the NICs near it, not all of the node, and the channels to one peer.
        let share = 1.0 / f64::from(self.local);
        let steps = self.step.0 + if self.nodes > 1 { self.step.2 } else { 0.0 };
        let mut limit = self.sends(share, pairs.neighbour);
        let carried = match self.choice {
            Some(it) if self.nodes == 1 => f64::from(it.of_message) * self.channel_inside(),
            Some(it) => f64::from(it.of_message) * pairs.channel,
            None if self.nodes == 1 => f64::INFINITY,
            None => f64::from(self.per_peer()) * pairs.channel,
        };
        if carried < limit.bandwidth {
            limit = Limit { bandwidth: carried, ceiling: Ceiling::Channels };
        }
        self.candidate(Algorithm::Pairs, 0.0, steps, limit)
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
        let share = if cluster.through_cpu { constants.ring.through_cpu } else { constants.ring.peer };
        Limit { bandwidth: link * share, ceiling: Ceiling::Pci }
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
    // Pods, or groups that communicate at the same time, share them.
    let fair = f64::from(between.nics) / f64::from(cluster.pods) / f64::from(cluster.at_once);
    near.min(fair) * between.gbps / 8.0 * machines
}

/// All NICs that the GPUs of one pod can use.
fn network(constants: &Constants, cluster: &Cluster, between: Between) -> Limit {
    let network = &constants.network;
    let wire = nics(cluster, between);
    if between.kind == NicKind::Ethernet {
        return Limit { bandwidth: (wire * network.tcp).min(network.tcp_usual), ceiling: Ceiling::Tcp };
    }
    let through = cluster.pci.map_or(f64::INFINITY, |it| it * network.pci * f64::from(cluster.local()));
    let (wire, ceiling) = if through < wire { (through, Ceiling::GpuPci) } else { (wire, Ceiling::Nics) };
    if between.is_tcpx() {
        Limit { bandwidth: wire * network.tcpx, ceiling }
    } else if between.gpudirect {
        Limit { bandwidth: wire * network.share, ceiling }
    } else {
        Limit { bandwidth: wire * network.host, ceiling: Ceiling::NoGpuDirect }
    }
}

/// A step by a protocol with flags, and one by Simple.
fn network_step(constants: &Constants, between: Between) -> (f64, f64) {
    let latency = &constants.latency;
    let same = |it: f64| (it, it);
    match (between.kind, between.efa) {
        (NicKind::Efa, Some(1)) => same(latency.efa_1),
        (NicKind::Efa, _) => same(latency.efa),
        (NicKind::Ethernet, _) => same(latency.tcp),
        (NicKind::GpuDirectTcp, _) => same(latency.gpudirect_tcp),
        (NicKind::Slingshot, _) => same(latency.slingshot),
        (NicKind::InfiniBand | NicKind::Roce | NicKind::Unknown, _) => {
            (latency.infiniband, latency.infiniband_simple)
        }
    }
}
