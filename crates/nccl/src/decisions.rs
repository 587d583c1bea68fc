//! What NCCL decides for a layout on machines: which ranks it counts as one node, and what each of these nodes sees.

use std::collections::HashMap;
use std::fmt;

use fabric::layout::{Placement, Unfit};
use fabric::machine::Machine;
use fabric::settings::Network;

use crate::domain::{self, machines_in_domain};
use crate::transport::{net_is_faster, p2p_is_allowed};
use crate::{Layout, Paths, Settings, TooLarge, VisibleDevice, VisibleDevices};

/// NCCL's decisions for a layout on machines that are all alike, or for ranks that are placed one by one.
#[derive(Debug, Clone, PartialEq)]
pub struct Decisions {
    pub(crate) layout: Layout,
    pub(crate) settings: Settings,
    pub(crate) network: Network,
    /// The machines that differ.
    pub(crate) machines: Vec<Machine>,
    /// What the ranks of one machine see together where NCCL counts them as one node; of a placement for all machines that differ.
    pub(crate) nodes: Vec<Paths>,
    /// The whole machine, as one pod that owns it sees it; of a placement the first machine.
    pub(crate) whole: Paths,
    /// The ranks of one machine.
    local_ranks: Vec<LocalRank>,
    /// Where each rank is, if they are placed one by one.
    placed: Option<Placed>,
    /// How many machines one NVLink domain joins into one node.
    pub(crate) domain: u32,
    /// The index of each GPU, as tools print it.
    pub(crate) gpus: Vec<u32>,
    /// What each NIC gives, in GB/s.
    pub(crate) nics: Vec<f64>,
}

/// Ranks that are placed one by one.
#[derive(Debug, Clone, PartialEq)]
struct Placed {
    /// The machine of each rank, counted over all, and its place there.
    ranks: Vec<(u64, LocalRank)>,
    /// What the ranks of a machine see, before NCCL cuts it into nodes; for those that differ.
    hosts: Vec<Paths>,
    /// `nNodes`.
    n_nodes: u64,
}

/// A rank of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalRank {
    pub(crate) gpu: VisibleDevice,
    pub(crate) pod: usize,
    /// An index into [`Decisions::machines`].
    pub(crate) machine: usize,
    /// Which of the machines that differ in their wiring or in their ranks.
    host: usize,
    /// An index into [`Decisions::nodes`].
    pub(crate) node: usize,
}

/// Why nothing can be decided.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Undecidable {
    /// The layout does not fit the machine.
    Unfit(Unfit),
    /// The machine is too large.
    TooLarge(TooLarge),
    /// There are several nodes and no NIC is known.
    NoNic,
    /// There are more ranks than are decided for.
    TooManyRanks(u64),
}

impl fmt::Display for Undecidable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfit(it) => it.fmt(f),
            Self::TooLarge(it) => it.fmt(f),
            Self::NoNic => f.write_str("there are several nodes and no NIC is known"),
            Self::TooManyRanks(ranks) => {
                write!(f, "{ranks} ranks: at most {} are possible", crate::Communicator::RANKS)
            }
        }
    }
}

impl std::error::Error for Undecidable {}

impl From<Unfit> for Undecidable {
    fn from(it: Unfit) -> Self {
        Self::Unfit(it)
    }
}

impl From<TooLarge> for Undecidable {
    fn from(it: TooLarge) -> Self {
        Self::TooLarge(it)
    }
}

impl Decisions {
    /// Decides for a layout on machines of one kind.
    pub fn new(machine: &Machine, settings: &Settings, layout: &Layout) -> Result<Self, Undecidable> {
        let whole = Paths::new(machine, settings)?;
        layout.check(machine)?;
        let pods = pods(machine, layout, &whole);
        let mut nodes = Vec::new();
        if layout.pods_are_one_node() {
            let one = if pods.len() == 1 { pods[0].clone() } else { join(&pods) };
            nodes.extend(cut(machine, settings, Some(&whole), &one)?.nodes);
        } else {
            for pod in &pods {
                nodes.extend(cut(machine, settings, Some(&whole), pod)?.nodes);
            }
        }
        let mut decisions = Self {
            layout: *layout,
            machines: vec![machine.clone()],
            local_ranks: Vec::new(),
            placed: None,
            ..Self::of_nodes(machine, settings, nodes, whole)
        };
        decisions.local_ranks = pods
            .iter()
            .enumerate()
            .flat_map(|(pod, visible)| visible.gpus.iter().map(move |gpu| (pod, *gpu)))
            .map(|(pod, gpu)| {
                let node = decisions.node_of(gpu.position);
                LocalRank { gpu, pod, machine: 0, host: 0, node }
            })
            .collect();
        // Only machines that are one node by themselves are joined.
        if decisions.nodes.len() == 1 {
            decisions.domain = machines_in_domain(
                settings,
                &decisions.machines,
                domain::in_catalogue(machine),
                layout.nodes,
            );
        }
        Ok(decisions)
    }

    /// Decides for ranks that are placed one by one. Each node is one host, and sees all NICs of its machine; its GPUs that have no
    /// rank are not there for NCCL.
    pub fn placed(
        machines: &[&Machine],
        settings: &Settings,
        placement: &Placement,
    ) -> Result<Self, Undecidable> {
        placement.check(machines)?;
        let by_index: Vec<Vec<usize>> = machines.iter().map(|it| by_index(it)).collect();
        let mut gpus: Vec<Vec<VisibleDevice>> = vec![Vec::new(); placement.nodes.len()];
        for place in &placement.ranks {
            let machine = placement.nodes[place.node as usize];
            let position = by_index[machine][place.gpu as usize];
            let number = machines[machine].gpus[position].index;
            gpus[place.node as usize].push(VisibleDevice { position, number });
        }
        let first = placement.ranks.first().map_or(0, |it| it.node as usize);
        let machine = machines[placement.nodes[first]];
        let whole = Paths::new(machine, settings)?;
        let mut known: HashMap<(usize, &[VisibleDevice]), usize> = HashMap::new();
        let (mut nodes, mut hosts, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        let mut ranks = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for place in &placement.ranks {
            let on = place.node as usize;
            let kind = placement.nodes[on];
            let host = match known.get(&(kind, gpus[on].as_slice())) {
                Some(host) => *host,
                None => {
                    let visible = VisibleDevices {
                        gpus: gpus[on].clone(),
                        nics: VisibleDevices::whole(machines[kind]).nics,
                    };
                    let same = Some(&whole).filter(|_| kind == placement.nodes[first]);
                    let cut = cut(machines[kind], settings, same, &visible)?;
                    starts.push(nodes.len());
                    nodes.extend(cut.nodes);
                    hosts.push(cut.host);
                    known.insert((kind, gpus[on].as_slice()), hosts.len() - 1);
                    hosts.len() - 1
                }
            };
            let position = by_index[kind][place.gpu as usize];
            let of_host = &nodes[starts[host]..];
            let node = starts[host]
                + of_host.iter().position(|it: &Paths| it.visible_gpu(position).is_some()).unwrap_or(0);
            seen.insert((on, node));
            let gpu = VisibleDevice { position, number: machines[kind].gpus[position].index };
            ranks.push((u64::from(place.node), LocalRank { gpu, pod: 0, machine: kind, host, node }));
        }
        let used = gpus.iter().filter(|it| !it.is_empty()).count();
        let number = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
        Ok(Self {
            layout: Layout::new(1, number(gpus[first].len())).on(number(used)),
            machines: machines.iter().map(|it| (*it).clone()).collect(),
            placed: Some(Placed { ranks, hosts, n_nodes: seen.len() as u64 }),
            ..Self::of_nodes(machine, settings, nodes, whole)
        })
    }

    fn of_nodes(machine: &Machine, settings: &Settings, nodes: Vec<Paths>, whole: Paths) -> Self {
        Self {
            layout: Layout::default(),
            settings: settings.clone(),
            network: settings.network(machine),
            machines: Vec::new(),
            nodes,
            local_ranks: Vec::new(),
            placed: None,
            domain: 1,
            gpus: machine.gpus.iter().map(|it| it.index).collect(),
            nics: machine.nics.iter().map(|it| fabric::link::nic(it.rate)).collect(),
            whole,
        }
    }

    fn node_of(&self, gpu: usize) -> usize {
        self.nodes.iter().position(|it| it.visible_gpu(gpu).is_some()).unwrap_or(0)
    }

    /// The paths that a rank sees.
    pub fn paths(&self, rank: u64) -> Option<&Paths> {
        self.nodes.get(self.local_rank(rank)?.1.node)
    }

    /// The GPU of a rank, by its position in the machine.
    pub fn gpu(&self, rank: u64) -> Option<usize> {
        Some(self.local_rank(rank)?.1.gpu.position)
    }

    /// The index of a GPU, by its position in the machine.
    pub(crate) fn index(&self, gpu: usize) -> u32 {
        self.gpus.get(gpu).copied().unwrap_or(0)
    }

    /// The index of a GPU on the machine of a rank.
    pub(crate) fn index_beside(&self, rank: LocalRank, gpu: usize) -> u32 {
        let machine = self.machines.get(rank.machine);
        machine.and_then(|it| it.gpus.get(gpu)).map_or(0, |it| it.index)
    }

    /// What the ranks of a machine see, before NCCL cuts it into nodes.
    pub(crate) fn uncut(&self, rank: LocalRank) -> &Paths {
        self.placed.as_ref().and_then(|it| it.hosts.get(rank.host)).unwrap_or(&self.whole)
    }

    /// Whether NCCL cuts a machine into several nodes.
    pub(crate) fn is_cut(&self) -> bool {
        self.nodes.len() > self.placed.as_ref().map_or(1, |it| it.hosts.len())
    }

    /// All ranks.
    pub fn ranks(&self) -> u64 {
        self.placed.as_ref().map_or_else(|| self.layout.ranks(), |it| it.ranks.len() as u64)
    }

    /// The layout that was decided for; of ranks that are placed one by one that of the first machine, as if all were like it.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The network NCCL uses.
    pub fn network(&self) -> Network {
        self.network
    }

    /// How many nodes NCCL counts: `nNodes` in its log.
    pub fn n_nodes(&self) -> u64 {
        match &self.placed {
            Some(placed) => placed.n_nodes,
            None => (self.nodes.len() as u64).saturating_mul(u64::from(self.layout.nodes)),
        }
    }

    /// What NCCL counts as nodes on one machine; of ranks that are placed one by one on all machines that differ.
    pub fn nodes_of_machine(&self) -> &[Paths] {
        &self.nodes
    }

    /// The machine of a rank, and which of the machine's ranks it is.
    pub(crate) fn local_rank(&self, rank: u64) -> Option<(u64, LocalRank)> {
        if let Some(placed) = &self.placed {
            return placed.ranks.get(usize::try_from(rank).ok()?).copied();
        }
        if rank >= self.layout.ranks() {
            return None;
        }
        let each = self.layout.ranks_per_node();
        let on_machine = usize::try_from(rank.checked_rem(each)?).ok()?;
        Some((rank.checked_div(each)?, *self.local_ranks.get(on_machine)?))
    }

    /// The rank of a GPU on the machine of another rank.
    pub(crate) fn rank_of(&self, machine: u64, gpu: usize) -> Option<u64> {
        if let Some(placed) = &self.placed {
            let here = |it: &(u64, LocalRank)| it.0 == machine && it.1.gpu.position == gpu;
            return placed.ranks.iter().position(here).map(|it| it as u64);
        }
        let on_machine = self.local_ranks.iter().position(|it| it.gpu.position == gpu)?;
        machine.checked_mul(self.layout.ranks_per_node())?.checked_add(on_machine as u64)
    }
}

/// What the ranks of a host see, and the nodes NCCL makes of it.
struct Cut {
    host: Paths,
    nodes: Vec<Paths>,
}

/// The nodes of some ranks with one host and one shared memory. NCCL cuts them where GPUs can use neither P2P nor shared memory, or
/// would be slower by them than over their NICs (`ncclTopoTrimSystem`).
fn cut(
    machine: &Machine,
    settings: &Settings,
    whole: Option<&Paths>,
    visible: &VisibleDevices,
) -> Result<Cut, TooLarge> {
    let paths = match whole.filter(|_| *visible == VisibleDevices::whole(machine)) {
        Some(whole) => whole.clone(),
        None => Paths::within(machine, settings, visible)?,
    };
    let gpus = paths.gpus().to_vec();
    let mut domains: Vec<usize> = Vec::new();
    for (row, one) in gpus.iter().enumerate() {
        let joined = (0..row).filter(|&it| connects(&paths, one.position, gpus[it].position));
        let domain = joined.map(|it| domains[it]).min().unwrap_or(row);
        domains.push(domain);
    }
    if domains.iter().all(|it| *it == 0) {
        return Ok(Cut { host: paths.clone(), nodes: vec![paths] });
    }
    let mut kept = domains.clone();
    kept.sort_unstable();
    kept.dedup();
    let mut nodes = Vec::new();
    for domain in kept {
        let members = gpus.iter().zip(&domains).filter(|(_, of)| **of == domain);
        let visible =
            VisibleDevices { gpus: members.map(|(gpu, _)| *gpu).collect(), nics: visible.nics.clone() };
        nodes.push(Paths::trimmed(machine, settings, &visible)?);
    }
    Ok(Cut { host: paths, nodes })
}

/// Whether two GPUs of a node can use P2P or shared memory, and should.
pub(crate) fn connects(paths: &Paths, from: usize, to: usize) -> bool {
    connects_beside(paths, from, to, true)
}

/// The same where NICs may not be there.
pub(crate) fn connects_beside(paths: &Paths, from: usize, to: usize, nics: bool) -> bool {
    let p2p = p2p_is_allowed(paths, from, to);
    if p2p && paths.middle(from, to).is_some() {
        return !paths.settings.p2p_copy_engine();
    }
    let slower = nics && net_is_faster(paths, from, to, true).is_some();
    !slower && (p2p || !paths.settings.shm_disabled())
}

/// The devices of each pod of a machine. First each GPU takes the NICs next to it, as far as they are left; then those that
/// need more take the nearest of the rest.
fn pods(machine: &Machine, layout: &Layout, whole: &Paths) -> Vec<VisibleDevices> {
    let gpus = gpus_of_pods(machine, layout);
    let Some(each) = layout.nics_per_pod.and_then(|it| usize::try_from(it).ok()) else {
        let nics = VisibleDevices::whole(machine).nics;
        return gpus.into_iter().map(|gpus| VisibleDevices { gpus, nics: nics.clone() }).collect();
    };
    let mut taken: Vec<Vec<usize>> = vec![Vec::new(); gpus.len()];
    let mut left: Vec<usize> = whole.nics().iter().map(|it| it.position).collect();
    let distance = |gpus: &[VisibleDevice], nic: usize| {
        gpus.iter().map(|it| whole.nic_wires(it.position, nic).kind.order(whole.version())).min()
    };
    for anywhere in [false, true] {
        for (gpus, taken) in gpus.iter().zip(&mut taken) {
            let best = whole.nics().iter().filter_map(|it| distance(gpus, it.position)).min();
            while taken.len() < each {
                let near = (0..left.len()).min_by_key(|it| distance(gpus, left[*it]));
                match near.filter(|it| anywhere || distance(gpus, left[*it]) == best) {
                    Some(near) => taken.push(left.remove(near)),
                    None => break,
                }
            }
        }
    }
    let visible = |(gpus, mut nics): (Vec<VisibleDevice>, Vec<usize>)| {
        nics.sort_unstable();
        VisibleDevices { gpus, nics: numbered(&nics) }
    };
    gpus.into_iter().zip(taken).map(visible).collect()
}

/// The GPUs of each pod of a machine, by their index.
fn gpus_of_pods(machine: &Machine, layout: &Layout) -> Vec<Vec<VisibleDevice>> {
    let positions = by_index(machine);
    let each = usize::try_from(layout.gpus_per_pod).unwrap_or(usize::MAX).max(1);
    let pods = usize::try_from(layout.pods_per_node).unwrap_or(usize::MAX);
    positions.chunks_exact(each).take(pods).map(numbered).collect()
}

/// The positions of a machine's GPUs, in the order of their indices.
pub(crate) fn by_index(machine: &Machine) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..machine.gpus.len()).collect();
    positions.sort_by_key(|it| machine.gpus[*it].index);
    positions
}

/// Devices as a pod numbers them: from 0.
fn numbered(positions: &[usize]) -> Vec<VisibleDevice> {
    (0..).zip(positions).map(|(number, &position)| VisibleDevice { position, number }).collect()
}

/// What some pods of a machine have together.
fn join(pods: &[VisibleDevices]) -> VisibleDevices {
    let all = |of: fn(&VisibleDevices) -> &Vec<VisibleDevice>| {
        pods.iter().flat_map(|it| of(it).iter().copied()).collect()
    };
    VisibleDevices { gpus: all(|it| &it.gpus), nics: all(|it| &it.nics) }
}
