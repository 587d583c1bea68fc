//! The whole answer of `plumb topo`, with owned texts: every format is written from it. Schema `plumb.topo/1`.

use fabric::{PathType, Transport};
use nccl::Between;
use serde::{Serialize, Serializer};

use super::words;
use crate::Price;

/// A machine, its paths and its normal bandwidth.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Topo {
    /// `plumb.topo/1`.
    pub schema: &'static str,
    /// The name of the machine.
    pub name: Option<String>,
    /// `8 x A100-40GB, NVSwitch 600 GB/s each; 4 x 100 Gbps EFA; 2 NUMA nodes`.
    pub summary: String,
    /// Where the description comes from: a file and line, the catalogue, this machine.
    pub source: String,
    /// Sockets with all devices below them.
    pub sockets: Vec<TopoSocket>,
    /// NVLinks between two GPUs, each pair once. Empty if `NVSwitch`es connect them.
    pub nvlinks: Vec<TopoNvlink>,
    /// The `NVSwitch`es.
    pub nvswitch: Option<TopoNvswitch>,
    /// Whether the source cannot show NVLink, so that none here means nothing.
    #[serde(skip)]
    pub nvlink_is_hidden: bool,
    /// Paths between all devices that matter to NCCL, in both names.
    pub paths: Vec<TopoPath>,
    /// The NICs that each GPU should use.
    pub nics: Vec<TopoNicUse>,
    /// The job.
    pub job: Option<TopoJob>,
    /// The normal bandwidth by size.
    pub normal: Vec<TopoNormal>,
    /// The result of NCCL's search, if the source contains it.
    pub graphs: Vec<TopoGraph>,
    /// Rings or trees of one channel, from a log, to be drawn on top.
    pub overlay: Option<TopoOverlay>,
    /// Notes: bandwidth that the layout loses, paths that look slow but are the best available.
    pub notes: Vec<String>,
    /// What the layout costs a training job, against one pod with all these GPUs.
    pub price: Option<Price>,
    /// Those of the notes that say what sources disagree about: the text begins with them.
    #[serde(skip)]
    pub conflicts: Vec<String>,
    /// What the source does not state.
    pub unknown: Vec<String>,
}

/// A socket, or one of its NUMA nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TopoSocket {
    /// The NUMA node.
    pub numa: Option<u32>,
    /// `0-23,48-71`.
    pub cpus: Option<String>,
    /// `Intel`.
    pub maker: Option<String>,
    /// The devices below it.
    pub children: Vec<TopoNode>,
}

/// A switch or a device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum TopoNode {
    /// A PCI Express switch.
    Switch {
        /// Its bus id.
        bus: Option<String>,
        /// `Gen4 x16`.
        link: Option<String>,
        /// The devices below it.
        children: Vec<TopoNode>,
    },
    /// A GPU.
    Gpu {
        /// `GPU0`.
        name: String,
        /// Its model.
        model: Option<String>,
        /// Its bus id.
        bus: Option<String>,
        /// `Gen4 x16`.
        link: Option<String>,
        /// Its rank in the job the description was made in.
        rank: Option<u32>,
    },
    /// A network device.
    Nic {
        /// `rdmap16s27`.
        name: String,
        /// The number NCCL gives it.
        index: u32,
        /// `EFA`, `InfiniBand`, ...; `None` if it is not known.
        network: Option<String>,
        /// Its rate.
        #[serde(rename = "gbps")]
        rate: Option<f64>,
        /// Whether it can read and write the memory of a GPU.
        gpudirect: Option<bool>,
        /// Its bus id.
        bus: Option<String>,
        /// `Gen4 x16`.
        link: Option<String>,
        /// How many equal NICs it stands for: 4 on a p5 are one line.
        rail: u32,
    },
}

/// NVLinks between two GPUs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopoNvlink {
    /// One end.
    pub from: String,
    /// The other.
    pub to: String,
    /// How many.
    pub count: u32,
    /// One way.
    #[serde(rename = "GBps")]
    pub bandwidth: Option<f64>,
}

/// The `NVSwitch`es.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopoNvswitch {
    /// NVLinks of each GPU.
    pub links: u32,
    /// One way, for each GPU.
    #[serde(rename = "GBps")]
    pub bandwidth: Option<f64>,
}

/// A path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopoPath {
    /// `GPU0`.
    pub from: String,
    /// `GPU1`, `rdmap16s27`.
    pub to: String,
    /// NCCL's type of it.
    #[serde(rename = "type", serialize_with = "nccl_name")]
    pub kind: PathType,
    /// The name in `nvidia-smi topo -m`: `NV12`, `NODE`.
    pub smi: String,
    /// The bandwidth that NCCL assumes, one way.
    #[serde(rename = "GBps")]
    pub bandwidth: Option<f64>,
}

/// The NICs of a GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopoNicUse {
    /// `GPU0`.
    pub gpu: String,
    /// The nearest NICs.
    pub nics: Vec<String>,
    /// NCCL's name of the path to them.
    pub path: String,
    /// Whether GPUDirect RDMA is possible.
    pub gpudirect: bool,
    /// How many GPUs have the same nearest NICs.
    pub shared_by: u32,
    /// Bandwidth of these NICs over those GPUs, one way.
    #[serde(rename = "GBps_each")]
    pub share: Option<f64>,
}

/// A job on some of these machines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopoJob {
    /// `2.27.3`.
    pub nccl: String,
    /// Machines.
    pub nodes: u32,
    /// Whether they are nodes of a log that may be pods on fewer machines.
    pub nodes_may_share_machines: bool,
    /// `1x8`: pods on each machine, and GPUs in each.
    pub pods: String,
    /// The transports between ranks, grouped by kind and reason.
    pub transports: Vec<TopoTransport>,
}

/// Pairs of ranks with the same transport and reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopoTransport {
    /// Which ranks.
    #[serde(serialize_with = "between_words")]
    pub between: Between,
    /// How many pairs.
    pub pairs: u64,
    /// One of them.
    pub example: (u32, u32),
    /// As NCCL prints it: `P2P/CUMEM`, `NET/Libfabric/0/GDRDMA`.
    pub transport: String,
    /// Why.
    pub reason: String,
}

/// The normal bandwidth at one size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopoNormal {
    /// `all_reduce`.
    pub collective: String,
    /// Bytes, as nccl-tests counts them.
    pub bytes: u64,
    /// The lowest normal bus bandwidth.
    #[serde(rename = "low_GBps")]
    pub low: f64,
    /// The one to expect.
    #[serde(rename = "expected_GBps")]
    pub expected: f64,
    /// The highest.
    #[serde(rename = "high_GBps")]
    pub high: f64,
    /// How long the call takes at the expected bandwidth, in microseconds.
    pub time_us: f64,
    /// `Ring`, `NVLS`, ...
    pub algorithm: String,
    /// Which link or overhead is the ceiling.
    pub ceiling: String,
    /// Whether published measurements back it.
    pub calibrated: bool,
}

/// What NCCL's search found for one algorithm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopoGraph {
    /// `ring`, `tree`, `NVLS`, ...
    pub name: String,
    /// How many channels, before NCCL doubles them.
    pub channels: u32,
    /// What a channel gets inside a machine.
    #[serde(rename = "GBps_inside")]
    pub inside: f64,
    /// What a channel gets between machines.
    #[serde(rename = "GBps_between")]
    pub between: f64,
    /// The farthest path between its GPUs.
    pub path_inside: String,
    /// The farthest path to a NIC.
    pub path_to_nic: String,
    /// Different orders of GPUs, with the channels that have them: `0-3`.
    pub orders: Vec<TopoOrder>,
}

/// The order of GPUs in some channels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopoOrder {
    /// The channels.
    pub channels: Vec<u32>,
    /// From the NIC it comes in by, over the GPUs, to the NIC it leaves by.
    pub steps: Vec<String>,
}

/// A ring or tree of a channel, over several machines.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TopoOverlay {
    /// `ring 0`, `tree 1`.
    pub name: String,
    /// Machines to draw side by side.
    pub nodes: u32,
    /// Connections in order: from machine and GPU to machine and GPU.
    pub edges: Vec<TopoEdge>,
    /// Those of them that a setting adds or takes away.
    #[serde(skip)]
    pub changed: Vec<TopoEdge>,
}

/// A connection of a ring or tree.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopoEdge {
    /// Machine and index of the GPU.
    pub from: (u32, u32),
    /// Machine and index of the GPU.
    pub to: (u32, u32),
    /// How the data goes.
    pub family: TopoFamily,
    /// The NIC it leaves by, by its name in the drawing.
    pub nic: Option<String>,
    /// The NIC it arrives by, where both are known; otherwise each GPU uses its nearest.
    #[serde(skip)]
    pub to_nic: Option<String>,
}

/// The kind of transport of a connection, from near to far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopoFamily {
    /// From GPU to GPU.
    P2p,
    /// Through shared memory.
    Shm,
    /// Over the network.
    Net,
    /// Over the network, reduced by its switches.
    CollNet,
    /// Inside a machine; the source does not show more.
    Inside,
}

impl TopoFamily {
    /// As in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::P2p => "P2P",
            Self::Shm => "SHM",
            Self::Net => "NET",
            Self::CollNet => "COLLNET",
            Self::Inside => "inside",
        }
    }
}

impl From<&Transport> for TopoFamily {
    fn from(it: &Transport) -> Self {
        match it {
            Transport::P2p { .. } => Self::P2p,
            Transport::Shm => Self::Shm,
            Transport::Net { .. } => Self::Net,
            Transport::CollNet { .. } => Self::CollNet,
        }
    }
}

impl Serialize for TopoFamily {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn nccl_name<S: Serializer>(it: &PathType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(it.name())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn between_words<S: Serializer>(it: &Between, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(words::between(*it))
}
