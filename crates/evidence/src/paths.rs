//! The paths of the data, from the connections that ranks printed.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::case::Case;
use crate::communicator::Communicator;
use crate::facts::Link;

/// The path from one rank to another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The sending rank.
    pub from: u32,
    /// The receiving rank.
    pub to: u32,
    /// The transport by its usual name: `SHM`, `P2P/CUMEM`, `NET/Libfabric/0/GDRDMA`.
    pub transport: String,
    /// How many channels use it.
    pub channels: u32,
}

/// All paths of a communicator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paths {
    /// Pairs of ranks by transport, without the device: `NET/Libfabric with GPUDirect`.
    pub by_kind: BTreeMap<String, u32>,
    /// For each pair of nodes, pairs of ranks by kind.
    pub by_node_pair: BTreeMap<(String, String), BTreeMap<String, u32>>,
}

/// The paths of a communicator, from the connections that both sides print.
pub fn of(case: &Case, communicator: &Communicator) -> Paths {
    // Ranks print few different transports, and there can be millions of links.
    let mut ways: Vec<Way<'_>> = Vec::new();
    let mut kinds: Vec<String> = Vec::new();
    let mut pairs: Vec<(u32, u32, usize)> = Vec::new();
    for (_, link) in communicator.links() {
        let known = ways.iter().position(|it| Arc::ptr_eq(it.via, &link.via) || it.via == &link.via);
        let way = known.unwrap_or_else(|| {
            let kind = kind(link, case.is_in_host_memory());
            let kind = kinds.iter().position(|it| *it == kind).unwrap_or_else(|| {
                kinds.push(kind);
                kinds.len() - 1
            });
            ways.push(Way { via: &link.via, kind });
            ways.len() - 1
        });
        pairs.extend(ways.get(way).map(|it| (link.from, link.to, it.kind)));
    }
    pairs.sort_unstable();
    pairs.dedup();
    let mut nodes: FxHashMap<u32, String> = FxHashMap::default();
    let mut by_kind: BTreeMap<usize, u32> = BTreeMap::new();
    let mut paths = Paths::default();
    // The two ends of a connection name their own devices: it is one pair all the same.
    for (from, to, kind) in pairs {
        *by_kind.entry(kind).or_default() += 1;
        let mut node =
            |rank: u32| nodes.entry(rank).or_insert_with(|| node(case, communicator, rank)).clone();
        let name = kinds.get(kind).cloned().unwrap_or_default();
        *paths.by_node_pair.entry((node(from), node(to))).or_default().entry(name).or_default() += 1;
    }
    paths.by_kind = by_kind.into_iter().filter_map(|(at, n)| Some((kinds.get(at)?.clone(), n))).collect();
    paths
}

/// Every pair of ranks of a communicator that is connected, and how.
pub fn edges(communicator: &Communicator) -> Vec<Edge> {
    let mut edges: BTreeMap<(u32, u32, String), u64> = BTreeMap::new();
    for (_, link) in communicator.links() {
        *edges.entry((link.from, link.to, transport(link))).or_default() |= link.channels;
    }
    let edge = |((from, to, transport), channels): ((u32, u32, String), u64)| Edge {
        from,
        to,
        transport,
        channels: channels.count_ones(),
    };
    edges.into_iter().map(edge).collect()
}

/// What is printed after `via`, and what it means.
struct Way<'a> {
    via: &'a Arc<str>,
    /// The index of its kind.
    kind: usize,
}

/// The host of a rank, or what is known of it.
fn node(case: &Case, communicator: &Communicator, rank: u32) -> String {
    let process = communicator.members.get(&rank).and_then(|it| case.processes.get(it.process));
    if let Some(process) = process.filter(|it| !it.host.is_empty()) {
        return process.host.to_string();
    }
    // Ranks are usually numbered node by node; without their logs this is all there is.
    match communicator.local_ranks() {
        Some(local) if local > 0 => format!("node {} (by rank)", rank / local),
        _ => format!("node of rank {rank}"),
    }
}

fn transport(link: &Link) -> String {
    link.transport().map_or_else(|| link.via.to_string(), ToString::to_string)
}

/// The transport without its device.
fn kind(link: &Link, in_host_memory: bool) -> String {
    match link.transport() {
        Some(it) => match it.network() {
            Some((network, ..)) if in_host_memory => format!("{}/{network}", it.family()),
            Some((network, _, gpudirect)) => {
                format!("{}/{network} {} GPUDirect", it.family(), if gpudirect { "with" } else { "without" })
            }
            None => it.to_string(),
        },
        None => link.via.to_string(),
    }
}
