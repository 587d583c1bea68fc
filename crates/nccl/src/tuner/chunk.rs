//! The chunks that aws-ofi-nccl's tuner asks for: since 1.21 with NCCL 2.30.3, on p5en with one rank per node.
//!
//! `region_get_chunk_size_internal` in `src/tuner/nccl_ofi_regions.cpp`.

use fabric::Version;
use fabric::collective::Collective;

use super::{OfiTuner, Platform};
use crate::Algorithm;
use crate::tuning::Protocol;

impl OfiTuner {
    /// Bytes of a chunk for what one channel has of a call; `None` where it leaves that to NCCL.
    pub(crate) fn chunk_size(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        protocol: Protocol,
        bytes: u64,
    ) -> Option<u64> {
        let asked = self.plugin >= Version::new(1, 21, 0)
            && self.settings.since(2, 30, 3)
            && self.platform == Platform::P5en
            && !self.by_model
            && self.ranks == self.nodes;
        match (collective, algorithm, protocol) {
            _ if !asked => None,
            (Collective::AllReduce, Algorithm::Tree, Protocol::Ll128) => Some(self.tree(bytes)),
            (Collective::AllGather, Algorithm::Pat, Protocol::Simple) => Some(self.pat(bytes)),
            _ => None,
        }
    }

    /// Smaller where there are too few chunks to fill a tree of this depth.
    fn tree(&self, bytes: u64) -> u64 {
        let depth = 1 + u64::from(self.nodes.checked_ilog2().unwrap_or(0));
        let mut size = 288_000;
        if bytes / size < 2 * depth * depth {
            size /= 2;
        }
        if bytes / size < depth * 3 / 2 {
            size /= 2;
        }
        halve(size, 18_000, bytes, depth + 1)
    }

    fn pat(&self, bytes: u64) -> u64 {
        let nodes = u64::from(self.nodes);
        let (most, many) = if nodes >= 16 { (524_288, 32) } else { (1_048_576, nodes.min(8) + 1) };
        let size = halve(most, most / 2, bytes, many);
        let size = halve(size, 65_536, bytes, nodes.min(16));
        halve(size, 32_768, bytes, nodes.min(8))
    }
}

/// Halves a chunk down to `least` while there are fewer than so many of it.
fn halve(mut size: u64, least: u64, bytes: u64, count: u64) -> u64 {
    while size > least && bytes / size < count {
        size /= 2;
    }
    size
}

#[cfg(test)]
mod tests {
    use fabric::collective::Collective;
    use fabric::{Settings, Version};

    use crate::Algorithm;
    use crate::tuner::OfiTuner;
    use crate::tuning::Protocol;

    #[test]
    fn chunks_on_p5en_with_one_rank_per_node() {
        let size = |plugin, nodes, collective, algorithm, protocol, bytes| {
            let settings = Settings::default();
            let tuner = OfiTuner::new(plugin, "p5en.48xlarge", &settings, nodes, nodes).expect("a tuner");
            tuner.chunk_size(collective, algorithm, protocol, bytes)
        };
        let new = Version::new(1, 21, 1);
        let tree =
            |nodes, bytes| size(new, nodes, Collective::AllReduce, Algorithm::Tree, Protocol::Ll128, bytes);
        // 8 nodes: a depth of 4, and 32 chunks of 288,000 bytes.
        assert_eq!(tree(8, 32 * 288_000), Some(288_000));
        assert_eq!(tree(8, 32 * 288_000 - 1), Some(144_000));
        assert_eq!(tree(8, 5 * 144_000), Some(72_000));
        assert_eq!(tree(8, 1000), Some(18_000));
        let pat =
            |nodes, bytes| size(new, nodes, Collective::AllGather, Algorithm::Pat, Protocol::Simple, bytes);
        assert_eq!(pat(4, 5 << 20), Some(1 << 20));
        assert_eq!(pat(4, 4 << 20), Some(512 << 10));
        assert_eq!(pat(16, 1 << 10), Some(32 << 10));
        let old = Version::new(1, 20, 0);
        let none = size(old, 8, Collective::AllReduce, Algorithm::Tree, Protocol::Ll128, 1 << 20);
        assert_eq!(none, None);
    }
}
