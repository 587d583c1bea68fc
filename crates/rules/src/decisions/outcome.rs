//! What NCCL decided for the largest communicator of a job, and what it would decide without a setting or a fault of the machine.

use std::collections::BTreeSet;

use evidence::decided::{Decided, DecidedKind, decided};
use evidence::{Case, Missing, Quote, Source};
use fabric::machine::NicKind;
use fabric::settings::Network;
use fabric::{Layout, Machine, Settings, Version};
use forecast::{Cluster, Inside};
use job::machine::Resolved;
use job::{Description, Setter, Variable};
use nccl::{PathType, Prediction, TopoGraph};

use super::logs::Member;
use super::odd::{self, Oddity};
use super::{Given, LoggedCommunicator, Logs, Question};
use crate::Log;
use crate::expected::{Numbers, share_lost};
use crate::training::Price;

/// The releases that are modelled.
const RELEASES: [Version; 2] = [Version::new(2, 18, 0), Version::new(2, 31, 0)];

/// How many nodes are predicted of a job whose nodes are alike.
const MOST_NODES: u32 = 3;

/// How many nodes that are not alike are predicted.
const MOST_UNLIKE: u32 = 64;

/// A search that found less than this share of what is possible is worth mentioning.
const SHARE: f64 = 0.95;

/// Rings that have less than this share of what is possible are a warning.
const COSTLY: f64 = 0.9;

/// The decisions of a job.
#[derive(Debug)]
pub(crate) struct Outcome {
    question: Question,
    /// What is predicted for this machine and these variables.
    pub(crate) here: Prediction,
    /// `16 coll channels` in the log.
    pub(crate) channels: u32,
    /// That line.
    pub(crate) counts: Quote,
    /// Whether the prediction explains the log: the number of channels, and the search where the log has it.
    pub(crate) fits: bool,
    /// Variables that whoever started the job set.
    variables: Vec<Variable>,
    /// The machine of this name in the catalogue, where the log shows another.
    named: Option<Machine>,
    /// Whether the ranks of a node use all GPUs of the machine.
    pub(crate) whole: bool,
}

/// A question and its answer.
struct Tried {
    question: Question,
    here: Prediction,
    /// Whether it explains the log.
    fits: bool,
}

impl Tried {
    /// What the log does not say is tried, as the generation of the GPUs: the first that explains it counts.
    fn new(question: Question, explains: impl Fn(&Prediction) -> bool) -> Option<Self> {
        let first = question.predict().ok()?;
        if explains(&first) {
            return Some(Self { question, here: first, fits: true });
        }
        for question in question.alternatives() {
            if let Some(here) = question.predict().ok().filter(&explains) {
                return Some(Self { question, here, fits: true });
            }
        }
        is_described(&question).then_some(Self { question, here: first, fits: false })
    }
}

/// What would give a better decision.
#[derive(Debug)]
pub(crate) struct Remedy {
    /// What is predicted then.
    pub(crate) better: Prediction,
    pub(crate) cause: Cause,
}

/// Why a decision is worse than it could be.
#[derive(Debug)]
pub(crate) enum Cause {
    /// Variables that were set.
    Variables(Vec<Variable>),
    /// Devices of the machine that are not like the others, or not as the catalogue has them.
    Machine(Vec<Oddity>),
}

impl Outcome {
    /// The decisions of a job whose log counts channels and whose machine is known.
    pub(crate) fn of(log: &Log) -> Result<Self, Missing> {
        let missing = || Missing(Source::Decisions);
        log.nccl_log()?;
        let version = log.job.releases.nccl.as_ref().map(|it| it.value).ok_or_else(missing)?;
        let modelled = version >= RELEASES[0] && version < RELEASES[1];
        let world = log.case.world().filter(|_| modelled && !log.job.is_on_amd()).ok_or_else(missing)?;
        let mut counts = world.members.values().filter_map(|it| it.facts.channels.as_ref());
        let counts = counts.next().ok_or_else(missing)?;
        let mut communicator = LoggedCommunicator::of_case(&log.case, world);
        communicator.take_lines(log.setups());
        let logs = Logs { texts: log.setups(), job: &log.job, communicators: Vec::new() };
        let question =
            Question::new(&logs, &communicator, &given(log, &communicator)).map_err(|_| missing())?;
        let alike = question.is_alike();
        if !alike && question.layout.nodes > MOST_UNLIKE {
            return Err(missing());
        }
        let question = if alike { Question { placement: None, ..question }.on(MOST_NODES) } else { question };
        let channels = counts.value.coll;
        let explains = |it: &Prediction| {
            it.communicator.connected.channels.len() == channels as usize
                && communicator.graphs().iter().all(|line| has_graph(it, line))
        };
        let Tried { question, here, fits } = Tried::new(question, explains).ok_or_else(missing)?;
        // What differs between nodes may not be all that differs.
        if !alike && !fits {
            return Err(missing());
        }
        let named = log.job.model().map(|it| job::machine::seen_by_nccl(&it.machine()));
        let gpus = question.machine.gpus.len();
        let whole = named.as_ref().map_or(gpus >= question.machine.nics.len(), |it| it.gpus.len() == gpus);
        let named = named.filter(|_| question.printed && whole);
        let variables = variables(log, &question.settings);
        Ok(Self { here, channels, counts: counts.quote.clone(), fits, variables, named, whole, question })
    }

    /// The machine as NCCL sees it.
    pub(crate) fn machine(&self) -> &Machine {
        &self.question.machine
    }

    fn without(&self, some: &[&Variable]) -> Option<Prediction> {
        let mut question = self.question.clone();
        question.settings.environment.retain(|name, _| !some.iter().any(|it| *it.name == **name));
        question.predict().ok()
    }

    /// What makes a decision better, by a measure of it: variables first, then the machine.
    pub(crate) fn remedy(&self, measure: impl Fn(&Prediction) -> f64) -> Option<Remedy> {
        let now = measure(&self.here);
        let is_better = |it: &Prediction| now < measure(it) * SHARE;
        let all: Vec<&Variable> = self.variables.iter().collect();
        if let Some(better) = self.without(&all).filter(|it| !all.is_empty() && is_better(it)) {
            let alone = |it: &&Variable| self.without(&[it]).is_some_and(|it| is_better(&it));
            let some: Vec<Variable> = self.variables.iter().filter(alone).cloned().collect();
            let some = if some.is_empty() { self.variables.clone() } else { some };
            return Some(Remedy { better, cause: Cause::Variables(some) });
        }
        let (question, oddities) = if self.is_alike() {
            let repaired = odd::repaired(&self.question.machine, self.named.as_ref())?;
            (Question { machine: repaired.machine, ..self.question.clone() }, repaired.oddities)
        } else {
            self.question.with_nodes_alike()?
        };
        let better = question.predict().ok().filter(is_better)?;
        Some(Remedy { better, cause: Cause::Machine(oddities) })
    }

    /// Whether all nodes are alike.
    pub(crate) fn is_alike(&self) -> bool {
        self.question.is_alike()
    }

    /// The NICs that no ring uses, by their positions in the machine.
    pub(crate) fn idle_nics(&self, prediction: &Prediction) -> Vec<usize> {
        let rings = prediction.communicator.nodes.iter().flat_map(|it| &it.ring.channels);
        let connected = prediction.communicator.connected.channels.len();
        let used: BTreeSet<usize> = rings.take(connected).filter_map(|it| it.inter).flatten().collect();
        (0..self.question.machine.nics.len()).filter(|it| !used.contains(it)).collect()
    }

    /// What a remedy gains, by the forecast: the links of the rings carry less in this proportion.
    pub(crate) fn cost(&self, better: &Prediction) -> Option<Numbers> {
        let Question { settings, .. } = &self.question;
        let mut machine = self.question.usual_machine().clone();
        let layout = if self.is_alike() {
            self.question.layout
        } else {
            Layout::whole(&machine).on(self.question.layout.nodes)
        };
        if self.question.printed {
            machine.name = machine.name.filter(|it| fabric::catalogue::find(it).is_some());
            for nic in &mut machine.nics {
                // The network is the one that NCCL named, and its system does not say whether GPUDirect is used.
                nic.kind = kind(settings.network(&self.question.machine), nic.kind);
                nic.gpudirect = nic.gpudirect.or(Some(nic.kind != NicKind::Ethernet));
            }
        }
        let bare = Settings::new(settings.version);
        let bare = match settings.text("NCCL_NET") {
            Some(network) => bare.with("NCCL_NET", network),
            None => bare,
        };
        let cluster = Cluster::of_machine(&machine, layout.nodes, &bare).ok()?;
        let best = cluster.with_pods(layout.pods_per_node, layout.gpus_per_pod).ok()?;
        share_lost(&best, &slower(&best, bandwidth(&self.here) / bandwidth(better), self.spans_nodes()))
    }

    /// What a remedy gains in every step of a training job that the log describes.
    pub(crate) fn price(&self, log: &Log, better: &Prediction) -> Option<Price> {
        log.priced()?.rings(bandwidth(&self.here) / bandwidth(better), self.spans_nodes())
    }

    /// Whether the rings lose so much that it matters.
    pub(crate) fn is_costly(&self, better: &Prediction) -> bool {
        bandwidth(&self.here) < bandwidth(better) * COSTLY
    }

    /// Whether NCCL counts several nodes.
    pub(crate) fn spans_nodes(&self) -> bool {
        self.here.communicator.n_nodes > 1
    }
}

impl Cause {
    /// `NCCL_MAX_NCHANNELS=4 is set`, `GPU 5 has 6 NVLinks, the others 18`.
    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::Variables(all) => {
                let names: Vec<String> = all.iter().map(|it| format!("{}={}", it.name, it.text())).collect();
                format!("{} {} set", names.join(" and "), if all.len() == 1 { "is" } else { "are" })
            }
            Self::Machine(all) => all.iter().map(|it| it.text.as_str()).collect::<Vec<_>>().join("; "),
        }
    }

    /// What to do about it.
    pub(crate) fn fix(&self) -> String {
        match self {
            Self::Variables(all) => {
                let names: Vec<&str> = all.iter().map(|it| &*it.name).collect();
                format!(
                    "Unset {}, also in /etc/nccl.conf and ~/.nccl.conf, unless it was set on purpose; `plumb topo --what-if` shows the difference.",
                    names.join(" and ")
                )
            }
            Self::Machine(all) => {
                all.iter().map(|it| it.fix).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// The lines that show it.
    pub(crate) fn quotes(&self) -> Vec<&Quote> {
        match self {
            Self::Variables(all) => all.iter().filter_map(Variable::quote).collect(),
            Self::Machine(_) => Vec::new(),
        }
    }

    /// The variables.
    pub(crate) fn variables(&self) -> &[Variable] {
        match self {
            Self::Variables(all) => all,
            Self::Machine(_) => &[],
        }
    }
}

/// What all rings carry, in GB/s.
pub(crate) fn bandwidth(prediction: &Prediction) -> f64 {
    let communicator = &prediction.communicator;
    let ring = &communicator.agreed.ring;
    let rings = ring.channels.len().min(communicator.connected.channels.len());
    #[expect(clippy::cast_precision_loss, reason = "channels are few")]
    let rings = rings as f64;
    rings * f64::from(if communicator.n_nodes > 1 { ring.bw_inter } else { ring.bw_intra })
}

/// The kind of a NIC whose name does not show it.
fn kind(network: Network, known: NicKind) -> NicKind {
    match (network, known) {
        (Network::Libfabric, NicKind::Unknown) => NicKind::Efa,
        (Network::Ib, NicKind::Unknown) => NicKind::InfiniBand,
        (Network::Socket, _) => NicKind::Ethernet,
        (_, known) => known,
    }
}

/// The cluster whose links between nodes, or inside them, carry this share.
pub fn slower(best: &Cluster, share: f64, between: bool) -> Cluster {
    let mut now = best.clone();
    if between {
        if let Some(it) = &mut now.between {
            it.gbps *= share;
        }
        return now;
    }
    match &mut now.inside {
        Inside::Switch { bandwidth, .. } | Inside::Mesh { bandwidth, .. } => *bandwidth *= share,
        Inside::Pci { .. } => now.pci = now.pci.map(|it| it * share),
    }
    now
}

/// Whether the description has what decisions depend on.
fn is_described(question: &Question) -> bool {
    let Question { machine, layout, .. } = question;
    let nics =
        layout.nodes == 1 || (!machine.nics.is_empty() && machine.nics.iter().all(|it| it.rate.is_some()));
    let generation = machine.nvlinks.is_empty() || machine.gpus.iter().all(|it| it.compute.is_some());
    nics && generation && machine.gpus.iter().all(|it| it.link.is_some())
}

/// What the job says about its machine where NCCL did not print it and no name is known.
fn given(log: &Log, communicator: &LoggedCommunicator) -> Given {
    let printed = communicator.members.iter().any(|it| it.decided.system.is_some());
    let machine = log.job.machines.first().filter(|_| !printed && log.job.model.is_none() && log.job.wired);
    let described = machine.map(|it| {
        let source = it.source.to_string();
        let resolved = Resolved {
            machine: it.clone(),
            model: None,
            wired: true,
            notes: Vec::new(),
            conflicts: Vec::new(),
        };
        Description::new(resolved, source)
    });
    Given { described, instance: log.job.model(), ..Given::default() }
}

/// The variables that whoever started the job set, each once.
fn variables(log: &Log, settings: &Settings) -> Vec<Variable> {
    let mut all: Vec<Variable> = Vec::new();
    for it in &log.job.settings.variables {
        let user = !matches!(it.setter, Setter::Plugin) && it.name.starts_with("NCCL_");
        let counts = settings.environment.get(&*it.name).is_some_and(|value| *value == it.text());
        // The log names the network, which is not a choice to undo.
        let identity = matches!(&*it.name, "NCCL_NET" | "NCCL_HOSTID" | "NCCL_TOPO_FILE");
        if user && counts && !identity && !all.iter().any(|known| known.name == it.name) {
            all.push(it.clone());
        }
    }
    all
}

/// Whether the search found what the line of the log says.
fn has_graph(prediction: &Prediction, line: &str) -> bool {
    let graphs = &prediction.communicator.nodes;
    let all =
        graphs.iter().flat_map(|it| [&it.ring, &it.tree, &it.collnet_chain, &it.collnet_direct, &it.nvls]);
    all.map(TopoGraph::to_string).any(|it| it == line.trim_end())
}

/// Whether a graph goes farther than another, inside a node or to its NICs.
pub(crate) fn goes_farther(one: &Prediction, other: &Prediction) -> Option<(PathType, PathType)> {
    let version = one.communicator.settings.version;
    let (one, other) = (&one.communicator.agreed.ring, &other.communicator.agreed.ring);
    let pairs = [(one.type_intra, other.type_intra), (one.type_inter, other.type_inter)];
    pairs.into_iter().find(|(one, other)| one != other && other.farther(*one, version) == *one)
}

impl LoggedCommunicator {
    /// What the facts of a case say of a communicator, without lines.
    fn of_case(case: &Case, communicator: &evidence::Communicator) -> Self {
        let member = |(rank, member): (&u32, &evidence::Member)| {
            let line = member.line();
            let layout = member.facts.layout.as_ref().map(|it| it.value);
            let process = case.processes.get(member.process);
            let decided = Decided {
                rank: Some(*rank),
                ranks: communicator.n_ranks,
                nodes: layout.map(|it| it.n_nodes),
                local_ranks: layout.map(|it| it.local_ranks),
                local_rank: layout.map(|it| it.local_rank),
                id: line.and_then(|it| it.comm_id),
                bus: line.and_then(|it| it.bus_id),
                device: line.and_then(|it| it.nvml_device),
                mnnvl: layout.is_some_and(|it| it.mnnvl),
                multicast: process.and_then(|it| it.facts.nvls.first()).map(|it| it.value),
                network: member.facts.network.as_ref().map(|it| it.value.to_string()),
                thread: process
                    .map(|it| format!("{}:{}:0", it.host, it.pid).into_bytes())
                    .unwrap_or_default(),
                ..Decided::default()
            };
            Member { file: String::new(), decided }
        };
        let members: Vec<Member> = communicator.members.iter().map(member).collect();
        Self { id: members.iter().find_map(|it| it.decided.id), ranks: communicator.n_ranks, members }
    }

    /// Takes the lines of ranks whose setup was read again.
    fn take_lines(&mut self, texts: &[(String, Vec<u8>)]) {
        for (file, text) in texts {
            for one in decided(text) {
                let same = |it: &&mut Member| it.decided.rank == one.rank && one.rank.is_some();
                let fits =
                    one.ranks == self.ranks && (one.id == self.id || one.id.is_none() || self.id.is_none());
                if let Some(member) = self.members.iter_mut().find(same).filter(|_| fits)
                    && member.file.is_empty()
                {
                    let (multicast, network) = (member.decided.multicast, member.decided.network.take());
                    *member = Member { file: file.clone(), decided: one };
                    member.decided.multicast = member.decided.multicast.or(multicast);
                    member.decided.network = member.decided.network.take().or(network);
                }
            }
        }
    }

    /// The `Pattern` lines.
    fn graphs(&self) -> Vec<&str> {
        let lines = self.members.iter().flat_map(|it| &it.decided.lines);
        lines.filter(|it| it.kind == DecidedKind::Graph).map(|it| it.text.as_str()).collect()
    }
}

impl Question {
    /// The same on at most this many nodes.
    fn on(mut self, most: u32) -> Self {
        self.layout = Layout { nodes: self.layout.nodes.min(most), ..self.layout };
        self
    }
}
