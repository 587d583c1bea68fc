//! Rings and chains: every rank hears one neighbour and speaks to the other.

use super::flow::{Slots, converge, relay};
use super::step::{Action, Mark, Place, Plan};
use super::{Layout, PIECES, Shape};

/// The whole in `n` parts: each goes around once and is summed, then goes around again to be known.
pub(super) fn all_reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (n, place) = (layout.size(), layout.place(shape.rank));
    let (next, previous) = (layout.rank(place + 1), layout.rank(place + n - 1));
    let mut come = Mark::NONE;
    for step in 0..2 * (n - 1) {
        let (offset, len) = shape.part((place + 2 * n - step) % n, n);
        let from = if step == 0 { Place::send(offset) } else { Place::receive(offset) };
        plan.send(next, from, len, come);
        let (offset, len) = shape.part((place + 2 * n - step - 1) % n, n);
        let into = Place::receive(offset);
        come = if step < n - 1 {
            plan.combine(previous, (into, Place::send(offset)), len, step == n - 2, Mark::NONE)
        } else {
            plan.receive(previous, into, len, Mark::NONE)
        };
    }
}

/// Every block goes around once.
pub(super) fn all_gather(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (n, place, len) = (layout.size(), layout.place(shape.rank), shape.bytes());
    let (next, previous) = (layout.rank(place + 1), layout.rank(place + n - 1));
    let block = |it: usize| Place::receive(layout.rank(it + n) * len);
    let (mut from, mut come) = (Place::send(0), Mark::NONE);
    for step in 0..n - 1 {
        plan.send(next, from, len, come);
        from = block(place + n - step - 1);
        come = plan.receive(previous, from, len, Mark::NONE);
    }
    plan.add(Action::Copy { from: Place::send(0), into: block(place) }, len, Mark::NONE);
}

/// Every block goes around and is summed on its way to its owner.
pub(super) fn reduce_scatter(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (n, place) = (layout.size(), layout.place(shape.rank));
    let (next, previous) = (layout.rank(place + 1), layout.rank(place + n - 1));
    let block = |it: usize| Place::send(layout.rank(it) * shape.bytes());
    let mut slots = Slots::new(shape, shape.bytes());
    for (offset, len) in shape.pieces(shape.bytes(), PIECES) {
        let (mut from, mut come) = (block(place + n - 1).plus(offset), Mark::NONE);
        for step in 0..n - 1 {
            let gone = plan.send(next, from, len, come);
            if step > 0 {
                slots.sent(gone);
            }
            let own = block(place + 2 * n - 2 - step).plus(offset);
            if step == n - 2 {
                plan.combine(previous, (Place::receive(offset), own), len, true, Mark::NONE);
            } else {
                let (slot, free) = slots.next();
                come = plan.combine(previous, (slot, own), len, false, free);
                from = slot;
            }
        }
    }
}

/// A chain from the root.
pub(super) fn broadcast(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let chain = Chain::new(shape, layout);
    relay(plan, shape, chain.nearer, chain.farther.as_slice());
}

/// A chain to the root.
pub(super) fn reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let chain = Chain::new(shape, layout);
    converge(plan, shape, chain.nearer, chain.farther.as_slice());
}

/// A rank's neighbours on the chain that begins at the root.
struct Chain {
    nearer: Option<usize>,
    farther: Option<usize>,
}

impl Chain {
    fn new(shape: &Shape, layout: &Layout) -> Self {
        let (n, place) = (layout.size(), layout.place(shape.rank));
        let distance = (place + n - layout.place(shape.root)) % n;
        Self {
            nearer: (distance > 0).then(|| layout.rank(place + n - 1)),
            farther: (distance + 1 < n).then(|| layout.rank(place + 1)),
        }
    }
}
