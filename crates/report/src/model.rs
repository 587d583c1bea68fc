//! The result of `plumb doctor`, as it is written: schema `plumb.doctor/2`.

use std::collections::BTreeMap;

use evidence::Kind;
use rules::{Confidence, EntityKind, Extent, Level, Role, Severity, State};
use serde::{Serialize, Serializer};

use crate::{Price, Validate};

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Doctor {
    /// `plumb.doctor/2`; changes when a field changes its meaning.
    pub schema: String,
    /// The answer in one line.
    pub verdict: Verdict,
    /// How the job ended.
    pub outcome: Outcome,
    /// Findings, the first cause first.
    pub findings: Vec<Finding>,
    /// The check list.
    pub checks: Vec<Check>,
    /// Rules that could not be checked.
    pub not_checked: Vec<NotChecked>,
    /// What was read.
    pub facts: Facts,
    /// The inputs.
    pub inputs: Vec<Input>,
    /// The verdict on machines, where the input is runs of nccl-tests on several sets of machines.
    pub fleet: Option<Validate>,
    /// Lines of the inputs around those that are evidence: for pages.
    #[serde(skip)]
    pub excerpts: Vec<Excerpt>,
}

/// Some lines of an input, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The file.
    pub file: String,
    /// The number of the first line.
    pub first: u64,
    /// The lines.
    pub lines: Vec<String>,
}

/// What the verdict says where an input could not be read, after everything else.
const INCOMPLETE: &str = "; part of the input could not be read";

impl Doctor {
    /// Notes that an input could not be read.
    pub fn mark_incomplete(&mut self) {
        self.verdict.text.push_str(INCOMPLETE);
        self.verdict.reach.push_str(INCOMPLETE);
    }

    /// Answers about machines: many runs are no job. Errors in the logs remain errors.
    pub fn judge_fleet(&mut self, fleet: Validate) {
        let errors = self.findings.iter().any(|it| it.severity == Severity::Error);
        self.verdict = Verdict {
            level: match () {
                () if fleet.is_no_go() || errors => Level::Error,
                () if fleet.is_go() => Level::Ok,
                () => Level::Unknown,
            },
            text: fleet.text.clone(),
            job: fleet.source.clone(),
            reach: String::new(),
            next: fleet.not_known.first().cloned(),
        };
        self.fleet = Some(fleet);
    }

    /// Whether an input could not be read.
    pub fn is_incomplete(&self) -> bool {
        self.verdict.reach.ends_with(INCOMPLETE)
    }
}

/// The answer in one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The state of the job.
    pub level: Level,
    /// The line.
    pub text: String,
    /// The job in the line; `facts` has it in JSON.
    #[serde(skip)]
    pub job: String,
    /// How far the answer reaches.
    pub reach: String,
    /// What would settle an answer that is `unknown`.
    pub next: Option<String>,
}

/// How the job ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// `failed`, `hung`, `finished`, `running` or `unknown`.
    pub state: String,
    /// The lines that show it, the most telling first.
    pub evidence: Vec<Evidence>,
    /// Ranks of the largest communicator that completed their setup.
    pub ranks_complete: usize,
}

/// A finding of any command: every format is written from it. Serialised, it is a finding of `plumb.doctor/2`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The rule's id.
    pub id: String,
    /// How much it matters.
    pub severity: Severity,
    /// How certain it is.
    pub confidence: Confidence,
    /// Whether it is a cause or follows from one.
    pub role: Role,
    /// The problem in general.
    pub title: String,
    /// The problem here, with its numbers.
    pub message: String,
    /// The evidence, the most informative first.
    pub evidence: Vec<Evidence>,
    /// Why it matters.
    pub why: String,
    /// What to do.
    pub fix: String,
    /// Sources.
    pub references: Vec<String>,
    /// What it is about.
    pub entities: Vec<Entity>,
    /// Other causes the same lines can have: ids of rules.
    pub also: Vec<String>,
    /// What it costs in bandwidth, where that is known.
    pub cost: Option<Cost>,
    /// What it costs in every step, where the training job is known.
    pub price: Option<Price>,
    /// Whether `plumb lint --fix` repairs it.
    #[serde(skip)]
    pub fixable: bool,
}

/// What a problem costs: the expected bus bandwidth of a large all-reduce.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// How many times slower.
    pub factor: f64,
    /// GB/s without the problem, where known.
    pub normal: Option<f64>,
    /// GB/s with it, where known.
    pub here: Option<f64>,
    /// The paths that are slow, where known.
    pub paths: Option<Extent>,
}

/// A line of the input, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The file.
    pub file: String,
    /// The one-based line.
    pub line: u64,
    /// The text; empty if a line of a very large input was not kept.
    pub text: String,
    /// The relevant part; `None` if it is the whole line.
    #[serde(skip)]
    pub span: Option<Span>,
}

/// A part of a file that begins on a line of evidence. Columns count characters from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Where it begins.
    pub column: u64,
    /// The line it ends on.
    pub end_line: u64,
    /// The column after its end.
    pub end_column: u64,
    /// A short label; may be empty.
    pub label: String,
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entity {
    /// What it is.
    pub kind: EntityKind,
    /// Its name.
    pub name: String,
}

/// A line of the check list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// The name of the check.
    pub id: String,
    /// Its state.
    pub state: State,
    /// What was found, or what the check needs.
    pub text: String,
    /// The id of the rule whose finding decides the state.
    #[serde(skip)]
    pub rule: Option<&'static str>,
    /// Where.
    pub evidence: Option<Evidence>,
}

/// A rule that could not be checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotChecked {
    /// The rule's id.
    pub id: String,
    /// What the rule needs.
    pub needs: String,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Facts {
    /// The job.
    pub job: Job,
    /// The software.
    pub stack: Stack,
    /// The earliest failure.
    pub first_failure: Option<FirstFailure>,
    /// The ranks of the largest communicator that were seen.
    pub ranks: Vec<Rank>,
    /// Ranks that no line of the largest communicator names: for pages.
    #[serde(skip)]
    pub other_ranks: Vec<OtherRank>,
    /// The communicators.
    pub communicators: Vec<Communicator>,
    /// Variables NCCL read, and who set them.
    pub environment: Vec<Environment>,
    /// Protocols allowed for all-reduce, where NCCL printed them.
    pub protocols: Option<Vec<String>>,
    /// The training run.
    pub training: Option<Training>,
    /// Runs of nccl-tests.
    pub tests: Vec<Test>,
}

/// The job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Job {
    /// Ranks in the largest communicator.
    pub ranks: Option<u32>,
    /// Ranks whose lines were read.
    pub ranks_seen: usize,
    /// Nodes, as NCCL counts them.
    pub nodes: Option<u32>,
    /// Ranks on a node.
    pub ranks_per_node: Option<u32>,
    /// Hosts that were seen.
    pub hosts: Vec<String>,
    /// The instance type.
    pub instance: Option<String>,
    /// The machine in words.
    pub machine: Option<String>,
    /// The networks in words.
    pub networks: Vec<String>,
    /// Network connections with GPUDirect.
    pub gpudirect_connections: u32,
    /// Network connections without GPUDirect.
    pub host_memory_connections: u32,
    /// Connections inside nodes by transport.
    pub inside: BTreeMap<String, u32>,
}

/// The software.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stack {
    /// NCCL.
    pub nccl: Option<String>,
    /// The driver's CUDA level.
    pub cuda_driver: Option<String>,
    /// The release of the network plugin.
    pub plugin: Option<String>,
    /// Which plugin it is; the check list has it in JSON.
    #[serde(skip)]
    pub plugin_name: Option<&'static str>,
    /// libfabric.
    pub libfabric: Option<String>,
}

/// The earliest failure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FirstFailure {
    /// The rank, if known.
    pub rank: Option<u32>,
    /// Its host.
    pub host: Option<String>,
    /// The time, as written.
    pub time: Option<String>,
    /// What happened.
    pub what: String,
    /// The line.
    pub evidence: Evidence,
    /// Whether the input orders all failures.
    pub certain: bool,
    /// Whether the rank failed, or the others waited for it; `what` says it in JSON.
    #[serde(skip)]
    pub kind: job::FailureKind,
}

/// A rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rank {
    /// Its number.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Its CUDA device.
    pub cuda_device: Option<u32>,
    /// Its NVML index.
    pub nvml_device: Option<u32>,
    /// Its GPU's PCI address, as NCCL prints it.
    pub bus_id: Option<String>,
    /// Whether the setup was completed.
    pub complete: bool,
    /// What its lines show of its course, in this order of kinds.
    pub events: Vec<Event>,
}

/// A rank that no line of the largest communicator names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherRank {
    /// Its number.
    pub rank: u32,
    /// Its host, if a line says so.
    pub host: Option<String>,
    /// What its lines show of its course.
    pub events: Vec<Event>,
    /// No line comes from it, and others wait for it.
    pub missing: bool,
}

/// Something that happened to a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// What happened.
    pub what: Moment,
    /// The time, as written in the line.
    pub time: Option<String>,
    /// What the line says, where that is not always the same.
    pub text: String,
    /// The file.
    pub file: String,
    /// The one-based line.
    pub line: u64,
}

/// The course of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// The setup of the communicator begins.
    SetupBegins,
    /// The setup is complete.
    SetupComplete,
    /// The rings are connected, which the first collective that needs them does.
    FirstWork,
    /// It waits for something that does not come, and a watchdog says so.
    Waits,
    /// It fails.
    Fails,
    /// It ends: the communicator is destroyed, or the process says that it is done.
    Ends,
}

/// A communicator.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Communicator {
    /// Its name.
    pub name: String,
    /// Its size.
    pub ranks: Option<u32>,
    /// Ranks whose lines were read.
    pub ranks_seen: usize,
    /// Ranks that completed the setup.
    pub ranks_complete: usize,
    /// Nodes, as NCCL counts them.
    pub nodes: Option<u32>,
    /// The name of the communicator it was split from.
    pub parent: Option<String>,
    /// The colour of the split.
    pub color: Option<i64>,
    /// The network.
    pub network: Option<String>,
    /// Channels for collectives.
    pub channels: Option<u32>,
    /// Seconds the slowest setup took.
    pub setup_seconds: Option<f64>,
    /// The setup of each rank, where NCCL says how long ranks waited for others to join, and one waited long enough to be seen.
    pub setups: Vec<Setup>,
    /// Pairs of ranks by transport.
    pub paths_by_kind: BTreeMap<String, u32>,
    /// Pairs of ranks by nodes and transport.
    pub paths_by_nodes: Vec<NodePair>,
    /// Every connection, on request.
    pub paths: Option<Vec<Edge>>,
    /// The rings.
    pub rings: Vec<Ring>,
    /// The parents and children in the trees, for the ranks that were seen.
    pub trees: Vec<TreePlace>,
    /// Whether some connections could belong to another communicator of the same process.
    pub connections_guessed: bool,
}

/// How long a rank's part of a setup took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setup {
    /// The rank in this communicator.
    pub rank: u32,
    /// Its rank in the largest communicator.
    pub world_rank: Option<u32>,
    /// Its host.
    pub host: String,
    /// In all.
    pub seconds: Option<f64>,
    /// Loading its kernels, before it looked for the others.
    pub kernels_seconds: Option<f64>,
    /// Waiting for others to join.
    pub waited_seconds: f64,
    /// The file.
    pub file: String,
    /// The one-based line that says how long it waited.
    pub line: u64,
}

/// Paths between two nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodePair {
    /// The sending node.
    pub from: String,
    /// The receiving node.
    pub to: String,
    /// Pairs of ranks by transport.
    pub ways: BTreeMap<String, u32>,
}

/// A connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Edge {
    /// The sending rank.
    pub from: u32,
    /// The receiving rank.
    pub to: u32,
    /// The transport.
    pub way: String,
    /// Channels that use it.
    pub channels: u32,
}

/// A ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ring {
    /// The channels with this order.
    pub channels: Vec<u32>,
    /// The ranks in order.
    pub order: Vec<u32>,
    /// Whether NCCL truncated the list.
    pub cut: bool,
}

/// A rank's parent and children in a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TreePlace {
    /// The channel.
    pub channel: u32,
    /// The rank.
    pub rank: u32,
    /// Its parent.
    pub up: Option<u32>,
    /// Its children.
    pub down: Children,
}

/// The children of a rank in a tree: three at most. Large jobs have millions of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Children {
    ranks: [u32; 3],
    count: u8,
}

impl Children {
    /// The ranks.
    pub fn as_slice(&self) -> &[u32] {
        self.ranks.get(..usize::from(self.count)).unwrap_or_default()
    }
}

impl FromIterator<u32> for Children {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        let mut children = Self::default();
        for (slot, rank) in children.ranks.iter_mut().zip(ranks) {
            *slot = rank;
            children.count += 1;
        }
        children
    }
}

impl Serialize for Children {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.as_slice())
    }
}

/// A variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Who set it.
    pub set_by: SetBy,
    /// How many processes printed it.
    pub processes: usize,
    /// The ranks that have this value, where ranks have different ones.
    pub ranks: Vec<u32>,
    /// The hosts of the processes that have this value, where processes have different ones.
    pub hosts: Vec<String>,
    /// Where first.
    pub evidence: Evidence,
    /// The ranks that print it with this value.
    #[serde(skip)]
    pub having: Vec<u32>,
    /// The ranks that print variables, but not this one.
    #[serde(skip)]
    pub without: Vec<u32>,
}

/// Who set a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SetBy {
    /// The user, the image or the launcher.
    Job,
    /// A manifest sets it, and no process printed it.
    Manifest,
    /// The network plugin.
    Plugin,
}

/// A training run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Training {
    /// Settings by their printed name.
    pub settings: BTreeMap<String, String>,
    /// Seconds.
    pub runtime_seconds: Option<f64>,
    /// Lines with a loss.
    pub loss_lines: u64,
    /// Mean step time in milliseconds.
    pub mean_step_ms: Option<f64>,
    /// Peak GPU memory, in GB as printed.
    pub gpu_memory_max_gb: Option<f64>,
    /// Peak host memory, in percent.
    pub host_memory_max_percent: Option<f64>,
}

/// A run of nccl-tests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Test {
    /// The program.
    pub program: Option<String>,
    /// What was run: as the program or the columns of the table say.
    pub collective: Option<&'static str>,
    /// GPUs.
    pub gpus: usize,
    /// Rows of the table.
    pub rows: usize,
    /// The largest size, in bytes.
    pub largest_bytes: Option<u64>,
    /// Its bus bandwidth in GB/s, out of place.
    pub largest_busbw: Option<f64>,
    /// The average over all rows, as printed.
    pub average_busbw: Option<f64>,
    /// Wrong values.
    pub wrong: Option<u64>,
    /// Where it begins.
    pub evidence: Evidence,
}

/// An input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Input {
    /// Its name.
    pub file: String,
    /// Its detected kind.
    #[serde(serialize_with = "kind_name")]
    pub kind: Kind,
    /// Its lines.
    pub lines: u64,
    /// Lines that were understood.
    pub understood: u64,
    /// Blank lines.
    pub blank: u64,
    /// Lines of which only the first 64 KiB were read.
    pub cut: u64,
    /// Why it could not be read to its end.
    pub problem: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn kind_name<S: Serializer>(it: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(it.name())
}

/// Findings by rule, in the order in which the rules first appear.
pub(crate) fn by_rule(findings: &[Finding]) -> Vec<(&str, Vec<&Finding>)> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rules: Vec<(&str, Vec<&Finding>)> = Vec::new();
    for finding in findings {
        let at = *places.entry(&finding.id).or_insert(rules.len());
        match rules.get_mut(at) {
            Some((_, known)) => known.push(finding),
            None => rules.push((&finding.id, vec![finding])),
        }
    }
    rules
}

/// Options of the answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Every connection of every communicator.
    pub matrix: bool,
}
