//! Releases of NCCL and aws-ofi-nccl that a job may run with where nothing says which.

use fabric::{Settings, Version};
use nccl::NEWEST_PLUGIN;

/// A release of NCCL, and one of aws-ofi-nccl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) nccl: Version,
    pub(crate) plugin: Version,
}

/// The releases that `PyTorch` 2.3 to 2.9 and NVIDIA's containers of 2024 to 2026 bring, each with a release of aws-ofi-nccl of
/// the same months. Between them choices change little.
const PLAUSIBLE: [Release; 6] = [
    Release { nccl: Version::new(2, 18, 5), plugin: Version::new(1, 8, 1) },
    Release { nccl: Version::new(2, 20, 5), plugin: Version::new(1, 9, 1) },
    Release { nccl: Version::new(2, 23, 4), plugin: Version::new(1, 13, 0) },
    Release { nccl: Version::new(2, 26, 2), plugin: Version::new(1, 14, 0) },
    Release { nccl: Version::new(2, 27, 7), plugin: Version::new(1, 16, 3) },
    Release { nccl: Settings::NEWEST, plugin: NEWEST_PLUGIN },
];

impl Release {
    /// A known release of NCCL with the newest plugin.
    pub(crate) fn known(nccl: Version) -> Self {
        Self { nccl, plugin: NEWEST_PLUGIN }
    }

    /// What is possible for GPUs of a compute capability: Blackwell needs 2.25.
    pub(crate) fn plausible(compute: Option<u32>) -> Vec<Self> {
        let oldest =
            if compute.is_some_and(|it| it >= 100) { Version::new(2, 25, 0) } else { Version::new(2, 0, 0) };
        PLAUSIBLE.into_iter().filter(|it| it.nccl >= oldest).collect()
    }
}
