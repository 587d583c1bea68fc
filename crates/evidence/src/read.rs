//! From bytes to facts: one region of a file, independent of all others.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::chunk::Chunks;
use crate::facts::{AdapterGpuDirect, Assignment, Connected, ProcessFacts, Via};
use crate::mend::{Mender, Whole};
use crate::nccl::{self, Message, Phase, PluginEvent};
use crate::plain::{self, Loose, Plain};
use crate::plugin::Known;
use crate::prefix::{self, Anchor, Level, Line};
use crate::scan::text;
use crate::segment::{About, Life, ThreadFacts};
use crate::signals::{self, Capture, Found, ProcessId, Sighting};
use crate::source::{Kind, Quote, Spot, Tally};
use crate::strip;

/// What one region says.
#[derive(Debug, Default)]
pub struct Facts {
    pub(crate) tally: Tally,
    pub(crate) processes: Vec<RawProcess>,
    pub(crate) sightings: Vec<Sighting>,
    /// Lines whose meaning depends on lines around them, for the [builder](crate::CaseBuilder).
    pub(crate) plain: Vec<Plain>,
    pub(crate) loose: Loose,
    /// The file is not text.
    pub(crate) binary: bool,
    /// Where the text of NCCL's last warning is.
    pub(crate) last_errors: Vec<Spot>,
    /// The ranks, as labels say, that announced NCCL's last warning and did not print it in this region.
    pub(crate) awaited: Vec<Option<u32>>,
    /// The first line of each label: it may be what the region before this one announced.
    pub(crate) openings: Vec<Opening>,
}

/// The first line of a region that has a label, or none.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) rank: Option<u32>,
    line: Box<[u8]>,
    spot: Spot,
}

impl Opening {
    /// What the line says as the text of NCCL's last warning. The line itself is already counted.
    pub(crate) fn as_last_error(&self) -> Facts {
        let mut reader = Reader::new(self.spot.region);
        reader.last_error.push(self.rank);
        reader.other(&self.line, self.spot);
        let mut facts = reader.facts;
        facts.sightings.iter_mut().for_each(|it| it.count = 0);
        let Facts { processes, sightings, last_errors, .. } = facts;
        Facts { processes, sightings, last_errors, ..Facts::default() }
    }
}

/// One process, as far as a region shows it.
#[derive(Debug, Default)]
pub(crate) struct RawProcess {
    pub(crate) host: Box<str>,
    pub(crate) pid: u32,
    pub(crate) first: Option<Spot>,
    pub(crate) facts: Box<ProcessFacts>,
    pub(crate) threads: Vec<ThreadFacts>,
}

/// How many different processes of one region are kept; a job has fewer.
const PROCESS_LIMIT: usize = 100_000;
/// How many sightings of one region are kept.
const SIGHTING_LIMIT: usize = 50_000;
/// How many bytes of NCCL lines keep their text as evidence; a job's first lines say the most.
const QUOTED_LIMIT: usize = 8 * 1024 * 1024;
/// How many lines of tables and documents of one region are kept.
const PLAIN_LIMIT: usize = 500_000;
/// How many lines of a region are looked at for its first line of each label.
const OPENING_LIMIT: usize = 64;
/// How many lines of one region are compared with every signal in part, because they may have been cut.
const CUT_LIMIT: usize = 300;

/// Reads a region: a file, or a part of one that begins and ends at line ends.
#[derive(Debug)]
pub struct Reader {
    region: u32,
    facts: Facts,
    anchor: Anchor,
    /// From `HOST:PID:TID` to the indices in `facts`.
    threads: FxHashMap<Box<[u8]>, (usize, usize)>,
    /// From `HOST:PID` to the index in `facts`.
    processes: FxHashMap<Box<[u8]>, usize>,
    /// From the hash of a sighting to its index in `facts`.
    sightings: FxHashMap<u64, usize>,
    /// The last thread: lines of one thread come in runs.
    last: (Vec<u8>, (usize, usize)),
    /// The transports that were printed after `via`.
    vias: FxHashMap<Box<[u8]>, Via>,
    /// The names of networks.
    networks: Vec<Arc<str>>,
    /// How many bytes of NCCL lines were quoted.
    quoted: usize,
    plain: Option<plain::Classifier>,
    /// How the lines were broken on their way here; known from the first ones.
    mender: Option<Mender>,
    /// The end of the line is missing.
    cut: bool,
    /// Lines that NCCL did not write.
    others: usize,
    /// Lines that were compared in part.
    compared: usize,
    /// The ranks, as labels say, whose next line is the text of NCCL's last warning.
    last_error: Vec<Option<u32>>,
    lines: u32,
    /// The file is not text: nothing of it is read.
    binary: bool,
}

impl Reader {
    /// `region` counts the regions of all inputs.
    pub fn new(region: u32) -> Self {
        Self {
            region,
            facts: Facts::default(),
            anchor: Anchor::default(),
            threads: FxHashMap::default(),
            processes: FxHashMap::default(),
            sightings: FxHashMap::default(),
            last: (Vec::new(), (0, 0)),
            vias: FxHashMap::default(),
            networks: Vec::new(),
            quoted: 0,
            plain: None,
            mender: None,
            cut: false,
            others: 0,
            compared: 0,
            last_error: Vec::new(),
            lines: 0,
            binary: false,
        }
    }

    /// Reads whole lines. `beginning` means that the file begins with them.
    pub fn feed(&mut self, bytes: &[u8], beginning: bool) {
        if beginning {
            self.plain = Some(plain::Classifier::new(bytes));
            self.binary = is_binary(bytes);
        }
        if self.binary {
            let lines = memchr::memchr_iter(b'\n', bytes).count() + usize::from(!bytes.ends_with(b"\n"));
            self.lines = self.lines.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
            return;
        }
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let mut mender = self.mender.take().unwrap_or_else(|| Mender::new(bytes, beginning));
        let idle = mender.is_idle(bytes);
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes).chain([bytes.len()]) {
            let line = bytes.get(start..end).unwrap_or_default();
            let spot = Spot { region: self.region, line: self.lines };
            if idle {
                if let Some(kind) = self.line(line, mender.marks, spot) {
                    self.facts.tally.count(kind, 1);
                }
            } else {
                let marks = mender.marks;
                mender.take(line, spot, &mut |it| self.whole(&it, marks));
            }
            start = end + 1;
            self.lines = self.lines.saturating_add(1);
        }
        self.mender = Some(mender);
    }

    /// A line that was put together from several, or is a part of one.
    fn whole(&mut self, it: &Whole<'_>, marks: strip::Marks) {
        self.cut = it.cut;
        if let Some(kind) = self.line(it.text, marks, it.spot) {
            self.facts.tally.count(kind, u64::from(it.lines));
        }
        self.cut = false;
    }

    /// What was read.
    pub fn finish(mut self) -> Facts {
        if let Some(mut mender) = self.mender.take() {
            let marks = mender.marks;
            mender.end(&mut |it| self.whole(&it, marks));
        }
        self.facts.tally.lines = u64::from(self.lines);
        self.facts.awaited = self.last_error;
        self.facts.binary = self.binary;
        self.facts
    }

    /// Reads a line. Returns what kind of input it belongs to, if it was understood.
    fn line(&mut self, line: &[u8], marks: strip::Marks, spot: Spot) -> Option<Kind> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = &*strip::unwrap(line, marks);
        let line = match line.get(..Chunks::<&[u8]>::LINE_LIMIT) {
            Some(cut) => {
                self.facts.tally.cut += 1;
                cut
            }
            None => line,
        };
        match self.anchor.split(line).or_else(|| prefix::old(line)) {
            Some(it) => self.nccl(line, it, spot).then_some(Kind::NcclLog),
            None => self.other(line, spot),
        }
    }

    /// A line without the NCCL anchor. Returns what kind of input it belongs to, if it was understood.
    fn other(&mut self, line: &[u8], spot: Spot) -> Option<Kind> {
        if line.iter().all(u8::is_ascii_whitespace) {
            self.facts.tally.blank += 1;
            // A blank line ends a table.
            let plain = self.plain.get_or_insert_with(plain::Classifier::inside);
            plain.blank(spot, &mut self.facts.plain);
            return None;
        }
        // Progress bars overwrite their line; what follows the last return is what stays.
        let shown = memchr::memrchr(b'\r', line).and_then(|at| line.get(at + 1..)).unwrap_or(line);
        let plain = self.plain.get_or_insert_with(plain::Classifier::inside);
        let structured = if self.facts.plain.len() < PLAIN_LIMIT {
            plain.classify(shown, spot, &mut self.facts.loose, &mut self.facts.plain)
        } else {
            None
        };
        if let Some(it) = self.last_error(line, spot) {
            if self.facts.last_errors.len() < SIGHTING_LIMIT {
                self.facts.last_errors.push(spot);
            }
            return self.nccl(line, it, spot).then_some(Kind::NcclLog);
        }
        let signal = self.signals(line, line, None, false, spot);
        let known = structured.or(signal);
        if known.is_some() {
            return known;
        }
        // A message of NCCL without what NCCL puts before it, or the end of one.
        let mut messages = std::iter::once(line).chain(strip::layers(line));
        if let Some(message) = messages.find(|it| nccl::parse(it).is_unmistakable()) {
            return self.nccl(line, without_head(line, message, Level::Info), spot).then_some(Kind::NcclLog);
        }
        if let Some(message) = nccl::completed(line) {
            let it = Line { message: &message, ..without_head(line, b"", Level::Info) };
            return self.nccl(line, it, spot).then_some(Kind::NcclLog);
        }
        let found = self.part_of_signal(strip::bare(line), false)?;
        self.record(vec![found], line, line, None, false, spot)
    }

    /// NCCL's last warning, as PyTorch and XLA print it: without what NCCL puts before it.
    fn last_error<'a>(&mut self, line: &'a [u8], spot: Spot) -> Option<Line<'a>> {
        let opening = self.others < OPENING_LIMIT;
        self.others += 1;
        if opening || !self.last_error.is_empty() {
            let rank = plain::rank_label(line);
            if opening && self.facts.openings.iter().all(|it| it.rank != rank) {
                self.facts.openings.push(Opening { rank, line: line.into(), spot });
            }
            if let Some(at) = self.last_error.iter().position(|it| *it == rank) {
                self.last_error.swap_remove(at);
                let text = strip::bare(line);
                let is_text = !text.is_empty() && !text.starts_with(b"Exception raised from");
                return is_text.then(|| without_head(line, text, Level::Warn));
            }
        }
        if let Some(at) = memchr::memmem::find(line, b"Last error:") {
            let text = line.get(at + 11..)?;
            if !text.trim_ascii().is_empty() {
                return Some(without_head(line, text.trim_ascii_start(), Level::Warn));
            }
            if self.last_error.len() < 64 {
                self.last_error.push(plain::rank_label(line));
            }
            return None;
        }
        let at = memchr::memmem::find(line, b"Last NCCL warning(error) log entry")?;
        let text = line.get(at..)?;
        let text = text.get(memchr::memchr(b'\'', text)? + 1..)?;
        Some(without_head(line, text, Level::Warn))
    }

    fn nccl(&mut self, line: &[u8], it: Line<'_>, spot: Spot) -> bool {
        if it.level == Level::Call || it.level == Level::Trace {
            return true;
        }
        let Some((process, thread)) = self.thread(it.thread, spot) else { return false };
        let Some(owner) = self.facts.processes.get_mut(process) else { return false };
        // Every rank has such lines: beyond a limit their texts are not kept, only their positions.
        let quoted = &mut self.quoted;
        let quote = || {
            *quoted += line.len();
            if *quoted < QUOTED_LIMIT { Quote::new(spot, line) } else { Quote { spot, text: Box::default() } }
        };
        if it.level == Level::Warn {
            owner.facts.warnings.note(prefix::time(it.before), || Quote::new(spot, line));
            let id = owner.id();
            let is_last_error = self.facts.last_errors.last() == Some(&spot);
            self.signals(line, it.before, id.as_ref(), !is_last_error, spot);
            return true;
        }
        let message = nccl::parse(it.message);
        let facts = &mut owner.facts;
        let Some(thread) = owner.threads.get_mut(thread) else { return false };
        match message {
            Message::Routine | Message::Choice(_) => {}
            Message::HostMemory => facts.host_memory.note((), quote),
            Message::Link(mut found) => {
                // The transport is compared as it is kept.
                let readable;
                if str::from_utf8(found.via).is_err() {
                    readable = String::from_utf8_lossy(found.via).into_owned();
                    found.via = readable.as_bytes();
                }
                let vias = &mut self.vias;
                let via = || vias.entry(found.via.into()).or_insert_with(|| Via::new(found.via)).clone();
                thread.connections(false, spot).link(&found, via, quote);
            }
            Message::Ring(ring) => thread.setup(About::Setup, spot).ring(ring, quote),
            Message::Trees(nodes) => thread.setup(About::Setup, spot).trees(nodes, quote),
            Message::Comm(it) => {
                let stage = match it.phase {
                    Phase::Start => Life::Start,
                    Phase::Named => Life::Setup,
                    Phase::Complete => Life::Complete,
                    Phase::End => Life::End,
                };
                thread.setup(About::Named(it.comm, stage), spot).comm(it, quote);
            }
            Message::Layout(it) => thread.setup(About::Named(it.comm, Life::Setup), spot).layout(it, quote),
            Message::ChannelCounts(it) => thread.setup(About::Setup, spot).channels(it, quote),
            Message::RingsConnected { summary } => thread.connections(true, spot).rings(summary, quote),
            Message::Connected(what) => thread.connections(true, spot).connected.add(Connected::read(what)),
            Message::Network(name) => {
                let known = self.networks.iter().find(|it| is(it, name)).cloned();
                let name = known.unwrap_or_else(|| {
                    let name: Arc<str> = Arc::from(&*text(name));
                    self.networks.push(Arc::clone(&name));
                    name
                });
                facts.networks.note(Arc::clone(&name), || Quote::new(spot, line));
                thread.setup(About::Setup, spot).network(name, quote);
            }
            Message::BootstrapTimings(it) => thread.setup(About::Setup, spot).bootstrap_timings(it, quote),
            Message::InitTimings(it) => thread.setup(About::Timings, spot).init_timings(it, quote),
            Message::Version(it) => facts.version.note_if_new(|old| is(old, it), || text(it), quote),
            Message::CudaDriver(it) => facts.cuda_driver.note(it, quote),
            Message::Environment { name, value } => {
                let same = |old: &Assignment| is(&old.name, name) && is(&old.value, value);
                let new = || Assignment { name: text(name), value: text(value) };
                facts.environment.note_if_new(same, new, quote);
            }
            Message::CommConfig(it) => facts.comm_config.note_if_new(|old| is(old, it), || text(it), quote),
            Message::Bootstrap(it) => facts.bootstrap.note(it, quote),
            Message::Sockets(it) => facts.sockets.note(it, quote),
            Message::Hcas(it) => facts.hcas.note(it, quote),
            Message::NoIbDevice => facts.no_ib_device.note((), quote),
            Message::HcaGpuDirect { enabled, hca } => {
                let same = |old: &AdapterGpuDirect| old.enabled == enabled && is(&old.adapter, hca);
                let new = || AdapterGpuDirect { adapter: text(hca), enabled };
                facts.hca_gpudirect.note_if_new(same, new, quote);
            }
            Message::GpuDirectByDistance { enabled } => facts.gpudirect_by_distance.note(enabled, quote),
            Message::Nvls(it) => facts.nvls.note(it, quote),
            Message::DmaBuf => facts.dmabuf.note((), quote),
            Message::Ras(it) => facts.ras.note_if_new(|old| is(old, it), || text(it), quote),
            Message::Tuner(it) => facts.tuner.note_if_new(|old| is(old, it), || text(it), quote),
            Message::TopologyFile(it) => facts.topology_file.note(text(it), quote),
            Message::Propagated { code } => facts.propagated.note(code, quote),
            Message::Plugin(event) => {
                let failed = matches!(event, PluginEvent::NotFound { .. });
                facts.plugins.note(event, quote);
                if failed {
                    // Signals report why a plugin could not be loaded.
                    let id = owner.id();
                    self.signals(line, it.before, id.as_ref(), false, spot);
                }
            }
            Message::PluginLine { plugin, text: rest } => {
                let mut quote = quote;
                let known = (plugin.read)(&mut facts.plugin, &text(rest), &mut quote);
                if known == Known::Routine {
                    return true;
                }
                let id = owner.id();
                return self.signals(line, it.before, id.as_ref(), false, spot).is_some()
                    || known == Known::Telling;
            }
            Message::Unknown => {
                let id = owner.id();
                return self.signals(line, it.before, id.as_ref(), false, spot).is_some();
            }
        }
        true
    }

    fn signals(
        &mut self,
        line: &[u8],
        before: &[u8],
        process: Option<&ProcessId>,
        warning: bool,
        spot: Spot,
    ) -> Option<Kind> {
        let mut found = signals::book().find(line);
        if found.is_empty() && self.cut {
            found.extend(self.part_of_signal(line, true));
        }
        self.record(found, line, before, process, warning, spot)
    }

    /// The signal that a line without its end or its beginning is left of.
    fn part_of_signal<'a>(&mut self, line: &'a [u8], at_end: bool) -> Option<Found<'a>> {
        self.compared += 1;
        (self.compared <= CUT_LIMIT).then(|| signals::book().find_cut(line, at_end)).flatten()
    }

    fn record(
        &mut self,
        found: Vec<Found<'_>>,
        line: &[u8],
        before: &[u8],
        process: Option<&ProcessId>,
        warning: bool,
        spot: Spot,
    ) -> Option<Kind> {
        let kind = found.first().map(|it| it.signal.kind);
        for found in found {
            let owned = |it: &Capture<&[u8]>| Capture { name: it.name, text: text(it.text) };
            let captures: Vec<_> = found.captures.iter().map(owned).collect();
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
                    quote: Quote::new(spot, line),
                    count: 1,
                    process: process.cloned(),
                    rank,
                    time: prefix::time(before).map(Into::into),
                    warning,
                });
            }
        }
        kind
    }

    /// The indices of a thread in the facts.
    fn thread(&mut self, name: &[u8], spot: Spot) -> Option<(usize, usize)> {
        if self.last.0 == name && !self.threads.is_empty() {
            return Some(self.last.1);
        }
        let indices = match self.threads.get(name) {
            Some(&indices) => indices,
            None => {
                let indices = self.new_thread(name, spot)?;
                self.threads.insert(name.into(), indices);
                indices
            }
        };
        self.last.0.clear();
        self.last.0.extend_from_slice(name);
        self.last.1 = indices;
        Some(indices)
    }

    /// `None` beyond the limit: the lines of further processes count as not understood.
    fn new_thread(&mut self, name: &[u8], spot: Spot) -> Option<(usize, usize)> {
        let it = prefix::thread(name).unwrap_or(prefix::Thread { host: "", pid: 0, tid: 0 });
        let key = memchr::memrchr(b':', name).and_then(|end| name.get(..end)).unwrap_or_default();
        let processes = &mut self.facts.processes;
        let process = match self.processes.get(key) {
            Some(&process) => process,
            None if processes.len() < PROCESS_LIMIT => {
                let first = Some(spot);
                processes.push(RawProcess {
                    host: it.host.into(),
                    pid: it.pid,
                    first,
                    ..RawProcess::default()
                });
                self.processes.insert(key.into(), processes.len() - 1);
                processes.len() - 1
            }
            None => return None,
        };
        let owner = processes.get_mut(process)?;
        owner.threads.push(ThreadFacts::new(it.tid));
        Some((process, owner.threads.len() - 1))
    }
}

/// A message that ends `line` and has no thread before it.
fn without_head<'a>(line: &'a [u8], message: &'a [u8], level: Level) -> Line<'a> {
    let before = line.get(..line.len() - message.len()).unwrap_or_default();
    Line { level, thread: b"", before, location: b"", message }
}

/// Programs, images, core dumps: more than a few bytes that no text has. A log with holes stays a log.
pub fn is_binary(bytes: &[u8]) -> bool {
    let head = bytes.get(..bytes.len().min(4096)).unwrap_or_default();
    let strange = head.iter().filter(|it| matches!(it, 0..=8 | 14..=26 | 28..=31 | 127)).count();
    strange * 10 > head.len()
}

fn is(old: &str, new: &[u8]) -> bool {
    old.as_bytes() == new.trim_ascii()
}

impl RawProcess {
    fn id(&self) -> Option<ProcessId> {
        (!self.host.is_empty()).then(|| ProcessId { host: self.host.clone(), pid: self.pid })
    }
}
