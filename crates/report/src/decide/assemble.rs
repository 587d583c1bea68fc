//! The answer from a prediction.

use fabric::Layout;
use fabric::machine::Machine;
use nccl::tuning::{Protocol, TUNED, algorithms};
use nccl::{Prediction, TopoGraph};
use rules::decisions::lines;

use super::crossing::crossings;
use super::limit::{limit, why};
use super::{Cell, Channels, Decide, Graph, GraphChannel, Setting, Tuner, Unheeded, spans};

/// What the answer is made of.
#[derive(Debug, Clone, Copy)]
pub struct DecideParts<'a> {
    /// The machine as NCCL sees it.
    pub machine: &'a Machine,
    /// Where it comes from.
    pub source: &'a str,
    /// What NCCL decides.
    pub prediction: &'a Prediction,
    /// The release of aws-ofi-nccl that was assumed.
    pub plugin: Option<fabric::Version>,
    /// The rank whose lines are shown.
    pub rank: u64,
    /// What the answer assumes.
    pub notes: &'a [String],
}

impl Decide {
    /// Puts the answer together.
    pub fn new(parts: DecideParts<'_>) -> Self {
        let DecideParts { machine, prediction, rank, .. } = parts;
        let communicator = &prediction.communicator;
        let joined = &communicator.joined_machine(machine);
        let layout: &Layout = prediction.decisions.layout();
        let several = communicator.n_nodes > 1;
        let environment = &communicator.settings.environment;
        let by_plugin = |name: &String| prediction.set_by_plugin.iter().any(|it| it.0 == name);
        Self {
            schema: "plumb.decide/1",
            machine: machine.name.as_deref().map_or_else(|| title(parts.source), str::to_owned),
            source: parts.source.to_owned(),
            nodes: layout.nodes,
            pods: format!("{}x{}", layout.pods_per_node, layout.gpus_per_pod),
            ranks: layout.ranks(),
            nccl_nodes: communicator.n_nodes,
            nccl: communicator.settings.version.to_string(),
            network: several.then(|| prediction.decisions.network().name()),
            plugin: prediction.tuner.as_ref().and(parts.plugin).map(|it| it.to_string()),
            channels: channels(prediction),
            limit: limit(prediction, joined),
            between_nodes: crossings(prediction, joined),
            choices: spans::all(prediction),
            tuner: prediction
                .tuner
                .as_ref()
                .map(|it| Tuner { decides: it.is_ok(), reason: it.as_ref().err().map(ToString::to_string) }),
            graphs: graphs(prediction, joined, rank),
            rings: rings(prediction),
            tuning: cells(prediction),
            environment: environment
                .iter()
                .filter(|it| is_ours(it.0) && !by_plugin(it.0))
                .map(|it| (it.0.clone(), it.1.clone()))
                .collect(),
            set_by_plugin: prediction
                .set_by_plugin
                .iter()
                .map(|it| Setting { name: it.0.to_owned(), value: it.1.to_owned() })
                .collect(),
            unheeded: prediction
                .unheeded
                .iter()
                .map(|it| Unheeded {
                    name: it.name.clone(),
                    reason: it.to_string(),
                    not_modelled: it.why != nccl::Why::NotRead,
                })
                .collect(),
            rank,
            lines: lines(prediction, rank),
            notes: parts.notes.to_vec(),
            what_if: None,
        }
    }
}

/// What a machine without a name is called, by where it comes from: `the machine of topo.xml` for `dir/topo.xml:1 (NCCL topology XML)`.
fn title(source: &str) -> String {
    let place = source.split(" (").next().unwrap_or(source);
    let file = match place.rsplit_once(':') {
        Some((file, line)) if line.bytes().all(|it| it.is_ascii_digit()) => file,
        _ => return source.to_owned(),
    };
    format!("the machine of {}", file.rsplit('/').next().unwrap_or(file))
}

fn is_ours(name: &str) -> bool {
    name.starts_with("NCCL_") || name.starts_with("OFI_NCCL_")
}

fn channels(prediction: &Prediction) -> Channels {
    let communicator = &prediction.communicator;
    let agreed = &communicator.agreed;
    let p2p = prediction.p2p_of(0);
    Channels {
        searched: agreed.ring.channels.len().min(agreed.tree.channels.len()),
        collectives: communicator.connected.coll_channels,
        nvls: communicator.connected.nvls_channels,
        p2p: p2p.map_or(0, |it| it.channels),
        p2p_per_peer: p2p.map_or(0, |it| it.per_peer),
        p2p_chunk: p2p.map_or(0, |it| it.chunk),
        why: why(prediction),
    }
}

fn graphs(prediction: &Prediction, machine: &Machine, rank: u64) -> Vec<Graph> {
    let rank = usize::try_from(rank).unwrap_or(usize::MAX);
    let Some(graphs) = prediction.communicator.graphs(rank) else { return Vec::new() };
    let all: [(&'static str, &TopoGraph); 5] = [
        ("ring", &graphs.ring),
        ("tree", &graphs.tree),
        ("collnet_chain", &graphs.collnet_chain),
        ("collnet_direct", &graphs.collnet_direct),
        ("nvls", &graphs.nvls),
    ];
    let nic = |at: usize| machine.nics.get(at).map(|it| it.name.to_string());
    let graph = |(algorithm, it): (&'static str, &TopoGraph)| Graph {
        algorithm,
        pattern: it.pattern.number(),
        cross_nic: it.cross_nic,
        intra: it.bw_intra,
        inter: it.bw_inter,
        type_intra: it.type_intra.to_string(),
        type_inter: it.type_inter.to_string(),
        same_channels: it.same_channels,
        channels: it
            .channels
            .iter()
            .map(|it| GraphChannel {
                nic_in: it.inter.and_then(|it| nic(it[0])),
                gpus: it.intra.iter().filter_map(|it| Some(machine.gpus.get(*it)?.index)).collect(),
                nic_out: it.inter.and_then(|it| nic(it[1])),
            })
            .collect(),
    };
    all.into_iter().filter(|it| !it.1.channels.is_empty()).map(graph).collect()
}

fn rings(prediction: &Prediction) -> Vec<Vec<u32>> {
    if prediction.communicator.n_ranks > Decide::RANKS {
        return Vec::new();
    }
    prediction.communicator.connected.rings.iter().map(|it| it.order(0)).collect()
}

fn cells(prediction: &Prediction) -> Vec<Cell> {
    let mut cells = Vec::new();
    for collective in TUNED {
        for &algorithm in algorithms(prediction.communicator.settings.version) {
            for protocol in Protocol::ALL {
                let cell = prediction.tuning.cell(collective, algorithm, protocol);
                if cell.bandwidth > 0.0 {
                    cells.push(Cell {
                        collective: collective.name(),
                        algorithm: algorithm.name(),
                        protocol: protocol.name(),
                        latency_us: cell.latency,
                        bandwidth: cell.bandwidth,
                    });
                }
            }
        }
    }
    cells
}
