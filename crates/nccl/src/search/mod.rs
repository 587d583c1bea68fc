//! The search for the channels of a node: NCCL's `src/graph/search.cc`.
//!
//! Files: `compute` what is tried, `walk` the search itself, `order` and `nets` what comes first, `model` the system with what is
//! left of its bandwidths, `draft` a graph in the making, `speeds` the bandwidths of a channel.

mod compute;
mod draft;
mod model;
mod nets;
mod order;
mod speeds;
mod walk;

pub(crate) use nets::max_channels;

use compute::compute;
use draft::Draft;
use model::Model;

use crate::{Graphs, Paths, Pattern, SearchedChannel, TopoGraph};

/// What the search has to know besides the paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    /// Whether the communicator has ranks on other nodes.
    pub(crate) inter: bool,
    /// Whether the network reduces.
    pub(crate) collnet: bool,
    /// Whether the `NVSwitch`es reduce.
    pub(crate) nvls: bool,
}

/// The graphs of a node, in the order NCCL searches them (`src/init.cc`, `initTransportsRank`).
pub(crate) fn search(paths: &Paths, wanted: Wanted) -> Graphs {
    let most = max_channels(&paths.settings);
    let mut model = Model::new(paths, wanted.inter, wanted.collnet);
    let gpus = model.gpus;
    let mut graph = |draft: Draft| {
        let found = compute(&mut model, draft);
        graph_of(&model, &found)
    };
    let ring = graph(Draft::new(Pattern::Ring, (1, most / 2), gpus));
    let same = (ring.channels.len(), ring.channels.len());
    let tree = graph(Draft::new(Pattern::BalancedTree, same, gpus));
    let (mut chain, mut direct) = (TopoGraph::none(Pattern::Tree), TopoGraph::none(Pattern::CollNetDirect));
    if wanted.collnet {
        chain = graph(Draft { collnet: true, ..Draft::new(Pattern::Tree, same, gpus) });
        // A graph of its own since 2.22.3.
        direct = if paths.settings.since(2, 22, 3) {
            graph(Draft { collnet: true, ..Draft::new(Pattern::CollNetDirect, (1, most), gpus) })
        } else {
            chain.clone()
        };
    }
    let mut nvls = TopoGraph::none(Pattern::Nvls);
    if wanted.nvls {
        nvls = graph(Draft::new(Pattern::Nvls, (1, most), gpus));
    }
    Graphs { ring, tree, collnet_chain: chain, collnet_direct: direct, nvls }
}

/// A graph with positions in the machine instead of numbers of the model.
fn graph_of(model: &Model<'_>, draft: &Draft) -> TopoGraph {
    let gpus = model.paths.gpus();
    let kind = |number: u8| model.types.get(usize::from(number)).copied().unwrap_or(crate::PathType::Dis);
    let position = |net: usize| model.nets.get(net).map_or(0, |it| it.position);
    let channel = |channel: usize| SearchedChannel {
        intra: (0..model.gpus).map(|step| gpus[draft.gpu_at(channel, step)].position).collect(),
        inter: (model.inter && !model.nets.is_empty()).then(|| draft.inter[channel].map(position)),
    };
    TopoGraph {
        pattern: draft.pattern,
        cross_nic: draft.cross_nic,
        channels: (0..draft.n_channels).map(channel).collect(),
        bw_intra: draft.bw_intra,
        bw_inter: draft.bw_inter,
        type_intra: kind(draft.type_intra),
        type_inter: kind(draft.type_inter),
        same_channels: draft.same_channels,
        latency_inter: draft.latency_inter,
        hops: draft.hops,
    }
}
