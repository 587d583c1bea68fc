//! Every pair of ranks exchanges directly. Partners are staggered: rank `r` starts with `r + 1`.

use super::parent_child::{broadcast_down, reduce_up};
use super::step::{Action, Dependency, Location, Operands, Plan};
use super::{Kind, Layout, Shape};

/// Every rank sends all data to every other, and reduces in the order of ranks. For few ranks and small sizes.
pub(super) fn all_reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (n, rank, len) = (layout.size(), shape.rank, shape.bytes());
    let (own, receive) = (Location::scratch(0), Location::receive(0));
    // The result may overwrite the send buffer, and sends to different ranks end at different times.
    let kept = plan.add(Action::Copy { from: Location::send(0), into: own }, len, Dependency::NONE);
    for peer in others(shape, layout) {
        plan.send(peer, own, len, kept);
    }
    let mut come = kept;
    for peer in 0..n {
        let last = peer + 1 == n;
        come = match peer {
            0 if rank == 0 => kept,
            0 => plan.receive(0, receive, len, kept),
            1 if rank == 0 => plan.combine(1, Operands { into: receive, own }, len, last, kept),
            _ if peer == rank => plan.add(Action::Merge { from: own, into: receive, last }, len, come),
            _ => plan.combine(peer, Operands { into: receive, own: receive }, len, last, come),
        };
    }
}

/// Every rank sends its block to every other.
pub(super) fn all_gather(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let len = shape.bytes();
    for peer in others(shape, layout) {
        plan.send(peer, Location::send(0), len, Dependency::NONE);
    }
    for peer in others(shape, layout) {
        plan.receive(peer, Location::receive(peer * len), len, Dependency::NONE);
    }
    keep(plan, Location::send(0), Location::receive(shape.rank * len), len);
}

/// Every rank sends to every other the block that belongs to it.
pub(super) fn reduce_scatter(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let len = shape.bytes();
    for peer in others(shape, layout) {
        plan.send(peer, Location::send(peer * len), len, Dependency::NONE);
    }
    let (mut own, mut come) = (Location::send(shape.rank * len), Dependency::NONE);
    for (number, peer) in others(shape, layout).enumerate() {
        come = plan.combine(
            peer,
            Operands { into: Location::receive(0), own },
            len,
            number + 2 == layout.size(),
            come,
        );
        own = Location::receive(0);
    }
}

/// The root sends to every other rank.
pub(super) fn broadcast(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let Star { parent, children } = star(shape, layout);
    broadcast_down(plan, shape, parent, &children);
}

/// Every other rank sends to the root.
pub(super) fn reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let Star { parent, children } = star(shape, layout);
    reduce_up(plan, shape, parent, &children);
}

/// Every other rank sends its block to the root.
pub(super) fn gather(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let len = shape.bytes();
    let Star { parent, children } = star(shape, layout);
    if let Some(root) = parent {
        plan.send(root, Location::send(0), len, Dependency::NONE);
        return;
    }
    for peer in children {
        plan.receive(peer, Location::receive(peer * len), len, Dependency::NONE);
    }
    keep(plan, Location::send(0), Location::receive(shape.rank * len), len);
}

/// The root sends to every other rank the block that belongs to it.
pub(super) fn scatter(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let len = shape.bytes();
    let Star { parent, children } = star(shape, layout);
    if let Some(root) = parent {
        plan.receive(root, Location::receive(0), len, Dependency::NONE);
        return;
    }
    for peer in children {
        plan.send(peer, Location::send(peer * len), len, Dependency::NONE);
    }
    keep(plan, Location::send(shape.rank * len), Location::receive(0), len);
}

/// Every rank sends a block to every other.
pub(super) fn all_to_all(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let len = shape.bytes();
    for peer in others(shape, layout) {
        plan.send(peer, Location::send(peer * len), len, Dependency::NONE);
    }
    let n = layout.size();
    for peer in (1..n).map(|it| (shape.rank + n - it) % n) {
        plan.receive(peer, Location::receive(peer * len), len, Dependency::NONE);
    }
    keep(plan, Location::send(shape.rank * len), Location::receive(shape.rank * len), len);
}

pub(super) fn send_receive(plan: &mut Plan, shape: &Shape, _layout: &Layout) {
    let Kind::SendReceive { to, from } = shape.kind else { return };
    let len = shape.bytes();
    if to == shape.rank {
        keep(plan, Location::send(0), Location::receive(0), len);
    } else {
        plan.send(to, Location::send(0), len, Dependency::NONE);
        plan.receive(from, Location::receive(0), len, Dependency::NONE);
    }
}

/// The other ranks, the next one first.
fn others(shape: &Shape, layout: &Layout) -> impl Iterator<Item = usize> + use<> {
    let (n, rank) = (layout.size(), shape.rank);
    (1..n).map(move |it| (rank + it) % n)
}

/// The neighbours of a rank in a star around the root.
struct Star {
    parent: Option<usize>,
    children: Vec<usize>,
}

fn star(shape: &Shape, layout: &Layout) -> Star {
    if shape.rank == shape.root {
        Star { parent: None, children: others(shape, layout).collect() }
    } else {
        Star { parent: Some(shape.root), children: Vec::new() }
    }
}

/// Copies a block within this rank.
fn keep(plan: &mut Plan, from: Location, into: Location, len: usize) {
    plan.add(Action::Copy { from, into }, len, Dependency::NONE);
}
