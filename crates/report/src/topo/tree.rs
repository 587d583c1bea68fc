//! The devices below a socket, as a list in the order of the drawing.
//!
//! A description may nest switches deeply, so nothing here is recursive.

use super::{Topo, TopoNode, TopoSocket};

/// A switch or device and its position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a> {
    /// The switch or device.
    pub(super) node: &'a TopoNode,
    /// 0 at the socket.
    pub(super) depth: usize,
    /// The switch above it, by its index in the list.
    pub(super) parent: Option<usize>,
}

/// Everything below a socket, each switch before its devices.
pub(super) fn items(socket: &TopoSocket) -> Vec<Item<'_>> {
    let item = |node, depth, parent| Item { node, depth, parent };
    let mut waiting: Vec<Item<'_>> = socket.children.iter().rev().map(|it| item(it, 0, None)).collect();
    let mut list = Vec::new();
    while let Some(next) = waiting.pop() {
        if let TopoNode::Switch { children, .. } = next.node {
            let below = children.iter().rev().map(|it| item(it, next.depth + 1, Some(list.len())));
            waiting.extend(below);
        }
        list.push(next);
    }
    list
}

/// All GPUs and NICs of the machine, without the switches.
pub(super) fn devices(topo: &Topo) -> Vec<&TopoNode> {
    let all = topo.sockets.iter().flat_map(items).map(|it| it.node);
    all.filter(|it| !matches!(it, TopoNode::Switch { .. })).collect()
}

/// The name of a device. A switch has none.
pub(super) fn name(node: &TopoNode) -> Option<&str> {
    match node {
        TopoNode::Switch { .. } => None,
        TopoNode::Gpu { name, .. } | TopoNode::Nic { name, .. } => Some(name),
    }
}

/// The PCI Express link above a switch or device.
pub(super) fn link(node: &TopoNode) -> Option<&str> {
    match node {
        TopoNode::Switch { link, .. } | TopoNode::Gpu { link, .. } | TopoNode::Nic { link, .. } => {
            link.as_deref()
        }
    }
}

/// Names of the GPUs, in the order of the drawing.
pub(crate) fn gpus(topo: &Topo) -> Vec<&str> {
    let all = devices(topo).into_iter();
    all.filter(|it| matches!(it, TopoNode::Gpu { .. })).filter_map(name).collect()
}

/// Names of the NICs, in the order of the drawing.
pub(crate) fn nics(topo: &Topo) -> Vec<&str> {
    let all = devices(topo).into_iter();
    all.filter(|it| matches!(it, TopoNode::Nic { .. })).filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::{Topo, TopoNode, TopoSocket, gpus, items};

    fn gpu(name: &str) -> TopoNode {
        TopoNode::Gpu { name: name.to_owned(), model: None, bus: None, link: None, rank: None }
    }

    #[test]
    fn a_switch_comes_before_its_children() {
        let inner = TopoNode::Switch { bus: None, link: None, children: vec![gpu("GPU1")] };
        let outer = TopoNode::Switch { bus: None, link: None, children: vec![gpu("GPU0"), inner] };
        let socket = TopoSocket { children: vec![outer, gpu("GPU2")], ..TopoSocket::default() };
        let list = items(&socket);
        let shape: Vec<(usize, Option<usize>)> = list.iter().map(|it| (it.depth, it.parent)).collect();
        assert_eq!(shape, [(0, None), (1, Some(0)), (1, Some(0)), (2, Some(2)), (0, None)]);
        let topo = Topo { sockets: vec![socket], ..Topo::default() };
        assert_eq!(gpus(&topo), ["GPU0", "GPU1", "GPU2"]);
    }
}
