//! Double binary trees over nodes (`src/graph/trees.cc`).

/// The place of a node in a binary tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) up: Option<usize>,
    pub(crate) down: [Option<usize>; 2],
    /// Which child of its parent it is: 0 or 1.
    pub(crate) child: usize,
}

/// A tree whose leaves and inner nodes alternate, with 0 as the root: a node with lowest set bit `b` has the nodes at half
/// that distance as children (`ncclGetBtree`).
fn binary(nodes: usize, node: usize) -> Place {
    if node == 0 {
        let top = if nodes > 1 { Some(nodes.next_power_of_two() / 2) } else { None };
        return Place { up: None, down: [None, top], child: 0 };
    }
    let bit = 1 << node.trailing_zeros();
    let below = node ^ bit;
    let up = Some(below | bit << 1).filter(|it| *it < nodes).unwrap_or(below);
    let half = bit / 2;
    // The second child may be beyond the end; then the tree is shorter there.
    let mut step = half;
    while step > 0 && node + step >= nodes {
        step /= 2;
    }
    let first = if half > 0 { Some(node - half) } else { None };
    let second = if step > 0 { Some(node + step) } else { None };
    Place { up: Some(up), down: [first, second], child: usize::from(node > up) }
}

/// The place of a node in both trees: the second is the first, mirrored for an even number of nodes and shifted by one for an odd
/// (`ncclGetDtree`).
pub(crate) fn double(nodes: usize, node: usize) -> [Place; 2] {
    let first = binary(nodes, node);
    let even = nodes.is_multiple_of(2);
    let there = if even { nodes - 1 - node } else { (node + nodes - 1) % nodes };
    let back = |it: usize| if even { nodes - 1 - it } else { (it + 1) % nodes };
    let second = binary(nodes, there);
    [first, Place { up: second.up.map(back), down: second.down.map(|it| it.map(back)), child: second.child }]
}

#[cfg(test)]
mod tests {
    use super::double;

    #[test]
    fn eight_nodes() {
        let numbers = |it: Option<usize>| it.map_or(-1, |it| i32::try_from(it).unwrap());
        let all: Vec<Vec<i32>> = (0..8)
            .map(|node| {
                let [one, other] = double(8, node);
                [one.up, one.down[0], one.down[1], other.up, other.down[0], other.down[1]]
                    .map(numbers)
                    .to_vec()
            })
            .collect();
        let want = [
            [-1, -1, 4, 1, -1, -1],
            [2, -1, -1, 3, 2, 0],
            [4, 1, 3, 1, -1, -1],
            [2, -1, -1, 7, 5, 1],
            [0, 2, 6, 5, -1, -1],
            [6, -1, -1, 3, 6, 4],
            [4, 5, 7, 5, -1, -1],
            [6, -1, -1, -1, -1, 3],
        ];
        assert_eq!(all, want);
    }

    #[test]
    fn parents_and_children_agree() {
        for nodes in 1..70 {
            for tree in 0..2 {
                let mut roots = 0;
                for node in 0..nodes {
                    let place = double(nodes, node)[tree];
                    match place.up {
                        Some(up) => {
                            assert_eq!(double(nodes, up)[tree].down[place.child], Some(node), "{nodes}");
                        }
                        None => roots += 1,
                    }
                    for child in place.down.into_iter().flatten() {
                        assert_eq!(double(nodes, child)[tree].up, Some(node), "{nodes}");
                    }
                }
                assert_eq!(roots, 1);
            }
        }
    }
}
