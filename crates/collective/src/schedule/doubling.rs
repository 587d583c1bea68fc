//! Exchanges at doubling distances: the fewest steps.

use super::fold::{Fold, Role};
use super::step::{Action, Dependency, Hand, Location, Operands, Plan};
use super::{Layout, Shape};

/// Partners exchange and reduce all their data. Two ranks need one step.
pub(super) fn all_reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let len = shape.bytes();
    let (send, receive) = (Location::send(0), Location::receive(0));
    let fold = Fold::new(layout.size());
    let (index, extra) = match fold.role(layout.position(shape.rank)) {
        Role::Extra { partner } => {
            plan.send(layout.rank(partner), send, len, Dependency::NONE);
            plan.receive(layout.rank(partner), receive, len, Dependency::NONE);
            return;
        }
        Role::Worker { index, extra } => (index, extra.map(|it| layout.rank(it))),
    };
    let (mut own, mut come) = match extra {
        Some(peer) => {
            (receive, plan.combine(peer, Operands { into: receive, own: send }, len, false, Dependency::NONE))
        }
        None => (send, Dependency::NONE),
    };
    for distance in fold.distances() {
        let peer = layout.rank(fold.position(index ^ distance));
        let gone = plan.send(peer, own, len, come);
        let hand = if index & distance == 0 { Hand::Left } else { Hand::Right };
        let last = distance * 2 == fold.power;
        // The result overwrites what was sent, so it waits for the send.
        come = plan.add(Action::Combine { peer, into: receive, own, hand, last }, len, gone);
        own = receive;
    }
    if let Some(peer) = extra {
        plan.send(peer, receive, len, come);
    }
}

/// Bruck's algorithm: every rank receives as many blocks as it has from the rank at that distance, in their final location.
pub(super) fn all_gather(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (n, position, len) = (layout.size(), layout.position(shape.rank), shape.bytes());
    let block = |it: usize| Location::receive(layout.rank(position + it) * len);
    let mut come =
        vec![plan.add(Action::Copy { from: Location::send(0), into: block(0) }, len, Dependency::NONE)];
    while come.len() < n {
        let distance = come.len();
        let (to, from) = (layout.rank(position + n - distance), layout.rank(position + distance));
        let blocks = distance.min(n - distance);
        if distance == 1 {
            plan.send(to, Location::send(0), len, Dependency::NONE);
        } else {
            for (number, mark) in come.iter().enumerate().take(blocks) {
                plan.send(to, block(number), len, *mark);
            }
        }
        for number in distance..distance + blocks {
            come.push(plan.receive(from, block(number), len, Dependency::NONE));
        }
    }
}

/// Dissemination: a byte to the rank at each distance ahead, after one from the rank at the distance before behind.
pub(super) fn barrier(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (n, position) = (layout.size(), layout.position(shape.rank));
    let (mut distance, mut come) = (1, Dependency::NONE);
    while distance < n {
        plan.send(layout.rank(position + distance), Location::scratch(0), 1, come);
        come = plan.receive(layout.rank(position + n - distance), Location::scratch(0), 1, Dependency::NONE);
        distance *= 2;
    }
}
