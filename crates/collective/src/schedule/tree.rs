//! Binary trees between hosts, and inside each host one that hangs from its leader.

use super::flow::{converge, relay};
use super::step::{Action, Mark, Place, Plan};
use super::{Layout, Shape};

/// Pieces of each tree's half, at most. They alternate where both trees use a stream.
const PIECES: usize = 64;

/// A rank's neighbours in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Branch {
    parent: Option<usize>,
    children: Vec<usize>,
}

/// Two trees, each with half of the data. Who has children in one is a leaf in the other, so that all work alike.
pub(super) fn all_reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let trees: Vec<_> = [false, true]
        .into_iter()
        .zip(0..)
        .map(|(second, half)| {
            let (begin, len) = shape.part(half, 2);
            let pieces: Vec<_> =
                shape.pieces(len, PIECES).map(|(offset, len)| (begin + offset, len)).collect();
            (Branch::new(shape.rank, &units(layout, None), second), pieces)
        })
        .collect();
    // Results come down so many pieces later than they go up: as many as are under way in a tree.
    let lag = 2 * layout.size().ilog2() as usize + 2;
    let most = trees.iter().map(|(_, pieces)| pieces.len()).max().unwrap_or(0);
    let mut summed = vec![Vec::new(); trees.len()];
    for turn in 0..most + lag {
        for ((branch, pieces), summed) in trees.iter().zip(&mut summed) {
            if let Some((offset, len)) = pieces.get(turn) {
                summed.push(branch.up(plan, *offset, *len));
            }
        }
        for ((branch, pieces), summed) in trees.iter().zip(&summed) {
            if let Some(piece) = turn.checked_sub(lag)
                && let Some((offset, len)) = pieces.get(piece)
            {
                branch.down(plan, *offset, *len, summed[piece]);
            }
        }
    }
}

/// One tree from the root.
pub(super) fn broadcast(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let branch = Branch::new(shape.rank, &units(layout, Some(shape.root)), false);
    relay(plan, shape, branch.parent, &branch.children);
}

/// One tree to the root.
pub(super) fn reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let branch = Branch::new(shape.rank, &units(layout, Some(shape.root)), false);
    converge(plan, shape, branch.parent, &branch.children);
}

/// A binomial tree to the root. Blocks of a subtree stand in scratch: for small ones.
pub(super) fn gather(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (len, bough) = (shape.bytes(), Bough::new(shape, layout));
    if let Some(parent) = bough.parent {
        plan.send(parent, Place::send(0), len, Mark::NONE);
    } else {
        let own = Place::receive(shape.rank * len);
        plan.add(Action::Copy { from: Place::send(0), into: own }, len, Mark::NONE);
    }
    for (child, blocks) in &bough.children {
        let mut come = Vec::new();
        for block in blocks.clone() {
            come.push(plan.receive(
                *child,
                bough.stored(layout, block, len, Place::receive),
                len,
                Mark::NONE,
            ));
        }
        for (block, come) in blocks.clone().zip(come) {
            if let Some(parent) = bough.parent {
                plan.send(parent, bough.stored(layout, block, len, Place::receive), len, come);
            }
        }
    }
}

/// A binomial tree from the root. Blocks of a subtree stand in scratch: for small ones.
pub(super) fn scatter(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (len, bough) = (shape.bytes(), Bough::new(shape, layout));
    let mut come = Mark::NONE;
    if let Some(parent) = bough.parent {
        plan.receive(parent, Place::receive(0), len, Mark::NONE);
        come = plan.receive(parent, Place::scratch(0), (bough.size - 1) * len, Mark::NONE);
    } else {
        let own = Place::send(shape.rank * len);
        plan.add(Action::Copy { from: own, into: Place::receive(0) }, len, Mark::NONE);
    }
    // The largest subtree has the longest way.
    for (child, blocks) in bough.children.iter().rev() {
        for block in blocks.clone() {
            let from = bough.stored(layout, block, len, Place::send);
            plan.send(*child, from, len, come.ahead((block - bough.number - 1) * len));
        }
    }
}

impl Branch {
    /// The neighbours of a rank in the first or the second tree over these units, each of which hangs together by itself.
    fn new(rank: usize, units: &[Vec<usize>], second: bool) -> Self {
        let unit = units.iter().position(|it| it.contains(&rank)).unwrap_or(0);
        // The leader of the second tree is another rank of the host.
        let member = |unit: usize, number: usize| {
            let members = &units[unit];
            members.get(if second { members.len().wrapping_sub(number + 1) } else { number }).copied()
        };
        let number = (0..units[unit].len()).find(|it| member(unit, *it) == Some(rank)).unwrap_or(0);
        let mut children: Vec<usize> =
            [2 * number + 1, 2 * number + 2].into_iter().filter_map(|it| member(unit, it)).collect();
        if number > 0 {
            return Self { parent: member(unit, (number - 1) / 2), children };
        }
        let n = units.len();
        children
            .extend((0..n).filter(|it| above(*it, n, second) == Some(unit)).filter_map(|it| member(it, 0)));
        Self { parent: above(unit, n, second).and_then(|it| member(it, 0)), children }
    }

    /// Sums a piece of this rank and its children and passes it on. Tells when that is done, at the root.
    fn up(&self, plan: &mut Plan, offset: usize, len: usize) -> Mark {
        let (mut own, mut come) = (Place::send(offset), Mark::NONE);
        for (number, child) in self.children.iter().enumerate() {
            let last = self.parent.is_none() && number + 1 == self.children.len();
            come = plan.combine(*child, (Place::receive(offset), own), len, last, come);
            own = Place::receive(offset);
        }
        if let Some(parent) = self.parent {
            plan.send(parent, own, len, come);
        }
        come
    }

    /// Passes a piece of the result down.
    fn down(&self, plan: &mut Plan, offset: usize, len: usize, summed: Mark) {
        let place = Place::receive(offset);
        let come = match self.parent {
            Some(parent) => plan.receive(parent, place, len, Mark::NONE),
            None => summed,
        };
        for child in &self.children {
            plan.send(*child, place, len, come);
        }
    }
}

/// What the trees are built over: hosts, or ranks where there is one host. With a root, it is the first of the first.
fn units(layout: &Layout, root: Option<usize>) -> Vec<Vec<usize>> {
    let mut units: Vec<Vec<usize>> = layout.hosts().map(<[usize]>::to_vec).collect();
    if let [host] = units.as_slice() {
        units = host.iter().map(|it| vec![*it]).collect();
    }
    if let Some(root) = root
        && let Some(first) = units.iter().position(|it| it.contains(&root))
    {
        units.rotate_left(first);
        let at = units[0].iter().position(|it| *it == root).unwrap_or(0);
        units[0].rotate_left(at);
    }
    units
}

/// The parent of a node in a binary tree of `n` in which all nodes with odd numbers are leaves.
///
/// The second tree is the first in a mirror, or shifted by one when `n` is odd: its leaves are the even ones.
fn above(node: usize, n: usize, second: bool) -> Option<usize> {
    if second && n.is_multiple_of(2) {
        return Some(n - 1 - above(n - 1 - node, n, false)?);
    }
    if second {
        return Some((above((node + n - 1) % n, n, false)? + 1) % n);
    }
    if node == 0 {
        return None;
    }
    let bit = 1 << node.trailing_zeros();
    let below = node ^ bit;
    Some(Some(below | (bit << 1)).filter(|it| *it < n).unwrap_or(below))
}

/// A rank's neighbours in a binomial tree, whose nodes are numbered from the root.
struct Bough {
    /// This rank's number.
    number: usize,
    /// Ranks in its subtree, with itself.
    size: usize,
    parent: Option<usize>,
    /// Children with the numbers of their subtrees.
    children: Vec<(usize, std::ops::Range<usize>)>,
    root: usize,
}

impl Bough {
    fn new(shape: &Shape, layout: &Layout) -> Self {
        let (n, root) = (layout.size(), layout.place(shape.root));
        let number = (layout.place(shape.rank) + n - root) % n;
        let span = if number == 0 { n.next_power_of_two() } else { 1 << number.trailing_zeros() };
        let children = (0..span.ilog2())
            .map(|it| (number + (1 << it))..(number + (2 << it)).min(n))
            .filter(|it| !it.is_empty())
            .map(|it| (layout.rank(root + it.start), it))
            .collect();
        Self {
            number,
            size: span.min(n - number),
            parent: (number > 0).then(|| layout.rank(root + (number & (number - 1)))),
            children,
            root,
        }
    }

    /// Where a block of the subtree stands: with the root in its buffer, else in scratch.
    fn stored(&self, layout: &Layout, block: usize, len: usize, buffer: fn(usize) -> Place) -> Place {
        if self.parent.is_none() {
            buffer(layout.rank(self.root + block) * len)
        } else {
            Place::scratch((block - self.number - 1) * len)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(n: usize, second: bool) -> Vec<usize> {
        (0..n).filter(|it| !(0..n).any(|child| above(child, n, second) == Some(*it))).collect()
    }

    #[test]
    fn trees_are_binary_and_shallow() {
        for n in 1..70 {
            for second in [false, true] {
                for node in 0..n {
                    let children = (0..n).filter(|it| above(*it, n, second) == Some(node)).count();
                    assert!(children <= 2, "{node} of {n} has {children}");
                    let depth = std::iter::successors(Some(node), |it| above(*it, n, second)).count() - 1;
                    assert!(depth <= n.ilog2() as usize + 1, "{node} of {n} is {depth} deep");
                }
            }
        }
    }

    #[test]
    fn inner_nodes_of_one_tree_are_leaves_of_the_other() {
        for n in (2..70).filter(|it| it % 2 == 0) {
            let (first, second) = (leaves(n, false), leaves(n, true));
            assert!((0..n).all(|it| first.contains(&it) != second.contains(&it)), "{n}");
        }
    }

    #[test]
    fn one_rank_of_each_host_speaks_to_others() {
        let layout = Layout::new(&[0, 0, 0, 1, 1, 2]);
        let units = units(&layout, Some(4));
        assert_eq!(units, [vec![4, 3], vec![5], vec![0, 1, 2]]);
        assert_eq!(Branch::new(4, &units, false), Branch { parent: None, children: vec![3, 0] });
        assert_eq!(Branch::new(0, &units, false), Branch { parent: Some(4), children: vec![1, 2, 5] });
        assert_eq!(Branch::new(2, &units, true).children.first(), Some(&1));
    }
}
