//! Paths that differ from the wires: through the CPU where peer access or GPUDirect cannot be used, through the GPU
//! next to a NIC where that is better (PXN).

use super::path::merge;
use super::{Device, positions};
use crate::decisions::connects;
use crate::{GpuDirect, Path, PathType, Paths};

impl Paths {
    /// GPUs that are too far apart for peer access exchange through the memory of the CPU next to the receiver.
    pub(crate) fn lead_peers_through_cpu(&mut self) {
        let level = self.settings.p2p_level(self.about.cpu, self.gpus().len()).kind;
        let gpus = self.gpus().to_vec();
        for to in &gpus {
            let Some(socket) = self.local_socket(to.position) else { continue };
            for from in &gpus {
                let near = self.gpu_to_gpu(from.position, to.position).kind.within(level, self.version());
                if !near || !self.count_as_peers(from.position, to.position) {
                    self.lead(Device::Gpu(from.position), Device::Socket(socket), Device::Gpu(to.position));
                    self.set_by(from.position, Device::Gpu(to.position), None);
                }
            }
        }
    }

    /// Replaces a path by one over `by`.
    fn lead(&mut self, from: Device, by: Device, to: Device) {
        let (first, second) = (self.between(from, by), self.between(by, to));
        if first.is_connected() && second.is_connected() {
            self.set(from, to, first.then(second, self.version()));
            self.join_routes(from, by, to);
        }
    }

    fn join_routes(&mut self, from: Device, by: Device, to: Device) {
        let route = [self.route(from, by), self.route(by, to)].concat();
        self.set_route(from, to, route);
    }

    /// A NIC at a CPU with a chip-to-chip link to the GPU is at P2C.
    pub(crate) fn find_chip_paths(&mut self) {
        if !self.settings.since(2, 27, 0) {
            return;
        }
        let version = self.version();
        // Since 2.29.2 only the NICs nearest to the GPU (`ncclTopoComputePaths`).
        let nearest: Vec<Vec<usize>> = self.gpus().iter().map(|it| self.nearest_nics(it.position)).collect();
        let any = !self.settings.since(2, 29, 2);
        for nic in positions(self.nics()) {
            for (gpu, nearest) in self.gpus().to_vec().into_iter().zip(&nearest) {
                if !any && !nearest.contains(&nic) {
                    continue;
                }
                let Some(socket) = self.local_socket(gpu.position) else { continue };
                let to_cpu = self.gpu_to_socket(gpu.position, socket).kind;
                let to_nic = self.gpu_to_nic(gpu.position, nic).kind;
                let chip = if self.settings.since(2, 27, 5) {
                    let nic_to_cpu = self.between(Device::Nic(nic), Device::Socket(socket)).kind;
                    merge(to_cpu, nic_to_cpu, version) == PathType::P2c
                } else {
                    to_cpu == PathType::C2c && to_nic == PathType::Phb
                };
                if !chip {
                    continue;
                }
                for (from, to) in [
                    (Device::Gpu(gpu.position), Device::Nic(nic)),
                    (Device::Nic(nic), Device::Gpu(gpu.position)),
                ] {
                    let mut path = self.between(from, to);
                    if path.is_connected() && PathType::P2c.within(path.kind, version) {
                        path.kind = PathType::P2c;
                        self.set(from, to, path);
                    }
                }
            }
        }
    }

    /// PXN, and through the CPU where GPUDirect is not possible.
    pub(crate) fn lead_to_nics(&mut self) {
        for nic in positions(self.nics()) {
            let mut neighbour = self.local_gpu(nic);
            for gpu in positions(self.gpus()) {
                let mut changed = false;
                if self.settings.pxn()
                    && let Some(peer) = neighbour.filter(|it| *it != gpu)
                    && self.sends_better(peer, gpu, nic)
                {
                    let (first, second) = (self.gpu_to_gpu(gpu, peer), self.gpu_to_nic(peer, nic));
                    let path = Path { kind: PathType::Pxn, ..first.then(second, self.version()) };
                    self.set(Device::Gpu(gpu), Device::Nic(nic), path);
                    self.join_routes(Device::Gpu(gpu), Device::Gpu(peer), Device::Nic(nic));
                    self.set_by(gpu, Device::Nic(nic), Some(peer));
                    changed = true;
                }
                let near = self.gpu_to_nic(gpu, nic).kind.compare(PathType::Phb, self.version()).is_lt();
                if (near || !self.settings.since(2, 21, 0))
                    && self.gpudirect(gpu, nic, false) != GpuDirect::On
                    && let Some(socket) = self.local_socket(gpu)
                {
                    self.lead(Device::Nic(nic), Device::Socket(socket), Device::Gpu(gpu));
                    self.lead(Device::Gpu(gpu), Device::Socket(socket), Device::Nic(nic));
                    self.set_by(gpu, Device::Nic(nic), None);
                    changed = true;
                }
                if changed {
                    self.near.nics[gpu] = self.nearest_nics(gpu);
                    self.near.gpus[nic] = self.nearest_gpus(nic);
                    neighbour = self.local_gpu(nic);
                }
            }
        }
    }

    /// Whether a GPU sends to a NIC better by `peer` than itself.
    fn sends_better(&self, peer: usize, gpu: usize, nic: usize) -> bool {
        let version = self.version();
        let own = self.gpu_to_nic(gpu, nic);
        let theirs = self.gpu_to_nic(peer, nic);
        let limit = if self.settings.since(2, 27, 5) { PathType::Pxn } else { PathType::Pxb };
        // Since 2.30.3 only a GPU whose memory the NIC reads.
        let direct = !self.settings.since(2, 30, 3) || self.gpudirect(peer, nic, true).is_on();
        self.may_relay(peer, gpu, nic)
            && direct
            && self.machine_of_gpu(peer) == self.machine_of_gpu(gpu)
            && (theirs.bandwidth > own.bandwidth || !own.kind.within(limit, version))
    }

    /// Whether a GPU is next to a NIC, and joined to another GPU by NVLink.
    pub(crate) fn may_relay(&self, peer: usize, gpu: usize, nic: usize) -> bool {
        let version = self.version();
        let to_nic = self.gpu_to_nic(peer, nic).kind;
        let near =
            to_nic.within(PathType::Pxb, version) || (self.settings.pxn_c2c() && to_nic == PathType::P2c);
        // GPUs that would rather use their NICs are not joined for NCCL.
        near && self.gpu_to_gpu(peer, gpu).kind.within(PathType::Nvl, version) && connects(self, peer, gpu)
    }
}
