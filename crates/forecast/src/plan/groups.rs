//! The process groups of a layout: which ranks and GPUs they join, and over which links.
//!
//! Ranks are numbered as Megatron-LM numbers them by default, tp-cp-ep-dp-pp (`megatron/core/parallel_state.py`,
//! `initialize_model_parallel`, core 0.13): the ranks of a tensor-parallel group are neighbours, those of a pipeline are furthest apart.
//! Expert parallelism divides all ranks of a stage, with neighbours in a group: an expert is whole on its rank
//! (`--expert-tensor-parallel-size 1`).

use crate::training::{Cluster, Run};

/// A kind of process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Tensor parallelism.
    Tensor,
    /// Context parallelism.
    Context,
    /// Expert parallelism.
    Expert,
    /// Data parallelism: ranks with the same part of the model.
    Data,
    /// Data and context parallelism: ranks that reduce gradients.
    DataContext,
    /// Ranks that hold the same experts and reduce their gradients.
    ExpertData,
    /// Pipeline stages.
    Pipeline,
}

impl Kind {
    /// As Megatron-LM abbreviates it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tensor => "tp",
            Self::Context => "cp",
            Self::Expert => "ep",
            Self::Data => "dp",
            Self::DataContext => "dp-cp",
            Self::ExpertData => "expert-dp",
            Self::Pipeline => "pp",
        }
    }
}

/// All groups of one kind: each has `size` ranks that are `stride` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Groups {
    /// What the groups are for.
    pub kind: Kind,
    /// Ranks of one group.
    pub size: u64,
    /// From one rank of a group to the next.
    pub stride: u64,
    /// How many groups there are.
    pub count: u64,
    /// The most ranks that a group has where NCCL needs no network: in a pod, a node or an NVLink domain.
    pub local: u64,
    /// The most of such places that a group spans.
    pub nodes: u64,
}

impl Groups {
    /// The ranks of a group, counted from 0.
    pub fn ranks(&self, group: u64) -> impl Iterator<Item = u64> + use<> {
        let (size, stride) = (self.size, self.stride.max(1));
        // Groups whose ranks lie between each other, then the next block.
        let first = group / stride * stride * size + group % stride;
        (0..size).map(move |it| first + it * stride)
    }
}

/// Where a rank runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The node.
    pub node: u64,
    /// The pod of the node.
    pub pod: u64,
    /// The GPU of the job on that node.
    pub gpu: u64,
}

/// The GPU of a rank: ranks fill one pod after the other, and one node after the other.
pub fn place(cluster: &Cluster, rank: u64) -> Place {
    let on_node = cluster.on_node().max(1);
    let gpu = rank % on_node;
    Place { node: rank / on_node, pod: gpu / u64::from(cluster.gpus.max(1)), gpu }
}

/// Its position in every kind of group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Of tensor parallelism.
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

/// The position of a rank.
pub fn position(cluster: &Cluster, run: &Run, rank: u64) -> Position {
    let (tp, cp, ep, etp) =
        (u64::from(run.tp), u64::from(run.cp), u64::from(run.ep), u64::from(run.etp).max(1));
    let dp = cluster.ranks() / run.model_ranks().max(1);
    Position {
        tp: rank % tp,
        cp: rank / tp % cp,
        ep: rank / etp % ep,
        dp: rank / (tp * cp) % dp.max(1),
        pp: rank / (tp * cp * dp.max(1)),
    }
}

/// The groups of a layout with more than one rank, in the order of ranks.
pub fn groups(cluster: &Cluster, run: &Run) -> Vec<Groups> {
    let (tp, cp, ep, pp) = (u64::from(run.tp), u64::from(run.cp), u64::from(run.ep), u64::from(run.pp));
    let etp = u64::from(run.etp).max(1);
    let dp = cluster.ranks() / run.model_ranks().max(1);
    let mut all = vec![
        (Kind::Tensor, tp, 1),
        (Kind::Context, cp, tp),
        (Kind::Expert, ep, etp),
        (Kind::Data, dp, tp * cp),
    ];
    if cp > 1 && dp > 1 {
        all.push((Kind::DataContext, dp * cp, tp));
    }
    if ep > 1 {
        all.push((Kind::ExpertData, tp * cp * dp / (ep * etp), ep * etp));
    }
    all.push((Kind::Pipeline, pp, tp * cp * dp));
    all.into_iter()
        .filter(|it| it.1 > 1)
        .map(|(kind, size, stride)| of(cluster, kind, size, stride))
        .collect()
}

fn of(cluster: &Cluster, kind: Kind, size: u64, stride: u64) -> Groups {
    let mut groups = Groups { kind, size, stride, count: cluster.ranks() / size.max(1), local: 1, nodes: 1 };
    let near = cluster.local().max(1);
    for group in 0..groups.count {
        let (mut places, mut here, mut last) = (0, 0, None);
        for rank in groups.ranks(group) {
            let place = rank / near;
            if last == Some(place) {
                here += 1;
            } else {
                (places, here, last) = (places + 1, 1, Some(place));
            }
            groups.local = groups.local.max(here);
        }
        groups.nodes = groups.nodes.max(places);
    }
    groups
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Groups, Kind, groups, place, position};
    use crate::training::Job;

    fn job(nodes: u32, run: &str) -> Job {
        Job::read(&format!(
            "[model]\nname = 'mixtral-8x7b'\n[cluster]\ninstance = 'p5.48xlarge'\nnodes = {nodes}\n[run]\n{run}\n"
        ))
        .unwrap()
    }

    #[test]
    fn every_rank_is_in_one_group_of_each_kind() {
        let job = job(4, "tp = 2\ncp = 2\npp = 2\nep = 4");
        let all = groups(&job.cluster, &job.run);
        let kinds: Vec<Kind> = all.iter().map(|it| it.kind).collect();
        assert_eq!(
            kinds,
            [
                Kind::Tensor,
                Kind::Context,
                Kind::Expert,
                Kind::Data,
                Kind::DataContext,
                Kind::ExpertData,
                Kind::Pipeline
            ]
        );
        for it in &all {
            let ranks: BTreeSet<u64> = (0..it.count).flat_map(|group| it.ranks(group)).collect();
            assert_eq!(ranks, (0..32).collect(), "{:?}", it.kind);
            // Ranks of a group differ only in the position that the group is for.
            for group in 0..it.count {
                let positions: Vec<_> =
                    it.ranks(group).map(|rank| position(&job.cluster, &job.run, rank)).collect();
                let first = positions[0];
                match it.kind {
                    Kind::Tensor => assert!(
                        positions.iter().all(|at| (at.cp, at.dp, at.pp) == (first.cp, first.dp, first.pp))
                    ),
                    Kind::Context => assert!(
                        positions.iter().all(|at| (at.tp, at.dp, at.pp) == (first.tp, first.dp, first.pp))
                    ),
                    Kind::Data => assert!(
                        positions.iter().all(|at| (at.tp, at.cp, at.pp) == (first.tp, first.cp, first.pp))
                    ),
                    Kind::DataContext => {
                        assert!(positions.iter().all(|at| (at.tp, at.pp) == (first.tp, first.pp)));
                    }
                    Kind::Expert => {
                        let experts: BTreeSet<u64> = positions.iter().map(|at| at.ep).collect();
                        assert!(positions.iter().all(|at| at.pp == first.pp) && experts.len() == 4);
                    }
                    Kind::ExpertData => {
                        assert!(positions.iter().all(|at| (at.ep, at.pp) == (first.ep, first.pp)));
                    }
                    Kind::Pipeline => assert!(
                        positions.iter().all(|at| (at.tp, at.cp, at.dp) == (first.tp, first.cp, first.dp))
                    ),
                }
            }
        }
    }

    #[test]
    fn groups_know_how_many_nodes_they_span() {
        let job = job(4, "tp = 4\npp = 2");
        let all = groups(&job.cluster, &job.run);
        let of = |kind: Kind| *all.iter().find(|it| it.kind == kind).unwrap();
        assert_eq!(
            of(Kind::Tensor),
            Groups { kind: Kind::Tensor, size: 4, stride: 1, count: 8, local: 4, nodes: 1 }
        );
        assert_eq!(
            of(Kind::Data),
            Groups { kind: Kind::Data, size: 4, stride: 4, count: 8, local: 2, nodes: 2 }
        );
        assert_eq!(
            of(Kind::Pipeline),
            Groups { kind: Kind::Pipeline, size: 2, stride: 16, count: 16, local: 1, nodes: 2 }
        );
        assert_eq!(of(Kind::Data).ranks(5).collect::<Vec<_>>(), [17, 21, 25, 29]);
        let at = place(&job.cluster, 21);
        assert_eq!((at.node, at.pod, at.gpu), (2, 0, 5));
        let pods = job.with("pods=2x4").unwrap();
        assert_eq!(place(&pods.cluster, 21).pod, 1);
        assert_eq!(groups(&pods.cluster, &pods.run)[1].nodes, 4);
    }
}
