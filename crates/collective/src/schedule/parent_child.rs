//! Broadcast and reduce between the parent and the children of a rank, in a tree, a chain or a star.

use super::step::{Action, Dependency, Location, Operands, Plan};
use super::{PIECES, Piece, Shape};

/// Pieces of intermediate results that are being forwarded.
const SLOTS: usize = 4;

/// Forwards the data of the root from the parent to the children.
pub(super) fn broadcast_down(plan: &mut Plan, shape: &Shape, parent: Option<usize>, children: &[usize]) {
    let len = shape.bytes();
    let (from, come) = match parent {
        Some(parent) => {
            (Location::receive(0), plan.receive(parent, Location::receive(0), len, Dependency::NONE))
        }
        None => (Location::send(0), Dependency::NONE),
    };
    for child in children {
        plan.send(*child, from, len, come);
    }
    if parent.is_none() {
        plan.add(Action::Copy { from, into: Location::receive(0) }, len, Dependency::NONE);
    }
}

/// Reduces the data of the children and of this rank, and sends it to the parent.
///
/// Only the root has a receive buffer; the others reduce piece by piece in scratch.
pub(super) fn reduce_up(plan: &mut Plan, shape: &Shape, parent: Option<usize>, children: &[usize]) {
    let len = shape.bytes();
    let Some(parent) = parent else {
        let (mut own, mut come) = (Location::send(0), Dependency::NONE);
        for (number, child) in children.iter().enumerate() {
            let last = number + 1 == children.len();
            come = plan.combine(*child, Operands { into: Location::receive(0), own }, len, last, come);
            own = Location::receive(0);
        }
        return;
    };
    if children.is_empty() {
        plan.send(parent, Location::send(0), len, Dependency::NONE);
        return;
    }
    let mut slots = Slots::new(shape, len);
    for Piece { offset, len } in shape.pieces(len, PIECES) {
        let Slot { location: slot, free: mut come } = slots.next();
        let mut own = Location::send(offset);
        for child in children {
            come = plan.combine(*child, Operands { into: slot, own }, len, false, come);
            own = slot;
        }
        slots.sent(plan.send(parent, slot, len, come));
    }
}

/// A slot in scratch, and the send after which it is free.
pub(super) struct Slot {
    pub(super) location: Location,
    pub(super) free: Dependency,
}

/// Slots in scratch for intermediate results, used in turn.
pub(super) struct Slots {
    size: usize,
    /// The number of slots taken so far.
    taken: usize,
    /// The last send from each slot.
    gone: [Dependency; SLOTS],
    sent: usize,
}

impl Slots {
    pub(super) fn new(shape: &Shape, len: usize) -> Self {
        let size = shape.pieces(len, PIECES).next().map_or(0, |it| it.len);
        Self { size, taken: 0, gone: [Dependency::NONE; SLOTS], sent: 0 }
    }

    /// The next slot.
    pub(super) fn next(&mut self) -> Slot {
        let slot = self.taken % SLOTS;
        self.taken += 1;
        Slot { location: Location::scratch(slot * self.size), free: self.gone[slot] }
    }

    /// Records the send from the oldest slot that has none yet.
    pub(super) fn sent(&mut self, gone: Dependency) {
        self.gone[self.sent % SLOTS] = gone;
        self.sent += 1;
    }
}
