//! What a log says NCCL decided: graphs, rings, trees, channel counts and the tuning table of each rank.
//!
//! The reader is total: a line of another form is passed over, and a line that NCCL cut is kept as far as it goes.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;

/// One communicator of one rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Decided {
    pub(crate) rank: Option<u32>,
    pub(crate) ranks: Option<u32>,
    pub(crate) nodes: Option<u32>,
    pub(crate) local_ranks: Option<u32>,
    pub(crate) mnnvl: bool,
    /// In the order of the log: ring, tree, then those of `CollNet` and NVLS where there are any.
    pub(crate) graphs: Vec<PrintedGraph>,
    /// `Tree 8 : 8 -> 0 -> 1/-1/-1`, the text after `Tree `.
    pub(crate) tree: Vec<String>,
    /// `Channel 00/16 :  0  7 ...`, the text after `Channel `.
    pub(crate) channels: Vec<String>,
    /// `Ring 00 : 8 -> 0 -> 7`, the text after `Ring `.
    pub(crate) rings: Vec<String>,
    /// The text after `Trees`; NCCL cuts it.
    pub(crate) trees: Option<String>,
    pub(crate) counts: Option<ChannelCounts>,
    pub(crate) table: Table,
    /// Tree, ring, `CollNetDirect`, `CollNetChain`: `8/8/64 | 128/8/64 | 512 | 512`.
    pub(crate) thresholds: Option<String>,
    pub(crate) calls: Vec<PrintedCall>,
}

/// A call, as rank 0 tells it: `AllReduce: 1024 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}` since 2.24, with numbers and
/// the time before, and up to 2.22 without the collective. 2.18 and 2.19 do not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PrintedCall {
    pub(crate) function: Option<String>,
    /// Since 2.24 what a rank has in its send buffer, of reduce-scatter in its receive buffer; before, the larger of the two.
    pub(crate) bytes: u64,
    /// The text after `Algo `.
    pub(crate) choice: String,
}

/// A `Pattern` line and the channels below it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PrintedGraph {
    pub(crate) pattern: u8,
    pub(crate) cross_nic: u8,
    pub(crate) channels: u32,
    pub(crate) bw_intra: f32,
    pub(crate) bw_inter: f32,
    pub(crate) type_intra: String,
    pub(crate) type_inter: String,
    pub(crate) same_channels: bool,
    /// `NET/0-0 GPU/0-201c0 ...`, as far as the line goes.
    pub(crate) lines: Vec<String>,
}

/// `16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, 2 p2p channels per peer`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ChannelCounts {
    pub(crate) coll: u32,
    /// Since 2.20.
    pub(crate) collnet: Option<u32>,
    pub(crate) nvls: u32,
    pub(crate) p2p: u32,
    pub(crate) p2p_per_peer: u32,
}

/// The tuning table, which only rank 0 prints.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    /// In the order of the columns.
    pub(crate) algorithms: Vec<String>,
    /// LL, LL128, Simple of each algorithm.
    pub(crate) threads: Vec<[String; 3]>,
    /// `latency/bandwidth` by collective, for each algorithm LL, LL128, Simple.
    pub(crate) cells: BTreeMap<String, Vec<[String; 3]>>,
}

/// The communicators of a log, in the order in which they begin.
pub(crate) fn decided(log: &str) -> Vec<Decided> {
    let mut all: Vec<Decided> = Vec::new();
    let mut current: BTreeMap<&str, usize> = BTreeMap::new();
    for line in log.lines() {
        let Some((thread, message)) = line.split_once(" NCCL INFO ") else { continue };
        if message.ends_with("Init START") || !current.contains_key(thread) {
            current.insert(thread, all.len());
            all.push(Decided::default());
        }
        let Some(one) = current.get(thread).and_then(|it| all.get_mut(*it)) else { continue };
        one.read(message);
    }
    all.retain(|it| !it.graphs.is_empty() || it.counts.is_some());
    all
}

impl Decided {
    fn read(&mut self, message: &str) {
        if let Some(rest) = message.strip_prefix("Pattern ") {
            self.graphs.extend(PrintedGraph::read(rest));
        } else if let Some(rest) = channel_of_graph(message) {
            if let Some(graph) = self.graphs.last_mut() {
                graph.lines.push(rest.to_owned());
            }
        } else if let Some(rest) = message.strip_prefix("Trees") {
            self.trees = Some(rest.to_owned());
        } else if let Some(rest) = numbered(message, "Tree ") {
            self.tree.push(rest.to_owned());
        } else if let Some(rest) = numbered(message, "Ring ") {
            self.rings.push(rest.to_owned());
        } else if let Some(rest) = numbered(message, "Channel ").filter(|it| !it.contains("via ")) {
            self.channels.push(rest.to_owned());
        } else if let Some(rest) = message.strip_prefix("threadThresholds ") {
            self.thresholds = Some(rest.to_owned());
        } else if message.contains(" Bytes -> Algo ") {
            self.calls.extend(PrintedCall::read(message));
        } else if message.contains(" coll channels, ") {
            self.counts = ChannelCounts::read(message);
        } else if message.contains(" |") {
            self.table.read(message);
        } else if message.contains("comm 0x") && message.contains(" rank ") {
            let number = |name: &str| after(message, name).and_then(|it| it.parse().ok());
            self.rank = self.rank.or_else(|| number(" rank "));
            self.ranks = self.ranks.or_else(|| number(" nranks ").or_else(|| number(" nRanks ")));
            self.nodes = self.nodes.or_else(|| number(" nNodes "));
            self.local_ranks = self.local_ranks.or_else(|| number(" localRanks "));
            self.mnnvl |= number(" MNNVL ").is_some_and(|it: u32| it > 0);
        }
    }
}

/// The word after a name.
fn after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split_once(name)?.1.split([' ', ',']).next()
}

/// The rest of a line that goes on with a number.
fn numbered<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    message.strip_prefix(name).filter(|it| it.starts_with(|it: char| it.is_ascii_digit()))
}

/// ` 0 : NET/0-0 GPU/0-201c0 ...`
fn channel_of_graph(message: &str) -> Option<&str> {
    let (number, rest) = message.strip_prefix(' ')?.split_once(" :")?;
    let devices = rest.trim();
    (number.trim().parse::<u32>().is_ok() && (devices.is_empty() || devices.contains('/'))).then_some(devices)
}

impl PrintedGraph {
    /// `4, crossNic 2, nChannels 8, bw 48.000000/48.000000, type NVL/PIX, sameChannels 0`
    fn read(text: &str) -> Option<Self> {
        let (bw_intra, bw_inter) = after(text, "bw ")?.split_once('/')?;
        let (type_intra, type_inter) = after(text, "type ")?.split_once('/')?;
        Some(Self {
            pattern: text.split(',').next()?.trim().parse().ok()?,
            cross_nic: after(text, "crossNic ")?.parse().ok()?,
            channels: after(text, "nChannels ")?.parse().ok()?,
            bw_intra: bw_intra.parse().ok()?,
            bw_inter: bw_inter.parse().ok()?,
            type_intra: type_intra.to_owned(),
            type_inter: type_inter.to_owned(),
            same_channels: after(text, "sameChannels ")? == "1",
            lines: Vec::new(),
        })
    }
}

impl PrintedCall {
    fn read(message: &str) -> Option<Self> {
        let (call, choice) = message.split_once(" Bytes -> Algo ")?;
        let (function, bytes) = match call.split_once(": ") {
            Some((function, bytes)) => (Some(function.to_owned()), bytes),
            None => (None, call),
        };
        Some(Self { function, bytes: bytes.trim().parse().ok()?, choice: choice.trim_end().to_owned() })
    }
}

impl ChannelCounts {
    fn read(message: &str) -> Option<Self> {
        let mut counts = Self::default();
        for part in message.split(", ") {
            let (number, name) = part.trim().split_once(' ')?;
            let number = number.parse().ok()?;
            match name {
                "coll channels" => counts.coll = number,
                "collnet channels" => counts.collnet = Some(number),
                "nvls channels" => counts.nvls = number,
                "p2p channels" => counts.p2p = number,
                "p2p channels per peer" => counts.p2p_per_peer = number,
                _ => return None,
            }
        }
        Some(counts)
    }
}

impl Table {
    fn read(&mut self, message: &str) {
        let mut columns = message.split('|').map(str::trim);
        let Some(name) = columns.next() else { return };
        let columns: Vec<&str> = columns.filter(|it| !it.is_empty()).collect();
        let threes = || columns.chunks_exact(3).map(|it| [it[0], it[1], it[2]].map(str::to_owned));
        match name {
            "Algorithm" => self.algorithms.extend(columns.iter().map(|it| (*it).to_owned())),
            "Max NThreads" => self.threads.extend(threes()),
            "Broadcast" | "Reduce" | "AllGather" | "ReduceScatter" | "AllReduce" => {
                let cells = threes().map(|it| it.map(|cell| cell.replace(' ', "")));
                self.cells.entry(name.to_owned()).or_default().extend(cells);
            }
            _ => {}
        }
    }
}
