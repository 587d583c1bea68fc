//! Lines that NCCL did not write: tables, trainers, launchers, exceptions, and NCCL's messages without what it puts before
//! them.

use std::sync::LazyLock;

use memchr::memmem;

use super::{Facts, OPENING_LIMIT, Reader, SIGHTING_LIMIT};
use crate::catalogue::{Libfabric, LibfabricWarning};
use crate::ending;
use crate::plain;
use crate::prefix::{self, Level, Line};
use crate::shape::Repeated;
use crate::source::{Kind, Quote, Spot, Tally};
use crate::{nccl, strip};

/// How many lines of tables and documents of one region are kept.
const PLAIN_LIMIT: usize = 500_000;
/// The first line of a region that has a label, or none.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) rank: Option<u32>,
    line: Box<[u8]>,
    pub(crate) spot: Spot,
    /// What it was counted as.
    pub(crate) counted: Option<Kind>,
}

impl Opening {
    /// What the line says as the text of NCCL's last warning.
    pub(crate) fn as_last_error(&self) -> Facts {
        let mut reader = Reader::new(self.spot.region);
        reader.last_error.push(self.rank);
        let kind = reader.other(&self.line, self.spot);
        let mut facts = reader.facts;
        facts.sightings.iter_mut().for_each(|it| it.count = 0);
        let Facts { processes, sightings, last_errors, .. } = facts;
        let mut tally = Tally::default();
        if let Some(kind) = kind {
            tally.count(kind, 1);
        }
        Facts { tally, processes, sightings, last_errors, ..Facts::default() }
    }
}

impl Reader {
    /// A line without the NCCL anchor. Returns what kind of input it belongs to, if it was understood.
    pub(super) fn other(&mut self, line: &[u8], spot: Spot) -> Option<Kind> {
        let kind = self.read_other(line, spot);
        if let Some(opening) = self.facts.openings.last_mut().filter(|it| it.spot == spot) {
            opening.counted = kind;
        }
        kind
    }

    fn read_other(&mut self, line: &[u8], spot: Spot) -> Option<Kind> {
        if line.iter().all(u8::is_ascii_whitespace) {
            self.facts.tally.blank += 1;
            // A blank line ends a table.
            let plain = self.plain.get_or_insert_with(plain::Classifier::inside);
            plain.blank(spot, &mut self.facts.plain);
            return None;
        }
        let shown = shown(line);
        self.overwritten(line);
        let structured = self.structured(shown, spot);
        if let Some(it) = self.last_error(line, spot) {
            if self.facts.last_errors.len() < SIGHTING_LIMIT {
                self.facts.last_errors.push(spot);
            }
            return self.nccl(line, it, spot).then_some(Kind::NcclLog);
        }
        let libfabric = self.libfabric(shown, spot);
        let signal = self.signals(line, line, None, false, spot);
        let mut known = structured.or(signal).or(libfabric);
        // A step of a training run is most of a long log, and says nothing else.
        if known.is_none() && ending::is_progress(shown) && !ending::may_end(shown) {
            self.facts.endings.progress = Some(spot);
            self.repeated = Some(Repeated { progress: true, ..Repeated::default() });
            return None;
        }
        if known.is_none() {
            // A message of NCCL without what NCCL puts before it, or the end of one.
            let mut messages = std::iter::once(line).chain(strip::layers(line));
            if let Some(message) = messages.find(|it| nccl::parse(it).is_unmistakable()) {
                return self
                    .nccl(line, without_head(line, message, Level::Info), spot)
                    .then_some(Kind::NcclLog);
            }
            if let Some(message) = nccl::completed(line) {
                let it = Line { message: &message, ..without_head(line, b"", Level::Info) };
                return self.nccl(line, it, spot).then_some(Kind::NcclLog);
            }
            let part = self.part_of_signal(strip::bare(line), false);
            known = part.and_then(|it| self.record(vec![it], line, line, None, false, spot));
        }
        let ended = self.ending(shown, structured, known.is_some(), spot).or_else(|| {
            // What a launcher or a logger puts before the line can hide its form.
            let bare = strip::bare(shown);
            if bare.len() == shown.len() {
                None
            } else {
                self.ending(bare, structured, known.is_some(), spot)
            }
        });
        let training = structured == Some(Kind::TrainingLog);
        let silent = signal.or(libfabric).or(ended).is_none() && Libfabric::split(shown).is_none();
        if silent && (known.is_none() || training) && self.last_error.is_empty() && !ending::may_end(shown) {
            let progress = self.facts.endings.progress == Some(spot);
            self.repeated = Some(Repeated { progress, training, ..Repeated::default() });
        }
        known.or(ended)
    }

    /// What a progress bar showed before it was drawn again on the same line.
    pub(super) fn overwritten(&mut self, line: &[u8]) {
        let Some(end) = memchr::memrchr(b'\r', line) else { return };
        let before = line.get(..end).unwrap_or_default();
        if memmem::find(before, b"it").is_some() {
            for part in before.split(|it| *it == b'\r') {
                self.facts.loose.training.overwritten(part);
            }
        }
    }

    /// A line of a table, a document or a trainer.
    pub(super) fn structured(&mut self, shown: &[u8], spot: Spot) -> Option<Kind> {
        let plain = self.plain.get_or_insert_with(plain::Classifier::inside);
        if self.facts.plain.len() < PLAIN_LIMIT {
            plain.classify(shown, spot, &mut self.facts.loose, &mut self.facts.plain)
        } else {
            None
        }
    }

    /// NCCL's last warning, as PyTorch and XLA print it: without what NCCL puts before it.
    fn last_error<'a>(&mut self, line: &'a [u8], spot: Spot) -> Option<Line<'a>> {
        static LAST: LazyLock<memmem::Finder<'_>> = LazyLock::new(|| memmem::Finder::new("Last "));
        let opening = self.others < OPENING_LIMIT;
        self.others += 1;
        if opening || !self.last_error.is_empty() {
            let rank = plain::rank_label(line);
            if opening && self.facts.openings.iter().all(|it| it.rank != rank) {
                self.facts.openings.push(Opening { rank, line: line.into(), spot, counted: None });
            }
            if let Some(at) = self.last_error.iter().position(|it| *it == rank) {
                let text = strip::bare(line);
                // Another announcement is not the text of the one before it.
                if text.trim_ascii() == b"Last error:" {
                    return None;
                }
                self.last_error.swap_remove(at);
                let is_text = !text.is_empty() && !text.starts_with(b"Exception raised from");
                return is_text.then(|| without_head(line, text, Level::Warn));
            }
        }
        LAST.find(line)?;
        if let Some(at) = memmem::find(line, b"Last error:") {
            let text = line.get(at + 11..)?;
            if !text.trim_ascii().is_empty() {
                return Some(without_head(line, text.trim_ascii_start(), Level::Warn));
            }
            if self.last_error.len() < 64 {
                self.last_error.push(plain::rank_label(line));
            }
            return None;
        }
        let at = memmem::find(line, b"Last NCCL warning(error) log entry")?;
        let text = line.get(at..)?;
        let text = text.get(memchr::memchr(b'\'', text)? + 1..)?;
        Some(without_head(line, text, Level::Warn))
    }

    /// Notes how a job ended, or that it is at work.
    fn ending(&mut self, line: &[u8], structured: Option<Kind>, known: bool, spot: Spot) -> Option<Kind> {
        match structured {
            Some(Kind::TrainingLog) | None => {
                let endings = &mut self.facts.endings;
                let noted = endings.note(line, spot, plain::rank_label(line), prefix::time(line), known);
                noted.then_some(Kind::TrainingLog)
            }
            Some(Kind::NcclTests) => {
                self.facts.endings.progress = Some(spot);
                None
            }
            Some(_) => None,
        }
    }

    /// A line of libfabric; its warnings are kept.
    fn libfabric(&mut self, line: &[u8], spot: Spot) -> Option<Kind> {
        let it = Libfabric::split(line)?;
        let entry = it.entry().map(|it| it.entry);
        if it.warning {
            let warning = LibfabricWarning {
                quote: Quote::new(spot, line),
                pid: it.pid,
                provider: it.provider.into(),
                entry,
                count: 1,
            };
            LibfabricWarning::merge(&mut self.facts.libfabric, warning);
        }
        entry.map(|_| Kind::NcclLog)
    }
}

/// Progress bars overwrite their line; what follows the last return is what stays.
pub(super) fn shown(line: &[u8]) -> &[u8] {
    memchr::memrchr(b'\r', line).and_then(|at| line.get(at + 1..)).unwrap_or(line)
}

/// A message that ends `line` and has no thread before it.
fn without_head<'a>(line: &'a [u8], message: &'a [u8], level: Level) -> Line<'a> {
    let before = line.get(..line.len() - message.len()).unwrap_or_default();
    Line { level, thread: b"", before, location: b"", message }
}
