//! What NCCL decides for a layout on machines: which ranks it counts as one node, and what each of these nodes sees.

use std::fmt;

use fabric::layout::Unfit;
use fabric::machine::Machine;
use fabric::settings::Network;

use crate::transport::{net_is_faster, p2p_is_allowed};
use crate::{Layout, Paths, Settings, TooLarge, VisibleDevice, VisibleDevices};

/// NCCL's decisions for a layout on machines that are all alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Decisions {
    pub(crate) layout: Layout,
    pub(crate) settings: Settings,
    pub(crate) network: Network,
    /// What the ranks of one machine see together where NCCL counts them as one node.
    pub(crate) nodes: Vec<Paths>,
    /// The whole machine, as one pod that owns it sees it.
    pub(crate) whole: Paths,
    /// The ranks of one machine.
    local_ranks: Vec<LocalRank>,
    /// The index of each GPU, as tools print it.
    pub(crate) gpus: Vec<u32>,
    /// What each NIC gives, in GB/s.
    pub(crate) nics: Vec<f64>,
}

/// A rank of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalRank {
    pub(crate) gpu: VisibleDevice,
    pub(crate) pod: usize,
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
        let mut decisions = Self {
            layout: *layout,
            settings: settings.clone(),
            network: settings.network(machine),
            nodes: Vec::new(),
            local_ranks: Vec::new(),
            gpus: machine.gpus.iter().map(|it| it.index).collect(),
            nics: machine.nics.iter().map(|it| fabric::link::nic(it.rate)).collect(),
            whole,
        };
        if layout.pods_are_one_node() {
            let one = if pods.len() == 1 { pods.clone() } else { vec![join(&pods)] };
            decisions.add_nodes(machine, &one[0])?;
        } else {
            for pod in &pods {
                decisions.add_nodes(machine, pod)?;
            }
        }
        decisions.local_ranks = pods
            .iter()
            .enumerate()
            .flat_map(|(pod, visible)| visible.gpus.iter().map(move |gpu| (pod, *gpu)))
            .map(|(pod, gpu)| LocalRank { gpu, pod, node: decisions.node_of(gpu.position) })
            .collect();
        Ok(decisions)
    }

    /// The node of some ranks with one host and one shared memory. NCCL cuts it where GPUs can use neither P2P nor
    /// shared memory, or would be slower by them than over their NICs.
    fn add_nodes(&mut self, machine: &Machine, visible: &VisibleDevices) -> Result<(), TooLarge> {
        let paths = if *visible == VisibleDevices::whole(machine) {
            self.whole.clone()
        } else {
            Paths::within(machine, &self.settings, visible)?
        };
        let gpus = paths.gpus().to_vec();
        let mut domains: Vec<usize> = Vec::new();
        for (row, one) in gpus.iter().enumerate() {
            let joined = (0..row).filter(|&it| connects(&paths, one.position, gpus[it].position));
            let domain = joined.map(|it| domains[it]).min().unwrap_or(row);
            domains.push(domain);
        }
        if domains.iter().all(|it| *it == 0) {
            self.nodes.push(paths);
            return Ok(());
        }
        let mut kept = domains.clone();
        kept.sort_unstable();
        kept.dedup();
        for domain in kept {
            let members = gpus.iter().zip(&domains).filter(|(_, of)| **of == domain);
            let visible =
                VisibleDevices { gpus: members.map(|(gpu, _)| *gpu).collect(), nics: visible.nics.clone() };
            self.nodes.push(Paths::within(machine, &self.settings, &visible)?);
        }
        Ok(())
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

    /// The layout that was decided for.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The network NCCL uses.
    pub fn network(&self) -> Network {
        self.network
    }

    /// How many nodes NCCL counts: `nNodes` in its log.
    pub fn n_nodes(&self) -> u64 {
        (self.nodes.len() as u64).saturating_mul(u64::from(self.layout.nodes))
    }

    /// What NCCL counts as nodes on one machine.
    pub fn nodes_of_machine(&self) -> &[Paths] {
        &self.nodes
    }

    /// The machine of a rank, and which of the machine's ranks it is.
    pub(crate) fn local_rank(&self, rank: u64) -> Option<(u64, LocalRank)> {
        if rank >= self.layout.ranks() {
            return None;
        }
        let each = self.layout.ranks_per_node();
        let on_machine = usize::try_from(rank.checked_rem(each)?).ok()?;
        Some((rank.checked_div(each)?, *self.local_ranks.get(on_machine)?))
    }

    /// The rank of a GPU on the machine of another rank.
    pub(crate) fn rank_of(&self, machine: u64, gpu: usize) -> Option<u64> {
        let on_machine = self.local_ranks.iter().position(|it| it.gpu.position == gpu)?;
        machine.checked_mul(self.layout.ranks_per_node())?.checked_add(on_machine as u64)
    }
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
    let mut positions: Vec<usize> = (0..machine.gpus.len()).collect();
    positions.sort_by_key(|it| machine.gpus[*it].index);
    let each = usize::try_from(layout.gpus_per_pod).unwrap_or(usize::MAX).max(1);
    let pods = usize::try_from(layout.pods_per_node).unwrap_or(usize::MAX);
    positions.chunks_exact(each).take(pods).map(numbered).collect()
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
