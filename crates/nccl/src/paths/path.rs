//! A path between two devices: the worst thing on it, its bandwidth and its length.

use std::fmt;

use fabric::{PathType, Version};

/// A path between two devices of one machine, as NCCL sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// The worst thing on it.
    pub kind: PathType,
    /// The bandwidth NCCL assumes, in GB/s one way: that of the slowest link.
    pub bandwidth: f64,
    /// How many links it has.
    pub hops: u32,
}

impl Path {
    /// No path at all.
    pub const NONE: Self = Self { kind: PathType::Dis, bandwidth: 0.0, hops: 0 };

    /// Whether there is a path at all.
    pub fn is_connected(&self) -> bool {
        self.kind != PathType::Dis
    }

    /// This path and then `next`.
    pub(crate) fn then(self, next: Self, version: Version) -> Self {
        Self {
            kind: merge(self.kind, next.kind, version),
            bandwidth: self.bandwidth.min(next.bandwidth),
            hops: self.hops.saturating_add(next.hops),
        }
    }
}

impl fmt::Display for Path {
    /// `2/240.0/NVL`, as NCCL's log has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:.1}/{}", self.hops, self.bandwidth, self.kind)
    }
}

/// The type of two paths one after the other; chip-to-chip and then the host bridge is P2C since 2.27.5.
pub(crate) fn merge(one: PathType, other: PathType, version: Version) -> PathType {
    let pair = [one, other];
    if version >= Version::new(2, 27, 5) && pair.contains(&PathType::C2c) && pair.contains(&PathType::Phb) {
        return PathType::P2c;
    }
    one.farther(other, version)
}
