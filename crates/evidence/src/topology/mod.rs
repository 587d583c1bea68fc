//! A machine, read from what describes one: `nvidia-smi topo -m`, NCCL's topology XML, NCCL's graph XML, a log
//! with lines of the subsystem GRAPH.
//!
//! ```text
//! bytes -> kind, by the first line that shows one -> its reader -> Topology, or Trouble that names the line
//! ```
//!
//! The description may be inside other text: after a prompt, in a log, between Markdown fences. What a source leaves
//! open stays open: [`fabric::Machine::unknown`] says what this kind of source never contains, `notes` what is unusual
//! about this one.

mod classes;
mod graph_xml;
mod log;
mod matrix;
mod nvlinks;
mod paste;
mod peers;
mod rows;
mod table;
mod tree;
mod wiring;
mod xml;

use fabric::Machine;
use fabric::machine::{Gpu, Nic, NicKind, Place};

use crate::case::Case;
use crate::prefix::Anchor;
use crate::strip::{self, Marks};

/// A machine and where it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// What it was read from.
    pub kind: Kind,
    /// The machine.
    pub machine: Machine,
    /// Rings and trees, where the source has them.
    pub graphs: Vec<Graph>,
    /// Paths as NCCL printed them.
    pub paths: Vec<Path>,
    /// The line at which the description begins.
    pub line: u64,
    /// What is unusual about the source, in sentences.
    pub notes: Vec<String>,
}

/// What describes a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `nvidia-smi topo -m`
    Matrix,
    /// `NCCL_TOPO_DUMP_FILE`
    TopologyXml,
    /// `NCCL_GRAPH_DUMP_FILE`
    GraphXml,
    /// `NCCL_DEBUG_SUBSYS=GRAPH`
    Log,
}

impl Kind {
    /// Its usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Matrix => "nvidia-smi topo -m",
            Self::TopologyXml => "NCCL topology XML",
            Self::GraphXml => "NCCL graph XML",
            Self::Log => "NCCL log with GRAPH lines",
        }
    }
}

/// Why a text could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The line it is about.
    pub line: Option<u64>,
    /// What is wrong, in a sentence without its full stop.
    pub text: String,
    /// What to give beside it, where it is a description that says too little by itself: a sentence without its full stop.
    pub advice: Option<String>,
}

impl Trouble {
    fn at(line: u64, text: impl Into<String>) -> Self {
        Self { line: Some(line), text: text.into(), advice: None }
    }

    fn says_too_little(line: u64, text: impl Into<String>, advice: &str) -> Self {
        Self { advice: Some(advice.to_owned()), ..Self::at(line, text) }
    }

    fn somewhere(text: impl Into<String>) -> Self {
        Self { line: None, text: text.into(), advice: None }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

impl std::error::Error for Trouble {}

/// What NCCL's search found for one algorithm.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Graph {
    /// 0 ring, 1 tree, 2 `CollNet` chain, 3 NVLS, 4 `CollNet` direct; only the XML has it.
    pub id: Option<u32>,
    /// 1 balanced tree, 2 split tree, 3 tree, 4 ring, 5 NVLS, 6 `CollNet` direct.
    pub pattern: u32,
    /// Whether a channel may come in by one NIC and leave by another.
    pub cross_nic: u32,
    /// How many channels.
    pub n_channels: u32,
    /// GB/s per channel inside the node.
    pub speed_intra: f64,
    /// GB/s per channel between nodes.
    pub speed_inter: f64,
    /// The worst path between its GPUs: `NVL`, `PIX`.
    pub type_intra: Box<str>,
    /// The worst path from a GPU to its NIC.
    pub type_inter: Box<str>,
    /// Whether all channels are alike.
    pub same_channels: bool,
    /// The channels.
    pub channels: Vec<Channel>,
}

/// One channel of a graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Channel {
    /// The NIC it comes in by, by its index.
    pub net_in: Option<u32>,
    /// Its GPUs, by their index, in its order.
    pub gpus: Vec<u32>,
    /// The NIC it leaves by.
    pub net_out: Option<u32>,
}

/// A path as NCCL printed it.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// `GPU/0-201c0`
    pub from: Box<str>,
    /// `NET/0-0`
    pub to: Box<str>,
    /// `PIX`
    pub kind: Box<str>,
    /// GB/s one way.
    pub bandwidth: f64,
    /// How many links it crosses.
    pub hops: u32,
}

/// Said of a source that does not name the models of GPUs.
pub const NO_MODELS: &str = "The models of the GPUs are not in this source.";

/// Said of a source that does not give the rates of NICs.
pub const NO_RATES: &str = "The rates of the NICs are not in this source.";

/// The most GPUs, and the most NICs, one machine is read with.
const MOST_DEVICES: usize = 1024;

/// Reads a description of a machine from any text that has one.
pub fn read(text: &[u8]) -> Result<Topology, Trouble> {
    if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") {
        return Err(Trouble::somewhere("the text is UTF-16; save it as UTF-8"));
    }
    let anchor = Anchor::default();
    let marks = Marks::of(text);
    let mut after = 0;
    let mut lone = None;
    for (number, line) in lines(text) {
        let offset = after;
        after += line.len() + 1;
        let find = |what: &str| memchr::memmem::find(line, what.as_bytes());
        if let Some(at) = find("<system").or_else(|| find("<graphs")) {
            return xml::read(text.get(offset + at..).unwrap_or_default(), number);
        }
        if let Some(line) = anchor.split(&strip::unwrap(line, marks)) {
            if log::is_start(line.message) {
                return log::read(text);
            }
            continue;
        }
        match matrix::start(text, line, after, marks) {
            Some(matrix::Start::Matrix) => return matrix::read(text, number, marks),
            Some(matrix::Start::Header) => lone = lone.or(Some(number)),
            None => {}
        }
    }
    if let Some(number) = lone {
        return matrix::read(text, number, marks);
    }
    Err(Trouble::somewhere(
        "no topology in it: neither a matrix of `nvidia-smi topo -m`, nor XML of NCCL_TOPO_DUMP_FILE or \
         NCCL_GRAPH_DUMP_FILE, nor a log with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=GRAPH",
    ))
}

/// The machine of a case, from its first topology XML or its first matrix that can be read.
///
/// Line numbers are those of the file.
pub fn of_case(case: &Case) -> Option<Topology> {
    let first_line = |spot| case.sources.locate(spot).1;
    let from_xml = case.xml.iter().find_map(|it| {
        let line = it.quote.as_ref().map_or(1, |it| first_line(it.spot));
        xml::read(it.text.as_bytes(), line).ok().filter(|it| !it.machine.gpus.is_empty())
    });
    let from_matrix = || {
        case.matrices.iter().find_map(|it| {
            let (machine, notes) = wiring::machine(it, &first_line).ok()?;
            let line = first_line(it.quote.spot);
            Some(Topology { kind: Kind::Matrix, machine, graphs: Vec::new(), paths: Vec::new(), line, notes })
        })
    };
    from_xml.or_else(from_matrix)
}

/// What network a device is on, as far as its name shows it: the names that udev gives (`rdmap16s27`, `rocep59s0`) and
/// those of the kernel.
pub fn nic_kind(name: &str) -> NicKind {
    let begins = |all: &[&str]| all.iter().any(|it| name.starts_with(it));
    if begins(&["rdmap", "efa"]) {
        NicKind::Efa
    } else if begins(&["roce", "bnxt_re", "hns_"]) {
        // Broadcom's and Huawei's drivers know RoCE only.
        NicKind::Roce
    } else if begins(&["ibp", "ibs", "ibo", "hfi1", "qib", "opa"]) {
        NicKind::InfiniBand
    } else if begins(&["eth", "en", "bond", "lo"]) {
        NicKind::Ethernet
    } else {
        NicKind::Unknown
    }
}

/// A GPU of which only the number and the position are known.
fn blank_gpu(index: u32, at: Place) -> Gpu {
    let (bus, link, model, compute, gpudirect, rank, c2c) = (None, None, None, None, None, None, None);
    Gpu { index, at, bus, link, model, compute, gpudirect, rank, c2c }
}

/// A NIC of which only the name, the number and the position are known.
fn blank_nic(name: &str, index: u32, at: Place) -> Nic {
    let (bus, link, rate, gpudirect, latency) = (None, None, None, None, None);
    Nic {
        name: name.into(),
        index,
        at,
        bus,
        link,
        rate,
        gpudirect,
        latency,
        port: None,
        kind: nic_kind(name),
    }
}

/// A position in a list as a number of a device.
fn number(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

/// The lines with their numbers.
fn lines(text: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    (1..).zip(text.split(|it| *it == b'\n'))
}

/// `1 GPU`, `3 GPUs`.
fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The error for a machine that is too large.
fn check_size(n: usize, what: &str, line: u64) -> Result<(), Trouble> {
    if n <= MOST_DEVICES {
        return Ok(());
    }
    let grouped = |n: usize| if n < 1000 { n.to_string() } else { format!("{},{:03}", n / 1000, n % 1000) };
    let text = format!("{} {what} in one machine; at most {} are read", grouped(n), grouped(MOST_DEVICES));
    Err(Trouble::at(line, text))
}
