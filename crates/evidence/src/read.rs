//! From bytes to facts: one chunk, independent of all others.

use std::hash::BuildHasher as _;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::chunk::{Chunk, Chunks};
use crate::facts::{About, ProcessFacts, ThreadFacts};
use crate::nccl::{self, Message, Phase, PluginEvent};
use crate::ofi::Known;
use crate::plain::{self, Plain};
use crate::prefix::{self, Anchor, Level, Line};
use crate::scan::text;
use crate::signals::{self, Sighting};
use crate::source::{Kind, Spot, Tally, Texts};

/// What one chunk says.
#[derive(Debug, Default)]
pub struct ChunkFacts {
    pub(crate) tally: Tally,
    pub(crate) processes: Vec<RawProcess>,
    pub(crate) sightings: Vec<Sighting>,
    /// Lines whose meaning depends on lines around them, for the [builder](crate::CaseBuilder).
    pub(crate) plain: Vec<Plain>,
}

/// One process, as far as a chunk shows it.
#[derive(Debug, Default)]
pub(crate) struct RawProcess {
    pub(crate) host: Box<str>,
    pub(crate) pid: u32,
    pub(crate) first: Option<Spot>,
    pub(crate) facts: ProcessFacts,
    pub(crate) threads: Vec<ThreadFacts>,
}

/// How many different processes are kept; a job has fewer.
const PROCESS_LIMIT: usize = 200_000;
/// How many sightings of one chunk are kept.
const SIGHTING_LIMIT: usize = 4096;

/// Reads one chunk. `number` counts the chunks of all inputs.
pub fn read_chunk(chunk: &Chunk, number: u32) -> ChunkFacts {
    let mut reader = Reader {
        facts: ChunkFacts::default(),
        anchor: Anchor::default(),
        threads: FxHashMap::default(),
        processes: FxHashMap::default(),
        sightings: FxHashMap::default(),
        last: (&[], (0, 0)),
        plain: plain::Classifier::new(chunk),
    };
    let texts = Texts::default();
    let bytes = chunk.bytes().strip_suffix(b"\n").unwrap_or(chunk.bytes());
    let mut start = 0;
    let mut line_number = 0;
    for end in memchr::memchr_iter(b'\n', bytes).chain([bytes.len()]) {
        let line = bytes.get(start..end).unwrap_or_default();
        reader.line(line, Spot { chunk: number, line: line_number }, &texts);
        start = end + 1;
        line_number += 1;
    }
    reader.facts.tally.lines = u64::from(line_number);
    texts.finish();
    reader.facts
}

struct Reader<'a> {
    facts: ChunkFacts,
    anchor: Anchor,
    /// From `HOST:PID:TID` to the places in `facts`.
    threads: FxHashMap<&'a [u8], (usize, usize)>,
    /// From `HOST:PID` to the place in `facts`.
    processes: FxHashMap<&'a [u8], usize>,
    /// From the hash of a sighting to its place in `facts`.
    sightings: FxHashMap<u64, usize>,
    /// The last thread: lines of one thread come in runs.
    last: (&'a [u8], (usize, usize)),
    plain: plain::Classifier,
}

impl<'a> Reader<'a> {
    fn line(&mut self, line: &'a [u8], spot: Spot, texts: &Texts) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = match line.get(..Chunks::<&[u8]>::LINE_LIMIT) {
            Some(cut) => {
                self.facts.tally.cut += 1;
                cut
            }
            None => line,
        };
        let understood = match self.anchor.split(line) {
            Some(it) => self.nccl(line, it, spot, texts).then_some(Kind::NcclLog),
            None => self.other(line, spot, texts),
        };
        if let Some(kind) = understood {
            self.facts.tally.count(kind, 1);
        }
    }

    /// A line without the NCCL anchor. Returns what kind of input it belongs to, if it was understood.
    fn other(&mut self, line: &'a [u8], spot: Spot, texts: &Texts) -> Option<Kind> {
        if line.iter().all(u8::is_ascii_whitespace) {
            self.facts.tally.blank += 1;
            // A blank line ends a table.
            self.plain.blank(spot, &mut self.facts.plain);
            return None;
        }
        // Progress bars overwrite their line; what follows the last return is what stays.
        let shown = memchr::memrchr(b'\r', line).and_then(|at| line.get(at + 1..)).unwrap_or(line);
        let structured = self.plain.classify(shown, spot, texts, &mut self.facts.plain);
        let signal = self.signals(line, line, None, false, spot, texts);
        structured.or(signal)
    }

    fn nccl(&mut self, line: &'a [u8], it: Line<'a>, spot: Spot, texts: &Texts) -> bool {
        if it.level == Level::Call || it.level == Level::Trace {
            return true;
        }
        let (process, thread) = self.thread(it.thread, spot);
        let Some(owner) = self.facts.processes.get_mut(process) else { return false };
        let quote = || texts.quote(spot, line);
        if it.level == Level::Warn {
            owner.facts.warnings.note(prefix::time(it.before), quote);
            let id = owner.id();
            self.signals(line, it.before, id, true, spot, texts);
            return true;
        }
        let message = nccl::parse(it.message);
        let facts = &mut owner.facts;
        let Some(thread) = owner.threads.get_mut(thread) else { return false };
        match message {
            Message::Routine => {}
            Message::Link(link) => thread.segment(About::Connections(false), spot).link(&link, quote),
            Message::Ring(ring) => thread.segment(About::Setup, spot).ring(ring, quote),
            Message::Trees(nodes) => thread.segment(About::Setup, spot).trees(nodes, quote),
            Message::Comm(it) => {
                let complete = it.phase == Phase::Complete || it.phase == Phase::End;
                thread.segment(About::Named(it.comm, complete), spot).comm(it, quote);
            }
            Message::Layout(it) => thread.segment(About::Named(it.comm, false), spot).layout(it, quote),
            Message::ChannelCounts(it) => thread.segment(About::Setup, spot).channels(it, quote),
            Message::RingsConnected { summary } => {
                thread.segment(About::Connections(true), spot).rings_connected(summary, quote);
            }
            Message::Connected(what) => thread.segment(About::Connections(true), spot).connected.note(text(what), quote),
            Message::Network(name) => thread.segment(About::Setup, spot).network(text(name), quote),
            Message::BootstrapTimings(it) => thread.segment(About::Setup, spot).bootstrap_timings(it, quote),
            Message::InitTimings(it) => thread.segment(About::Timings, spot).init_timings(it, quote),
            Message::Version(it) => facts.version.note(text(it), quote),
            Message::CudaDriver(it) => facts.cuda_driver.note(it, quote),
            Message::Environment { name, value } => facts.environment.note((text(name), text(value)), quote),
            Message::CommConfig(it) => facts.comm_config.note(text(it), quote),
            Message::Bootstrap(it) => facts.bootstrap.note(it, quote),
            Message::Sockets(it) => facts.sockets.note(it, quote),
            Message::Hcas(it) => facts.hcas.note(it, quote),
            Message::NoIbDevice => facts.no_ib_device.note((), quote),
            Message::HcaGpuDirect { enabled, hca } => facts.hca_gpudirect.note((text(hca), enabled), quote),
            Message::GpuDirectByDistance { enabled } => facts.gpudirect_by_distance.note(enabled, quote),
            Message::Nvls(it) => facts.nvls.note(it, quote),
            Message::DmaBuf => facts.dmabuf.note((), quote),
            Message::Ras(it) => facts.ras.note(text(it), quote),
            Message::Tuner(it) => facts.tuner.note(text(it), quote),
            Message::TopologyFile(it) => facts.topology_file.note(text(it), quote),
            Message::Propagated { code } => facts.propagated.note(code, quote),
            Message::Plugin(event) => {
                let failed = matches!(event, PluginEvent::NotFound { .. });
                facts.plugins.note(event, quote);
                if failed {
                    // Why a plugin could not be loaded is told by signals.
                    let id = owner.id();
                    self.signals(line, it.before, id, false, spot, texts);
                }
            }
            Message::Ofi(rest) => {
                let known = facts.ofi.note(&text(rest), quote);
                if known == Known::Routine {
                    return true;
                }
                let id = owner.id();
                return self.signals(line, it.before, id, false, spot, texts).is_some() || known == Known::Telling;
            }
            Message::Unknown => {
                let id = owner.id();
                return self.signals(line, it.before, id, false, spot, texts).is_some();
            }
        }
        true
    }

    fn signals(
        &mut self,
        line: &[u8],
        before: &[u8],
        process: Option<(Box<str>, u32)>,
        warning: bool,
        spot: Spot,
        texts: &Texts,
    ) -> Option<Kind> {
        let found = signals::book().find(line);
        let kind = found.first().map(|it| it.signal.kind);
        for found in found {
            let captures: Vec<_> = found.captures.iter().map(|it| (it.0, text(it.1))).collect();
            let rank = plain::rank_label(line);
            let key = FxBuildHasher.hash_one((found.signal.name, rank, &process, &captures));
            let known = self.sightings.get(&key).and_then(|&at| self.facts.sightings.get_mut(at));
            if let Some(sighting) = known {
                sighting.count += 1;
            } else if self.facts.sightings.len() < SIGHTING_LIMIT {
                self.sightings.insert(key, self.facts.sightings.len());
                self.facts.sightings.push(Sighting {
                    signal: found.signal,
                    captures,
                    quote: texts.quote(spot, line),
                    count: 1,
                    process: process.clone(),
                    rank,
                    time: prefix::time(before).map(Into::into),
                    warning,
                });
            }
        }
        kind
    }

    /// The places of a thread in the facts.
    fn thread(&mut self, name: &'a [u8], spot: Spot) -> (usize, usize) {
        if !self.threads.is_empty() && self.last.0 == name {
            return self.last.1;
        }
        let places = match self.threads.get(name) {
            Some(&places) => places,
            None => {
                let places = self.new_thread(name, spot);
                self.threads.insert(name, places);
                places
            }
        };
        self.last = (name, places);
        places
    }

    fn new_thread(&mut self, name: &'a [u8], spot: Spot) -> (usize, usize) {
        let it = prefix::thread(name).unwrap_or(prefix::Thread { host: "", pid: 0, tid: 0 });
        let key = memchr::memrchr(b':', name).and_then(|end| name.get(..end)).unwrap_or_default();
        let processes = &mut self.facts.processes;
        let process = match self.processes.get(key) {
            Some(&process) => process,
            None if processes.len() < PROCESS_LIMIT => {
                let first = Some(spot);
                processes.push(RawProcess { host: it.host.into(), pid: it.pid, first, ..RawProcess::default() });
                self.processes.insert(key, processes.len() - 1);
                processes.len() - 1
            }
            None => processes.len() - 1,
        };
        let Some(owner) = processes.get_mut(process) else { return (0, 0) };
        owner.threads.push(ThreadFacts { tid: it.tid, segments: Vec::new() });
        (process, owner.threads.len() - 1)
    }
}

impl RawProcess {
    fn id(&self) -> Option<(Box<str>, u32)> {
        (!self.host.is_empty()).then(|| (self.host.clone(), self.pid))
    }
}
