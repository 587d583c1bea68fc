//! Recursive halving: as few bytes as a ring in as few steps as a tree (Rabenseifner's algorithm).

use super::fold::{Fold, Role};
use super::step::{Mark, Place, Plan};
use super::{Layout, Shape};

/// Bytes whose result is complete as far as the mark tells.
#[derive(Debug, Clone, Copy)]
struct Part {
    begin: usize,
    len: usize,
    come: Mark,
}

impl Part {
    /// Its two halves, cut at an element.
    fn halves(self, width: usize) -> (Self, Self) {
        let first = self.len / width / 2 * width;
        (Self { len: first, ..self }, {
            Self { begin: self.begin + first, len: self.len - first, come: self.come.ahead(first) }
        })
    }
}

/// Partners give each other half of what they still work on; then the results go back the same way.
///
/// The first exchange is the largest, so it is between neighbours: most often ranks of one host.
pub(super) fn all_reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let len = shape.bytes();
    let fold = Fold::new(layout.size());
    let (index, extra) = match fold.role(layout.place(shape.rank)) {
        Role::Extra { partner } => {
            plan.send(layout.rank(partner), Place::send(0), len, Mark::NONE);
            plan.receive(layout.rank(partner), Place::receive(0), len, Mark::NONE);
            return;
        }
        Role::Worker { index, extra } => (index, extra.map(|it| layout.rank(it))),
    };
    let (mut base, come) = match extra {
        Some(peer) => {
            let pair = (Place::receive(0), Place::send(0));
            (Place::receive(0), plan.combine(peer, pair, len, false, Mark::NONE))
        }
        None => (Place::send(0), Mark::NONE),
    };
    let mut mine = Part { begin: 0, len, come };
    let mut given = Vec::new();
    for distance in fold.distances() {
        let peer = layout.rank(fold.place(index ^ distance));
        let (low, high) = mine.halves(shape.width);
        let (keep, give) = if index & distance == 0 { (low, high) } else { (high, low) };
        plan.send(peer, base.plus(give.begin), give.len, give.come);
        let pair = (Place::receive(keep.begin), base.plus(keep.begin));
        let come = plan.combine(peer, pair, keep.len, distance * 2 == fold.power, keep.come);
        mine = Part { come, ..keep };
        given.push((peer, give));
        base = Place::receive(0);
    }
    let mut ready = vec![mine];
    for (peer, gap) in given.into_iter().rev() {
        send_parts(plan, peer, &ready);
        let come = plan.receive(peer, Place::receive(gap.begin), gap.len, Mark::NONE);
        let at = ready.partition_point(|it| it.begin < gap.begin);
        ready.insert(at, Part { come, ..gap });
    }
    if let Some(peer) = extra {
        send_parts(plan, peer, &ready);
    }
}

fn send_parts(plan: &mut Plan, peer: usize, parts: &[Part]) {
    for part in parts {
        plan.send(peer, Place::receive(part.begin), part.len, part.come);
    }
}

/// Partners give each other the blocks of the other's half of the ranks, until each has its own.
///
/// Intermediate results stand in scratch as large as what is sent: an algorithm for middle sizes.
pub(super) fn reduce_scatter(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (n, place, len) = (layout.size(), layout.place(shape.rank), shape.bytes());
    let fold = Fold::new(n);
    let sent = |it: usize| Place::send(layout.rank(it) * len);
    let scratch = |it: usize| Place::scratch(it * len);
    let (index, extra) = match fold.role(place) {
        Role::Extra { partner } => {
            for block in 0..n {
                plan.send(layout.rank(partner), sent(block), len, Mark::NONE);
            }
            plan.receive(layout.rank(partner), Place::receive(0), len, Mark::NONE);
            return;
        }
        Role::Worker { index, extra } => (index, extra),
    };
    let mut come = vec![Mark::NONE; n];
    if let Some(extra) = extra {
        for (block, mark) in come.iter_mut().enumerate() {
            *mark = plan.combine(layout.rank(extra), (scratch(block), sent(block)), len, false, Mark::NONE);
        }
    }
    let mut fresh = extra.is_none();
    // The workers whose blocks this one still works on begin here.
    let mut first = 0;
    for distance in fold.distances().rev() {
        let peer = layout.rank(fold.place(index ^ distance));
        let blocks = |begin: usize| fold.place(begin)..fold.place(begin + distance);
        let (keep, give) =
            if index & distance == 0 { (first, first + distance) } else { (first + distance, first) };
        for block in blocks(give) {
            plan.send(peer, if fresh { sent(block) } else { scratch(block) }, len, come[block]);
        }
        for block in blocks(keep) {
            let own = if fresh { sent(block) } else { scratch(block) };
            let last = distance == 1;
            let into = if last && block == place { Place::receive(0) } else { scratch(block) };
            come[block] = plan.combine(peer, (into, own), len, last, come[block]);
        }
        (first, fresh) = (keep, false);
    }
    if let Some(extra) = extra {
        plan.send(layout.rank(extra), scratch(extra), len, come[extra]);
    }
}
