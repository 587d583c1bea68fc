//! Rings and chains: every rank receives from one neighbour and sends to the other.

use super::parent_child::{Slot, Slots, broadcast_down, reduce_up};
use super::step::{Action, Dependency, Location, Operands, Plan};
use super::{Layout, PIECES, Piece, Shape};

/// Reduce-scatter, then all-gather: each of `n` parts goes around the ring twice.
pub(super) fn all_reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (n, position) = (layout.size(), layout.position(shape.rank));
    let (next, previous) = (layout.rank(position + 1), layout.rank(position + n - 1));
    let mut come = Dependency::NONE;
    for step in 0..2 * (n - 1) {
        let Piece { offset, len } = shape.part((position + 2 * n - step) % n, n);
        let from = if step == 0 { Location::send(offset) } else { Location::receive(offset) };
        plan.send(next, from, len, come);
        let Piece { offset, len } = shape.part((position + 2 * n - step - 1) % n, n);
        let into = Location::receive(offset);
        come = if step < n - 1 {
            plan.combine(
                previous,
                Operands { into, own: Location::send(offset) },
                len,
                step == n - 2,
                Dependency::NONE,
            )
        } else {
            plan.receive(previous, into, len, Dependency::NONE)
        };
    }
}

/// Every block goes around the ring once.
pub(super) fn all_gather(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (n, position, len) = (layout.size(), layout.position(shape.rank), shape.bytes());
    let (next, previous) = (layout.rank(position + 1), layout.rank(position + n - 1));
    let block = |it: usize| Location::receive(layout.rank(it + n) * len);
    let (mut from, mut come) = (Location::send(0), Dependency::NONE);
    for step in 0..n - 1 {
        plan.send(next, from, len, come);
        from = block(position + n - step - 1);
        come = plan.receive(previous, from, len, Dependency::NONE);
    }
    plan.add(Action::Copy { from: Location::send(0), into: block(position) }, len, Dependency::NONE);
}

/// Every block goes around the ring and is reduced on the way to its owner.
pub(super) fn reduce_scatter(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (n, position) = (layout.size(), layout.position(shape.rank));
    let (next, previous) = (layout.rank(position + 1), layout.rank(position + n - 1));
    let block = |it: usize| Location::send(layout.rank(it) * shape.bytes());
    let mut slots = Slots::new(shape, shape.bytes());
    for Piece { offset, len } in shape.pieces(shape.bytes(), PIECES) {
        let (mut from, mut come) = (block(position + n - 1).plus(offset), Dependency::NONE);
        for step in 0..n - 1 {
            let gone = plan.send(next, from, len, come);
            if step > 0 {
                slots.sent(gone);
            }
            let own = block(position + 2 * n - 2 - step).plus(offset);
            if step == n - 2 {
                plan.combine(
                    previous,
                    Operands { into: Location::receive(offset), own },
                    len,
                    true,
                    Dependency::NONE,
                );
            } else {
                let Slot { location: slot, free } = slots.next();
                come = plan.combine(previous, Operands { into: slot, own }, len, false, free);
                from = slot;
            }
        }
    }
}

/// A chain from the root.
pub(super) fn broadcast(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let chain = Chain::new(shape, layout);
    broadcast_down(plan, shape, chain.nearer, chain.farther.as_slice());
}

/// A chain to the root.
pub(super) fn reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let chain = Chain::new(shape, layout);
    reduce_up(plan, shape, chain.nearer, chain.farther.as_slice());
}

/// A rank's neighbours on the chain that begins at the root.
struct Chain {
    nearer: Option<usize>,
    farther: Option<usize>,
}

impl Chain {
    fn new(shape: &Shape, layout: &Layout) -> Self {
        let (n, position) = (layout.size(), layout.position(shape.rank));
        let distance = (position + n - layout.position(shape.root)) % n;
        Self {
            nearer: (distance > 0).then(|| layout.rank(position + n - 1)),
            farther: (distance + 1 < n).then(|| layout.rank(position + 1)),
        }
    }
}
