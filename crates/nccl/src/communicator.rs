//! What all ranks of a communicator decide together.

use std::collections::HashMap;

use fabric::machine::Machine;

use crate::connect::{Common, Limits, connect};
use crate::domain::{self, Member, Room, machines_in_domain};
use crate::search::{Wanted, search};
use crate::{Connected, Decisions, Graphs, Paths, Pattern, Settings, TopoGraph, Undecidable, VisibleDevice};

/// The decisions of a communicator: NCCL's `initTransportsRank` (`src/init.cc`), as far as `src/graph` goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Communicator {
    /// The release and its variables.
    pub settings: Settings,
    /// `nRanks`.
    pub n_ranks: usize,
    /// `nNodes`.
    pub n_nodes: usize,
    /// The fewest ranks of a node.
    pub min_local_ranks: usize,
    /// The most ranks of a node.
    pub max_local_ranks: usize,
    /// The lowest compute capability of all GPUs, `90` for 9.0.
    pub min_compute: u32,
    /// The highest compute capability of all GPUs.
    pub max_compute: u32,
    /// Whether NVLS can be used: `nvlsSupport`.
    pub nvls: bool,
    /// Whether the network reduces: `collNetSupport`.
    pub collnet: bool,
    /// The graphs of the nodes that differ.
    pub nodes: Vec<Graphs>,
    /// The paths of the same nodes. In an NVLink domain of several machines positions count on from machine to machine.
    pub node_paths: Vec<Paths>,
    /// Which of them each node has, by its number.
    pub graphs_of_node: Vec<usize>,
    /// The node of each rank.
    pub node_of_rank: Vec<u32>,
    /// The GPU of each rank, by its position in the machine.
    pub gpu_of_rank: Vec<usize>,
    /// What all ranks have in common: the fewest channels, the lowest bandwidths, the farthest types. The tuning goes by
    /// it, with [`Graphs::ring`] and [`Graphs::tree`] cut to equally many channels.
    pub agreed: Graphs,
    /// The tree pattern with the largest number of any rank.
    pub max_tree_pattern: Pattern,
    /// Rings, trees and counts.
    pub connected: Connected,
}

/// What the description of a machine does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Abilities {
    /// Whether the GPUs can use multicast, as `NVLS multicast support is available` tells; `None` if not known: then GPUs since
    /// Hopper with `NVSwitch`es can.
    pub multicast: Option<bool>,
    /// Whether a plugin for reduction in the network is loaded and every NIC supports it. NCCL uses it only with
    /// `NCCL_COLLNET_ENABLE=1`.
    pub collnet: bool,
    /// How many machines one NVLink domain joins, as the trays of an NVL72; 0 or 1 if none.
    pub domain: u32,
    /// Whether the NICs of the machines of a domain have the same GUIDs, machine by machine. NCCL then counts them as one.
    pub repeated_guids: bool,
}

impl Communicator {
    /// The most ranks that are decided for.
    pub const RANKS: u64 = 1 << 18;

    /// The communicator of all ranks.
    pub fn new(decisions: &Decisions, abilities: Abilities) -> Result<Self, Undecidable> {
        let settings = decisions.settings.clone();
        let ranks = decisions.ranks();
        if ranks > Self::RANKS {
            return Err(Undecidable::TooManyRanks(ranks));
        }
        let (places, kinds) = Places::new(decisions, abilities)?;
        let several = places.kinds.len() > 1;
        if several && kinds.iter().any(|it| it.nics().is_empty()) {
            return Err(Undecidable::NoNic);
        }
        let wanted = |kind: usize| {
            let paths = &kinds[kind];
            let gpus = paths.gpus();
            let multicast = abilities.multicast.unwrap_or_else(|| {
                paths.system.switch.is_some() && gpus.iter().all(|it| paths.compute(it.position) >= 90)
            });
            Wanted {
                inter: several,
                collnet: abilities.collnet && settings.number("NCCL_COLLNET_ENABLE", 0) == 1,
                nvls: has_nvls(&settings, gpus.len(), multicast),
            }
        };
        let mut known: HashMap<usize, usize> = HashMap::new();
        let (mut nodes, mut node_paths) = (Vec::new(), Vec::new());
        for &kind in &places.kinds {
            known.entry(kind).or_insert_with(|| {
                nodes.push(search(&kinds[kind], wanted(kind)));
                node_paths.push(kinds[kind].clone());
                nodes.len() - 1
            });
        }
        let graphs_of_node: Vec<usize> = places.kinds.iter().map(|it| known[it]).collect();
        let local: Vec<usize> = places.kinds.iter().map(|it| kinds[*it].gpus().len()).collect();
        let computes = || {
            let used =
                decisions.nodes.iter().flat_map(|it| it.gpus().iter().map(|gpu| it.compute(gpu.position)));
            used.collect::<Vec<u32>>()
        };
        let agreed = agree(&nodes, &settings);
        let (min_local, max_local) = (local.iter().min().copied(), local.iter().max().copied());
        let mut communicator = Self {
            n_ranks: places.nodes.len(),
            n_nodes: places.kinds.len(),
            min_local_ranks: min_local.unwrap_or(0),
            max_local_ranks: max_local.unwrap_or(0),
            min_compute: computes().into_iter().min().unwrap_or(0),
            max_compute: computes().into_iter().max().unwrap_or(0),
            nvls: !agreed.nvls.channels.is_empty(),
            collnet: !agreed.collnet_chain.channels.is_empty(),
            max_tree_pattern: nodes.iter().map(|it| it.tree.pattern).max().unwrap_or(Pattern::BalancedTree),
            connected: Connected::default(),
            settings,
            nodes,
            node_paths,
            graphs_of_node,
            node_of_rank: places.nodes,
            gpu_of_rank: places.gpus,
            agreed,
        };
        communicator.limit_collnet();
        communicator.connect(&kinds);
        Ok(communicator)
    }

    /// The graphs of the node of a rank.
    pub fn graphs(&self, rank: usize) -> Option<&Graphs> {
        self.nodes.get(*self.graphs_of_node.get(*self.node_of_rank.get(rank)? as usize)?)
    }

    /// The paths of the node of a rank.
    pub fn paths(&self, rank: usize) -> Option<&Paths> {
        self.node_paths.get(*self.graphs_of_node.get(*self.node_of_rank.get(rank)? as usize)?)
    }

    /// The description that positions of [`Communicator::node_paths`] refer to: `machine`, in an NVLink domain as often as there
    /// are machines.
    pub fn joined_machine(&self, machine: &Machine) -> Machine {
        let machines = self.node_paths.iter().map(|it| it.machines).max().unwrap_or(1);
        domain::repeat(machine, machines)
    }

    /// `NCCL_COLLNET_NODE_THRESHOLD`, and up to 2.22 at most eight GPUs in a node.
    fn limit_collnet(&mut self) {
        let least = usize::try_from(self.settings.number("NCCL_COLLNET_NODE_THRESHOLD", 2)).unwrap_or(0);
        let large = self.max_local_ranks > 8 && !self.settings.since(2, 23, 4);
        self.collnet &= self.n_nodes >= least && !large;
    }

    fn connect(&mut self, kinds: &[Paths]) {
        let gpus = self.gpu_of_rank.iter().max().map_or(0, |it| it + 1);
        let mut ranks = vec![vec![None; gpus]; self.n_nodes];
        for ((rank, node), gpu) in (0..).zip(&self.node_of_rank).zip(&self.gpu_of_rank) {
            ranks[*node as usize][*gpu] = Some(rank);
        }
        let member = |(node, ranks): (usize, Vec<Option<u32>>)| crate::connect::Member {
            graphs: &self.nodes[self.graphs_of_node[node]],
            ranks,
        };
        let members: Vec<crate::connect::Member<'_>> = ranks.into_iter().enumerate().map(member).collect();
        let common = Common {
            settings: &self.settings,
            agreed: &self.agreed,
            ranks: self.n_ranks,
            min_compute: self.min_compute,
            collnet: self.collnet,
            nvls_channels: if self.nvls { self.nvls_channels(kinds) } else { 0 },
        };
        self.connected = connect(&members, common);
    }

    /// How many channels NVLS has (`src/transport/nvls.cc`, `ncclNvlsInit`; since 2.30.3 `ncclNvlsTuning`).
    fn nvls_channels(&self, kinds: &[Paths]) -> usize {
        let settings = &self.settings;
        let several = self.n_nodes > 1;
        let blackwell = self.min_compute >= 100 && settings.since(2, 25, 1);
        let mut channels = match (blackwell, several) {
            (false, _) => 16,
            // 24 in one domain since 2.27.3.
            (true, false) if settings.since(2, 27, 3) => 24,
            (true, _) => 32,
        };
        if blackwell && several && settings.since(2, 30, 3) {
            let nic = slowest_nic(kinds);
            let two = self.n_nodes == 2 && nic >= 48.0;
            let fast = nic >= 96.0;
            if !two && (fast && self.min_local_ranks <= 8 || !fast && nic >= 48.0) {
                channels = 24;
            }
        }
        let set = settings.number("NCCL_NVLS_NCHANNELS", -2);
        // Zero is a number of channels up to 2.26.
        let least = i64::from(settings.since(2, 27, 3));
        if set >= least {
            channels = usize::try_from(set).unwrap_or(channels);
        }
        let limits = Limits::new(settings);
        channels.min(limits.max_ctas).max(limits.min_ctas)
    }
}

/// The bandwidth of the slowest way from a GPU to one of its NICs, in GB/s.
fn slowest_nic(kinds: &[Paths]) -> f64 {
    let of = |paths: &Paths| {
        let gpus = paths.gpus().iter();
        gpus.filter_map(|it| Some(paths.near_nics(it.position)?.path.bandwidth)).fold(f64::INFINITY, f64::min)
    };
    kinds.iter().map(of).fold(f64::INFINITY, f64::min)
}

/// Whether NVLS is searched for: not for two GPUs before 2.28.7.
fn has_nvls(settings: &Settings, gpus: usize, multicast: bool) -> bool {
    let least = if settings.since(2, 28, 7) { 2 } else { 3 };
    match settings.number("NCCL_NVLS_ENABLE", 2) {
        0 => false,
        2 => gpus >= least && multicast,
        _ => gpus >= least,
    }
}

/// Where the ranks are.
struct Places {
    /// The node of each rank. Nodes are counted in the order of their lowest ranks.
    nodes: Vec<u32>,
    /// The GPU of each rank.
    gpus: Vec<usize>,
    /// Of each node which node of a machine it is.
    kinds: Vec<usize>,
}

impl Places {
    /// Where the ranks are, and the paths of the nodes that differ.
    fn new(decisions: &Decisions, abilities: Abilities) -> Result<(Self, Vec<Paths>), Undecidable> {
        let nodes = decisions.layout().nodes;
        let joined = machines_in_domain(&decisions.settings, &decisions.machines, abilities.domain, nodes);
        // Only machines that are one node by themselves are joined.
        if joined > 1 && !decisions.is_cut() {
            return Self::of_domains(decisions, u64::from(joined), abilities.repeated_guids);
        }
        let mut places = Self { nodes: Vec::new(), gpus: Vec::new(), kinds: Vec::new() };
        let mut numbers: HashMap<(u64, usize), u32> = HashMap::new();
        for rank in 0..decisions.ranks() {
            let Some((machine, local)) = decisions.local_rank(rank) else { continue };
            let number = *numbers.entry((machine, local.node)).or_insert_with(|| {
                places.kinds.push(local.node);
                u32::try_from(places.kinds.len() - 1).unwrap_or(u32::MAX)
            });
            places.nodes.push(number);
            places.gpus.push(local.gpu.position);
        }
        Ok((places, decisions.nodes.clone()))
    }

    /// Each so many machines are one node; the last may be fewer.
    fn of_domains(
        decisions: &Decisions,
        joined: u64,
        repeated_guids: bool,
    ) -> Result<(Self, Vec<Paths>), Undecidable> {
        let room = Room::of(&decisions.machines);
        let mut places = Self { nodes: Vec::new(), gpus: Vec::new(), kinds: Vec::new() };
        let mut numbers: HashMap<u64, usize> = HashMap::new();
        let mut domains: Vec<Domain> = Vec::new();
        for rank in 0..decisions.ranks() {
            let Some((host, local)) = decisions.local_rank(rank) else { continue };
            let number = *numbers.entry(host / joined).or_insert_with(|| {
                domains.push(Domain::default());
                domains.len() - 1
            });
            let domain = &mut domains[number];
            let slot = domain.hosts.iter().position(|it| it.0 == host).unwrap_or_else(|| {
                domain.hosts.push((host, local.machine, local.node));
                domain.hosts.len() - 1
            });
            let position = slot * room.gpus + local.gpu.position;
            domain.gpus.push(VisibleDevice { position, ..local.gpu });
            places.nodes.push(u32::try_from(number).unwrap_or(u32::MAX));
            places.gpus.push(position);
        }
        let mut known: HashMap<(Vec<usize>, Vec<VisibleDevice>), usize> = HashMap::new();
        let mut kinds = Vec::new();
        for Domain { hosts, gpus } in domains {
            let machines: Vec<usize> = hosts.iter().map(|it| it.1).collect();
            let kind = match known.get(&(machines.clone(), gpus.clone())) {
                Some(kind) => *kind,
                None => {
                    let member = |it: &(u64, usize, usize)| Member {
                        machine: &decisions.machines[it.1],
                        nics: &decisions.nodes[it.2].seen,
                    };
                    let members: Vec<Member<'_>> = hosts.iter().map(member).collect();
                    let mut paths = domain::paths(&members, &decisions.settings, room, gpus.clone())?;
                    paths.same_cards = repeated_guids;
                    kinds.push(paths);
                    known.insert((machines, gpus), kinds.len() - 1);
                    kinds.len() - 1
                }
            };
            places.kinds.push(kind);
        }
        Ok((places, kinds))
    }
}

/// The machines of an NVLink domain, each with its number, description and node, and the GPUs of its ranks.
#[derive(Debug, Default)]
struct Domain {
    hosts: Vec<(u64, usize, usize)>,
    gpus: Vec<VisibleDevice>,
}

/// The minima of all nodes. Rings and trees have equally many channels.
fn agree(nodes: &[Graphs], settings: &Settings) -> Graphs {
    let of = |graph: fn(&Graphs) -> &TopoGraph| {
        let mut all = nodes.iter().map(graph);
        let mut agreed = all.next().cloned().unwrap_or_else(|| TopoGraph::none(Pattern::Ring));
        for it in all {
            agreed.channels.truncate(it.channels.len());
            agreed.same_channels &= it.same_channels;
            agreed.bw_intra = agreed.bw_intra.min(it.bw_intra);
            agreed.bw_inter = agreed.bw_inter.min(it.bw_inter);
            agreed.type_intra = agreed.type_intra.farther(it.type_intra, settings.version);
            agreed.type_inter = agreed.type_inter.farther(it.type_inter, settings.version);
            agreed.cross_nic = agreed.cross_nic.max(it.cross_nic);
        }
        agreed
    };
    let mut agreed = Graphs {
        ring: of(|it| &it.ring),
        tree: of(|it| &it.tree),
        collnet_chain: of(|it| &it.collnet_chain),
        collnet_direct: of(|it| &it.collnet_direct),
        nvls: of(|it| &it.nvls),
    };
    let channels = agreed.ring.channels.len().min(agreed.tree.channels.len());
    agreed.ring.channels.truncate(channels);
    agreed.tree.channels.truncate(channels);
    agreed
}
