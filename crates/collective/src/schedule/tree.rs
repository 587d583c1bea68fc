//! Binary trees between hosts, and inside each host one below its leader.

use super::parent_child::{broadcast_down, reduce_up};
use super::step::{Action, Dependency, Location, Operands, Plan};
use super::{Layout, Piece, Shape};

/// The most pieces of the half of each tree. They alternate where both trees use a stream.
const PIECES: usize = 64;

/// The neighbours of a rank in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Branch {
    parent: Option<usize>,
    children: Vec<usize>,
}

/// Two trees, each with half of the data. A rank with children in one is a leaf in the other, so that the load is equal.
pub(super) fn all_reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let trees: Vec<_> = [false, true]
        .into_iter()
        .zip(0..)
        .map(|(second, half)| {
            let Piece { offset: begin, len } = shape.part(half, 2);
            let pieces: Vec<_> =
                shape.pieces(len, PIECES).map(|it| Piece { offset: begin + it.offset, ..it }).collect();
            (Branch::new(shape.rank, &units(layout, None), second), pieces)
        })
        .collect();
    // Results come down `lag` pieces later than they go up: as many as are in flight in a tree.
    let lag = 2 * layout.size().ilog2() as usize + 2;
    let most = trees.iter().map(|(_, pieces)| pieces.len()).max().unwrap_or(0);
    let mut summed = vec![Vec::new(); trees.len()];
    for turn in 0..most + lag {
        for ((branch, pieces), summed) in trees.iter().zip(&mut summed) {
            if let Some(piece) = pieces.get(turn) {
                summed.push(branch.up(plan, *piece));
            }
        }
        for ((branch, pieces), summed) in trees.iter().zip(&summed) {
            if let Some(index) = turn.checked_sub(lag)
                && let Some(piece) = pieces.get(index)
            {
                branch.down(plan, *piece, summed[index]);
            }
        }
    }
}

/// One tree from the root.
pub(super) fn broadcast(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let branch = Branch::new(shape.rank, &units(layout, Some(shape.root)), false);
    broadcast_down(plan, shape, branch.parent, &branch.children);
}

/// One tree to the root.
pub(super) fn reduce(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let branch = Branch::new(shape.rank, &units(layout, Some(shape.root)), false);
    reduce_up(plan, shape, branch.parent, &branch.children);
}

/// A binomial tree to the root. The blocks of a subtree need scratch: for small blocks.
pub(super) fn gather(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (len, node) = (shape.bytes(), BinomialNode::new(shape, layout));
    if let Some(parent) = node.parent {
        plan.send(parent, Location::send(0), len, Dependency::NONE);
    } else {
        let own = Location::receive(shape.rank * len);
        plan.add(Action::Copy { from: Location::send(0), into: own }, len, Dependency::NONE);
    }
    for Subtree { rank: child, numbers: blocks } in &node.children {
        let mut come = Vec::new();
        for block in blocks.clone() {
            come.push(plan.receive(
                *child,
                node.location(layout, block, len, Location::receive),
                len,
                Dependency::NONE,
            ));
        }
        for (block, come) in blocks.clone().zip(come) {
            if let Some(parent) = node.parent {
                plan.send(parent, node.location(layout, block, len, Location::receive), len, come);
            }
        }
    }
}

/// A binomial tree from the root. The blocks of a subtree need scratch: for small blocks.
pub(super) fn scatter(plan: &mut Plan, shape: &Shape, layout: &Layout) {
    let (len, node) = (shape.bytes(), BinomialNode::new(shape, layout));
    let mut come = Dependency::NONE;
    if let Some(parent) = node.parent {
        plan.receive(parent, Location::receive(0), len, Dependency::NONE);
        come = plan.receive(parent, Location::scratch(0), (node.size - 1) * len, Dependency::NONE);
    } else {
        let own = Location::send(shape.rank * len);
        plan.add(Action::Copy { from: own, into: Location::receive(0) }, len, Dependency::NONE);
    }
    // The largest subtree is the deepest.
    for Subtree { rank: child, numbers: blocks } in node.children.iter().rev() {
        for block in blocks.clone() {
            let from = node.location(layout, block, len, Location::send);
            plan.send(*child, from, len, come.ahead((block - node.number - 1) * len));
        }
    }
}

impl Branch {
    /// The neighbours of a rank in the first or the second tree over these units. Each unit is a tree below its leader.
    fn new(rank: usize, units: &[Vec<usize>], second: bool) -> Self {
        let unit = units.iter().position(|it| it.contains(&rank)).unwrap_or(0);
        // The leader in the second tree is another rank of the host.
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

    /// Reduces a piece of this rank and its children and sends it to the parent. Returns the result, for the root.
    fn up(&self, plan: &mut Plan, Piece { offset, len }: Piece) -> Dependency {
        let (mut own, mut come) = (Location::send(offset), Dependency::NONE);
        for (number, child) in self.children.iter().enumerate() {
            let last = self.parent.is_none() && number + 1 == self.children.len();
            come = plan.combine(*child, Operands { into: Location::receive(offset), own }, len, last, come);
            own = Location::receive(offset);
        }
        if let Some(parent) = self.parent {
            plan.send(parent, own, len, come);
        }
        come
    }

    /// Forwards a piece of the result to the children.
    fn down(&self, plan: &mut Plan, Piece { offset, len }: Piece, summed: Dependency) {
        let position = Location::receive(offset);
        let come = match self.parent {
            Some(parent) => plan.receive(parent, position, len, Dependency::NONE),
            None => summed,
        };
        for child in &self.children {
            plan.send(*child, position, len, come);
        }
    }
}

/// The nodes of the trees: hosts, or ranks if there is one host. A root is the first rank of the first node.
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
/// The second tree is the mirror image of the first, or shifted by one if `n` is odd: its leaves are the even nodes.
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

/// A child and the numbers of its subtree.
struct Subtree {
    rank: usize,
    numbers: std::ops::Range<usize>,
}

/// The neighbours of a rank in a binomial tree, whose nodes are numbered from the root.
struct BinomialNode {
    /// The number of this rank.
    number: usize,
    /// The number of ranks of its subtree, with itself.
    size: usize,
    parent: Option<usize>,
    children: Vec<Subtree>,
    root: usize,
}

impl BinomialNode {
    fn new(shape: &Shape, layout: &Layout) -> Self {
        let (n, root) = (layout.size(), layout.position(shape.root));
        let number = (layout.position(shape.rank) + n - root) % n;
        let span = if number == 0 { n.next_power_of_two() } else { 1 << number.trailing_zeros() };
        let children = (0..span.ilog2())
            .map(|it| (number + (1 << it))..(number + (2 << it)).min(n))
            .filter(|it| !it.is_empty())
            .map(|numbers| Subtree { rank: layout.rank(root + numbers.start), numbers })
            .collect();
        Self {
            number,
            size: span.min(n - number),
            parent: (number > 0).then(|| layout.rank(root + (number & (number - 1)))),
            children,
            root,
        }
    }

    /// The location of a block of the subtree: in the buffer of the root, otherwise in scratch.
    fn location(&self, layout: &Layout, block: usize, len: usize, buffer: fn(usize) -> Location) -> Location {
        if self.parent.is_none() {
            buffer(layout.rank(self.root + block) * len)
        } else {
            Location::scratch((block - self.number - 1) * len)
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
    fn one_rank_of_each_host_is_connected_to_other_hosts() {
        let layout = Layout::new(&[0, 0, 0, 1, 1, 2]);
        let units = units(&layout, Some(4));
        assert_eq!(units, [vec![4, 3], vec![5], vec![0, 1, 2]]);
        assert_eq!(Branch::new(4, &units, false), Branch { parent: None, children: vec![3, 0] });
        assert_eq!(Branch::new(0, &units, false), Branch { parent: Some(4), children: vec![1, 2, 5] });
        assert_eq!(Branch::new(2, &units, true).children.first(), Some(&1));
    }
}
