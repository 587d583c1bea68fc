//! Releases of NCCL and aws-ofi-nccl that a job may run with where nothing says which.

use fabric::machine::{Machine, NicKind};
use fabric::{Settings, Version};
use nccl::NEWEST_PLUGIN;

use crate::cluster::Cluster;

/// A release of NCCL, and one of aws-ofi-nccl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) nccl: Version,
    pub(crate) plugin: Version,
}

/// The releases that `PyTorch` 2.3 to 2.9 and NVIDIA's containers of 2024 to 2026 bring, each with a release of aws-ofi-nccl of
/// the same months. Between them choices change little.
const PLAUSIBLE: [Release; 7] = [
    Release { nccl: Version::new(2, 18, 5), plugin: Version::new(1, 7, 4) },
    Release { nccl: Version::new(2, 18, 5), plugin: Version::new(1, 8, 1) },
    Release { nccl: Version::new(2, 20, 5), plugin: Version::new(1, 9, 1) },
    Release { nccl: Version::new(2, 23, 4), plugin: Version::new(1, 13, 0) },
    Release { nccl: Version::new(2, 26, 2), plugin: Version::new(1, 14, 0) },
    Release { nccl: Version::new(2, 27, 7), plugin: Version::new(1, 16, 3) },
    Release { nccl: Settings::NEWEST, plugin: NEWEST_PLUGIN },
];

/// Since this release the plugin sets `NCCL_NET_FORCE_FLUSH=0` on p5 (`src/platform-aws.c`, `RELEASENOTES.md`).
const NO_FLUSH: Version = Version::new(1, 8, 0);

impl Release {
    /// What is possible on a cluster of which no release is known.
    pub(crate) fn plausible(cluster: &Cluster) -> Vec<Self> {
        let efa = cluster.between.filter(|it| it.kind == NicKind::Efa);
        // Blackwell needs 2.25; the third generation of EFA (p5en) needs 1.13 of the plugin.
        let oldest = if cluster.compute.is_some_and(|it| it >= 100) { 25 } else { 0 };
        let plugin = match efa {
            None => NO_FLUSH,
            Some(it) if it.efa.is_some_and(|it| it >= 3) => Version::new(1, 13, 0),
            Some(_) => Version::new(1, 0, 0),
        };
        let possible = |it: &Self| it.nccl >= Version::new(2, oldest, 0) && it.plugin >= plugin;
        PLAUSIBLE.into_iter().filter(possible).collect()
    }

    /// What is possible with a known release of NCCL, of aws-ofi-nccl, or of both.
    pub(crate) fn known(cluster: &Cluster, nccl: Option<Version>, plugin: Option<Version>) -> Vec<Self> {
        let mut all = match nccl {
            None => Self::plausible(cluster),
            // A plugin that does not flush comes after one that does.
            Some(nccl) => [Version::new(1, 7, 4), NEWEST_PLUGIN].map(|plugin| Self { nccl, plugin }).to_vec(),
        };
        if let Some(plugin) = plugin {
            for it in &mut all {
                it.plugin = plugin;
            }
            all.dedup();
        } else if cluster.between.is_none_or(|it| it.kind != NicKind::Efa)
            || nccl.is_some_and(|it| it >= FLUSH_UNTIL)
        {
            all.retain(|it| it.plugin >= NO_FLUSH);
        }
        all
    }

    /// Whether each chunk that arrives on Hopper is flushed through an EFA NIC: NCCL does by default before 2.19.1
    /// (`NCCL_NET_FORCE_FLUSH` in `src/graph/paths.cc`). What flushes cost on older GPUs, which always need them, is part of what
    /// was measured.
    pub(crate) fn flushes(self, machine: &Machine) -> bool {
        let hopper = machine.gpus.first().is_some_and(|it| it.compute == Some(90));
        let efa = machine.nics.first().is_some_and(|it| it.kind == NicKind::Efa);
        hopper && efa && self.nccl < FLUSH_UNTIL && self.plugin < NO_FLUSH
    }
}

/// The first release of NCCL that does not flush on Hopper.
const FLUSH_UNTIL: Version = Version::new(2, 19, 1);
