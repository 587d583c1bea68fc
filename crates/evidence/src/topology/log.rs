//! A log with lines of the subsystem GRAPH: the machine as one rank saw it, the paths and the graphs it printed.
//!
//! ```text
//! === System : maxBw 12.0 totalBw 240.0 ===
//! ...the tree...
//! ==========================================
//! GPU/0-201c0 :GPU/0-201c0 (0/5000.0/LOC) NET/0-0 (3/12.0/PIX)
//! Pattern 4, crossNic 0, nChannels 1, bw 12.000000/12.000000, type LOC/PIX, sameChannels 1
//!  0 : NET/0-0 GPU/0-201c0 NET/0-0
//! ```
//!
//! The lines of ranks are mixed, so only those of one thread count. NCCL cuts lines at 1023 bytes: a path
//! at the end of a line may be missing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use fabric::{Machine, Version};

use super::tree::Tree;
use super::{Channel, Graph, Kind, Path, Topology, Trouble, check_size, lines, nic_kind};
use crate::prefix::{self, Anchor};
use crate::scan::{between, word_after};
use crate::strip;

pub(super) fn read(text: &[u8]) -> Result<Topology, Trouble> {
    let anchor = Anchor::default();
    let (start, thread) = first_tree(text, &anchor)?;
    let mut reader = Reader::default();
    let mut version = None;
    for (number, line) in lines(text) {
        let line = unwrapped(line);
        // Up to 2.27 the release is on a line without prefix.
        let message = anchor.split(&line).map_or(&*line, |it| it.message);
        if let Some(rest) = String::from_utf8_lossy(message).strip_prefix("NCCL version ") {
            version = version.or(Version::parse(rest));
        }
        let Some(line) = anchor.split(&line) else { continue };
        let message = String::from_utf8_lossy(line.message);
        if line.thread != thread {
            continue;
        }
        if number < start {
            reader.take_device(&message);
        } else if number > start && !reader.take(&message, start)? {
            break;
        }
    }
    let host = prefix::thread(&thread).map(|it| it.host.to_owned());
    Ok(reader.finish(version, start, host))
}

/// Whether a message begins a tree.
pub(super) fn is_start(message: &[u8]) -> bool {
    message.starts_with(b"=== System :")
}

/// The line without what a container runtime put around it.
pub(super) fn unwrapped(line: &[u8]) -> Cow<'_, [u8]> {
    strip::unwrap(line, strip::Marks::default())
}

/// The line and the thread of the first tree that is whole.
fn first_tree(text: &[u8], anchor: &Anchor) -> Result<(u64, Vec<u8>), Trouble> {
    let mut open: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut first = None;
    for (number, line) in lines(text) {
        let line = unwrapped(line);
        let Some(line) = anchor.split(&line) else { continue };
        if is_start(line.message) {
            open.insert(line.thread.to_vec(), number);
            first = first.or(Some(number));
        } else if is_end(line.message)
            && let Some(start) = open.remove(line.thread)
        {
            return Ok((start, line.thread.to_vec()));
        }
    }
    let text = "the tree that begins here is cut, and no rank printed a whole one".to_owned();
    Err(first.map_or_else(|| Trouble::somewhere(&text), |line| Trouble::at(line, &text)))
}

fn is_end(message: &[u8]) -> bool {
    message.starts_with(b"======")
}

/// What one thread printed.
#[derive(Debug, Default)]
struct Reader {
    tree: Tree,
    /// The tree is finished.
    closed: bool,
    paths: Vec<Path>,
    /// The graphs, and their channels as they are written.
    graphs: Vec<(Graph, Vec<String>)>,
    /// `HCA 0 'rdmap0'`: its number, its name, whether it can do GPUDirect.
    devices: Vec<(u32, Box<str>, bool)>,
}

impl Reader {
    /// `NET/Libfabric : GPU Direct RDMA Enabled for HCA 0 'rdmap0'`
    fn take_device(&mut self, message: &str) {
        let enabled = message.contains("GPU Direct RDMA Enabled for HCA ");
        if (enabled || message.contains("GPU Direct RDMA Disabled for HCA "))
            && let Some(index) = word_after(message, " for HCA ").and_then(|it| it.parse().ok())
            && let Some(name) = between(message, "'", "'")
            && self.devices.len() < super::MOST_DEVICES
        {
            self.devices.push((index, name.into(), enabled));
        }
    }

    /// Takes a line after the first of the tree. Whether to go on.
    fn take(&mut self, message: &str, start: u64) -> Result<bool, Trouble> {
        if is_start(message.as_bytes()) {
            return Ok(false);
        }
        if !self.closed {
            self.closed = is_end(message.as_bytes());
            if !self.closed {
                self.tree.take(message);
                let (gpus, nics) = self.tree.size();
                check_size(gpus, "GPUs", start)?;
                check_size(nics, "NICs", start)?;
            }
        } else if let Some(graph) = pattern(message) {
            self.graphs.push((graph, Vec::new()));
        } else if let Some((_, channels)) = self.graphs.last_mut()
            && let Some((number, devices)) = message.split_once(" : ")
            && number.trim().bytes().all(|it| it.is_ascii_digit())
        {
            channels.push(devices.to_owned());
        } else if message.starts_with("GPU/") || message.starts_with("NET/") {
            self.take_paths(message);
        }
        Ok(true)
    }

    /// `GPU/0-201c0 :GPU/0-201c0 (0/5000.0/LOC) NET/0-0 (3/12.0/PIX)`
    fn take_paths(&mut self, message: &str) {
        let Some((from, rest)) = message.split_once(" :") else { return };
        let mut words = rest.split_whitespace();
        while let (Some(to), Some(detail)) = (words.next(), words.next()) {
            let Some(detail) = detail.strip_prefix('(').and_then(|it| it.strip_suffix(')')) else { return };
            let mut parts = detail.splitn(3, '/');
            let hops = parts.next().and_then(|it| it.parse().ok());
            let bandwidth = parts.next().and_then(|it| it.parse().ok()).filter(|it: &f64| it.is_finite());
            let (Some(hops), Some(bandwidth), Some(kind)) = (hops, bandwidth, parts.next()) else { return };
            self.paths.push(Path { from: from.into(), to: to.into(), kind: kind.into(), bandwidth, hops });
        }
    }

    fn finish(self, version: Option<Version>, line: u64, host: Option<String>) -> Topology {
        let (mut machine, notes) = self.tree.finish(version);
        machine.name = host.map(Into::into);
        for (index, name, gpudirect) in self.devices {
            if let Some(nic) = machine.nics.iter_mut().find(|it| it.index == index) {
                (nic.kind, nic.gpudirect, nic.name) = (nic_kind(&name), Some(gpudirect), name);
            }
        }
        let graphs = self
            .graphs
            .into_iter()
            .map(|(mut graph, channels)| {
                graph.channels = channels.iter().map(|it| channel(it, &machine)).collect();
                graph
            })
            .collect();
        machine.unknown.extend(
            [
                "NCCL keeps only the GPUs of the job in its tree; the machine may have more.",
                "GPUs are numbered by their bus, as the driver does; a container may number them differently.",
                "Generation and width of PCI Express are estimated from the bandwidth that NCCL printed.",
            ]
            .map(str::to_owned),
        );
        Topology { kind: Kind::Log, machine, graphs, paths: self.paths, line, notes }
    }
}

/// `Pattern 4, crossNic 0, nChannels 1, bw 12.000000/12.000000, type LOC/PIX, sameChannels 1`
fn pattern(message: &str) -> Option<Graph> {
    let pattern = message.strip_prefix("Pattern ")?.split(',').next()?.parse().ok()?;
    let mut graph = Graph { pattern, ..Graph::default() };
    let number = |name: &str| word_after(message, name).and_then(|it| it.parse::<u32>().ok());
    graph.cross_nic = number("crossNic ").unwrap_or_default();
    graph.n_channels = number("nChannels ").unwrap_or_default();
    graph.same_channels = number("sameChannels ") == Some(1);
    // `speed` before 2.14.
    let speeds = word_after(message, ", bw ").or_else(|| word_after(message, ", speed "));
    if let Some((intra, inter)) = speeds.and_then(|it| it.split_once('/')) {
        let speed = |it: &str| it.parse::<f64>().ok().filter(|it| it.is_finite()).unwrap_or_default();
        (graph.speed_intra, graph.speed_inter) = (speed(intra), speed(inter));
    }
    if let Some((intra, inter)) = word_after(message, ", type ").and_then(|it| it.split_once('/')) {
        (graph.type_intra, graph.type_inter) = (intra.into(), inter.into());
    }
    Some(graph)
}

/// `NET/0-0 GPU/0-201c0 NET/0-0`, before 2.28 `NET/0 GPU/3 NET/0` with ranks.
fn channel(text: &str, machine: &Machine) -> Channel {
    let mut channel = Channel::default();
    for word in text.split_whitespace() {
        let Some((kind, id)) = word.split_once('/') else { continue };
        let on_host = id.split_once('-').map(|it| it.1);
        if kind == "GPU" {
            let bus = on_host.and_then(|it| u64::from_str_radix(it, 16).ok());
            let rank = id.parse().ok();
            let gpu = machine.gpus.iter().find(|it| match bus {
                Some(bus) => it.bus.is_some_and(|it| it.0 == bus),
                None => rank.is_some() && it.rank == rank,
            });
            channel.gpus.extend(gpu.map(|it| it.index));
        } else if kind == "NET" {
            let index = u32::from_str_radix(on_host.unwrap_or(id), 16).ok();
            if channel.gpus.is_empty() {
                channel.net_in = index;
            } else {
                channel.net_out = index;
            }
        }
    }
    channel
}
