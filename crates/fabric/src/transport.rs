//! NCCL's transports between two ranks.

use std::fmt;

/// How one rank reaches another on one channel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// Directly between GPUs of one host (or of one NVLink domain), over NVLink or PCIe.
    P2p {
        /// How the peer's memory is mapped.
        kind: P2pKind,
        /// The receiver reads instead of the sender writing; normal for two A100 over NVLink.
        read: bool,
    },
    /// Through host memory, inside one host.
    Shm,
    /// Over a network device.
    Net {
        /// The name of the network: `Socket`, `IB`, `Libfabric`, ...
        network: Box<str>,
        /// The index of the network device.
        device: u32,
        /// The NIC reads and writes GPU memory itself.
        gpudirect: bool,
        /// The rank whose GPU forwards the bytes to its own NIC (PXN).
        through: Option<u32>,
    },
    /// Reduction in the network.
    CollNet {
        /// The name of the network.
        network: Box<str>,
        /// The index of the network device.
        device: u32,
        /// The NIC reads and writes GPU memory itself.
        gpudirect: bool,
    },
}

/// How a peer GPU's memory is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum P2pKind {
    /// Both GPUs belong to one process.
    DirectPointer,
    /// Legacy CUDA IPC between processes.
    Ipc,
    /// cuMem (VMM) handles between processes.
    Cumem,
    /// Multi-node NVLink.
    Mnnvl,
    /// Through another GPU over NVLink.
    Indirect,
}

impl Transport {
    /// The short name: `P2P`, `SHM`, `NET`, `COLLNET`.
    pub fn family(&self) -> &'static str {
        match self {
            Self::P2p { .. } => "P2P",
            Self::Shm => "SHM",
            Self::Net { .. } => "NET",
            Self::CollNet { .. } => "COLLNET",
        }
    }

    /// Whether it uses a network device.
    pub fn is_net(&self) -> bool {
        matches!(self, Self::Net { .. } | Self::CollNet { .. })
    }

    /// The network's name and whether GPUDirect RDMA is used, for the transports that have one.
    pub fn network(&self) -> Option<(&str, u32, bool)> {
        match self {
            Self::Net { network, device, gpudirect, .. } | Self::CollNet { network, device, gpudirect } => {
                Some((network, *device, *gpudirect))
            }
            Self::P2p { .. } | Self::Shm => None,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::P2p { kind, read } => {
                write!(f, "P2P/{kind}")?;
                if *read { f.write_str("/read") } else { Ok(()) }
            }
            Self::Shm => f.write_str("SHM"),
            Self::Net { network, device, gpudirect, through } => {
                write!(f, "NET/{network}/{device}")?;
                if let Some(rank) = through {
                    write!(f, "({rank})")?;
                }
                if *gpudirect { f.write_str("/GDRDMA") } else { Ok(()) }
            }
            Self::CollNet { network, device, gpudirect } => {
                write!(f, "COLLNET/{network}/{device}")?;
                if *gpudirect { f.write_str("/GDRDMA") } else { Ok(()) }
            }
        }
    }
}

impl fmt::Display for P2pKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DirectPointer => "direct pointer",
            Self::Ipc => "IPC",
            Self::Cumem => "CUMEM",
            Self::Mnnvl => "MNNVL",
            Self::Indirect => "indirect",
        })
    }
}
