//! Process groups and ranks of a layout.

use forecast::plan::groups::{self, Groups, Kind};
use forecast::training::{Cluster, Inter, Intra, Run};
use serde::Serialize;

use crate::expect::shown;

/// All groups of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// `tp`, `cp`, `ep`, `dp`, `dp-cp`, `expert-dp`, `pp`.
    pub group: &'static str,
    /// Ranks of one group.
    pub size: u64,
    /// How many groups there are.
    pub count: u64,
    /// From one rank of a group to the next.
    pub stride: u64,
    /// The ranks of the first group, at most 16.
    pub first: Vec<u64>,
    /// The most ranks of a group that one node has: a pod or an NVLink domain where there is one.
    pub ranks_per_node: u64,
    /// The most nodes that a group spans.
    pub nodes: u64,
    /// Which link it uses, in words.
    pub link: String,
}

/// Where a rank runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rank {
    /// The rank.
    pub rank: u64,
    /// Its node.
    pub node: u64,
    /// Its pod on that node.
    pub pod: u64,
    /// Its GPU of those of the job on that node.
    pub gpu: u64,
    /// Its position in each kind of group.
    pub tp: u64,
    /// Of context parallelism.
    pub cp: u64,
    /// Of expert parallelism.
    pub ep: u64,
    /// Of data parallelism.
    pub dp: u64,
    /// The pipeline stage.
    pub pp: u64,
}

pub(super) fn all(cluster: &Cluster, run: &Run) -> Vec<Group> {
    let group = |it: &Groups| Group {
        group: it.kind.name(),
        size: it.size,
        count: it.count,
        stride: it.stride,
        first: it.ranks(0).take(16).collect(),
        ranks_per_node: it.local,
        nodes: it.nodes,
        link: link(cluster, it),
    };
    groups::groups(cluster, run).iter().map(group).collect()
}

pub(super) fn ranks(cluster: &Cluster, run: &Run) -> Vec<Rank> {
    let rank = |rank: u64| {
        let (place, at) = (groups::place(cluster, rank), groups::position(cluster, run, rank));
        Rank {
            rank,
            node: place.node,
            pod: place.pod,
            gpu: place.gpu,
            tp: at.tp,
            cp: at.cp,
            ep: at.ep,
            dp: at.dp,
            pp: at.pp,
        }
    };
    (0..cluster.ranks()).map(rank).collect()
}

/// The links of a group: inside a node, between nodes, or both.
fn link(cluster: &Cluster, groups: &Groups) -> String {
    let inside = match cluster.intra {
        Intra::NvLink { .. } => "NVLink",
        Intra::Pci { .. } => "PCIe, GPU to GPU",
        Intra::Host { .. } => "PCIe through host memory",
    };
    if groups.nodes < 2 {
        return inside.to_owned();
    }
    let between = cluster.inter.map_or_else(|| "the network".to_owned(), |it| network(cluster, &it, groups));
    if groups.local < 2 || groups.kind == Kind::Pipeline {
        between
    } else {
        format!("{inside} between {} ranks of a node; {between}", groups.local)
    }
}

fn network(cluster: &Cluster, inter: &Inter, groups: &Groups) -> String {
    let kind = inter.kind.network();
    #[allow(clippy::cast_precision_loss, reason = "GPUs of a node")]
    let share = groups.local as f64 / cluster.on_node().max(1) as f64;
    let all = f64::from(inter.nics) * inter.rate.0;
    format!("{kind} between nodes, {} of the {} Gbps of a node", shown(all * share), shown(all))
}
