//! Algorithms of NCCL, and what limits them.

/// An algorithm of NCCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Each rank passes on to the next.
    Ring,
    /// A double binary tree of nodes, a chain inside each.
    Tree,
    /// The switches of NVLink add up.
    Nvls,
    /// A tree of nodes, NVLS inside each.
    NvlsTree,
    /// Parallel aggregated trees, for one GPU in each node.
    Pat,
    /// Every rank to every other.
    Pairs,
}

impl Algorithm {
    /// As NCCL writes it; `pairs` for what is not an algorithm to NCCL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "Ring",
            Self::Tree => "Tree",
            Self::Nvls => "NVLS",
            Self::NvlsTree => "NVLSTree",
            Self::Pat => "PAT",
            Self::Pairs => "pairs",
        }
    }
}

/// What limits long messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ceiling {
    /// NVLink.
    NvLink,
    /// The adders in the switches of NVLink.
    Nvls,
    /// PCI Express between GPUs.
    Pci,
    /// The memory of the host.
    HostMemory,
    /// The NICs of a node.
    Nics,
    /// The PCI Express link of the GPUs that use the NICs.
    GpuPci,
    /// Copies through host memory on the way to the NIC.
    NoGpuDirect,
    /// TCP.
    Tcp,
    /// The channels that NCCL opens to one peer.
    Channels,
}

impl Ceiling {
    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::NvLink => "NVLink",
            Self::Nvls => "NVLink SHARP in the switches",
            Self::Pci => "PCIe between the GPUs",
            Self::HostMemory => "copies through host memory inside the node",
            Self::Nics => "the NICs of a node",
            Self::GpuPci => "the PCIe link of the GPUs to their NICs",
            Self::NoGpuDirect => "copies through host memory on the way to the NIC (no GPUDirect)",
            Self::Tcp => "TCP",
            Self::Channels => "the channels that NCCL opens to one peer",
        }
    }
}
