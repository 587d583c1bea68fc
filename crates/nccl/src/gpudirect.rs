//! Whether a NIC reads and writes the memory of a GPU itself.

use std::fmt;

use fabric::settings::{Level, Origin};

use crate::{PathType, Paths};

/// Whether GPUDirect RDMA is used between a GPU and a NIC, and why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GpuDirect {
    /// It is used.
    On,
    /// The NIC cannot, or its network does not.
    NicCannot,
    /// The GPU cannot.
    GpuCannot,
    /// A variable forbids it for sending.
    ReadForbidden,
    /// A GPU older than the A100 without NVLink does not let NICs read its memory, so that its peers have PCI Express
    /// for themselves.
    OldGpu,
    /// The NIC is too far from the GPU.
    TooFar {
        /// How far it is by the wires.
        path: PathType,
        /// How far is allowed.
        level: Level,
    },
}

impl GpuDirect {
    /// Whether it is used.
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

impl fmt::Display for GpuDirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On => f.write_str("the NIC reads and writes the GPU's memory itself"),
            Self::NicCannot => f.write_str("the NIC cannot read or write the memory of a GPU"),
            Self::GpuCannot => f.write_str("the GPU does not let other devices read or write its memory"),
            Self::ReadForbidden => f.write_str("NCCL_NET_GDR_READ=0 forbids it for sending"),
            Self::OldGpu => f.write_str(
                "the GPU is older than the A100 and has no NVLink, so NCCL keeps PCIe for its peers",
            ),
            Self::TooFar { path, level } => match level.origin {
                Origin::Release => write!(
                    f,
                    "the path to the NIC crosses {} ({path}) and GPUDirect is used only up to {}",
                    path.meaning(),
                    level.kind
                ),
                Origin::Variable(name) => write!(
                    f,
                    "the path to the NIC crosses {} ({path}) and {name} allows GPUDirect only up to {}",
                    path.meaning(),
                    level.kind
                ),
            },
        }
    }
}

impl Paths {
    /// Whether GPUDirect RDMA is used between a GPU and a NIC. What is unknown about the machine counts as possible.
    pub fn gpudirect(&self, gpu: usize, nic: usize, sending: bool) -> GpuDirect {
        let version = self.version();
        let known = |of: &[Option<bool>], index: usize| of.get(index).copied().flatten();
        if known(&self.about.nic_direct, nic) == Some(false) {
            return GpuDirect::NicCannot;
        }
        if known(&self.about.gpu_direct, gpu) == Some(false) {
            return GpuDirect::GpuCannot;
        }
        if sending {
            match self.settings.gpudirect_read() {
                Some(false) => return GpuDirect::ReadForbidden,
                None if self.reads_badly(gpu) => return GpuDirect::OldGpu,
                _ => {}
            }
        }
        let level = self.settings.gpudirect_level();
        let through = self.relay(gpu, nic).unwrap_or(gpu);
        let path = self.gpu_to_nic(through, nic).kind;
        let chip =
            self.settings.gpudirect_c2c() && !self.settings.since(2, 29, 0) && self.is_by_chip(through, path);
        let distance = if chip { PathType::C2c } else { path };
        if distance.within(level.kind, version) {
            GpuDirect::On
        } else {
            GpuDirect::TooFar { path: self.nic_wires(through, nic).kind, level }
        }
    }

    /// Until 2.28 a path by the chip-to-chip link counted as short as that link.
    fn is_by_chip(&self, gpu: usize, path: PathType) -> bool {
        if self.settings.since(2, 27, 0) {
            return path == PathType::P2c;
        }
        let to_cpu = self.local_socket(gpu).map(|it| self.gpu_to_socket(gpu, it).kind);
        path == PathType::Phb && to_cpu == Some(PathType::C2c)
    }

    /// A GPU whose memory NICs should not read: all without NVLink up to 2.18, later only those before the A100.
    fn reads_badly(&self, gpu: usize) -> bool {
        let compute = self.about.compute.get(gpu).copied().flatten().unwrap_or(80);
        let old = compute < 80 || !self.settings.since(2, 19, 0);
        let others = self.gpus().iter().filter(|it| it.position != gpu);
        let alone = self.gpus().len() == 1;
        let nvlink = others.map(|it| self.gpu_to_gpu(gpu, it.position).kind).any(|it| it == PathType::Nvl);
        old && !alone && !nvlink
    }
}
