//! Fills the buffers before a run and compares every element after it.

use fabric::Collective;
use serde::{Deserialize, Serialize};

use super::pattern::{self, POISON, Pattern};
use super::{Call, Engine, Side};
use crate::data::DataType;
use crate::failure::Failure;
use crate::layout::Layout;
use crate::plan::reduces;
use crate::run::Element;

/// Bytes that the host makes and compares at once.
const BLOCK: usize = 1 << 20;

/// What a rank found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Elements that are not what they should be.
    pub wrong: u64,
    /// The first of them.
    pub first: Option<Element>,
    /// Why an engine on a GPU compared on the host.
    pub on_host: Option<String>,
}

/// Elements in a row of one buffer that come from one rank.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Their values.
    pub pattern: Pattern,
    /// Who sends them.
    pub rank: usize,
    /// The index of the first of them in what that rank sends.
    pub from: usize,
    /// How many they are.
    pub count: usize,
    /// The buffer they are in.
    pub side: Side,
    /// The byte of it at which they begin.
    pub offset: usize,
}

impl Part {
    /// The type of the elements.
    pub(super) fn data_type(&self) -> DataType {
        self.pattern.data_type
    }

    /// Blocks that the host treats at once: the index of the first element, and how many bytes they have.
    fn blocks(&self) -> impl Iterator<Item = (usize, usize)> {
        let width = self.data_type().size();
        let bytes = self.count * width;
        (0..bytes).step_by(BLOCK).map(move |start| (start / width, (bytes - start).min(BLOCK)))
    }
}

/// Sets bytes of a buffer, from the host.
pub(super) fn set<E: Engine + ?Sized>(
    engine: &mut E,
    side: Side,
    bytes: usize,
    value: u8,
) -> Result<(), Failure> {
    let block = vec![value; bytes.min(BLOCK)];
    for start in (0..bytes).step_by(BLOCK) {
        engine.write(side, start, block.get(..(bytes - start).min(BLOCK)).unwrap_or_default())?;
    }
    Ok(())
}

/// Writes what a rank sends, from the host.
pub(super) fn fill<E: Engine + ?Sized>(engine: &mut E, part: &Part) -> Result<(), Failure> {
    let mut block = Vec::new();
    for (start, bytes) in part.blocks() {
        block.resize(bytes, 0);
        part.pattern.inputs(part.rank, part.from + start, &mut block);
        engine.write(part.side, part.offset + start * part.data_type().size(), &block)?;
    }
    Ok(())
}

/// Compares with what a rank should have received, on the host.
pub(super) fn compare<E: Engine + ?Sized>(engine: &mut E, part: &Part) -> Result<Found, Failure> {
    let mut found = Found::default();
    let (mut got, mut expected) = (Vec::new(), Vec::new());
    for (start, bytes) in part.blocks() {
        got.resize(bytes, 0);
        expected.resize(bytes, 0);
        engine.read(part.side, part.offset + start * part.data_type().size(), &mut got)?;
        part.pattern.results(part.rank, part.from + start, &mut expected);
        if got != expected {
            differences(&part.pattern, start, &got, &expected, &mut found);
        }
    }
    Ok(found)
}

/// One rank's part in a run that is verified.
#[derive(Debug, Clone, Copy)]
pub(super) struct Verified<'a> {
    /// What is run.
    pub(super) call: &'a Call,
    /// Its buffers.
    pub(super) layout: &'a Layout,
    /// This rank.
    pub(super) rank: usize,
    /// All ranks.
    pub(super) ranks: usize,
    /// Other for every run.
    pub(super) seed: u64,
}

impl Verified<'_> {
    /// Writes the input, and poison where the result will be.
    pub(super) fn fill(&self, engine: &mut dyn Engine) -> Result<(), Failure> {
        let width = self.call.data_type.size();
        engine.set(Side::Receive, self.layout.send.max(self.layout.receive) * width, POISON)?;
        let from_root = matches!(self.call.collective, Collective::Broadcast | Collective::Scatter);
        if from_root && self.rank != self.call.root {
            return Ok(());
        }
        let (side, offset) = if self.call.in_place {
            (Side::Receive, self.rank * self.layout.send_stride * width)
        } else {
            (Side::Send, 0)
        };
        let (pattern, count) = (self.pattern(), self.layout.send);
        engine.fill(&Part { pattern, rank: self.rank, from: 0, count, side, offset })
    }

    /// Compares the result.
    pub(super) fn check(&self, engine: &mut dyn Engine) -> Result<Found, Failure> {
        let mut all = Found::default();
        let to_root = matches!(self.call.collective, Collective::Reduce | Collective::Gather);
        if to_root && self.rank != self.call.root {
            return Ok(all);
        }
        let width = self.call.data_type.size();
        let begin = if self.call.in_place { self.rank * self.layout.receive_stride } else { 0 };
        // Whole parts: what comes from one rank, or all of it.
        let parts = match self.call.collective {
            Collective::AllGather | Collective::Gather | Collective::AllToAll => self.ranks,
            _ => 1,
        };
        let (pattern, count) = (self.pattern(), self.layout.receive / parts.max(1));
        for number in 0..parts {
            let (rank, from) = self.source(number);
            let place = number * count;
            let offset = (begin + place) * width;
            let found = engine.compare(&Part { pattern, rank, from, count, side: Side::Receive, offset })?;
            all.wrong += found.wrong;
            all.on_host = all.on_host.or(found.on_host);
            all.first = all.first.or(found.first.map(|it| Element { index: place + it.index, ..it }));
        }
        Ok(all)
    }

    fn pattern(&self) -> Pattern {
        if reduces(self.call.collective) {
            Pattern::reduced(self.call.data_type, self.call.operation, self.ranks, self.seed)
        } else {
            Pattern::copied(self.call.data_type, self.seed)
        }
    }

    /// Who had sent a part of the result, and from which index of what it sent on.
    fn source(&self, part: usize) -> (usize, usize) {
        match self.call.collective {
            Collective::AllGather | Collective::Gather => (part, 0),
            Collective::AllToAll => (part, self.rank * self.layout.count),
            Collective::ReduceScatter => (0, self.rank * self.layout.count),
            Collective::Scatter => (self.call.root, self.rank * self.layout.count),
            Collective::SendRecv => ((self.rank + self.ranks - 1) % self.ranks, 0),
            Collective::Broadcast => (self.call.root, 0),
            Collective::AllReduce | Collective::Reduce => (0, 0),
        }
    }
}

/// Adds the elements that differ, of which the first has this index.
pub(super) fn differences(pattern: &Pattern, start: usize, got: &[u8], expected: &[u8], found: &mut Found) {
    let data_type = pattern.data_type;
    let width = data_type.size();
    let tolerance = pattern.tolerance();
    for (i, (got, expected)) in got.chunks_exact(width).zip(expected.chunks_exact(width)).enumerate() {
        if got == expected {
            continue;
        }
        let [a, b] = [got, expected].map(|it| pattern::number(data_type, it));
        if tolerance > 0.0 && (a - b).abs() <= tolerance * b.abs() {
            continue;
        }
        found.wrong += 1;
        found.first.get_or_insert_with(|| Element {
            index: start + i,
            got: shown(data_type, got),
            expected: shown(data_type, expected),
        });
    }
}

/// A number, or what a buffer holds before anything is written.
fn shown(data_type: DataType, element: &[u8]) -> String {
    if element.iter().all(|it| *it == POISON) {
        return "nothing (never written)".to_owned();
    }
    pattern::number(data_type, element).to_string()
}
