//! Everything that the input shows about one job.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use fabric::Version;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::catalogue::LibfabricWarning;
use crate::communicator::{self, Communicator, Member};
use crate::ending::{Ending, Endings};
use crate::facts::{Link, ProcessFacts};
use crate::plain::{Blocks, Loose, Manifest, NcclTests, Protocols, TopologyMatrix, TopologyXml, Training};
use crate::read::Facts;
use crate::recorder::{FlightDump, RasStatus, rank_of_file};
use crate::segment::ThreadFacts;
use crate::signals::{Sighting, Signal};
use crate::source::{Distinct, File, Kind, Quote, Seen, Sources, Spot, Tally};

/// A process that wrote NCCL lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    /// Its host; empty where the lines had lost their prefix.
    pub host: Box<str>,
    /// Its process id.
    pub pid: u32,
    /// Its rank in the largest communicator it is in.
    pub rank: Option<u32>,
    /// What its lines say.
    pub facts: Box<ProcessFacts>,
}

impl Process {
    /// `rank 3 on node-0`, as far as known.
    pub fn name(&self) -> String {
        match (self.rank, self.host.is_empty()) {
            (Some(rank), false) => format!("rank {rank} on {}", self.host),
            (Some(rank), true) => format!("rank {rank}"),
            (None, false) => format!("process {} on {}", self.pid, self.host),
            (None, true) => "a process without a name".to_owned(),
        }
    }

    /// The NCCL release.
    pub fn version(&self) -> Option<Version> {
        self.facts.version.value().and_then(|it| Version::parse(it))
    }

    /// Whether the plugin put a variable into the environment, and not whoever started the process.
    pub fn added_by_plugin(&self, name: &str) -> bool {
        self.facts.plugin.added.iter().any(|it| &*it.value.name == name)
    }
}

/// Everything that was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Case {
    /// The inputs.
    pub sources: Sources,
    /// The processes, in the order of the input.
    pub processes: Vec<Process>,
    /// The communicators, in the order of the input.
    pub communicators: Vec<Communicator>,
    /// Lines that report a problem or a setting, in the order of the input.
    pub sightings: Vec<Sighting>,
    /// Warnings of libfabric.
    pub libfabric: Vec<LibfabricWarning>,
    /// Lines that say how something ended, in the order of the input.
    pub endings: Vec<Ending>,
    /// Every line that proves a bad end, in the order of the input: `endings` joins equal lines of different files.
    pub deaths: Vec<Spot>,
    /// The last line of each file that shows the job at work.
    pub progress: Vec<Spot>,
    /// Runs of nccl-tests.
    pub tests: Vec<NcclTests>,
    /// `nvidia-smi topo -m`.
    pub matrices: Vec<TopologyMatrix>,
    /// NCCL's topology.
    pub xml: Vec<TopologyXml>,
    /// Kubernetes manifests.
    pub manifests: Vec<Manifest>,
    /// Dumps of PyTorch's Flight Recorder, one per rank.
    pub dumps: Vec<FlightDump>,
    /// Answers of NCCL's RAS service.
    pub ras: Vec<RasStatus>,
    /// The training run.
    pub training: Training,
    /// Allowed protocols and algorithms.
    pub protocols: Protocols,
    /// `NCCL version ...` without a prefix.
    pub banners: Distinct<Box<str>>,
}

impl Case {
    /// Whether nothing at all was understood.
    pub fn is_empty(&self) -> bool {
        self.sources.tally().understood() == 0
    }

    /// The sightings of a signal, in the order of the input.
    pub fn sightings_of<'a>(&'a self, signal: &'a Signal) -> impl Iterator<Item = &'a Sighting> {
        self.sightings.iter().filter(move |it| it.signal == signal)
    }

    /// The first sighting of any of these signals.
    pub fn first_of(&self, signals: &[&Signal]) -> Option<&Sighting> {
        self.sightings.iter().find(|it| signals.contains(&it.signal))
    }

    /// The communicator of the whole job: the largest, the first of several.
    pub fn world(&self) -> Option<&Communicator> {
        let largest = self.communicators.iter().filter_map(|it| it.n_ranks).max()?;
        self.communicators.iter().find(|it| it.n_ranks == Some(largest))
    }

    /// Whether no GPU takes part: all processes are of plumb's own engine, whose data is in host memory.
    pub fn is_in_host_memory(&self) -> bool {
        !self.processes.is_empty() && self.processes.iter().all(|it| it.facts.host_memory.first().is_some())
    }

    /// All connections of all communicators.
    pub fn links(&self) -> impl Iterator<Item = MemberLink<'_>> {
        self.communicators.iter().flat_map(|communicator| {
            communicator.members.iter().flat_map(move |(&rank, member)| {
                member.facts.links.iter().map(move |link| MemberLink { communicator, rank, member, link })
            })
        })
    }

    /// The networks that communicators chose, by name: `Libfabric`, `IB`, `Socket`.
    pub fn networks(&self) -> impl Iterator<Item = &Seen<Arc<str>>> {
        self.processes.iter().flat_map(|process| process.facts.networks.iter())
    }

    /// The process a sighting came from.
    pub fn process_of(&self, sighting: &Sighting) -> Option<&Process> {
        let id = sighting.process.as_ref()?;
        self.processes.iter().find(|it| it.pid == id.pid && it.host == id.host)
    }

    /// The rank a sighting came from, by its label or by its process.
    pub fn rank_of(&self, sighting: &Sighting) -> Option<u32> {
        sighting.rank.or_else(|| self.process_of(sighting).and_then(|it| it.rank))
    }

    /// The file and line of a quote.
    pub fn locate(&self, quote: &Quote) -> (&str, u64) {
        self.sources.locate(quote.spot)
    }
}

/// A connection, and the member of a communicator that printed it.
#[derive(Debug, Clone, Copy)]
pub struct MemberLink<'a> {
    /// The communicator.
    pub communicator: &'a Communicator,
    /// The rank that printed it.
    pub rank: u32,
    /// Its part of the communicator.
    pub member: &'a Member,
    /// The connection.
    pub link: &'a Link,
}

/// What is reported about a file that is not text.
pub const BINARY: &str = "is binary, not text: left out";

/// Puts a [`Case`] together from regions, in the order of the input.
#[derive(Debug, Default)]
pub struct CaseBuilder {
    sources: Sources,
    processes: Vec<Gathered>,
    indices: FxHashMap<(Box<str>, u32), usize>,
    sightings: Vec<Sighting>,
    sighting_indices: FxHashMap<u64, usize>,
    libfabric: Vec<LibfabricWarning>,
    endings: Endings,
    /// The last line of each file that shows the job at work.
    progress: Vec<(u32, Spot)>,
    blocks: Blocks,
    dumps: Vec<FlightDump>,
    ras: Vec<RasStatus>,
    loose: Loose,
    /// Where the text of NCCL's last warning is.
    last_errors: Vec<Spot>,
    /// The ranks whose next line is the text of NCCL's last warning.
    awaited: Vec<Option<u32>>,
}

#[derive(Debug)]
struct Gathered {
    host: Box<str>,
    pid: u32,
    first: Spot,
    facts: Box<ProcessFacts>,
    threads: Vec<ThreadFacts>,
    indices: FxHashMap<u32, usize>,
}

impl Gathered {
    fn has_only_warnings(&self) -> bool {
        let warnings = self.facts.warnings.clone();
        *self.facts == ProcessFacts { warnings, ..ProcessFacts::default() }
            && self.threads.iter().all(|it| it.segments.is_empty())
    }

    fn add(&mut self, thread: ThreadFacts) {
        // For few threads a linear search is faster than a table.
        let index = if self.threads.len() <= 16 {
            self.threads.iter().position(|it| it.tid == thread.tid)
        } else {
            if self.indices.is_empty() {
                self.indices = self.threads.iter().enumerate().map(|(at, it)| (it.tid, at)).collect();
            }
            self.indices.get(&thread.tid).copied()
        };
        match index.and_then(|at| self.threads.get_mut(at)) {
            Some(known) => known.merge(thread),
            None => {
                if !self.indices.is_empty() {
                    self.indices.insert(thread.tid, self.threads.len());
                }
                let mut fresh = ThreadFacts::new(thread.tid);
                fresh.merge(thread);
                self.threads.push(fresh);
            }
        }
    }
}

impl CaseBuilder {
    /// How many different sightings are kept.
    const SIGHTING_LIMIT: usize = 50_000;

    /// Begins a file; returns its number.
    pub fn begin_file(&mut self, name: &str) -> u32 {
        self.sources.files.push(File { name: name.into(), tally: Tally::default(), problem: None });
        u32::try_from(self.sources.files.len() - 1).unwrap_or(u32::MAX)
    }

    /// Adds a region. Regions come in the order of their numbers.
    pub fn absorb(&mut self, file: u32, mut facts: Facts) {
        self.sources.begin_region(file);
        // What the region before announced may stand at the beginning of this one.
        let (mut announced, mut again, mut counted) = (Vec::new(), Vec::new(), Vec::new());
        self.awaited.retain(|rank| match facts.openings.iter().find(|it| it.rank == *rank) {
            Some(opening) => {
                announced.push(opening.as_last_error());
                again.push(opening.spot);
                counted.extend(opening.counted);
                false
            }
            None => true,
        });
        self.awaited.extend_from_slice(&facts.awaited);
        facts.endings.forget(&again);
        for kind in counted {
            facts.tally.take_back(kind);
        }
        for it in announced {
            self.take(file, it);
        }
        self.take(file, facts);
    }

    fn take(&mut self, file: u32, facts: Facts) {
        if let Some(file) = self.sources.files.get_mut(file as usize) {
            file.tally.add(&facts.tally);
            if facts.binary {
                file.problem = Some(BINARY.into());
            }
            file.problem = file.problem.take().or(facts.recorded.problem);
            let rank = rank_of_file(&file.name);
            self.dumps.extend(facts.recorded.dump.map(|it| FlightDump { rank, ..it }));
        }
        for raw in facts.processes {
            let key = (raw.host.clone(), raw.pid);
            match self.indices.get(&key).and_then(|&at| self.processes.get_mut(at)) {
                Some(process) => {
                    process.facts.merge(*raw.facts);
                    raw.threads.into_iter().for_each(|it| process.add(it));
                }
                None => {
                    self.indices.insert(key, self.processes.len());
                    let mut process = Gathered {
                        host: raw.host,
                        pid: raw.pid,
                        first: raw.first.unwrap_or(Spot { region: 0, line: 0 }),
                        facts: raw.facts,
                        threads: Vec::with_capacity(raw.threads.len()),
                        indices: FxHashMap::default(),
                    };
                    raw.threads.into_iter().for_each(|it| process.add(it));
                    self.processes.push(process);
                }
            }
        }
        for sighting in facts.sightings {
            let key = FxBuildHasher.hash_one((
                sighting.signal.name,
                sighting.rank,
                &sighting.process,
                &sighting.captures,
            ));
            if let Some(known) = self.sighting_indices.get(&key).and_then(|&at| self.sightings.get_mut(at)) {
                known.count += sighting.count;
            } else if self.sightings.len() < Self::SIGHTING_LIMIT {
                self.sighting_indices.insert(key, self.sightings.len());
                self.sightings.push(sighting);
            }
        }
        facts.libfabric.into_iter().for_each(|it| LibfabricWarning::merge(&mut self.libfabric, it));
        if let Some(spot) = facts.endings.progress {
            match self.progress.last_mut().filter(|it| it.0 == file) {
                Some(last) => last.1 = spot,
                None => self.progress.push((file, spot)),
            }
        }
        self.endings.merge(facts.endings);
        self.ras.extend(facts.recorded.statuses);
        self.last_errors.extend(facts.last_errors);
        facts.plain.iter().for_each(|it| self.blocks.take(it));
        self.loose.merge(facts.loose);
    }

    /// Leaves a region out that could not be read, so that the numbers of later ones are right.
    pub fn skip_region(&mut self) {
        self.sources.begin_region(u32::MAX);
    }

    /// Ends a file, with the reason why it could not be read to its end, if so.
    pub fn end_file(&mut self, file: u32, problem: Option<&str>) {
        // Lines of `#` alone are part of a table, and of many other things.
        let tests = self.blocks.has_tests();
        if let Some(it) = self.sources.files.get_mut(file as usize).filter(|_| !tests) {
            it.tally.clear(Kind::NcclTests);
        }
        let found = self.blocks.end_file();
        self.awaited.clear();
        if let Some(file) = self.sources.files.get_mut(file as usize) {
            file.problem = file.problem.take().or(problem.map(Into::into)).or(found);
        }
    }

    /// The case.
    pub fn finish(mut self) -> Case {
        let mut gathered = std::mem::take(&mut self.processes);
        // Beside NCCL's own lines, PyTorch's copy of a warning says nothing more. Without them it is the warning.
        if gathered.iter().any(|it| !it.host.is_empty()) {
            gathered.retain(|it| !it.host.is_empty() || !it.has_only_warnings());
        } else {
            for sighting in &mut self.sightings {
                sighting.warning |= self.last_errors.binary_search(&sighting.quote.spot).is_ok();
            }
        }
        gathered.sort_by_key(|it| it.first);
        let mut processes = Vec::with_capacity(gathered.len());
        let mut threads = Vec::with_capacity(gathered.len());
        for (index, it) in gathered.into_iter().enumerate() {
            processes.push(Process { host: it.host, pid: it.pid, rank: None, facts: it.facts });
            threads.push((index, it.threads));
        }
        let communicators = communicator::join(threads);
        let mut sizes = vec![0; processes.len()];
        for communicator in &communicators {
            for (rank, member) in &communicator.members {
                let size = communicator.n_ranks.unwrap_or(0);
                let (Some(process), Some(best)) =
                    (processes.get_mut(member.process), sizes.get_mut(member.process))
                else {
                    continue;
                };
                if process.rank.is_none() || size > *best {
                    process.rank = Some(*rank);
                    *best = size;
                }
            }
        }
        let mut training = self.loose.training;
        for (state, quote) in self.blocks.states {
            training.state(state, &quote);
        }
        let (endings, deaths) = self.endings.into_all();
        Case {
            sources: self.sources,
            processes,
            communicators,
            sightings: self.sightings,
            libfabric: self.libfabric,
            endings,
            deaths,
            progress: self.progress.into_iter().map(|it| it.1).collect(),
            tests: self.blocks.tests,
            matrices: self.blocks.matrices,
            xml: self.blocks.xml,
            manifests: self.blocks.manifests,
            dumps: self.dumps,
            ras: self.ras,
            training,
            protocols: self.loose.protocols,
            banners: self.loose.banners,
        }
    }
}
