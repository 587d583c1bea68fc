//! The search for the paths that lead to one node of the system, breadth first, with NCCL's preferences.

use crate::topo::{Link, LinkKind, Node, System};
use crate::{Path, PathType, Settings};

/// What the search knows of a node.
#[derive(Debug, Clone)]
pub(crate) struct Reached {
    pub(crate) path: Path,
    /// The node before it, seen from where the search began.
    before: usize,
    /// The links from it to where the search began, by their numbers in the system.
    pub(crate) route: Vec<u32>,
}

/// All paths that lead to `base`.
pub(crate) fn search(system: &System, base: usize, settings: &Settings) -> Vec<Option<Reached>> {
    let mut reached: Vec<Option<Reached>> = vec![None; system.nodes.len()];
    let start = Path { kind: PathType::Loc, bandwidth: fabric::link::local(), hops: 0 };
    reached[base] = Some(Reached { path: start, before: base, route: Vec::new() });
    let first_links = system.first_links();
    let (mut edge, mut next) = (vec![base], Vec::new());
    let mut listed = vec![0; system.nodes.len()];
    // Each round goes one link farther. A path longer than there are nodes would run in circles.
    for round in 1..=system.nodes.len() {
        for &node in &edge {
            for link in &system.links[node] {
                let Some(here) = &reached[node] else { continue };
                if !may_pass(system, base, node, here.path, *link, settings) {
                    continue;
                }
                let path = extend(system, base, node, here.path, *link, settings);
                if reached[link.to].as_ref().is_none_or(|it| is_better(path, it.path, settings)) {
                    let mut route = Vec::with_capacity(here.route.len() + 1);
                    if let Some(back) = system.back(node, *link) {
                        route.push(first_links[link.to] + u32::try_from(back).unwrap_or(u32::MAX));
                    }
                    route.extend_from_slice(&here.route);
                    reached[link.to] = Some(Reached { path, before: node, route });
                    if listed[link.to] != round {
                        listed[link.to] = round;
                        next.push(link.to);
                    }
                }
            }
        }
        if next.is_empty() {
            break;
        }
        edge.clear();
        std::mem::swap(&mut edge, &mut next);
    }
    reached
}

/// How many links lead from the base to its own board: a GPU has one of them since 2.30.
fn own_links(system: &System, base: usize, settings: &Settings) -> u32 {
    u32::from(settings.since(2, 30, 0) && matches!(system.nodes[base], Node::Gpu(_)))
}

fn is_board(system: &System, node: usize, settings: &Settings) -> bool {
    match system.nodes[node] {
        Node::Gpu(_) => !settings.since(2, 30, 0),
        Node::Board(_) => true,
        _ => false,
    }
}

/// A path leads through another GPU only by NVLink from GPU to GPU, and only through one.
fn may_pass(system: &System, base: usize, node: usize, path: Path, link: Link, settings: &Settings) -> bool {
    let own = own_links(system, base, settings);
    let from_own = if own == 0 {
        node == base
    } else {
        matches!((system.nodes[base], system.nodes[node]), (Node::Gpu(one), Node::Board(other)) if one == other)
    };
    if from_own || !is_board(system, node, settings) {
        return true;
    }
    if link.kind == LinkKind::Local {
        return matches!(system.nodes[link.to], Node::Gpu(_));
    }
    !settings.nvb_disabled()
        && link.kind == LinkKind::NvLink
        && is_board(system, link.to, settings)
        && path.hops <= 1 + own
}

fn extend(system: &System, base: usize, node: usize, path: Path, link: Link, settings: &Settings) -> Path {
    let (here, there) = (system.nodes[node], system.nodes[link.to]);
    let own = own_links(system, base, settings);
    let mut kind = link.kind.path();
    if here == Node::Bridge && there == Node::Bridge {
        kind = PathType::Pxb;
    }
    let at_cpu = matches!(here, Node::Socket(_)) || matches!(there, Node::Socket(_));
    if link.kind == LinkKind::Pci && at_cpu {
        kind = PathType::Phb;
    }
    let through_gpu = is_board(system, node, settings) && path.kind == PathType::Nvl && path.hops > own;
    if through_gpu && kind == PathType::Nvl {
        kind = PathType::Nvb;
    }
    Path {
        kind: path.kind.farther(kind, settings.version),
        bandwidth: path.bandwidth.min(link.bandwidth),
        hops: path.hops + 1,
    }
}

/// Up to 2.30.4 the shortest path, and of these the widest; since 2.30.7 the nearest type, then the widest, then the shortest.
fn is_better(new: Path, old: Path, settings: &Settings) -> bool {
    let wider = new.bandwidth.total_cmp(&old.bandwidth);
    if !settings.since(2, 30, 7) {
        return new.hops <= old.hops && wider.is_gt();
    }
    let nearer = new.kind.compare(old.kind, settings.version).reverse();
    nearer.then(wider).then(old.hops.cmp(&new.hops)).is_gt()
}

/// The GPU in the middle of a path that leads over NVLink from GPU to GPU.
pub(crate) fn middle(system: &System, reached: &[Option<Reached>], found: &Reached) -> Option<usize> {
    let before = |node: usize| reached.get(node)?.as_ref().map(|it| it.before);
    match system.nodes.get(found.before)? {
        Node::Gpu(gpu) if found.path.hops == 2 => Some(*gpu),
        Node::Board(_) if found.path.hops == 4 => match system.nodes.get(before(found.before)?)? {
            Node::Board(gpu) => Some(*gpu),
            _ => None,
        },
        _ => None,
    }
}
