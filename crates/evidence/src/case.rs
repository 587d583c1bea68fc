//! Everything known about one job.

use std::collections::BTreeSet;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use fabric::{Version, instance};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::communicator::{self, Communicator, Member};
use crate::facts::{Link, ProcessFacts};
use crate::needs::{Missing, Source};
use crate::plain::{Blocks, Loose, Manifest, NcclTests, Protocols, TopologyMatrix, TopologyXml, Training};
use crate::read::Facts;
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
    /// What it said.
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

    /// Who put a variable into the environment: the plugin, or someone before it.
    pub fn added_by_plugin(&self, name: &str) -> bool {
        self.facts.ofi.added.iter().any(|it| &*it.value.name == name)
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
    /// Lines that tell of trouble or of a setting, in the order of the input.
    pub sightings: Vec<Sighting>,
    /// Runs of nccl-tests.
    pub tests: Vec<NcclTests>,
    /// `nvidia-smi topo -m`.
    pub matrices: Vec<TopologyMatrix>,
    /// NCCL's topology.
    pub xml: Vec<TopologyXml>,
    /// Kubernetes manifests.
    pub manifests: Vec<Manifest>,
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

    /// The processes, if there are NCCL lines.
    pub fn nccl_log(&self) -> Result<&[Process], Missing> {
        if self.processes.is_empty() { Err(Missing(Source::NcclLog)) } else { Ok(&self.processes) }
    }

    /// The communicators, if there are lines that show connections.
    pub fn connections(&self) -> Result<&[Communicator], Missing> {
        self.nccl_log()?;
        if self.communicators.iter().any(|it| it.links().next().is_some()) {
            Ok(&self.communicators)
        } else {
            Err(Missing(Source::Connections))
        }
    }

    /// The sightings of a signal, in the order of the input.
    pub fn sightings_of<'a>(&'a self, signal: &'a Signal) -> impl Iterator<Item = &'a Sighting> {
        self.sightings.iter().filter(move |it| it.signal == signal)
    }

    /// The first sighting of any of these signals.
    pub fn first_of(&self, signals: &[&Signal]) -> Option<&Sighting> {
        self.sightings.iter().find(|it| signals.contains(&it.signal))
    }

    /// The sightings of any of these signals. If there is none, `source` must
    /// have been given for the answer to be "nothing found" rather than "not looked".
    pub fn look_for(&self, signals: &[&Signal], source: Source) -> Result<Vec<&Sighting>, Missing> {
        let found: Vec<&Sighting> = self.sightings.iter().filter(|it| signals.contains(&it.signal)).collect();
        if found.is_empty() && !self.has(source) { Err(Missing(source)) } else { Ok(found) }
    }

    /// Whether a source was given.
    pub fn has(&self, source: Source) -> bool {
        let tally = self.sources.tally();
        let lines = |kind: Kind| tally.by_kind.get(kind as usize).copied().unwrap_or_default() > 0;
        match source {
            Source::JobOutput => lines(Kind::NcclLog) || lines(Kind::TrainingLog) || lines(Kind::NcclTests),
            Source::NcclLog => !self.processes.is_empty(),
            Source::Connections => self.connections().is_ok(),
            Source::AllRanks => self.world().is_some_and(|it| it.absent().is_empty()),
            Source::GraphLines => self
                .processes
                .iter()
                .any(|it| !it.facts.gpudirect_by_distance.is_empty() || !it.facts.hca_gpudirect.is_empty()),
            Source::KernelLog => lines(Kind::KernelLog),
            Source::TopologyMatrix => !self.matrices.is_empty(),
            Source::TopologyXml => !self.xml.is_empty(),
            Source::Instance => self.instance().is_some(),
            Source::NcclTests => !self.tests.is_empty(),
            Source::LaunchCommand => !self.manifests.is_empty(),
            Source::TrainingLog => !self.training.is_empty(),
            Source::FabricDiagnostics | Source::Limits => false,
        }
    }

    /// The communicator of the whole job: the largest, the first of several.
    pub fn world(&self) -> Option<&Communicator> {
        let largest = self.communicators.iter().filter_map(|it| it.n_ranks).max()?;
        self.communicators.iter().find(|it| it.n_ranks == Some(largest))
    }

    /// How many ranks the job has.
    pub fn n_ranks(&self) -> Option<u32> {
        self.world().and_then(|it| it.n_ranks).or_else(|| {
            let devices = self.tests.iter().map(|it| it.devices.len()).max().filter(|it| *it > 0)?;
            u32::try_from(devices).ok()
        })
    }

    /// Whether no GPU takes part: all processes are of plumb's own engine, whose data is in host memory.
    pub fn is_in_host_memory(&self) -> bool {
        !self.processes.is_empty() && self.processes.iter().all(|it| it.facts.host_memory.first().is_some())
    }

    /// How many nodes NCCL counts, or how many hosts were seen.
    pub fn n_nodes(&self) -> Option<u32> {
        self.world().and_then(Communicator::n_nodes).or_else(|| {
            let hosts: BTreeSet<&str> =
                self.processes.iter().map(|it| &*it.host).filter(|it| !it.is_empty()).collect();
            let tested: BTreeSet<&str> =
                self.tests.iter().flat_map(|it| &it.devices).map(|it| &*it.host).collect();
            let complete = self.world().is_some_and(|it| it.absent().is_empty());
            let n = if hosts.is_empty() {
                tested.len()
            } else if complete {
                hosts.len()
            } else {
                return None;
            };
            u32::try_from(n).ok().filter(|it| *it > 0)
        })
    }

    /// Whether the job is known to span hosts.
    pub fn spans_nodes(&self) -> Option<bool> {
        if let Some(n) = self.n_nodes() {
            return Some(n > 1);
        }
        let hosts: BTreeSet<&str> =
            self.processes.iter().map(|it| &*it.host).filter(|it| !it.is_empty()).collect();
        (hosts.len() > 1).then_some(true)
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

    /// The name of the machine, as the plugin, a manifest or a note tells it.
    pub fn instance_name(&self) -> Option<(&str, &Quote)> {
        let plugin = self.processes.iter().find_map(|it| it.facts.ofi.instance.first());
        let manifest = || self.manifests.iter().find_map(|it| it.instance.first());
        plugin.or_else(manifest).map(|it| (&*it.value, &it.quote)).or_else(|| {
            let note = self.sightings_of(&crate::signals::notes::INSTANCE_TYPE).next()?;
            Some((note.get("type"), &note.quote))
        })
    }

    /// The machine, if it is in the catalogue.
    pub fn instance(&self) -> Option<&'static instance::Instance> {
        instance::find(self.instance_name()?.0)
    }

    /// The NCCL release, by any process or banner.
    pub fn nccl_version(&self) -> Option<(Version, &Quote)> {
        let logged = self.processes.iter().find_map(|it| {
            let seen = it.facts.version.first()?;
            Some((Version::parse(&seen.value)?, &seen.quote))
        });
        logged.or_else(|| {
            self.banners.iter().find_map(|it| {
                let (_, rest) = it.value.split_once("NCCL version ")?;
                Some((Version::parse(rest)?, &it.quote))
            })
        })
    }

    /// The plugin's release.
    pub fn plugin_version(&self) -> Option<(Version, &Quote)> {
        self.processes.iter().find_map(|it| {
            let seen = it.facts.ofi.version.first()?;
            Some((Version::parse(&seen.value)?, &seen.quote))
        })
    }

    /// A variable as NCCL read it: value, process and line, for each process that printed it;
    /// then as manifests and pasted settings give it, without a process.
    pub fn variable<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = (&'a str, Option<&'a Process>, &'a Quote)> {
        let logged = self.processes.iter().flat_map(move |process| {
            let environment = process.facts.environment.iter();
            environment
                .filter(move |it| &*it.value.name == name)
                .map(move |it| (&*it.value.value, Some(process), &it.quote))
        });
        let written = self.manifests.iter().flat_map(move |it| {
            it.environment
                .iter()
                .filter(move |it| &*it.value.name == name)
                .map(|it| (&*it.value.value, None, &it.quote))
        });
        let pasted = self.sightings_of(&crate::signals::notes::ASSIGNMENT).filter(move |it| {
            // `NCCL_IB_HCA=mlx5` is read as name `IB_HCA` after its fixed beginning.
            it.quote.text.contains(&format!("{name}=")) || it.quote.text.contains(&format!("{name}: "))
        });
        let pasted = pasted.map(move |it| {
            let text = &it.quote.text;
            let start = text.find(&format!("{name}=")).or_else(|| text.find(&format!("{name}: ")));
            let value = start.and_then(|at| text.get(at + name.len() + 1..)).unwrap_or_default().trim_start();
            let end = value.find([' ', ';', '"', '\'', '\t']).unwrap_or(value.len());
            (value.get(..end).unwrap_or_default(), None, &it.quote)
        });
        logged.chain(written).chain(pasted)
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

/// The problem of a file that is not text.
pub const BINARY: &str = "is binary, not text: left out";

/// Puts a [`Case`] together from regions, in the order of the input.
#[derive(Debug, Default)]
pub struct CaseBuilder {
    sources: Sources,
    processes: Vec<Gathered>,
    places: FxHashMap<(Box<str>, u32), usize>,
    sightings: Vec<Sighting>,
    sighting_places: FxHashMap<u64, usize>,
    blocks: Blocks,
    loose: Loose,
}

#[derive(Debug)]
struct Gathered {
    host: Box<str>,
    pid: u32,
    first: Spot,
    facts: Box<ProcessFacts>,
    threads: Vec<ThreadFacts>,
    places: FxHashMap<u32, usize>,
}

impl Gathered {
    fn add(&mut self, thread: ThreadFacts) {
        // Few threads are found faster one by one than by a table.
        let place = if self.threads.len() <= 16 {
            self.threads.iter().position(|it| it.tid == thread.tid)
        } else {
            if self.places.is_empty() {
                self.places = self.threads.iter().enumerate().map(|(at, it)| (it.tid, at)).collect();
            }
            self.places.get(&thread.tid).copied()
        };
        match place.and_then(|at| self.threads.get_mut(at)) {
            Some(known) => known.merge(thread),
            None => {
                if !self.places.is_empty() {
                    self.places.insert(thread.tid, self.threads.len());
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
    pub fn absorb(&mut self, file: u32, facts: Facts) {
        self.sources.begin_region(file);
        if let Some(file) = self.sources.files.get_mut(file as usize) {
            file.tally.add(&facts.tally);
            if facts.binary {
                file.problem = Some(BINARY.into());
            }
        }
        for raw in facts.processes {
            let key = (raw.host.clone(), raw.pid);
            match self.places.get(&key).and_then(|&at| self.processes.get_mut(at)) {
                Some(process) => {
                    process.facts.merge(*raw.facts);
                    raw.threads.into_iter().for_each(|it| process.add(it));
                }
                None => {
                    self.places.insert(key, self.processes.len());
                    let mut process = Gathered {
                        host: raw.host,
                        pid: raw.pid,
                        first: raw.first.unwrap_or(Spot { region: 0, line: 0 }),
                        facts: raw.facts,
                        threads: Vec::with_capacity(raw.threads.len()),
                        places: FxHashMap::default(),
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
            if let Some(known) = self.sighting_places.get(&key).and_then(|&at| self.sightings.get_mut(at)) {
                known.count += sighting.count;
            } else if self.sightings.len() < Self::SIGHTING_LIMIT {
                self.sighting_places.insert(key, self.sightings.len());
                self.sightings.push(sighting);
            }
        }
        facts.plain.into_iter().for_each(|it| self.blocks.take(it));
        self.loose.merge(facts.loose);
    }

    /// Leaves a region out that could not be read, so that the numbers of later ones are right.
    pub fn skip_region(&mut self) {
        self.sources.begin_region(u32::MAX);
    }

    /// Ends a file, with the reason why it could not be read to its end, if so.
    pub fn end_file(&mut self, file: u32, problem: Option<&str>) {
        let found = self.blocks.end_file();
        if let Some(file) = self.sources.files.get_mut(file as usize) {
            file.problem = file.problem.take().or(problem.map(Into::into)).or(found);
        }
    }

    /// The case.
    pub fn finish(self) -> Case {
        let mut gathered = self.processes;
        gathered.sort_by_key(|it| it.first);
        let mut processes = Vec::with_capacity(gathered.len());
        let mut threads = Vec::with_capacity(gathered.len());
        for (place, it) in gathered.into_iter().enumerate() {
            processes.push(Process { host: it.host, pid: it.pid, rank: None, facts: it.facts });
            threads.push((place, it.threads));
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
        Case {
            sources: self.sources,
            processes,
            communicators,
            sightings: self.sightings,
            tests: self.blocks.tests,
            matrices: self.blocks.matrices,
            xml: self.blocks.xml,
            manifests: self.blocks.manifests,
            training: self.loose.training,
            protocols: self.loose.protocols,
            banners: self.loose.banners,
        }
    }
}
