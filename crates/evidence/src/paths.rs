//! The paths of the data, from the connections that ranks printed.

use std::collections::{BTreeMap, BTreeSet};

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
    /// Every pair of ranks that is connected.
    pub edges: Vec<Edge>,
    /// Pairs of ranks by transport, without the device: `NET/Libfabric with GPUDirect`.
    pub by_kind: BTreeMap<String, u32>,
    /// For each pair of nodes, pairs of ranks by kind.
    pub by_node_pair: BTreeMap<(String, String), BTreeMap<String, u32>>,
}

/// The paths of a communicator, from the connections that both sides print.
pub fn of(case: &Case, communicator: &Communicator) -> Paths {
    let mut pairs: BTreeMap<(u32, u32, String), (u64, String)> = BTreeMap::new();
    for (_, link) in communicator.links() {
        let entry = pairs.entry((link.from, link.to, transport(link)));
        let entry = entry.or_insert_with(|| (0, kind(link, case.is_in_host_memory())));
        entry.0 |= link.channels;
    }
    let mut paths = Paths::default();
    let mut counted = BTreeSet::new();
    for ((from, to, transport), (channels, kind)) in pairs {
        // The two ends of a connection name their own devices: it is one pair all the same.
        if counted.insert((from, to, kind.clone())) {
            *paths.by_kind.entry(kind.clone()).or_default() += 1;
            let pair = (node(case, communicator, from), node(case, communicator, to));
            *paths.by_node_pair.entry(pair).or_default().entry(kind).or_default() += 1;
        }
        paths.edges.push(Edge { from, to, transport, channels: channels.count_ones() });
    }
    paths
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
