//! From bytes to facts: one region of a file, independent of all others.

mod info;
mod other;

use std::hash::BuildHasher as _;
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::catalogue::LibfabricWarning;
use crate::chunk::Chunks;
use crate::ending::Endings;
use crate::facts::{ProcessFacts, Via};
use crate::mend::{Mender, Whole};
use crate::plain::{self, Loose, Plain};
use crate::prefix::{self, Anchor, Level, Line};
use crate::recorder;
use crate::scan::text;
use crate::segment::ThreadFacts;
use crate::shape::{Repeated, Shapes, is_table};
use crate::signals::{self, Capture, Found, ProcessId, Sighting};
use crate::source::{Kind, Quote, Spot, Tally};
use crate::strip;

use other::{Opening, shown};

/// What one region says.
#[derive(Debug, Default)]
pub struct Facts {
    pub(crate) tally: Tally,
    pub(crate) processes: Vec<RawProcess>,
    pub(crate) sightings: Vec<Sighting>,
    pub(crate) libfabric: Vec<LibfabricWarning>,
    /// Lines whose meaning depends on lines around them, for the [builder](crate::CaseBuilder).
    pub(crate) plain: Vec<Plain>,
    pub(crate) loose: Loose,
    /// Lines that say how something ended.
    pub(crate) endings: Endings,
    /// A dump or a status that is the whole file.
    pub(crate) recorded: recorder::Recorded,
    /// The file is not text.
    pub(crate) binary: bool,
    /// Where the text of NCCL's last warning is.
    pub(crate) last_errors: Vec<Spot>,
    /// The ranks, as labels say, that announced NCCL's last warning and did not print it in this region.
    pub(crate) awaited: Vec<Option<u32>>,
    /// The first line of each label: it may be what the region before this one announced.
    pub(crate) openings: Vec<Opening>,
}

/// One process, as far as a region shows it.
#[derive(Debug, Default)]
pub(crate) struct RawProcess {
    pub(crate) host: Box<str>,
    pub(crate) pid: u32,
    pub(crate) first: Option<Spot>,
    pub(crate) facts: Box<ProcessFacts>,
    pub(crate) threads: Vec<ThreadFacts>,
    /// The id and the index of the thread whose line was read last.
    recent: (u32, u32),
}

/// The beginning of an ordinary line, up to the message, and who wrote it.
#[derive(Debug, Default)]
struct Last {
    head: Vec<u8>,
    /// How much of `head` is `HOST:PID:TID`.
    name: usize,
    process: usize,
}

/// How many different processes of one region are kept; a job has fewer.
const PROCESS_LIMIT: usize = 100_000;
/// How many sightings of one region are kept.
const SIGHTING_LIMIT: usize = 50_000;
/// How many bytes of NCCL lines keep their text as evidence; a job's first lines say the most.
const QUOTED_LIMIT: usize = 8 * 1024 * 1024;
/// Shapes of lines are remembered from so many lines of other programs on: a short log is read faster without.
const SHAPED_AFTER: usize = 500;
/// The same for messages of NCCL, in lines of the region.
const SHAPED_AFTER_LINES: u32 = 2000;
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
    /// From `HOST:PID` to the index in `facts`.
    processes: FxHashMap<Box<[u8]>, usize>,
    /// From the index of a process and the id of a thread to the thread's index in the process.
    threads: FxHashMap<(u32, u32), u32>,
    /// From the hash of a sighting to its index in `facts`.
    sightings: FxHashMap<u64, usize>,
    /// What the last line began with: lines of one thread come in runs.
    last: Last,
    /// Messages that no parser reads and that say nothing to keep. The ranks of a job repeat each other, and looking
    /// them up again is slow.
    idle: Shapes,
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
    shapes: Shapes,
    /// What the last line and all of its shape say, if that is all.
    repeated: Option<Repeated>,
    /// A file that is read as a whole at its end.
    whole: Option<(recorder::Format, Vec<u8>)>,
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
            processes: FxHashMap::default(),
            threads: FxHashMap::default(),
            sightings: FxHashMap::default(),
            last: Last::default(),
            idle: Shapes::default(),
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
            shapes: Shapes::default(),
            repeated: None,
            whole: None,
            binary: false,
        }
    }

    /// Reads whole lines. `beginning` means that the file begins with them.
    pub fn feed(&mut self, bytes: &[u8], beginning: bool) {
        if beginning {
            self.whole = recorder::format(bytes).map(|it| (it, Vec::new()));
            self.plain = Some(plain::Classifier::new(bytes));
            self.facts.loose.training.opening(bytes.split(|it| *it == b'\n').next().unwrap_or_default());
            self.binary = is_binary(bytes);
        }
        if let Some((_, kept)) = &mut self.whole {
            let room = recorder::LIMIT.saturating_sub(kept.len()).min(bytes.len());
            kept.extend_from_slice(bytes.get(..room).unwrap_or_default());
        }
        if self.binary || self.whole.is_some() {
            let lines = memchr::memchr_iter(b'\n', bytes).count() + usize::from(!bytes.ends_with(b"\n"));
            self.lines = self.lines.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
            return;
        }
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let mut mender = self.mender.take().unwrap_or_else(|| Mender::new(bytes, beginning));
        mender.unlearn(bytes);
        let idle = mender.is_idle(bytes);
        let marks = mender.marks;
        let plainly = idle && marks == strip::Marks::default() && memchr::memchr(0x1b, bytes).is_none();
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes).chain([bytes.len()]) {
            let line = bytes.get(start..end).unwrap_or_default();
            let spot = Spot { region: self.region, line: self.lines };
            if !idle {
                mender.take(line, spot, &mut |it| self.whole_line(&it, marks));
            } else if !(plainly && self.ordinary(line, spot)) {
                self.any(line, marks, spot);
            }
            start = end + 1;
            self.lines = self.lines.saturating_add(1);
        }
        self.mender = Some(mender);
    }

    /// A line as it was written.
    fn any(&mut self, line: &[u8], marks: strip::Marks, spot: Spot) {
        // The first lines of a region, and those after an announcement, are kept or looked at as they are.
        let settled = self.others >= SHAPED_AFTER && self.last_error.is_empty();
        let shape = if settled && !is_table(line) { self.shapes.of(line) } else { None };
        if let Some(known) = shape.and_then(|it| self.shapes.recall(it)) {
            self.again(line, marks, spot, known);
            return;
        }
        self.repeated = None;
        if let Some(kind) = self.line(line, marks, spot) {
            self.facts.tally.count(kind, 1);
        }
        if let (Some(shape), Some(it)) = (shape, self.repeated) {
            self.shapes.remember(shape, line, it);
        }
    }

    /// A line of which one with other numbers was read before.
    fn again(&mut self, line: &[u8], marks: strip::Marks, spot: Spot, known: Repeated) {
        if known.progress {
            self.facts.endings.progress = Some(spot);
        }
        if known.training {
            let line = strip::unwrap(line.strip_suffix(b"\r").unwrap_or(line), marks);
            self.overwritten(&line);
            if let Some(kind) = self.structured(shown(&line), spot) {
                self.facts.tally.count(kind, 1);
            }
        }
    }

    /// A line that was put together from several, or is a part of one.
    fn whole_line(&mut self, it: &Whole<'_>, marks: strip::Marks) {
        if !it.cut && it.lines == 1 {
            self.any(it.text, marks, it.spot);
            return;
        }
        self.cut = it.cut;
        if let Some(kind) = self.line(it.text, marks, it.spot) {
            self.facts.tally.count(kind, u64::from(it.lines));
        }
        self.cut = false;
    }

    /// How many lines were read.
    pub fn lines(&self) -> u32 {
        self.lines
    }

    /// What was read.
    pub fn finish(mut self) -> Facts {
        if let Some(mut mender) = self.mender.take() {
            let marks = mender.marks;
            mender.end(&mut |it| self.whole_line(&it, marks));
        }
        self.facts.tally.lines = u64::from(self.lines);
        self.facts.binary = self.binary && self.whole.is_none();
        if let Some((format, bytes)) = self.whole.take() {
            self.facts.recorded = recorder::parse(format, &bytes, Spot { region: self.region, line: 0 });
            if self.facts.recorded.problem.is_none() {
                self.facts.tally.count(format.kind(), u64::from(self.lines));
            }
        }
        self.facts.awaited = self.last_error;
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

    /// Reads a line of the form that almost all NCCL lines have. Returns whether it has that form.
    fn ordinary(&mut self, line: &[u8], spot: Spot) -> bool {
        if line.len() >= Chunks::<&[u8]>::LINE_LIMIT || line.ends_with(b"\r") {
            return false;
        }
        if self.last.head.is_empty() || !line.starts_with(&self.last.head) {
            let Some((name, head)) = ordinary_head(line) else { return false };
            let Some(process) = line.get(..name).and_then(|it| self.process(it, spot)) else { return false };
            self.last.head.clear();
            self.last.head.extend_from_slice(line.get(..head).unwrap_or_default());
            (self.last.name, self.last.process) = (name, process);
        }
        let it = Line {
            level: Level::Info,
            thread: line.get(..self.last.name).unwrap_or_default(),
            before: &[],
            location: &[],
            message: line.get(self.last.head.len()..).unwrap_or_default(),
        };
        if self.info(line, it, self.last.process, spot) {
            self.facts.tally.count(Kind::NcclLog, 1);
        }
        true
    }

    fn nccl(&mut self, line: &[u8], it: Line<'_>, spot: Spot) -> bool {
        if it.level == Level::Call || it.level == Level::Trace {
            return true;
        }
        let Some(process) = self.process(it.thread, spot) else { return false };
        self.info(line, it, process, spot)
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
        if self.cut && signals::place::says_little(&found) {
            let part = self.part_of_signal(line, true).or_else(|| signals::place::find(line));
            let new = |part: &Found<'_>| found.iter().all(|it| it.signal != part.signal);
            found.extend(part.filter(new).map(signals::place::with_whole_errors));
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

    /// The index of a thread's process in the facts.
    ///
    /// `None` beyond the limit: the lines of further processes count as not understood.
    fn process(&mut self, name: &[u8], spot: Spot) -> Option<usize> {
        let key = memchr::memrchr(b':', name).and_then(|end| name.get(..end)).unwrap_or_default();
        if let Some(&process) = self.processes.get(key) {
            return Some(process);
        }
        let processes = &mut self.facts.processes;
        if processes.len() >= PROCESS_LIMIT {
            return None;
        }
        let it = prefix::thread(name).unwrap_or(prefix::Thread { host: "", pid: 0, tid: 0 });
        processes.push(RawProcess {
            host: it.host.into(),
            pid: it.pid,
            first: Some(spot),
            ..RawProcess::default()
        });
        self.processes.insert(key.into(), processes.len() - 1);
        Some(processes.len() - 1)
    }
}

/// The lengths of `HOST:PID:TID` and of `HOST:PID:TID [DEV] NCCL INFO `, if a line begins with that.
fn ordinary_head(line: &[u8]) -> Option<(usize, usize)> {
    let digits = |mut at: usize| {
        let start = at;
        while line.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        (at > start).then_some(at)
    };
    let is_host = |it: &u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.');
    let host = line.iter().take_while(|it| is_host(it)).count();
    if host == 0 || line.get(host) != Some(&b':') {
        return None;
    }
    let pid = digits(host + 1)?;
    if line.get(pid) != Some(&b':') {
        return None;
    }
    let tid = digits(pid + 1)?;
    if !line.get(tid..)?.starts_with(b" [") {
        return None;
    }
    let device = digits(tid + 2)?;
    line.get(device..)?.starts_with(b"] NCCL INFO ").then_some((tid, device + 12))
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

#[cfg(test)]
mod tests {
    use super::{Reader, ordinary_head};
    use crate::prefix::{Anchor, Level};

    /// The short way to read the beginning of a line finds what the long way finds, or nothing.
    #[test]
    fn ordinary_heads() {
        for (line, is_ordinary) in [
            ("node-0:191:726 [0] NCCL INFO Using network IB", true),
            ("10.0.0.1:1:2 [15] NCCL INFO ", true),
            ("a_b.c:1:2 [3] NCCL INFO x NCCL INFO y", true),
            ("node-0:191:726 [-1] NCCL INFO m", false),
            ("node-0:191:726 [0] init.cc:1 NCCL WARN m", false),
            ("a:1:2:3 [0] NCCL INFO m", false),
            (":1:2 [0] NCCL INFO m", false),
            ("0: node-0:1:2 [0] NCCL INFO m", false),
            ("node-0:1:2 NCCL CALL m", false),
        ] {
            let found = ordinary_head(line.as_bytes());
            assert_eq!(found.is_some(), is_ordinary, "{line}");
            if let Some((name, head)) = found {
                let it = Anchor::default().split(line.as_bytes()).unwrap();
                assert_eq!((it.level, it.before, it.location), (Level::Info, &[][..], &[][..]), "{line}");
                assert_eq!(it.thread, &line.as_bytes()[..name], "{line}");
                assert_eq!(it.message, &line.as_bytes()[head..], "{line}");
            }
        }
    }

    /// A message that nobody reads is counted alike the first time and later, whoever prints it.
    #[test]
    fn repeated_messages_count_alike() {
        let count = |text: &str| {
            let mut reader = Reader::new(0);
            reader.feed(text.as_bytes(), true);
            reader.finish().tally.understood()
        };
        for (message, understood) in [("dlopen of nothing that is known", 0), ("CC Off, x", 1)] {
            let line = |pid: u32| format!("h:{pid}:{pid} [0] NCCL INFO {message}\n");
            assert_eq!(count(&line(1)), understood, "{message}");
            assert_eq!(count(&[line(1), line(1), line(2), line(1)].concat()), 4 * understood, "{message}");
        }
    }
}
