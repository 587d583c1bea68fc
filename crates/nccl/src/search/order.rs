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
        // Since 2.21.5 only the neighbours are tried where there are `NVSwitch`es, whatever their scores.
        if self.has_switch && self.settings.since(2, 21, 5) {
            let mut next = Vec::with_capacity(2);
            for wanted in self.neighbours(draft, gpu) {
                if self.is_free(draft, gpu, wanted) {
                    next.insert(0, wanted);
                }
            }
            return next;
        }
        let mut scores = Vec::with_capacity(self.gpus);
        for distance in 1..self.gpus {
            let next = (gpu + distance) % self.gpus;
            if !self.is_free(draft, gpu, next) {
                continue;
            }
            let route = self.gpu_gpu(gpu, next);
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
        // 2.19.3 to 2.20: they come first.
        if self.has_switch && self.settings.since(2, 19, 3) {
            for wanted in self.neighbours(draft, gpu) {
                if let Some(at) = next.iter().position(|it| *it == wanted) {
                    next[..=at].rotate_right(1);
                }
            }
        }
        next
    }

    /// Whether a channel can go on to a GPU.
    fn is_free(&self, draft: &Draft, gpu: usize, next: usize) -> bool {
        let flag = 1_u64 << draft.n_channels;
        next != gpu && !self.gpu_gpu(gpu, next).links.is_empty() && self.used[next] & flag == 0
    }

    /// `NVSwitch`es do best if a GPU talks to few others: those before and after it. The last comes first.
    fn neighbours(&self, draft: &Draft, gpu: usize) -> Vec<usize> {
        let (before, after) = ((gpu + self.gpus - 1) % self.gpus, (gpu + 1) % self.gpus);
        match draft.pattern {
            _ if before == after => vec![after],
            Pattern::Ring => vec![after, before],
            Pattern::SplitTree | Pattern::BalancedTree => vec![before, after],
            _ => vec![after],
        }
    }
}
