//! Latency and bandwidth of one collective by one algorithm and protocol: the body of `ncclTopoTuneModel`.

use fabric::PathType;
use fabric::collective::Collective;
use fabric::machine::Maker;

use super::constants::{Constants, Generation, NET, NVLINK, PCI};
use super::{GraphInfo, GraphInfos, Protocol, Tuned, log2};
use crate::{Algorithm, Pattern, Settings};

pub(super) struct Model<'a> {
    settings: &'a Settings,
    communicator: &'a Tuned,
    graphs: &'a GraphInfos,
    constants: Constants,
    generation: Generation,
    /// Nodes; one for the whole of an NVLink domain in 2.20.
    nodes: u32,
}

/// All collectives but these two go round a ring in steps of one chunk.
fn is_rooted(collective: Collective) -> bool {
    matches!(collective, Collective::Broadcast | Collective::Reduce)
}

fn is_gathering(collective: Collective) -> bool {
    matches!(collective, Collective::AllGather | Collective::ReduceScatter)
}

#[expect(clippy::cast_possible_truncation, reason = "NCCL computes in double precision and keeps single")]
fn single(number: f64) -> f32 {
    number as f32
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^24")]
fn count(number: u32) -> f32 {
    number as f32
}

impl<'a> Model<'a> {
    pub(super) fn new(settings: &'a Settings, communicator: &'a Tuned, graphs: &'a GraphInfos) -> Self {
        let mut constants = Constants::new(settings.version);
        if communicator.cpu == Maker::Power {
            let ring = constants.hardware[PCI][Algorithm::Ring.index()][Protocol::Simple.index()];
            constants.hardware[PCI][Algorithm::Tree.index()][Protocol::Simple.index()] = ring;
        }
        let one = communicator.mnnvl && settings.since(2, 20, 0) && !settings.since(2, 21, 0);
        Self {
            settings,
            communicator,
            graphs,
            constants,
            generation: Generation::new(communicator.min_compute, settings.version),
            nodes: if one { 1 } else { communicator.nodes.max(1) },
        }
    }

    /// Whether the model has a value for a cell; NCCL leaves the others at zero.
    pub(super) fn has(&self, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> bool {
        let simple = protocol == Protocol::Simple;
        let gathers = match algorithm {
            Algorithm::Ring => return true,
            Algorithm::Pat => return is_gathering(collective) && simple && self.pat(),
            Algorithm::Nvls => simple && self.settings.since(2, 19, 0),
            Algorithm::CollNetDirect => self.settings.since(2, 20, 0),
            Algorithm::Tree | Algorithm::CollNetChain | Algorithm::NvlsTree => false,
        };
        match algorithm {
            // Since 2.28 NVLS needs two channels.
            Algorithm::Nvls | Algorithm::NvlsTree
                if !simple || (self.settings.since(2, 28, 0) && self.graphs.nvls.channels < 2) =>
            {
                false
            }
            _ if is_gathering(collective) => gathers,
            _ => collective == Collective::AllReduce,
        }
    }

    /// `ncclPatEnable`: by default with one rank per node.
    fn pat(&self) -> bool {
        if self.settings.since(2, 26, 0) && self.communicator.min_compute < 60 {
            return false;
        }
        match self.settings.number("NCCL_PAT_ENABLE", 2) {
            2 => self.communicator.nodes == self.communicator.ranks,
            it => it != 0,
        }
    }

    fn steps(&self, collective: Collective) -> u32 {
        let others = self.communicator.ranks.saturating_sub(1);
        match collective {
            Collective::AllReduce => 2 * others,
            _ if is_gathering(collective) => others,
            _ => self.communicator.ranks,
        }
    }

    /// One node, two, more.
    fn scale(&self) -> usize {
        match self.nodes {
            1 => 0,
            2 => 1,
            _ => 2,
        }
    }

    /// The limit of LL: by GPU on one node, by CPU on several.
    fn ll_limit(&self) -> f64 {
        let mixed = self.communicator.mixed_cpus && self.settings.since(2, 24, 0);
        let row = match self.nodes {
            1 => self.generation as usize,
            _ => usize::from(mixed || self.communicator.cpu == Maker::Amd),
        };
        self.constants.ll[row][self.scale()]
    }

    /// Bytes per second over the bytes of the call, in GB/s.
    pub(super) fn bandwidth(&self, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> f32 {
        let graph = self.graphs.of(algorithm);
        let bus = match algorithm {
            Algorithm::Ring => self.ring(collective, protocol, graph),
            Algorithm::Tree => self.tree(protocol, graph),
            Algorithm::CollNetDirect | Algorithm::CollNetChain if protocol != Protocol::Simple => 0.0,
            Algorithm::CollNetDirect => self.collnet_direct(collective, graph),
            Algorithm::CollNetChain => count(graph.channels) * graph.bw_intra,
            Algorithm::Nvls | Algorithm::NvlsTree => {
                count(graph.channels) * self.nvls(collective, algorithm, graph)
            }
            Algorithm::Pat => {
                let part = if self.settings.since(2, 24, 0) { 0.75 } else { 0.85 };
                single(f64::from(count(graph.channels) * self.of_channel(graph)) * part)
            }
        };
        if self.lacks_heads(collective, algorithm) { 0.0 } else { self.of_call(collective, algorithm, bus) }
    }

    /// One or two nodes are bound by what is inside them.
    fn of_channel(&self, graph: &GraphInfo) -> f32 {
        if self.nodes <= 2 { graph.bw_intra } else { graph.bw_inter }
    }

    fn ring(&self, collective: Collective, protocol: Protocol, graph: &GraphInfo) -> f32 {
        let channels = count(graph.channels);
        let bus = channels * self.of_channel(graph);
        match protocol {
            Protocol::Ll => {
                let part = if self.settings.since(2, 21, 0) {
                    0.5
                } else if self.nodes > 1 || matches!(collective, Collective::AllReduce | Collective::Reduce) {
                    1.0 / 4.0
                } else {
                    1.0 / 3.0
                };
                single(self.ll_limit().min(f64::from(bus) * part))
            }
            Protocol::Ll128 => {
                let alone = self.communicator.ppn() < 2.0 && !self.settings.since(2, 23, 0);
                let limit = self.constants.ring_ll128[self.generation as usize][self.scale()];
                single((f64::from(bus) * if alone { 0.7 } else { 0.92 }).min(f64::from(channels) * limit))
            }
            Protocol::Simple => bus,
        }
    }

    fn tree(&self, protocol: Protocol, graph: &GraphInfo) -> f32 {
        let (row, scale) = (self.generation as usize, self.scale());
        let channels = f64::from(graph.channels);
        let bus = f64::from(count(graph.channels) * self.of_channel(graph));
        let bus = single((bus * 0.92).min(channels * self.constants.tree[row][scale]));
        let bus = match protocol {
            Protocol::Ll => single((f64::from(bus) / 3.8).min(self.ll_limit())),
            Protocol::Ll128 => {
                let part = if self.nodes == 1 { 7.0 / 9.0 } else { 120.0 / 128.0 };
                single((f64::from(bus) * part).min(channels * self.constants.tree_ll128[row][scale]))
            }
            Protocol::Simple => bus,
        };
        // One GPU of a node sends to its NIC and receives from it.
        let one_gpu = graph.pattern == Some(Pattern::Tree) && self.settings.since(2, 18, 3);
        if one_gpu { single(f64::from(bus) * 0.85) } else { bus }
    }

    fn collnet_direct(&self, collective: Collective, graph: &GraphInfo) -> f32 {
        let ppn = self.communicator.ppn();
        if graph.channels == 0 {
            return 0.0;
        }
        if is_gathering(collective) {
            if self.settings.since(2, 27, 0) {
                return ppn * graph.bw_intra.min(graph.bw_inter * 0.9);
            }
            let many = (ppn - 1.0) / 7.0;
            let part = f64::from(many) * 0.85 + f64::from(1.0 - many) * 0.95;
            return single(f64::from(ppn * graph.bw_intra) * part);
        }
        let shared = single(f64::from(ppn) / f64::from(graph.channels));
        let shared = shared - (shared - 1.0) / 2.0;
        let bus = count(graph.channels) * graph.bw_intra / shared;
        if self.communicator.min_compute >= 90 { single(f64::from(bus) * 0.85) } else { bus }
    }

    /// A channel's bandwidth by NVLS.
    fn nvls(&self, collective: Collective, algorithm: Algorithm, graph: &GraphInfo) -> f32 {
        let (intra, inter) = (graph.bw_intra, graph.bw_inter);
        let tree = algorithm == Algorithm::NvlsTree;
        let ppn = self.communicator.ppn();
        if !self.settings.since(2, 19, 0) {
            return self.of_channel(graph);
        }
        if !self.settings.since(2, 28, 0) {
            return match () {
                () if tree && self.nodes > 2 => intra.min(inter / 2.0),
                () if is_gathering(collective) && self.settings.since(2, 27, 0) => {
                    (intra * (ppn - 1.0) / ppn).min(inter * 0.9)
                }
                () => intra.min(inter),
            };
        }
        let channels = count(graph.channels);
        let efficient = intra * self.generation.nvls_efficiency() * (channels - 1.0) / channels;
        let inside = if collective == Collective::AllReduce {
            efficient * 2.0
        } else {
            efficient * ((ppn - 1.0) / ppn)
        };
        let between = if tree && self.nodes <= 2 { inter * 2.0 } else { inter };
        let limit = self.constants.nvls_tree[self.generation as usize][self.scale()];
        if tree { inside.min(between).min(single(limit)) } else { inside.min(between) }
    }

    /// All-gather and reduce-scatter over several nodes need in-network reduction and one head per GPU.
    fn lacks_heads(&self, collective: Collective, algorithm: Algorithm) -> bool {
        let nvls = algorithm == Algorithm::Nvls && self.settings.since(2, 27, 0);
        let asked = nvls || algorithm == Algorithm::CollNetDirect;
        if !asked || !is_gathering(collective) || self.communicator.nodes <= 1 {
            return false;
        }
        !self.communicator.collnet.is_some_and(|it| it.gathers && self.communicator.local_ranks <= it.heads)
    }

    /// From the bandwidth of the bus to that of the call.
    fn of_call(&self, collective: Collective, algorithm: Algorithm, bus: f32) -> f32 {
        let since = |minor| self.settings.since(2, minor, 0);
        let plain = match algorithm {
            Algorithm::Ring => false,
            Algorithm::CollNetDirect => is_gathering(collective),
            _ => is_gathering(collective) && since(23),
        };
        if plain {
            return bus;
        }
        let per_step = f64::from(self.communicator.ranks) / f64::from(self.steps(collective));
        let part = match algorithm {
            Algorithm::Ring => per_step,
            Algorithm::Nvls | Algorithm::NvlsTree if since(28) => per_step,
            Algorithm::NvlsTree if !since(19) => {
                0.70 * f64::from(self.nodes) / f64::from(2 * (self.nodes.saturating_sub(1)))
            }
            Algorithm::Nvls if !self.settings.since(2, 18, 3) => 0.75,
            Algorithm::Nvls | Algorithm::NvlsTree => 5.0 / 6.0,
            _ => 0.5,
        };
        bus * single(part)
    }

    /// The latency of a call, in microseconds.
    pub(super) fn latency(&self, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> f32 {
        let (a, p) = (algorithm.index(), protocol.index());
        let graph = self.graphs.of(algorithm);
        let since = |minor| self.settings.since(2, minor, 0);
        let base = self.constants.base[a][p];
        let inside = if graph.type_intra == PathType::Nvl { NVLINK } else { PCI };
        let intra = self.constants.hardware[inside][a][p];
        let alone = since(23) && (self.communicator.ppn() - 1.0).abs() < f32::EPSILON;
        let row = if alone { Algorithm::Tree.index() } else { a };
        let mut inter = self.constants.hardware[NET][row][p] + graph.latency_inter;
        if protocol == Protocol::Simple {
            // Once more to flush.
            inter += graph.latency_inter;
        }
        // Whole ranks per node.
        let others = (self.communicator.ranks / self.nodes).saturating_sub(1);
        let depth = count(log2(u64::from(self.nodes)));
        match algorithm {
            Algorithm::Ring if is_rooted(collective) => {
                let hardware = if self.nodes == 1 { inside } else { NET };
                if graph.same_channels {
                    base + self.constants.hardware[hardware][a][p]
                } else {
                    let row = if protocol == Protocol::Simple { Algorithm::Tree.index() } else { a };
                    base + count(self.steps(collective)) * self.constants.hardware[hardware][row][p]
                }
            }
            Algorithm::Ring => {
                let between = self.steps_between_nodes(collective);
                let within = i64::from(self.steps(collective)) - i64::from(between);
                #[expect(clippy::cast_precision_loss, reason = "steps are far below 2^24")]
                let within = within as f32;
                base + (within * intra.max(self.post(protocol)) + count(between) * inter)
            }
            Algorithm::Tree => base + 2.0 * (count(others) * intra + depth * inter),
            Algorithm::CollNetDirect => {
                let serial = if since(19) { 0.4 } else { 0.5 };
                let chain = f64::from(count(others.min(1)) * intra) + f64::from(others) * serial;
                single(f64::from(base) + (2.0 * chain + f64::from(inter)))
            }
            Algorithm::CollNetChain => base + (count(2 * others) * intra + inter),
            Algorithm::Nvls if !since(19) => {
                if self.nodes > 1 {
                    base + self.constants.hardware[NET][a][p]
                } else {
                    base
                }
            }
            Algorithm::Nvls => {
                if self.nodes > 1 {
                    intra + inter
                } else {
                    intra
                }
            }
            Algorithm::NvlsTree if !since(19) => {
                base + count(2 * self.nodes.saturating_sub(1)) * self.constants.hardware[NET][a][p]
            }
            Algorithm::NvlsTree => base + (intra + 2.0 * depth * inter),
            Algorithm::Pat => {
                let log = f64::from(depth) * (f64::from(inter) / 3.5);
                let linear = f64::from(self.communicator.ranks) * 2.8;
                single(f64::from(base) + log + linear)
            }
        }
    }

    /// How many steps of a ring go from node to node.
    fn steps_between_nodes(&self, collective: Collective) -> u32 {
        match collective {
            _ if self.nodes == 1 => 0,
            Collective::AllReduce if !self.settings.since(2, 23, 0) => 2 * self.nodes,
            Collective::AllReduce => 2 * (self.nodes - 1),
            _ => self.nodes - 1,
        }
    }

    /// What a ring over nodes waits for the network to take a message: `getNetOverhead`.
    fn post(&self, protocol: Protocol) -> f32 {
        if self.nodes <= 1 {
            return 0.0;
        }
        let mixed = self.communicator.mixed_cpus && self.settings.since(2, 22, 0);
        let one = match self.settings.number("NCCL_NET_OVERHEAD", -2) {
            -2 if self.communicator.cpu == Maker::Amd && !mixed => 2.0,
            -2 => 1.0,
            #[expect(clippy::cast_precision_loss, reason = "as NCCL computes it")]
            nanoseconds => single(nanoseconds as f64 * 0.001),
        };
        if protocol == Protocol::Simple { one * 3.0 } else { one }
    }
}
