//! Which link limits the rings, and why there are so many channels.

use std::collections::BTreeMap;

use fabric::machine::{Machine, NvEnd};
use fabric::{PathType, link};
use nccl::{Paths, Prediction, TopoGraph};

use super::{Limit, Use};

/// How full the links are that the rings of node 0 use.
pub(super) fn limit(prediction: &Prediction, machine: &Machine) -> Option<Limit> {
    let graph = &prediction.communicator.graphs(0)?.ring;
    let paths = prediction.communicator.paths(0)?;
    let several = prediction.communicator.n_nodes > 1;
    let channel = f64::from(if several { graph.bw_inter } else { graph.bw_intra });
    if graph.channels.is_empty() || prediction.communicator.n_ranks < 2 {
        return None;
    }
    let mut links = inside(graph, paths, machine, several);
    links.extend(outside(graph, paths, machine));
    links.sort_by(|one, other| (other.used / other.capacity).total_cmp(&(one.used / one.capacity)));
    #[expect(clippy::cast_precision_loss, reason = "channels are few")]
    let rings = channel * graph.channels.len() as f64;
    Some(Limit { rings, channel, links })
}

/// The links between GPUs.
fn inside(graph: &TopoGraph, paths: &Paths, machine: &Machine, several: bool) -> Vec<Use> {
    let mut sent: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for channel in &graph.channels {
        let mut order = channel.intra.clone();
        if !several {
            order.extend(channel.intra.first().copied());
        }
        for pair in order.windows(2).filter(|it| it[0] != it[1]) {
            *sent.entry((pair[0], pair[1])).or_default() += f64::from(graph.bw_intra);
        }
    }
    let by_nvlink = |kind| matches!(kind, PathType::Nvl | PathType::Nvb);
    let mut per_gpu: BTreeMap<usize, f64> = BTreeMap::new();
    let mut worst: BTreeMap<String, Use> = BTreeMap::new();
    for (&(from, to), &used) in &sent {
        let path = paths.gpu_to_gpu(from, to);
        let switched = machine.nvlinks.iter().any(|it| it.from == from && it.to == NvEnd::Switch);
        if by_nvlink(path.kind) && switched {
            *per_gpu.entry(from).or_default() += used;
            continue;
        }
        let link = match path.kind {
            PathType::Nvl | PathType::Nvb => "NVLink of a pair".to_owned(),
            PathType::C2c => "the chip-to-chip link".to_owned(),
            kind => format!("{} between GPUs ({kind})", means(kind)),
        };
        keep(&mut worst, Use { link, used, capacity: path.bandwidth });
    }
    for (gpu, used) in per_gpu {
        let peer = sent.keys().find(|it| it.0 == gpu).map_or(gpu, |it| it.1);
        let capacity = paths.gpu_to_gpu(gpu, peer).bandwidth;
        keep(&mut worst, Use { link: "NVLink".to_owned(), used, capacity });
    }
    worst.into_values().collect()
}

/// The NICs, and the paths to them.
fn outside(graph: &TopoGraph, paths: &Paths, machine: &Machine) -> Vec<Use> {
    let mut sent: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    let mut by_nic: BTreeMap<usize, f64> = BTreeMap::new();
    for channel in &graph.channels {
        if let (Some([_, nic]), Some(gpu)) = (channel.inter, channel.intra.last()) {
            *sent.entry((*gpu, nic)).or_default() += f64::from(graph.bw_inter);
            *by_nic.entry(nic).or_default() += f64::from(graph.bw_inter);
        }
    }
    let mut worst: BTreeMap<String, Use> = BTreeMap::new();
    for ((gpu, nic), used) in sent {
        let path = paths.gpu_to_nic(gpu, nic);
        // Below the rate of the NIC the path is what limits; otherwise it is the NIC itself.
        if path.bandwidth < link::nic(machine.nics.get(nic).and_then(|it| it.rate)) {
            let link = format!("{} from GPU to NIC ({})", means(path.kind), path.kind);
            keep(&mut worst, Use { link, used, capacity: path.bandwidth });
        }
    }
    for (nic, used) in by_nic {
        let capacity = link::nic(machine.nics.get(nic).and_then(|it| it.rate));
        keep(&mut worst, Use { link: "NIC".to_owned(), used, capacity });
    }
    worst.into_values().collect()
}

/// Keeps the fullest link of each kind.
fn keep(worst: &mut BTreeMap<String, Use>, one: Use) {
    if one.capacity <= 0.0 {
        return;
    }
    match worst.get(&one.link) {
        Some(known) if known.used / known.capacity >= one.used / one.capacity => {}
        _ => {
            worst.insert(one.link.clone(), one);
        }
    }
}

/// What a path leads over.
fn means(kind: PathType) -> &'static str {
    match kind {
        PathType::Pix | PathType::Pxb => "PCIe",
        PathType::Pxn => "NVLink and PCIe",
        PathType::P2c | PathType::C2c => "the chip-to-chip link",
        PathType::Phb => "PCIe through the CPU",
        PathType::Sys => "the CPU interconnect",
        _ => "the path",
    }
}

/// How the channels of collectives come from those of the search.
pub(super) fn why(prediction: &Prediction) -> Vec<String> {
    let communicator = &prediction.communicator;
    let settings = &communicator.settings;
    let agreed = &communicator.agreed;
    let searched = agreed.ring.channels.len().min(agreed.tree.channels.len());
    let all = communicator.connected.coll_channels;
    let mut steps = vec![format!("the search found {searched}")];
    if communicator.n_ranks < 2 || searched == 0 {
        return steps;
    }
    let mut now = searched * 2;
    steps.push(format!("x 2 for the double tree = {now}"));
    let set = |names: &[&'static str]| names.iter().find(|it| settings.text(it).is_some()).copied();
    let lower = set(&["NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS", "NCCL_MAX_CTAS"]);
    let raise = set(&["NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MIN_CTAS"]);
    let hopper = communicator.n_nodes > 1 && communicator.min_compute >= 90 && agreed.ring.bw_intra > 45.0;
    if all != now && hopper && (all == now * 2 || raise.is_some() || lower.is_some()) && now < 16 {
        now *= 2;
        steps.push(format!("x 2 since Hopper between nodes, as a ring has more than 45 GB/s = {now}"));
    }
    match (all, lower, raise) {
        _ if all == now => {}
        (_, Some(name), _) if all < now => steps.push(format!("cut to {all} by {name}")),
        (_, _, Some(name)) if all > now => steps.push(format!("raised to {all} by {name}")),
        _ if all < now => steps.push(format!("cut to {all}, the most NCCL has")),
        _ => steps.push(format!("copied to {all}")),
    }
    steps
}
