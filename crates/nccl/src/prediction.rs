//! All that NCCL decides for a job: the crate's front door.

use std::collections::BTreeSet;
use std::fmt;

use fabric::Version;
use fabric::collective::Collective;
use fabric::layout::Placement;
use fabric::machine::{Machine, Maker};
use fabric::settings::Network;

use crate::domain;
use crate::tuner::{Abstention, OfiTuner, platform};
use crate::tuning::{BadList, Choice, CollNet, GraphInfo, GraphInfos, Tuned, Tuning};
use crate::{
    Abilities, Communicator, Decisions, Layout, P2pChannels, P2pScope, Settings, Undecidable, Unheeded,
    p2p_channels, unheeded,
};

/// What is known of a job before it runs.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The machines, all alike unless `others` has more.
    pub machine: &'a Machine,
    /// Where the ranks are.
    pub layout: &'a Layout,
    /// Where each rank is, for nodes that are not alike and for a group of ranks; it counts instead of `layout`.
    pub placement: Option<&'a Placement>,
    /// Machines of the placement that differ from `machine`: that is number 0, these are number 1 and on.
    pub others: &'a [Machine],
    /// The release of NCCL and its variables.
    pub settings: &'a Settings,
    /// What the description of the machine does not tell.
    pub abilities: Abilities,
    /// The release of aws-ofi-nccl; its newest known if not told. It counts only where that plugin is used.
    pub plugin: Option<Version>,
    /// The settings are all that was in effect, as a log tells them: the plugin set nothing else.
    pub settings_are_complete: bool,
}

impl<'a> Job<'a> {
    /// A job of which nothing else is known. Machines that the catalogue knows as parts of an NVLink domain are in one.
    pub fn new(machine: &'a Machine, layout: &'a Layout, settings: &'a Settings) -> Self {
        let abilities = Abilities { domain: domain::in_catalogue(machine), ..Abilities::default() };
        Self {
            machine,
            layout,
            placement: None,
            others: &[],
            settings,
            abilities,
            plugin: None,
            settings_are_complete: false,
        }
    }

    /// The same with ranks that are placed one by one, on `machine` and on others that differ from it.
    #[must_use]
    pub fn placed(self, placement: &'a Placement, others: &'a [Machine]) -> Self {
        Self { placement: Some(placement), others, ..self }
    }
}

/// All that NCCL decides for a job.
#[derive(Debug, Clone)]
pub struct Prediction {
    /// Paths, nodes and transports.
    pub decisions: Decisions,
    /// Graphs, rings, trees and channels.
    pub communicator: Communicator,
    /// The tuning table, and the choice for a call.
    pub tuning: Tuning,
    /// Channels for send and receive, by the nodes that differ ([`Communicator::nodes`]).
    pub p2p: Vec<P2pChannels>,
    /// The tuner of aws-ofi-nccl, or why it does not decide; `None` without that plugin.
    pub tuner: Option<Result<OfiTuner, Abstention>>,
    /// Variables that the plugin sets because the user did not, with their values.
    pub set_by_plugin: Vec<(&'static str, &'static str)>,
    /// Variables that are set and change nothing here.
    pub unheeded: Vec<Unheeded>,
}

/// Why there is no prediction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unpredictable {
    /// Nothing can be decided for this job.
    Undecidable(Undecidable),
    /// NCCL refuses `NCCL_ALGO` or `NCCL_PROTO` and does not start.
    BadList(BadList),
}

impl fmt::Display for Unpredictable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecidable(it) => it.fmt(f),
            Self::BadList(it) => write!(f, "NCCL does not start: {it}"),
        }
    }
}

impl std::error::Error for Unpredictable {}

impl From<Undecidable> for Unpredictable {
    fn from(it: Undecidable) -> Self {
        Self::Undecidable(it)
    }
}

impl From<BadList> for Unpredictable {
    fn from(it: BadList) -> Self {
        Self::BadList(it)
    }
}

/// The newest release of aws-ofi-nccl that was read.
pub const NEWEST_PLUGIN: Version = Version::new(1, 21, 1);

impl Prediction {
    /// Predicts what NCCL decides.
    pub fn new(job: &Job<'_>) -> Result<Self, Unpredictable> {
        let plugin = job.plugin.unwrap_or(NEWEST_PLUGIN);
        let efa = job.settings.network(job.machine) == Network::Libfabric;
        let instance = job.machine.name.as_deref().unwrap_or_default();
        // Of a machine that is not an instance type nothing is known.
        let sets = efa && instance.contains('.') && !job.settings_are_complete;
        let set_by_plugin =
            if sets { platform::variables(plugin, instance, job.settings) } else { Vec::new() };
        let settings = &set_by_plugin.iter().fold(job.settings.clone(), |all, it| all.with(it.0, it.1));
        let latency = if efa { platform::latency(plugin, instance, settings) } else { 0.0 };
        let machines = std::iter::once(job.machine).chain(job.others);
        let machines: Vec<Machine> = machines.map(|it| with_latency(it, latency)).collect();
        let decisions = match job.placement {
            Some(placement) => Decisions::placed(&machines.iter().collect::<Vec<_>>(), settings, placement)?,
            None => Decisions::new(&machines[0], settings, job.layout)?,
        };
        let communicator = Communicator::new(&decisions, job.abilities)?;
        let scale = tuned(&decisions, &communicator);
        let tuning = Tuning::new(settings, &scale, &graphs(&communicator))?;
        let scope = P2pScope { ranks: scale.ranks, nodes: scale.nodes, channels: scale.channels };
        let p2p = p2p_channels(settings, &communicator.node_paths, scope);
        let tuner = efa.then(|| OfiTuner::new(plugin, instance, settings, scale.ranks, scale.nodes));
        let unheeded = unheeded(job.settings);
        Ok(Self { decisions, communicator, tuning, p2p, tuner, set_by_plugin, unheeded })
    }

    /// Channels for send and receive of a rank.
    pub fn p2p_of(&self, rank: u64) -> Option<P2pChannels> {
        let node = *self.communicator.node_of_rank.get(usize::try_from(rank).ok()?)?;
        self.p2p.get(*self.communicator.graphs_of_node.get(node as usize)?).copied()
    }

    /// How many channels a message of a rank to one peer takes.
    pub fn channels_of_message(&self, rank: u64, bytes: u64) -> Option<u32> {
        let count = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
        let (ranks, nodes) = (count(self.communicator.n_ranks), count(self.communicator.n_nodes));
        let scope = P2pScope { ranks, nodes, channels: count(self.communicator.connected.channels.len()) };
        Some(self.p2p_of(rank)?.of_message(&self.communicator.settings, scope, bytes))
    }

    /// `16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, 2 p2p channels per peer` of a rank.
    pub fn channels_line(&self, rank: u64) -> Option<String> {
        let p2p = self.p2p_of(rank)?;
        let connected = &self.communicator.connected;
        let coll = connected.channels.len();
        let settings = &self.communicator.settings;
        // In 2.20 none without reduction in the network, then as many as of collectives whatever there is.
        let in_network = if self.communicator.collnet || settings.since(2, 21, 0) { coll } else { 0 };
        let collnet =
            if settings.since(2, 20, 0) { format!(" {in_network} collnet channels,") } else { String::new() };
        Some(format!(
            "{coll} coll channels,{collnet} {} nvls channels, {} p2p channels, {} p2p channels per peer",
            connected.nvls_channels, p2p.channels, p2p.per_peer
        ))
    }

    /// What is used for a call of this many bytes, by the plugin's tuner where it decides and by NCCL's model elsewhere.
    pub fn choose(&self, collective: Collective, bytes: u64) -> Option<Choice> {
        match &self.tuner {
            Some(Ok(tuner)) => self.tuning.choose_with(tuner, collective, bytes),
            _ => self.tuning.choose(collective, bytes),
        }
    }
}

/// The machine with the latency of NICs for which it is not known. NCCL's own networks declare none.
fn with_latency(machine: &Machine, latency: f64) -> Machine {
    let mut told = machine.clone();
    for nic in &mut told.nics {
        nic.latency = Some(nic.latency.unwrap_or(latency));
    }
    told
}

fn tuned(decisions: &Decisions, communicator: &Communicator) -> Tuned {
    let count = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
    let first = decisions.paths(0);
    let direct = &communicator.agreed.collnet_direct.channels;
    let cpu: Maker = first.map(|it| it.about.cpu).unwrap_or_default();
    let heads: BTreeSet<usize> = direct.iter().filter_map(|it| it.intra.first().copied()).collect();
    Tuned {
        ranks: count(communicator.n_ranks),
        nodes: count(communicator.n_nodes),
        local_ranks: count(communicator.max_local_ranks),
        min_compute: communicator.min_compute,
        max_compute: communicator.max_compute,
        cpu,
        mixed_cpus: communicator.node_paths.iter().any(|it| it.about.cpu != cpu),
        switches: first.is_some_and(|it| it.system.switch.is_some()),
        mnnvl: false,
        channels: count(communicator.connected.channels.len()),
        coll_channels: count(communicator.connected.coll_channels),
        nvls_channels: count(communicator.connected.nvls_channels),
        collnet: communicator.collnet.then(|| CollNet { heads: count(heads.len()), gathers: true }),
    }
}

fn graphs(communicator: &Communicator) -> GraphInfos {
    let agreed = &communicator.agreed;
    let mut tree = GraphInfo::new(&agreed.tree);
    if communicator.settings.since(2, 26, 0) {
        tree.pattern = Some(communicator.max_tree_pattern);
    }
    GraphInfos {
        ring: GraphInfo::new(&agreed.ring),
        tree,
        collnet_direct: GraphInfo::new(&agreed.collnet_direct),
        collnet_chain: GraphInfo::new(&agreed.collnet_chain),
        nvls: GraphInfo::new(&agreed.nvls),
    }
}
