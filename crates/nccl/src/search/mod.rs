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

#[cfg(test)]
mod tests {
    use fabric::machine::{Bridge, Gpu, Machine, Maker, Nic, NicKind, NvEnd, NvLink, PciLink, Place, Socket};
    use fabric::units::GigabitsPerSecond;
    use proptest::prelude::*;

    use super::compute::compute;
    use super::draft::Draft;
    use super::model::{End, Model};
    use crate::{Paths, Pattern, Settings};

    fn machine(gpus: usize, nics: usize, rate: f64, nvlinks: u32, mesh: bool) -> Machine {
        let link = PciLink::generation(4);
        let socket = Socket { maker: Maker::Intel, model: Some((6, 0x8f)), ..Socket::default() };
        let mut machine = Machine { sockets: vec![socket; 2], ..Machine::default() };
        machine.bridges = (0..4).map(|it| Bridge { at: Place::Socket(it / 2), bus: None, link }).collect();
        for gpu in 0..gpus {
            let (at, index) = (Place::Bridge(gpu * 4 / gpus), u32::try_from(gpu).unwrap());
            let (bus, model, rank, c2c) = (None, None, None, None);
            let (compute, gpudirect) = (Some(80), Some(true));
            machine.gpus.push(Gpu { index, at, bus, link, model, compute, gpudirect, rank, c2c });
            let others = (0..gpus).filter(|it| *it != gpu).map(NvEnd::Gpu);
            let ends: Vec<NvEnd> = if mesh { others.collect() } else { vec![NvEnd::Switch] };
            machine.nvlinks.extend(ends.into_iter().map(|to| NvLink { from: gpu, to, count: nvlinks }));
        }
        machine.nics = (0..nics)
            .map(|nic| Nic {
                name: "mlx5_0".into(),
                index: u32::try_from(nic).unwrap(),
                at: Place::Bridge(nic % 4),
                bus: None,
                link,
                rate: Some(GigabitsPerSecond(rate)),
                gpudirect: Some(true),
                latency: None,
                port: None,
                kind: NicKind::InfiniBand,
            })
            .collect();
        machine
    }

    /// Takes what the channels of a ring need from the links. `false` if one has not that much.
    fn fits(model: &mut Model<'_>, ring: &Draft) -> bool {
        let mut hops: Vec<(End, End, f32)> = Vec::new();
        for channel in 0..ring.n_channels {
            let gpus: Vec<usize> = (0..model.gpus).map(|step| ring.gpu_at(channel, step)).collect();
            hops.extend(gpus.windows(2).map(|it| (End::Gpu(it[0]), End::Gpu(it[1]), ring.bw_intra)));
            let (first, last) = (End::Gpu(gpus[0]), End::Gpu(gpus[gpus.len() - 1]));
            if model.inter {
                let [start, end] = ring.inter[channel];
                hops.push((End::Net(start), first, ring.bw_inter));
                hops.push((last, End::Net(end), ring.bw_inter));
            } else {
                hops.push((last, first, ring.bw_intra));
            }
        }
        hops.into_iter().all(|(from, to, bandwidth)| {
            let route = std::rc::Rc::clone(model.route(from, to).unwrap());
            model.take(&route, route.links.len(), from, bandwidth) == route.links.len()
        })
    }

    proptest! {
        #[test]
        fn no_link_carries_more_than_it_has(
            gpus in 1_usize..9,
            nics in 1_usize..5,
            rate in prop_oneof![Just(100.0), Just(200.0), Just(400.0)],
            nvlinks in 1_u32..5,
            mesh in any::<bool>(),
            inter in any::<bool>(),
        ) {
            let machine = machine(gpus, nics, rate, nvlinks, mesh);
            let paths = Paths::new(&machine, &Settings::default()).unwrap();
            let mut model = Model::new(&paths, inter, false);
            let ring = compute(&mut model, Draft::new(Pattern::Ring, (1, 32), gpus));
            prop_assert!(ring.n_channels > 0);
            // What the search took it gave back.
            let untouched = Model::new(&paths, inter, false);
            let left = |it: &Model<'_>| it.links.iter().map(|it| it.left).collect::<Vec<_>>();
            prop_assert_eq!(left(&model), left(&untouched));
            prop_assert!(ring.bw_intra < 0.2 || fits(&mut model, &ring));
        }
    }
}
