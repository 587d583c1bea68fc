//! One machine: its sockets, the PCI Express tree below each, its GPUs and NICs, and the NVLinks between GPUs.
//!
//! A machine can come from a topology dump, from `nvidia-smi topo -m`, from the catalogue or from a live node. No source states
//! everything: an unknown value is `None`, and [`Machine::unknown`] explains it.

use std::fmt;
use std::ops::RangeInclusive;

use crate::units::GigabitsPerSecond;

/// A machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Machine {
    /// `p4d.24xlarge`, or a host name.
    pub name: Option<Box<str>>,
    /// Sockets, or NUMA nodes where there are several in a socket.
    pub sockets: Vec<Socket>,
    /// PCI Express switches and bridges.
    pub bridges: Vec<Bridge>,
    /// GPUs, in NCCL's order: by socket, then by bus.
    pub gpus: Vec<Gpu>,
    /// Network devices, in the order of their index.
    pub nics: Vec<Nic>,
    /// Whether the NICs are NCCL's own devices, as its log lists them: it has made one of the ports of a card already.
    pub nics_merged: bool,
    /// NVLinks, each once for each end that is a GPU.
    pub nvlinks: Vec<NvLink>,
    /// What the source does not state, in sentences.
    pub unknown: Vec<String>,
    /// What this kind of source cannot show, so that its absence here means nothing.
    pub hidden: Hidden,
}

/// What a source cannot show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hidden {
    /// Whether NVLink connects the GPUs: `nvidia-smi topo -mp`, topology XML with PCI class codes only.
    pub nvlink: bool,
    /// What any device is attached to: NCCL's graph XML.
    pub wiring: bool,
}

/// A socket or NUMA node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Socket {
    /// The number of the NUMA node.
    pub numa: Option<u32>,
    /// The CPUs it has, as `0-23,48-71`.
    pub cpus: Option<Box<str>>,
    /// The vendor.
    pub maker: Maker,
    /// Family and model, as in CPUID.
    pub model: Option<(u32, u32)>,
}

/// The vendor of a CPU, as far as NCCL distinguishes them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Maker {
    /// Intel.
    Intel,
    /// AMD.
    Amd,
    /// Zhaoxin.
    Zhaoxin,
    /// Any 64-bit Arm: Grace, Graviton.
    Arm,
    /// IBM Power.
    Power,
    /// Not known.
    #[default]
    Unknown,
}

/// What a device is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// At the root of a socket, by its index.
    Socket(usize),
    /// Below a bridge, by its index.
    Bridge(usize),
}

/// A PCI Express switch or bridge.
#[derive(Debug, Clone, PartialEq)]
pub struct Bridge {
    /// What it is attached to. A bridge has a larger index than the bridge above it.
    pub at: Place,
    /// Its bus id.
    pub bus: Option<BusId>,
    /// The link to what is above it.
    pub link: Option<PciLink>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// Its index: NVML's, or that of `nvidia-smi`.
    pub index: u32,
    /// What it is attached to.
    pub at: Place,
    /// Its bus id.
    pub bus: Option<BusId>,
    /// The link to what is above it.
    pub link: Option<PciLink>,
    /// Its model: `H100`, a name in the catalogue where it is known there.
    pub model: Option<Box<str>>,
    /// Its compute capability, `90` for 9.0.
    pub compute: Option<u32>,
    /// Whether a NIC may read and write its memory.
    pub gpudirect: Option<bool>,
    /// Its rank, in a dump of a running job.
    pub rank: Option<u32>,
    /// Bandwidth of a chip-to-chip link to its CPU, in GB/s one way, as Grace has it.
    pub c2c: Option<f64>,
}

/// A network device.
#[derive(Debug, Clone, PartialEq)]
pub struct Nic {
    /// `rdmap16s27`, `mlx5_0`.
    pub name: Box<str>,
    /// NCCL's number: its index among the network devices.
    pub index: u32,
    /// What it is attached to.
    pub at: Place,
    /// Its bus id; the ports of one card share it.
    pub bus: Option<BusId>,
    /// The link to what is above it.
    pub link: Option<PciLink>,
    /// Its rate.
    pub rate: Option<GigabitsPerSecond>,
    /// Whether it can read and write the memory of a GPU.
    pub gpudirect: Option<bool>,
    /// The latency the plugin declares, in microseconds.
    pub latency: Option<f64>,
    /// Its port.
    pub port: Option<Port>,
    /// The kind of network.
    pub kind: NicKind,
}

/// A port of a network card. NCCL counts NICs with the same one as one: they share its bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// The GUID of the card.
    pub guid: u64,
    /// The number of the port.
    pub number: u32,
}

impl Nic {
    /// Whether its name is one that Linux gives to a device with verbs (`ibv_devices`): NCCL drives it with NET/IB, whatever its
    /// link layer is. Drivers name their devices so (`drivers/infiniband/hw` of Linux: `mlx5_%d`, `bnxt_re%d`, `irdma%d`, ...);
    /// rdma-core's udev rules rename them by kind and place (`ibp16s0`, `rocep59s0`).
    pub fn is_verbs_device(&self) -> bool {
        let numbered = |prefix: &str| {
            let rest = self.name.strip_prefix(prefix);
            rest.is_some_and(|it| it.starts_with(|it: char| it.is_ascii_digit()) || it.starts_with("bond"))
        };
        VERBS.iter().any(|it| numbered(it))
    }

    /// Rates that a NIC can have, in Gbit/s.
    pub const RATES: RangeInclusive<f64> = 1e-3..=1e5;
}

/// What names of devices with verbs begin with, before their number. EFA, which NCCL cannot drive with NET/IB, is not here.
static VERBS: &[&str] = &[
    "mlx5_", "mlx5_ib", "mlx5_an", "mlx4_", "mthca", "bnxt_re", "irdma", "i40iw", "qedr", "ocrdma", "cxgb4_",
    "hns_", "erdma_", "ionic_", "mana_", "hfi1_", "qib", "rxe", "siw", "ibp", "ibs", "ibo", "rocep", "roces",
    "roceo",
];

/// A kind of network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NicKind {
    /// Elastic Fabric Adapter.
    Efa,
    /// `InfiniBand`.
    InfiniBand,
    /// RDMA over Ethernet.
    Roce,
    /// TCP from and to GPU memory, with a plugin of Google Cloud: GPUDirect-TCPX and -TCPXO.
    #[serde(rename = "tcp_gpudirect")]
    GpuDirectTcp,
    /// Slingshot of HPE, which NCCL drives with a libfabric plugin.
    Slingshot,
    /// Plain Ethernet: TCP.
    Ethernet,
    /// Not known.
    #[default]
    Unknown,
}

impl NicKind {
    /// What the network is called between nodes; `a network` if it is not known.
    pub const fn network(self) -> &'static str {
        match self {
            Self::Ethernet => "TCP",
            Self::Efa => "EFA",
            Self::InfiniBand => "InfiniBand",
            Self::Roce => "RoCE",
            Self::GpuDirectTcp => "GPUDirect-TCP",
            Self::Slingshot => "Slingshot",
            Self::Unknown => "a network",
        }
    }
}

/// A group of NVLinks from a GPU to one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NvLink {
    /// The GPU, by its index in [`Machine::gpus`].
    pub from: usize,
    /// What is at the other end.
    pub to: NvEnd,
    /// How many links.
    pub count: u32,
}

/// The other end of an NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NvEnd {
    /// Another GPU, by its index in [`Machine::gpus`].
    Gpu(usize),
    /// The `NVSwitch`es, which connect all GPUs that have links to them.
    Switch,
    /// A CPU (Power9), by its index in [`Machine::sockets`].
    Socket(usize),
}

/// A PCI Express link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PciLink {
    /// Transfers per second and lane, in 1e9: 8 for generation 3.
    pub gigatransfers: f64,
    /// Lanes.
    pub width: u32,
}

impl PciLink {
    /// The link of a generation, 3 to 7, with 16 lanes.
    pub fn generation(generation: u8) -> Option<Self> {
        let gigatransfers = match generation {
            1 => 2.5,
            2 => 5.0,
            3 => 8.0,
            4 => 16.0,
            5 => 32.0,
            6 => 64.0,
            7 => 128.0,
            _ => return None,
        };
        Some(Self { gigatransfers, width: 16 })
    }
}

impl fmt::Display for PciLink {
    /// `Gen4 x16`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generation =
            (1..=7).find(|it| Self::generation(*it).is_some_and(|it| it.gigatransfers >= self.gigatransfers));
        match generation {
            Some(it) => write!(f, "Gen{it} x{}", self.width),
            None => write!(f, "{} GT/s x{}", self.gigatransfers, self.width),
        }
    }
}

/// A PCI bus id: domain, bus, device and function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BusId(pub u64);

impl BusId {
    /// Reads `0000:86:00.0`, `00000000:86:00.0`, `86:00.0`.
    pub fn parse(text: &str) -> Option<Self> {
        let (rest, function) = text.trim().rsplit_once('.')?;
        let mut parts = rest.rsplit(':').map(|it| u64::from_str_radix(it, 16).ok());
        let device = parts.next()??;
        let bus = parts.next()??;
        let domain = parts.next().unwrap_or(Some(0))?;
        let function = u64::from_str_radix(function, 16).ok()?;
        let fits = function < 16 && device < 256 && bus < 256 && domain < 1 << 32 && parts.next().is_none();
        fits.then_some(Self(domain << 20 | bus << 12 | device << 4 | function))
    }
}

impl fmt::Display for BusId {
    /// `0000:86:00.0`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let it = self.0;
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", it >> 20, it >> 12 & 0xff, it >> 4 & 0xff, it & 0xf)
    }
}

impl Machine {
    /// Whether `NVSwitch`es connect the GPUs.
    pub fn has_nvswitch(&self) -> bool {
        self.nvlinks.iter().any(|it| it.to == NvEnd::Switch)
    }

    /// The socket above a device. `None` if the description has a cycle.
    pub fn socket_of(&self, mut at: Place) -> Option<usize> {
        for _ in 0..=self.bridges.len() {
            match at {
                Place::Socket(socket) => return (socket < self.sockets.len()).then_some(socket),
                Place::Bridge(bridge) => at = self.bridges.get(bridge)?.at,
            }
        }
        None
    }

    /// The bridges above a device, nearest first.
    pub fn bridges_above(&self, mut at: Place) -> Vec<usize> {
        let mut above = Vec::new();
        while let Place::Bridge(bridge) = at {
            let Some(found) = self.bridges.get(bridge).filter(|_| above.len() <= self.bridges.len()) else {
                break;
            };
            above.push(bridge);
            at = found.at;
        }
        above
    }
}

#[cfg(test)]
mod tests {
    use super::{Bridge, BusId, Machine, Nic, NicKind, PciLink, Place, Socket};

    #[test]
    fn bus_ids_are_read_and_written() {
        for text in ["0000:86:00.0", "00000000:86:00.0", "86:00.0"] {
            assert_eq!(BusId::parse(text).unwrap().to_string(), "0000:86:00.0");
        }
        // As NCCL's logs have it.
        assert_eq!(BusId::parse("ffff:ff:01.0"), Some(BusId(0xf_ffff_f010)));
        for text in ["", "86", "86:00", "zz:00.0", "1:2:3:4.5", "86:1234.0"] {
            assert_eq!(BusId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn links_have_generations() {
        assert_eq!(PciLink { gigatransfers: 16.0, width: 8 }.to_string(), "Gen4 x8");
        assert_eq!(PciLink::generation(5).unwrap().to_string(), "Gen5 x16");
        assert_eq!(PciLink::generation(9), None);
    }

    #[test]
    fn devices_with_verbs() {
        let nic = |name: &str| Nic {
            name: name.into(),
            index: 0,
            at: Place::Socket(0),
            bus: None,
            link: None,
            rate: None,
            gpudirect: None,
            latency: None,
            port: None,
            kind: NicKind::Unknown,
        };
        for (name, verbs) in [
            ("mlx5_0", true),
            ("mlx5_bond_0", true),
            ("mlx5_ib3", true),
            ("bnxt_re1", true),
            ("ibp16s0", true),
            ("rocep59s0", true),
            ("irdma0", true),
            ("eth0", false),
            ("ens5", false),
            ("rdmap16s27", false),
            ("mlx5", false),
        ] {
            assert_eq!(nic(name).is_verbs_device(), verbs, "{name}");
        }
    }

    #[test]
    fn a_circle_has_no_socket() {
        let bridge = |at| Bridge { at, bus: None, link: None };
        let machine = Machine {
            sockets: vec![Socket::default()],
            bridges: vec![bridge(Place::Bridge(1)), bridge(Place::Bridge(0)), bridge(Place::Socket(0))],
            ..Machine::default()
        };
        assert_eq!(machine.socket_of(Place::Bridge(0)), None);
        assert_eq!(machine.socket_of(Place::Bridge(2)), Some(0));
        assert!(machine.bridges_above(Place::Bridge(0)).len() <= 4);
    }
}
