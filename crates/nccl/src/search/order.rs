//! The order in which the next GPU of a channel is tried (`ncclTopoSearchNextGpuSort`).

use std::cmp::Reverse;

use super::draft::Draft;
use super::model::Model;
use crate::Pattern;

/// Whether the NIC matters for the next GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SortNet {
    /// It does not.
    No,
    /// The next GPU sends to it.
    Next,
    /// A later GPU sends to it: keep those next to it for then.
    Later,
}

impl Model<'_> {
    /// The GPUs to try after `gpu`, best first.
    #[expect(clippy::cast_possible_truncation, reason = "NCCL compares whole GB/s")]
    pub(super) fn next_gpus(&self, draft: &Draft, gpu: usize, sort: SortNet) -> Vec<usize> {
        let flag = 1_u64 << draft.n_channels;
        let mut scores = Vec::with_capacity(self.gpus);
        for distance in 1..self.gpus {
            let next = (gpu + distance) % self.gpus;
            let route = self.gpu_gpu(gpu, next);
            if route.links.is_empty() || self.used[next] & flag != 0 {
                continue;
            }
            let (bandwidth, pci, hops) = if sort == SortNet::No {
                (0, 0, 0)
            } else {
                let way = self.net_gpu(draft.start_net(), next);
                (way.bandwidth as i32, self.pci_left(next), way.links.len())
            };
            let inter = (Reverse(bandwidth), Reverse(pci), hops);
            let intra = (Reverse(route.bandwidth as i32), route.links.len());
            scores.push((inter, intra, distance, next));
        }
        scores.sort_unstable();
        let alike = scores.windows(2).all(|it| it[0].1 == it[1].1);
        let mut next: Vec<usize> = scores.iter().map(|it| it.3).collect();
        if sort == SortNet::Later && alike {
            next.reverse();
        }
        // Since 2.19.3.
        if self.has_switch && self.settings.since(2, 19, 3) {
            self.prefer_neighbours(draft, gpu, &mut next);
        }
        next
    }

    /// `NVSwitch`es do best if a GPU talks to few others: the GPUs before and after it come first. Since 2.21.5 no others are
    /// tried.
    fn prefer_neighbours(&self, draft: &Draft, gpu: usize, next: &mut Vec<usize>) {
        let only = self.settings.since(2, 21, 5);
        let (before, after) = ((gpu + self.gpus - 1) % self.gpus, (gpu + 1) % self.gpus);
        let mut first = match draft.pattern {
            Pattern::Ring => vec![after, before],
            Pattern::SplitTree | Pattern::BalancedTree => vec![before, after],
            _ => vec![after],
        };
        if only && before == after {
            first.truncate(1);
        }
        let mut found = 0;
        for wanted in first {
            if let Some(at) = next.iter().position(|it| *it == wanted) {
                next[..=at].rotate_right(1);
                found += 1;
            }
        }
        if only {
            next.truncate(found);
        }
    }
}
