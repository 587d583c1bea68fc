//! What a job runs on: GPUs, and the links inside and between nodes.

use fabric::gpu::{GpuModel, NvLinkBy};
use fabric::machine::{NicKind, PciLink};
use fabric::units::{Gibibytes, GigabitsPerSecond, GigabytesPerSecond};
use fabric::{Version, link};

/// A GPU, as far as training depends on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpu {
    /// Its name in the catalogue.
    pub name: &'static str,
    /// Its compute capability, `90` for 9.0.
    pub compute: u32,
    /// Peak with matrices of 16 bits, in 1e12 operations per second.
    pub half: f64,
    /// Peak with matrices of 8 bits; none before Ada.
    pub quarter: Option<f64>,
    /// Peak without matrix units, in FP32.
    pub single: f64,
    /// Its memory.
    pub memory: Gibibytes,
    /// Bandwidth of its memory.
    pub bandwidth: GigabytesPerSecond,
}

impl Gpu {
    /// From the catalogue; none where no source states its speed with 16 bits.
    pub fn of_model(model: &'static GpuModel) -> Option<Self> {
        let half = model.peak.bf16.or(model.peak.fp16)?;
        let gibibytes = |gigabytes: f64| Gibibytes(gigabytes * 1e9 / f64::from(1 << 30));
        Some(Self {
            name: &model.name,
            compute: model.compute,
            half,
            // Matrix units take twice as many numbers of half the length, where they take them at all.
            quarter: model.peak.fp8.or((model.compute >= 89).then_some(2.0 * half)),
            single: model.peak.fp32.unwrap_or(half / 16.0),
            memory: model.memory.unwrap_or_else(|| gibibytes(model.memory_gigabytes)),
            bandwidth: model.memory_bandwidth,
        })
    }

    /// Whether it is an A100 or one of its kin: published runs on it span the libraries of 2021 and much faster ones.
    pub(crate) fn is_a100(&self) -> bool {
        self.compute == 80
    }
}

/// How the GPUs of a node are joined.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Intra {
    /// By NVLink.
    NvLink {
        /// What NCCL assumes for all links of a GPU together, one way.
        bandwidth: GigabytesPerSecond,
        /// Whether the switches add up.
        nvls: bool,
    },
    /// By PCI Express, GPU to GPU.
    Pci {
        /// What NCCL assumes for the link of a GPU, one way.
        bandwidth: GigabytesPerSecond,
    },
    /// Through the memory of the host.
    Host {
        /// What NCCL assumes for the link of a GPU, one way.
        bandwidth: GigabytesPerSecond,
    },
}

impl Intra {
    /// NVLink of a generation, 2 to 5, with as many links as the GPU has, or as GPUs of that generation usually have.
    pub fn nvlink(generation: u8, gpu: &GpuModel) -> Option<Self> {
        let (compute, usual) = match generation {
            2 => (70, 6),
            3 => (80, 12),
            4 => (90, 18),
            5 => (100, 18),
            _ => return None,
        };
        let own = gpu.nvlink.filter(|it| it.generation == generation);
        let links = own.map_or(usual, |it| it.links);
        let each = link::nvlink(compute, Version::new(2, 28, 3));
        let switches = own.is_none_or(|it| it.by == NvLinkBy::Switch);
        Some(Self::NvLink {
            bandwidth: GigabytesPerSecond(f64::from(links) * each),
            nvls: switches && generation >= 4,
        })
    }

    /// PCI Express of a generation, 16 lanes, GPU to GPU or through the host.
    pub fn pci(generation: u8, peer_access: bool) -> Option<Self> {
        let bandwidth = GigabytesPerSecond(link::pci(PciLink::generation(generation)?));
        Some(if peer_access { Self::Pci { bandwidth } } else { Self::Host { bandwidth } })
    }
}

/// How nodes are joined.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Inter {
    /// The network.
    pub kind: NicKind,
    /// NICs of a node.
    pub nics: u32,
    /// Rate of each.
    pub rate: GigabitsPerSecond,
    /// Whether NICs read and write the memory of GPUs.
    pub gpudirect: bool,
}

/// Nodes of one kind, and how the job is spread over them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cluster {
    /// The GPUs.
    pub gpu: Gpu,
    /// Nodes.
    pub nodes: u32,
    /// Pods on each node; NCCL treats each as a node of its own.
    pub pods: u32,
    /// GPUs in each pod.
    pub gpus: u32,
    /// GPUs each node has, used or not.
    pub gpus_there: u32,
    /// Nodes that one domain of NVLink switches joins: 1 unless NVLink reaches beyond a node.
    pub domain: u32,
    /// How the GPUs of a node are joined.
    pub intra: Intra,
    /// How nodes are joined.
    pub inter: Option<Inter>,
    /// What the PCI Express link of a GPU to the host carries, one way.
    pub host_link: GigabytesPerSecond,
    /// Virtual CPUs of a node.
    pub cpus: Option<u32>,
    /// Memory of a node.
    pub host_memory: Option<Gibibytes>,
}

impl Cluster {
    /// GPUs of the job.
    pub fn ranks(&self) -> u64 {
        u64::from(self.nodes).saturating_mul(self.on_node())
    }

    /// GPUs of the job that NCCL counts as a node: those of a pod, or of a whole domain of NVLink switches.
    pub(crate) fn local(&self) -> u64 {
        let domain = if self.pods == 1 { u64::from(self.domain.max(1)) } else { 1 };
        u64::from(self.gpus).saturating_mul(domain).min(self.ranks())
    }

    /// GPUs of the job on one node.
    pub fn on_node(&self) -> u64 {
        u64::from(self.pods) * u64::from(self.gpus)
    }
}
