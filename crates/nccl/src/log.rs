//! What NCCL prints about its decisions, in its own words.

use std::fmt::Write as _;

use crate::{Communicator, SearchedChannel, TopoGraph, TreeLinks};

/// The length of a log message that NCCL does not cut: all since 2.29.2.
const TREES: usize = 1022;
/// The buffer of a `Channel` line since 2.23.4.
const RING: usize = 128;

impl Communicator {
    /// The `Pattern` lines of a rank, each with its channels (`ncclTopoPrintGraph`).
    pub fn graph_lines(&self, rank: usize) -> Vec<String> {
        let Some(graphs) = self.graphs(rank) else { return Vec::new() };
        let mut searched = vec![&graphs.ring, &graphs.tree];
        if !graphs.collnet_chain.channels.is_empty() {
            searched.push(&graphs.collnet_chain);
            if self.settings.since(2, 22, 3) {
                searched.push(&graphs.collnet_direct);
            }
        }
        if graphs.nvls != TopoGraph::none(graphs.nvls.pattern) {
            searched.push(&graphs.nvls);
        }
        let mut lines = Vec::new();
        for graph in searched {
            lines.push(graph.to_string());
            for (number, channel) in graph.channels.iter().enumerate() {
                lines.push(self.channel_line(rank, graph, number, channel));
            }
        }
        lines
    }

    /// ` 0 : NET/0-0 GPU/0-201c0 GPU/0-901d0 NET/0-1`
    fn channel_line(
        &self,
        rank: usize,
        graph: &TopoGraph,
        number: usize,
        channel: &SearchedChannel,
    ) -> String {
        let since = |minor, patch| self.settings.since(2, minor, patch);
        let node = self.node_of_rank.get(rank).copied().unwrap_or(0);
        let paths = self.graphs_of_node.get(node as usize).and_then(|it| self.node_paths.get(*it));
        let net = |nic: usize| {
            let machine = paths.map_or(0, |it| it.machine_of_nic(nic));
            let id = paths.and_then(|it| it.nic_number(nic)).unwrap_or(0);
            match () {
                () if since(23, 4) => format!(" NET/{machine:x}-{id:x}"),
                () if since(21, 5) => format!(" NET/{id:x}"),
                () => format!(" NET/{id}"),
            }
        };
        let gpu = |gpu: usize| {
            let bus = paths.and_then(|it| it.about.buses.get(gpu).copied().flatten());
            match bus.filter(|_| since(27, 5)) {
                Some(bus) => format!(" GPU/{:x}-{:x}", paths.map_or(0, |it| it.machine_of_gpu(gpu)), bus.0),
                None => {
                    let here = |it: &usize| self.node_of_rank[*it] == node && self.gpu_of_rank[*it] == gpu;
                    format!(" GPU/{}", (0..self.n_ranks).find(here).unwrap_or(0))
                }
            }
        };
        let mut line = format!("{number:2} :");
        if let Some([first, _]) = channel.inter {
            line.push_str(&net(first));
        }
        // Of a graph for NVLS only the head matters, and since 2.27.5 only it is shown.
        let shown =
            if graph.pattern == crate::Pattern::Nvls && since(27, 5) { 1 } else { channel.intra.len() };
        for (step, it) in channel.intra.iter().take(shown).enumerate() {
            // Before, rank 0 stood for the others.
            let unset = graph.pattern == crate::Pattern::Nvls && step > 0;
            line.push_str(&if unset { " GPU/0".into() } else { gpu(*it) });
        }
        if let Some([first, last]) = channel.inter {
            // 2.23.4 shows the first NIC twice.
            line.push_str(&net(if since(23, 4) && !since(24, 3) { first } else { last }));
        }
        line
    }

    /// `Channel 00/16 :  0  7  6 ...` of every channel; only rank 0 prints it (`src/graph/rings.cc`, `dumpLine`).
    pub fn ring_lists(&self) -> Vec<String> {
        let channels = &self.connected.channels;
        let list = |(number, channel): (usize, &crate::ConnectedChannel)| {
            let order = self.connected.rings[channel.ring].order(0);
            let mut line = format!("Channel {number:02}/{:02} :", channels.len());
            if !self.settings.since(2, 23, 4) {
                line.push(' ');
                order.iter().take(20).for_each(|it| line.push_str(&format!(" {it:3}")));
                return line;
            }
            let width = self.n_ranks.saturating_sub(1).to_string().len();
            for rank in order {
                if line.len() >= RING - 1 {
                    break;
                }
                let _ = write!(line, " {rank:width$}");
            }
            if line.len() >= RING {
                line.truncate(RING - 4);
                line.push_str("...");
            }
            line
        };
        channels.iter().enumerate().map(list).collect()
    }

    /// `Ring 00 : 8 -> 0 -> 7` of every channel of a rank.
    pub fn ring_lines(&self, rank: usize) -> Vec<String> {
        let line = |(number, channel): (usize, &crate::ConnectedChannel)| {
            let ring = &self.connected.rings[channel.ring];
            format!("Ring {number:02} : {} -> {rank} -> {}", ring.prev[rank], ring.next[rank])
        };
        self.connected.channels.iter().enumerate().map(line).collect()
    }

    /// `Tree 0 : -1 -> 0 -> 1/8/-1` of a rank that talks to other nodes (`connectTrees`).
    pub fn tree_lines(&self, rank: usize) -> Vec<String> {
        let Some(graphs) = self.graphs(rank) else { return Vec::new() };
        let searched = self.agreed.ring.channels.len();
        let mut lines = Vec::new();
        for (number, channel) in graphs.tree.channels.iter().take(searched).enumerate() {
            let last = usize::from(graphs.tree.pattern != crate::Pattern::Tree).min(channel.intra.len() - 1);
            if !channel.intra[..=last].contains(&self.gpu_of_rank[rank]) {
                continue;
            }
            for tree in [number, number + searched] {
                let place = self.connected.trees[tree].ranks[rank];
                lines.push(format!("Tree {tree} : {} -> {rank} -> {}", shown(place.up), down(&place)));
            }
        }
        lines
    }

    /// `Trees [0] 1/8/-1->0->-1 [1] ...` of a rank, cut where NCCL cuts it.
    pub fn trees_line(&self, rank: usize) -> String {
        let mut list = String::new();
        for (number, channel) in self.connected.channels.iter().enumerate() {
            let links = &self.connected.trees[channel.tree].ranks[rank];
            let _ = write!(list, " [{number}] {}->{rank}->{}", down(links), shown(links.up));
        }
        list.truncate(TREES);
        format!("Trees{list}")
    }

    /// `NVLS Head  0:  0  8` of every head; only the ranks of node 0 print it, with more than one node. At most 20 nodes.
    pub fn nvls_head_lines(&self) -> Vec<String> {
        if self.n_nodes < 2 || !self.nvls {
            return Vec::new();
        }
        let line = |(number, heads): (usize, &Vec<u32>)| {
            let mut line = format!("NVLS Head {number:2}:");
            for rank in heads.iter().take(20) {
                let _ = write!(line, " {rank:2}");
            }
            line
        };
        self.connected.nvls_heads.iter().enumerate().map(line).collect()
    }
}

fn shown(rank: Option<u32>) -> String {
    rank.map_or_else(|| "-1".into(), |it| it.to_string())
}

fn down(links: &TreeLinks) -> String {
    links.down.map(shown).join("/")
}
