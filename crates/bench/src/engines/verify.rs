//! Fills the buffers before a run and compares every element after it.

use fabric::Collective;

use super::pattern::{self, POISON, Pattern};
use super::{Call, Engine, Side};
use crate::data::DataType;
use crate::failure::Failure;
use crate::layout::Layout;
use crate::plan::reduces;
use crate::run::Element;

/// Bytes that are made and compared at once.
const BLOCK: usize = 1 << 20;

/// What a rank found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Elements that are not what they should be.
    pub(super) wrong: u64,
    /// The first of them.
    pub(super) first: Option<Element>,
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
        let room = self.layout.send.max(self.layout.receive) * width;
        let poison = vec![POISON; room.min(BLOCK)];
        for start in (0..room).step_by(BLOCK) {
            let length = (room - start).min(BLOCK);
            engine.write(Side::Receive, start, poison.get(..length).unwrap_or_default())?;
        }
        let from_root = matches!(self.call.collective, Collective::Broadcast | Collective::Scatter);
        if from_root && self.rank != self.call.root {
            return Ok(());
        }
        let (side, offset) = if self.call.in_place {
            (Side::Receive, self.rank * self.layout.send_stride * width)
        } else {
            (Side::Send, 0)
        };
        let pattern = self.pattern();
        let mut block = vec![0; (self.layout.send * width).min(BLOCK)];
        for start in (0..self.layout.send * width).step_by(BLOCK) {
            let length = (self.layout.send * width - start).min(BLOCK);
            let block = block.get_mut(..length).unwrap_or_default();
            pattern.inputs(self.rank, start / width, block);
            engine.write(side, offset + start, block)?;
        }
        Ok(())
    }

    /// Compares the result.
    pub(super) fn check(&self, engine: &mut dyn Engine) -> Result<Found, Failure> {
        let mut found = Found::default();
        let to_root = matches!(self.call.collective, Collective::Reduce | Collective::Gather);
        if to_root && self.rank != self.call.root {
            return Ok(found);
        }
        let width = self.call.data_type.size();
        let offset = if self.call.in_place { self.rank * self.layout.receive_stride * width } else { 0 };
        let pattern = self.pattern();
        let (mut got, mut expected) = (Vec::new(), Vec::new());
        // Whole parts: what comes from one rank, or all of it.
        let parts = match self.call.collective {
            Collective::AllGather | Collective::Gather | Collective::AllToAll => self.ranks,
            _ => 1,
        };
        let part = self.layout.receive / parts.max(1);
        for number in 0..parts {
            let (source, shift) = self.source(number);
            for start in (0..part * width).step_by(BLOCK) {
                let length = (part * width - start).min(BLOCK);
                got.resize(length, 0);
                expected.resize(length, 0);
                let place = number * part + start / width;
                engine.read(Side::Receive, offset + place * width, &mut got)?;
                pattern.results(source, shift + start / width, &mut expected);
                if got != expected {
                    compare(self.call.data_type, &pattern, place, &got, &expected, &mut found);
                }
            }
        }
        Ok(found)
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

fn compare(
    data_type: DataType,
    pattern: &Pattern,
    start: usize,
    got: &[u8],
    expected: &[u8],
    found: &mut Found,
) {
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
