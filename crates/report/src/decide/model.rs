//! What NCCL decides for a job, as plain data.

use std::collections::BTreeMap;

use serde::Serialize;

/// What NCCL decides for a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decide {
    /// `plumb.decide/1`.
    pub schema: &'static str,
    /// `p5.48xlarge`, or a host name.
    pub machine: String,
    /// Where the machine comes from.
    pub source: String,
    /// Machines of the job.
    pub nodes: u32,
    /// Pods on each, and GPUs in each: `1x8`.
    pub pods: String,
    /// Ranks in all.
    pub ranks: u64,
    /// Nodes as NCCL counts them.
    pub nccl_nodes: usize,
    /// The release of NCCL.
    pub nccl: String,
    /// `Libfabric`, `IB`, `Socket`; `None` if all ranks are on one node.
    pub network: Option<&'static str>,
    /// The release of aws-ofi-nccl, where that plugin is used.
    pub plugin: Option<String>,
    /// How many channels, and why.
    pub channels: Channels,
    /// What limits the rings.
    pub limit: Option<Limit>,
    /// How rings go from node 0 to node 1.
    pub between_nodes: Vec<Crossing>,
    /// Algorithm and protocol by size.
    pub choices: Vec<Ranges>,
    /// The tuner of aws-ofi-nccl, where that plugin is used.
    pub tuner: Option<Tuner>,
    /// What the search found on the node of the rank.
    pub graphs: Vec<Graph>,
    /// The rings over all ranks from rank 0 on, one per channel that differs; empty for more than [`Decide::RANKS`] ranks.
    pub rings: Vec<Vec<u32>>,
    /// The tuning table.
    pub tuning: Vec<Cell>,
    /// The variables the decisions rest on.
    pub environment: BTreeMap<String, String>,
    /// The variables that the plugin sets because the user did not.
    pub set_by_plugin: Vec<Setting>,
    /// The variables that are set and change nothing here.
    pub unheeded: Vec<Unheeded>,
    /// The rank whose lines and graphs are shown.
    pub rank: u64,
    /// What this rank prints about its decisions, in NCCL's words.
    pub lines: Vec<String>,
    /// What the answer assumes.
    pub notes: Vec<String>,
    /// The difference that settings would make, where that was asked for.
    pub what_if: Option<WhatIf>,
}

/// The difference that settings make.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIf {
    /// `NCCL_CROSS_NIC=1`.
    pub settings: Vec<String>,
    /// What changes.
    pub changes: Vec<Change>,
    /// Why settings change nothing here, in sentences.
    pub unheeded: Vec<String>,
    /// Those settings that may change what NCCL decides, by name: plumb does not know them, or does not model them.
    pub not_modelled: Vec<String>,
    /// The bandwidth that is expected, where plumb expects one.
    pub expected: Vec<Speed>,
    /// Why NCCL would not run with these settings.
    pub refused: Option<String>,
}

/// The bus bandwidth of a collective that is expected without and with the settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Speed {
    /// `all_reduce`.
    pub collective: &'static str,
    /// The size.
    pub bytes: u64,
    /// Without the settings.
    #[serde(rename = "before_GBps")]
    pub before: f64,
    /// With the settings.
    #[serde(rename = "after_GBps")]
    pub after: f64,
}

/// A decision that settings change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// `channels`.
    pub what: String,
    /// Without the settings.
    pub before: String,
    /// With them.
    pub after: String,
}

impl Decide {
    /// The most ranks of which the rings are listed.
    pub const RANKS: usize = 4096;
}

/// How many channels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Channels {
    /// Rings that the search found on every node.
    pub searched: usize,
    /// Channels of collectives.
    pub collectives: usize,
    /// Channels of NVLS; 0 without it.
    pub nvls: usize,
    /// Channels for send and receive.
    pub p2p: u32,
    /// Those that one peer gets.
    pub p2p_per_peer: u32,
    /// Bytes of a chunk of send and receive.
    pub p2p_chunk: u64,
    /// How the number of channels of collectives comes from what the search found, step by step.
    pub why: Vec<String>,
}

/// What limits the rings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    /// GB/s of all rings of a node together, one way: between nodes if there are several, otherwise inside.
    #[serde(rename = "rings_GBps")]
    pub rings: f64,
    /// GB/s of one of them.
    #[serde(rename = "channel_GBps")]
    pub channel: f64,
    /// The links that rings use, the fullest first.
    pub links: Vec<Use>,
}

/// How much of a kind of link the rings use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Use {
    /// `PCI Express from GPU to NIC`.
    pub link: String,
    /// GB/s that the rings put on the fullest link of this kind, one way.
    #[serde(rename = "used_GBps")]
    pub used: f64,
    /// GB/s that this link carries, as NCCL assumes.
    #[serde(rename = "capacity_GBps")]
    pub capacity: f64,
}

/// Where a ring goes from node 0 to node 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Crossing {
    /// The channels that go this way.
    pub channels: Vec<usize>,
    /// The rank of node 0 that sends.
    pub from_rank: u32,
    /// The NIC it sends by.
    pub from_nic: String,
    /// The rank of node 1 that receives.
    pub to_rank: u32,
    /// The NIC it receives by.
    pub to_nic: String,
    /// The rank of node 0 whose NIC it is, if another rank sends for this one (PXN).
    pub by_rank: Option<u32>,
}

/// Algorithm and protocol of a collective by size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ranges {
    /// `all_reduce`.
    pub collective: &'static str,
    /// From the smallest size to the largest.
    pub ranges: Vec<Range>,
}

/// Sizes with one choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Range {
    /// The smallest size, in bytes.
    pub from: u64,
    /// The largest size, in bytes; `None` for the last range.
    pub to: Option<u64>,
    /// `Tree`.
    pub algorithm: &'static str,
    /// `LL128`.
    pub protocol: &'static str,
    /// Channels at the smallest and at the largest size.
    pub channels: [u32; 2],
    /// Whether the tuner of the plugin decides.
    pub by_tuner: bool,
}

/// Whether the tuner of aws-ofi-nccl decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tuner {
    /// Whether it decides at all.
    pub decides: bool,
    /// Why it does not.
    pub reason: Option<String>,
}

/// What the search found for one algorithm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Graph {
    /// `ring`, `tree`, `collnet_chain`, `collnet_direct`, `nvls`.
    pub algorithm: &'static str,
    /// NCCL's number of the shape.
    pub pattern: u8,
    /// 0 no, 1 yes, 2 in pairs of channels.
    pub cross_nic: u8,
    /// GB/s of a channel inside the node.
    #[serde(rename = "intra_GBps")]
    pub intra: f32,
    /// GB/s of a channel between nodes.
    #[serde(rename = "inter_GBps")]
    pub inter: f32,
    /// The farthest path between GPUs.
    pub type_intra: String,
    /// The farthest path between GPU and NIC.
    pub type_inter: String,
    /// Whether all channels have one order of GPUs.
    pub same_channels: bool,
    /// The channels.
    pub channels: Vec<GraphChannel>,
}

/// A channel of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GraphChannel {
    /// The NIC it comes in by.
    pub nic_in: Option<String>,
    /// The GPUs by their index, in the order of the channel.
    pub gpus: Vec<u32>,
    /// The NIC it leaves by.
    pub nic_out: Option<String>,
}

/// A cell of the tuning table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// `all_reduce`.
    pub collective: &'static str,
    /// `Tree`.
    pub algorithm: &'static str,
    /// `LL128`.
    pub protocol: &'static str,
    /// NCCL's latency.
    pub latency_us: f32,
    /// NCCL's bandwidth.
    #[serde(rename = "bandwidth_GBps")]
    pub bandwidth: f32,
}

/// A variable and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// `NCCL_PROTO`.
    pub name: String,
    /// `simple`.
    pub value: String,
}

/// A variable that changes nothing here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unheeded {
    /// `NCCL_GRAPH_FILE`.
    pub name: String,
    /// Why, in a sentence.
    pub reason: String,
    /// It may change what NCCL decides: plumb does not know it, or does not model it.
    pub not_modelled: bool,
}
