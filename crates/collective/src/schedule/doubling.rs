//! Exchanges at doubling distances: as few steps as there can be.

use super::fold::{Fold, Role};
use super::step::{Action, Hand, Mark, Place, Plan};
use super::{Layout, Shape};

/// Partners exchange and combine everything they have. Two ranks do it in one step.
pub(super) fn all_reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let len = shape.bytes();
    let (send, receive) = (Place::send(0), Place::receive(0));
    let fold = Fold::new(layout.size());
    let (index, extra) = match fold.role(layout.place(shape.rank)) {
        Role::Extra { partner } => {
            plan.send(layout.rank(partner), send, len, Mark::NONE);
            plan.receive(layout.rank(partner), receive, len, Mark::NONE);
            return;
        }
        Role::Worker { index, extra } => (index, extra.map(|it| layout.rank(it))),
    };
    let (mut own, mut come) = match extra {
        Some(peer) => (receive, plan.combine(peer, (receive, send), len, false, Mark::NONE)),
        None => (send, Mark::NONE),
    };
    for distance in fold.distances() {
        let peer = layout.rank(fold.place(index ^ distance));
        let gone = plan.send(peer, own, len, come);
        let hand = if index & distance == 0 { Hand::Left } else { Hand::Right };
        let last = distance * 2 == fold.power;
        // The sum overwrites what was sent, so it follows the sending.
        come = plan.add(Action::Combine { peer, into: receive, own, hand, last }, len, gone);
        own = receive;
    }
    if let Some(peer) = extra {
        plan.send(peer, receive, len, come);
    }
}

/// Everyone gets as many blocks as it has from the rank that far ahead (Bruck's algorithm). Blocks arrive where they belong.
pub(super) fn all_gather(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (n, place, len) = (layout.size(), layout.place(shape.rank), shape.bytes());
    let block = |it: usize| Place::receive(layout.rank(place + it) * len);
    let mut come = vec![plan.add(Action::Copy { from: Place::send(0), into: block(0) }, len, Mark::NONE)];
    while come.len() < n {
        let distance = come.len();
        let (to, from) = (layout.rank(place + n - distance), layout.rank(place + distance));
        let blocks = distance.min(n - distance);
        if distance == 1 {
            plan.send(to, Place::send(0), len, Mark::NONE);
        } else {
            for (number, mark) in come.iter().enumerate().take(blocks) {
                plan.send(to, block(number), len, *mark);
            }
        }
        for number in distance..distance + blocks {
            come.push(plan.receive(from, block(number), len, Mark::NONE));
        }
    }
}

/// A token to the rank that far ahead, after one from the rank that far behind (dissemination).
pub(super) fn barrier(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (n, place) = (layout.size(), layout.place(shape.rank));
    let (mut distance, mut come) = (1, Mark::NONE);
    while distance < n {
        plan.send(layout.rank(place + distance), Place::scratch(0), 1, come);
        come = plan.receive(layout.rank(place + n - distance), Place::scratch(0), 1, Mark::NONE);
        distance *= 2;
    }
}
