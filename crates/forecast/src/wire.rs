//! What the wires can carry: no healthy number lies above.

use fabric::Collective;
use fabric::link;
use fabric::machine::{NicKind, PciLink};

use crate::algorithm::Ceiling;
use crate::candidate::nics;
use crate::cluster::{Cluster, Inside};
use crate::constants::Constants;

/// The most bus bandwidth that the links of a cluster allow, whatever NCCL does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wire {
    /// In GB/s.
    pub bandwidth: f64,
    /// Which links.
    pub ceiling: Ceiling,
}

pub(crate) fn wire(constants: &Constants, collective: Collective, cluster: &Cluster) -> Option<Wire> {
    let ranks = cluster.ranks().filter(|it| *it > 1)?;
    let nodes = cluster.groups();
    let inside = (cluster.local() > 1).then(|| inside(constants, collective, cluster));
    let outside = cluster.between.filter(|_| nodes > 1).map(|between| {
        let (n, k, local) = (f64::from(ranks), f64::from(nodes), f64::from(cluster.local()));
        let rate = nics(cluster, between);
        // Bytes of a call that pass the NICs of a node in one direction, for each byte of the buffer. `InfiniBand` switches
        // can add up, so that nothing crosses twice.
        let crossing = match collective {
            Collective::AllReduce if matches!(between.kind, NicKind::InfiniBand | NicKind::Unknown) => 1.0,
            Collective::AllReduce => 2.0 * (k - 1.0) / k,
            Collective::AllGather | Collective::ReduceScatter => (k - 1.0) / k,
            // All but what stays in the node of the one rank.
            Collective::Gather | Collective::Scatter => (n - local) / n,
            Collective::AllToAll => local * (n - local) / n,
            Collective::Broadcast | Collective::Reduce | Collective::SendRecv => 1.0,
        };
        Wire { bandwidth: rate / crossing * collective.bus_factor(ranks), ceiling: Ceiling::Nics }
    });
    let lower = match (inside, outside) {
        (Some(a), Some(b)) => {
            if a.bandwidth <= b.bandwidth {
                a
            } else {
                b
            }
        }
        (a, b) => a.or(b)?,
    };
    Some(Wire { bandwidth: lower.bandwidth * constants.wire.slack, ..lower })
}

fn inside(constants: &Constants, collective: Collective, cluster: &Cluster) -> Wire {
    let wire = &constants.wire;
    let nvlink = |bandwidth: f64| Wire { bandwidth: bandwidth * wire.nvlink, ceiling: Ceiling::NvLink };
    match &cluster.inside {
        // Where switches add up, each byte leaves a GPU about once; otherwise about twice, as bus bandwidth counts.
        Inside::Switch { bandwidth, .. } => {
            let sums = collective == Collective::AllReduce && cluster.compute.is_none_or(|it| it >= 90);
            nvlink(bandwidth * if sums { 2.0 } else { 1.0 })
        }
        Inside::Mesh { links, bandwidth } => {
            let of =
                |gpu: usize| -> u32 { links.iter().filter(|it| it.0 == gpu).map(|it| it.2.min(36)).sum() };
            let most = (0..cluster.gpus_there as usize).map(of).max().unwrap_or(0);
            if most > 0 { nvlink(bandwidth * f64::from(most)) } else { pci(constants, cluster) }
        }
        Inside::Pci { .. } => pci(constants, cluster),
    }
}

fn pci(constants: &Constants, cluster: &Cluster) -> Wire {
    let link = cluster.pci.unwrap_or_else(|| link::pci(PciLink { gigatransfers: 0.0, width: 0 }));
    Wire { bandwidth: link * constants.wire.pci, ceiling: Ceiling::Pci }
}
