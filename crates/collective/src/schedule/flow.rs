//! What a rank does between its parent and its children, in a tree, a chain or a star.

use super::step::{Action, Mark, Place, Plan};
use super::{PIECES, Shape};

/// Pieces of intermediate results that wait to be sent on.
const SLOTS: usize = 4;

/// Passes the root's data on from the parent to the children.
pub(super) fn relay(plan: &mut Plan, shape: &Shape, parent: Option<usize>, children: &[usize]) {
    let len = shape.bytes();
    let (from, come) = match parent {
        Some(parent) => (Place::receive(0), plan.receive(parent, Place::receive(0), len, Mark::NONE)),
        None => (Place::send(0), Mark::NONE),
    };
    for child in children {
        plan.send(*child, from, len, come);
    }
    if parent.is_none() {
        plan.add(Action::Copy { from, into: Place::receive(0) }, len, Mark::NONE);
    }
}

/// Combines what comes from the children with this rank's own and passes it on to the parent.
///
/// Only the root has room for the result, so the others do it piece by piece in scratch.
pub(super) fn converge(plan: &mut Plan, shape: &Shape, parent: Option<usize>, children: &[usize]) {
    let len = shape.bytes();
    let Some(parent) = parent else {
        let (mut own, mut come) = (Place::send(0), Mark::NONE);
        for (number, child) in children.iter().enumerate() {
            let last = number + 1 == children.len();
            come = plan.combine(*child, (Place::receive(0), own), len, last, come);
            own = Place::receive(0);
        }
        return;
    };
    if children.is_empty() {
        plan.send(parent, Place::send(0), len, Mark::NONE);
        return;
    }
    let mut slots = Slots::new(shape, len);
    for (offset, len) in shape.pieces(len, PIECES) {
        let (slot, mut come) = slots.next();
        let mut own = Place::send(offset);
        for child in children {
            come = plan.combine(*child, (slot, own), len, false, come);
            own = slot;
        }
        slots.sent(plan.send(parent, slot, len, come));
    }
}

/// A few places in scratch that intermediate results pass through in turn.
pub(super) struct Slots {
    size: usize,
    /// Slots taken, ever.
    taken: usize,
    /// What was sent from each.
    gone: [Mark; SLOTS],
    sent: usize,
}

impl Slots {
    pub(super) fn new(shape: &Shape, len: usize) -> Self {
        let size = shape.pieces(len, PIECES).next().map_or(0, |(_, len)| len);
        Self { size, taken: 0, gone: [Mark::NONE; SLOTS], sent: 0 }
    }

    /// The next slot, and when it is free.
    pub(super) fn next(&mut self) -> (Place, Mark) {
        let slot = self.taken % SLOTS;
        self.taken += 1;
        (Place::scratch(slot * self.size), self.gone[slot])
    }

    /// The oldest slot that was not yet sent is, by this.
    pub(super) fn sent(&mut self, gone: Mark) {
        self.gone[self.sent % SLOTS] = gone;
        self.sent += 1;
    }
}
