//! Recursive halving (Rabenseifner's algorithm): as few bytes as a ring, in as few steps as a tree.

use super::fold::{Fold, Role};
use super::step::{Dependency, Location, Operands, Plan};
use super::{Layout, Shape};

/// Bytes whose result is complete when `come` is.
#[derive(Debug, Clone, Copy)]
struct Part {
    begin: usize,
    len: usize,
    come: Dependency,
}

impl Part {
    /// Its two halves, cut at an element.
    fn halves(self, width: usize) -> [Self; 2] {
        let first = self.len / width / 2 * width;
        let low = Self { len: first, ..self };
        let high = Self { begin: self.begin + first, len: self.len - first, come: self.come.ahead(first) };
        [low, high]
    }
}

/// Partners exchange half of the data that they still reduce; then the results go back in the reverse order.
///
/// The first exchange is the largest, so it is between neighbours, which are mostly ranks of one host.
pub(super) fn all_reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let len = shape.bytes();
    let fold = Fold::new(layout.size());
    let (index, extra) = match fold.role(layout.position(shape.rank)) {
        Role::Extra { partner } => {
            plan.send(layout.rank(partner), Location::send(0), len, Dependency::NONE);
            plan.receive(layout.rank(partner), Location::receive(0), len, Dependency::NONE);
            return;
        }
        Role::Worker { index, extra } => (index, extra.map(|it| layout.rank(it))),
    };
    let (mut base, come) = match extra {
        Some(peer) => {
            let operands = Operands { into: Location::receive(0), own: Location::send(0) };
            (Location::receive(0), plan.combine(peer, operands, len, false, Dependency::NONE))
        }
        None => (Location::send(0), Dependency::NONE),
    };
    let mut mine = Part { begin: 0, len, come };
    let mut given = Vec::new();
    for distance in fold.distances() {
        let peer = layout.rank(fold.position(index ^ distance));
        let [low, high] = mine.halves(shape.width);
        let (keep, give) = if index & distance == 0 { (low, high) } else { (high, low) };
        plan.send(peer, base.plus(give.begin), give.len, give.come);
        let operands = Operands { into: Location::receive(keep.begin), own: base.plus(keep.begin) };
        let come = plan.combine(peer, operands, keep.len, distance * 2 == fold.power, keep.come);
        mine = Part { come, ..keep };
        given.push((peer, give));
        base = Location::receive(0);
    }
    let mut ready = vec![mine];
    for (peer, gap) in given.into_iter().rev() {
        send_parts(plan, peer, &ready);
        let come = plan.receive(peer, Location::receive(gap.begin), gap.len, Dependency::NONE);
        let at = ready.partition_point(|it| it.begin < gap.begin);
        ready.insert(at, Part { come, ..gap });
    }
    if let Some(peer) = extra {
        send_parts(plan, peer, &ready);
    }
}

fn send_parts(plan: &mut Plan, peer: usize, parts: &[Part]) {
    for part in parts {
        plan.send(peer, Location::receive(part.begin), part.len, part.come);
    }
}

/// Partners exchange the blocks of the other half of the ranks, until each has its own.
///
/// Intermediate results need scratch as large as the send buffer: an algorithm for medium sizes.
pub(super) fn reduce_scatter(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (n, position, len) = (layout.size(), layout.position(shape.rank), shape.bytes());
    let fold = Fold::new(n);
    let sent = |it: usize| Location::send(layout.rank(it) * len);
    let scratch = |it: usize| Location::scratch(it * len);
    let (index, extra) = match fold.role(position) {
        Role::Extra { partner } => {
            for block in 0..n {
                plan.send(layout.rank(partner), sent(block), len, Dependency::NONE);
            }
            plan.receive(layout.rank(partner), Location::receive(0), len, Dependency::NONE);
            return;
        }
        Role::Worker { index, extra } => (index, extra),
    };
    let mut come = vec![Dependency::NONE; n];
    if let Some(extra) = extra {
        for (block, mark) in come.iter_mut().enumerate() {
            *mark = plan.combine(
                layout.rank(extra),
                Operands { into: scratch(block), own: sent(block) },
                len,
                false,
                Dependency::NONE,
            );
        }
    }
    let mut fresh = extra.is_none();
    // The first worker whose blocks this one still reduces.
    let mut first = 0;
    for distance in fold.distances().rev() {
        let peer = layout.rank(fold.position(index ^ distance));
        let blocks = |begin: usize| fold.position(begin)..fold.position(begin + distance);
        let (keep, give) =
            if index & distance == 0 { (first, first + distance) } else { (first + distance, first) };
        for block in blocks(give) {
            plan.send(peer, if fresh { sent(block) } else { scratch(block) }, len, come[block]);
        }
        for block in blocks(keep) {
            let own = if fresh { sent(block) } else { scratch(block) };
            let last = distance == 1;
            let into = if last && block == position { Location::receive(0) } else { scratch(block) };
            come[block] = plan.combine(peer, Operands { into, own }, len, last, come[block]);
        }
        (first, fresh) = (keep, false);
    }
    if let Some(extra) = extra {
        plan.send(layout.rank(extra), scratch(extra), len, come[extra]);
    }
}
