//! Regimes: where the physics or the software differ so much that one measurement says nothing about the other.

use fabric::machine::NicKind;

use crate::cluster::{Cluster, Inside};

/// Beyond this many nodes depth of trees and length of rings count.
pub(crate) const MANY: u32 = 8;

/// How data moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From all to all, by rings or trees.
    Whole,
    /// From or to one rank.
    Rooted,
    /// From single ranks to single ranks.
    Pairs,
}

/// `hopper`, `infiniband`, `efa.many`, `ampere.pairs`; `nvlink_domains.infiniband` between several NVL72
pub(crate) fn regime(cluster: &Cluster, kind: Kind) -> String {
    let nodes = cluster.groups();
    let place = cluster.between.filter(|_| nodes > 1).map_or_else(
        || inside(cluster),
        |it| match (it.kind, it.efa) {
            (NicKind::Ethernet, _) => "tcp",
            _ if !it.gpudirect => "no_gpudirect",
            (NicKind::Efa, Some(1)) => "efa_1",
            (NicKind::Efa, _) => "efa",
            (NicKind::GpuDirectTcp, _) if it.is_tcpx() => "tcpx",
            (NicKind::GpuDirectTcp, _) => "gpudirect_tcp",
            (NicKind::Slingshot, _) => "slingshot",
            (NicKind::InfiniBand | NicKind::Roce, _) => "infiniband",
            (NicKind::Unknown, _) => "unknown",
        },
    );
    let domain = if nodes > 1 && cluster.local() > cluster.gpus { "nvlink_domains." } else { "" };
    let many = if nodes > MANY { ".many" } else { "" };
    let kind = match kind {
        Kind::Whole => "",
        Kind::Rooted => ".rooted",
        Kind::Pairs => ".pairs",
    };
    format!("{domain}{place}{many}{kind}")
}

fn inside(cluster: &Cluster) -> &'static str {
    match &cluster.inside {
        Inside::Switch { .. } if cluster.local() > cluster.gpus => "nvlink_domain",
        Inside::Switch { .. } | Inside::Mesh { .. } => match cluster.compute {
            Some(100..=119) => "blackwell",
            Some(90..=99) => "hopper",
            Some(80) => "ampere",
            Some(70) => "volta",
            _ => "other_nvlink",
        },
        Inside::Pci { peer_to_peer: true } => "pci",
        Inside::Pci { peer_to_peer: false } => "host_memory",
    }
}
