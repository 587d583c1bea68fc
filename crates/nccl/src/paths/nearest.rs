//! The devices nearest to another: the largest bandwidth, then the nearest type (`src/graph/topo.cc`, `ncclTopoGetLocal`).

use std::ops::Range;

use super::{Device, Path, Paths, VisibleDevice, positions};

impl Paths {
    /// The GPUs nearest to a NIC.
    pub(crate) fn nearest_gpus(&self, nic: usize) -> Vec<usize> {
        let columns = self.nearest(Device::Nic(nic), 0..self.gpus.len());
        columns.into_iter().map(|it| self.gpus[it].position).collect()
    }

    /// The NICs nearest to a GPU, in NCCL's order.
    pub(crate) fn nearest_nics(&self, gpu: usize) -> Vec<usize> {
        if !self.settings.since(2, 18, 5) {
            return self.nearest_nics_before_2_18_5(gpu);
        }
        let columns = self.nearest(Device::Gpu(gpu), self.gpus.len()..self.rows.devices);
        columns.into_iter().map(|it| self.nics[it - self.gpus.len()].position).collect()
    }

    /// By the paths from the NICs, in the order of their numbers (`getLocalNetMask`).
    fn nearest_nics_before_2_18_5(&self, gpu: usize) -> Vec<usize> {
        let all: Vec<(VisibleDevice, Path)> =
            self.nics.iter().map(|it| (*it, self.nic_to_gpu(it.position, gpu))).collect();
        let better = |one: &Path, other: &Path| {
            let nearer = other.kind.compare(one.kind, self.version());
            one.bandwidth.total_cmp(&other.bandwidth).then(nearer)
        };
        let Some(best) = all.iter().map(|it| it.1).max_by(better).filter(Path::is_connected) else {
            return Vec::new();
        };
        let mut near: Vec<VisibleDevice> =
            all.into_iter().filter(|it| better(&it.1, &best).is_eq()).map(|it| it.0).collect();
        near.sort_by_key(|it| it.number);
        positions(&near)
    }

    /// Of some columns of a device those with the nearest ones: the largest bandwidth, then the nearest type.
    pub(super) fn nearest(&self, from: Device, columns: Range<usize>) -> Vec<usize> {
        let Some(row) = self.rows.of(from) else { return Vec::new() };
        let mut best = Path::NONE;
        let mut found = Vec::new();
        let start = row * self.rows.all();
        for (path, column) in self.matrix[start + columns.start..start + columns.end].iter().zip(columns) {
            if !path.is_connected() || path.bandwidth < best.bandwidth {
                continue;
            }
            let order = path.kind.compare(best.kind, self.version());
            if path.bandwidth > best.bandwidth || order.is_lt() {
                best = *path;
                found.clear();
            }
            if path.kind == best.kind {
                found.push(column);
            }
        }
        found
    }
}
