//! Every pair of ranks talks directly. Partners are staggered: rank `r` begins with `r + 1`.

use super::flow::{converge, relay};
use super::step::{Action, Mark, Place, Plan};
use super::{Kind, Layout, Shape};

/// Everyone sends everything to everyone, and all combine it in the order of the ranks. For few ranks and small sizes.
pub(super) fn all_reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (n, rank, len) = (layout.size(), shape.rank, shape.bytes());
    let (own, receive) = (Place::scratch(0), Place::receive(0));
    // The result may overwrite what is sent, and sendings to different ranks end at different times.
    let kept = plan.add(Action::Copy { from: Place::send(0), into: own }, len, Mark::NONE);
    for peer in others(shape, layout) {
        plan.send(peer, own, len, kept);
    }
    let mut come = kept;
    for peer in 0..n {
        let last = peer + 1 == n;
        come = match peer {
            0 if rank == 0 => kept,
            0 => plan.receive(0, receive, len, kept),
            1 if rank == 0 => plan.combine(1, (receive, own), len, last, kept),
            _ if peer == rank => plan.add(Action::Merge { from: own, into: receive, last }, len, come),
            _ => plan.combine(peer, (receive, receive), len, last, come),
        };
    }
}

/// Everyone sends its block to everyone.
pub(super) fn all_gather(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let len = shape.bytes();
    for peer in others(shape, layout) {
        plan.send(peer, Place::send(0), len, Mark::NONE);
    }
    for peer in others(shape, layout) {
        plan.receive(peer, Place::receive(peer * len), len, Mark::NONE);
    }
    keep(plan, Place::send(0), Place::receive(shape.rank * len), len);
}

/// Everyone sends to everyone the block that is theirs.
pub(super) fn reduce_scatter(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let len = shape.bytes();
    for peer in others(shape, layout) {
        plan.send(peer, Place::send(peer * len), len, Mark::NONE);
    }
    let (mut own, mut come) = (Place::send(shape.rank * len), Mark::NONE);
    for (number, peer) in others(shape, layout).enumerate() {
        come = plan.combine(peer, (Place::receive(0), own), len, number + 2 == layout.size(), come);
        own = Place::receive(0);
    }
}

/// The root sends to everyone.
pub(super) fn broadcast(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (parent, children) = star(shape, layout);
    relay(plan, shape, parent, &children);
}

/// Everyone sends to the root.
pub(super) fn reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (parent, children) = star(shape, layout);
    converge(plan, shape, parent, &children);
}

/// Everyone sends its block to the root.
pub(super) fn gather(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let len = shape.bytes();
    let (parent, children) = star(shape, layout);
    if let Some(root) = parent {
        plan.send(root, Place::send(0), len, Mark::NONE);
        return;
    }
    for peer in children {
        plan.receive(peer, Place::receive(peer * len), len, Mark::NONE);
    }
    keep(plan, Place::send(0), Place::receive(shape.rank * len), len);
}

/// The root sends to everyone the block that is theirs.
pub(super) fn scatter(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let len = shape.bytes();
    let (parent, children) = star(shape, layout);
    if let Some(root) = parent {
        plan.receive(root, Place::receive(0), len, Mark::NONE);
        return;
    }
    for peer in children {
        plan.send(peer, Place::send(peer * len), len, Mark::NONE);
    }
    keep(plan, Place::send(shape.rank * len), Place::receive(0), len);
}

/// Everyone sends a block to everyone.
pub(super) fn all_to_all(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let len = shape.bytes();
    for peer in others(shape, layout) {
        plan.send(peer, Place::send(peer * len), len, Mark::NONE);
    }
    let n = layout.size();
    for peer in (1..n).map(|it| (shape.rank + n - it) % n) {
        plan.receive(peer, Place::receive(peer * len), len, Mark::NONE);
    }
    keep(plan, Place::send(shape.rank * len), Place::receive(shape.rank * len), len);
}

/// One peer gets what this rank sends, one peer's it receives.
pub(super) fn send_receive(plan: &mut Plan, shape: &Shape, _layout: &Layout) {
    let Kind::SendReceive { to, from } = shape.kind else { return };
    let len = shape.bytes();
    if to == shape.rank {
        keep(plan, Place::send(0), Place::receive(0), len);
    } else {
        plan.send(to, Place::send(0), len, Mark::NONE);
        plan.receive(from, Place::receive(0), len, Mark::NONE);
    }
}

/// The other ranks, the next one first.
fn others(shape: &Shape, layout: &Layout) -> impl Iterator<Item = usize> + use<> {
    let (n, rank) = (layout.size(), shape.rank);
    (1..n).map(move |it| (rank + it) % n)
}

/// The root, for all but itself, and those who have it as theirs.
fn star(shape: &Shape, layout: &Layout) -> (Option<usize>, Vec<usize>) {
    if shape.rank == shape.root {
        (None, others(shape, layout).collect())
    } else {
        (Some(shape.root), Vec::new())
    }
}

/// What a rank has itself it copies.
fn keep(plan: &mut Plan, from: Place, into: Place, len: usize) {
    plan.add(Action::Copy { from, into }, len, Mark::NONE);
}
