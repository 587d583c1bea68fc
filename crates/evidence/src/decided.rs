//! The lines in which a log says what NCCL decided: graphs, rings, trees, channel counts and the tuning table of each rank.
//!
//! The reader is total: a line of another form is passed over. Lines are kept as NCCL wrote them, so that they can be compared.

use std::collections::{BTreeMap, BTreeSet};

use crate::prefix::Anchor;
use crate::scan::word_after;
use crate::strip;

/// One communicator of one rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decided {
    /// The rank in the communicator.
    pub rank: Option<u32>,
    /// How many ranks it has.
    pub ranks: Option<u32>,
    /// How many nodes, as NCCL counts them.
    pub nodes: Option<u32>,
    /// How many ranks of this node.
    pub local_ranks: Option<u32>,
    /// The rank among those of its node.
    pub local_rank: Option<u32>,
    /// `commId`, which all ranks of the communicator print.
    pub id: Option<u64>,
    /// The colour of the split that made it.
    pub color: Option<i64>,
    /// The bus id of the rank's GPU.
    pub bus: Option<u64>,
    /// The number that NVML gives this GPU.
    pub device: Option<u32>,
    /// What stands before its lines: `host:pid:tid [0]`.
    pub thread: Vec<u8>,
    /// `NCCL_HOSTID`, which stands for the name of the host.
    pub host_id: Option<String>,
    /// Whether it spans an NVLink domain of several machines.
    pub mnnvl: bool,
    /// Whether the GPU can use multicast (NVLS).
    pub multicast: Option<bool>,
    /// The network: `IB`, `Socket`, `Libfabric`.
    pub network: Option<String>,
    /// The latency that aws-ofi-nccl declares, in microseconds.
    pub latency: Option<f64>,
    /// Whether it found a network that reduces (`CollNet`).
    pub collnet: bool,
    /// The NICs that connections of its process use with GPUDirect, by NCCL's numbers.
    pub direct: BTreeSet<u32>,
    /// The line at which the system begins that this rank found.
    pub system: Option<u64>,
    /// Whether the system was printed to its end.
    pub whole: bool,
    /// The GPUs of that system, as it names them, sorted.
    pub gpus: Vec<String>,
    /// The tree of that system without ranks and numbers of cards, by which nodes that are alike are known.
    pub tree: String,
    /// The lines, in the order of the log.
    pub lines: Vec<DecidedLine>,
}

/// A line about a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedLine {
    /// The line of the file, from 1.
    pub number: u64,
    /// What it is about.
    pub kind: DecidedKind,
    /// The message, without what stands before it.
    pub text: String,
}

/// What a line is about; first what the rest follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DecidedKind {
    /// `Pattern 4, crossNic 0, nChannels 8, ...`
    Graph,
    /// ` 0 : NET/0-0 GPU/0-201c0 ...`
    GraphChannel,
    /// `16 coll channels, ...`
    Counts,
    /// `Channel 00/16 : 0 7 6 ...`
    RingList,
    /// `Ring 00 : 8 -> 0 -> 7`
    Ring,
    /// `Tree 0 : -1 -> 0 -> 1/8/-1`
    Tree,
    /// `Trees [0] 1/8/-1->0->-1 ...`
    Trees,
    /// `NVLS Head  0:  0  8`
    NvlsHead,
    /// `P2P Chunksize set to 131072`
    Chunk,
    /// A line of the tuning table.
    Table,
    /// `threadThresholds 8/8/64 | ...`
    Thresholds,
    /// `AllReduce: 1024 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}`
    Call,
}

impl DecidedKind {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Graph,
        Self::GraphChannel,
        Self::Counts,
        Self::RingList,
        Self::Ring,
        Self::Tree,
        Self::Trees,
        Self::NvlsHead,
        Self::Chunk,
        Self::Table,
        Self::Thresholds,
        Self::Call,
    ];

    /// The kind of a message; `None` for any other.
    pub fn of(message: &str) -> Option<Self> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        let begins = |text: &str| message.starts_with(text);
        if begins("Pattern ") {
            return Some(Self::Graph);
        }
        if begins("Trees [") {
            return Some(Self::Trees);
        }
        if begins("NVLS Head ") {
            return Some(Self::NvlsHead);
        }
        if begins("P2P Chunksize set to ") {
            return Some(Self::Chunk);
        }
        if begins("threadThresholds ") {
            return Some(Self::Thresholds);
        }
        if message.contains(" coll channels, ") {
            return Some(Self::Counts);
        }
        if message.contains(" Bytes -> Algo ") {
            return Some(Self::Call);
        }
        if message.trim_end().ends_with('|') && message.contains(" |") {
            return Some(Self::Table);
        }
        let (head, rest) = message.split_once(" :")?;
        if digits(head.trim_start()) && (rest.starts_with(" NET/") || rest.starts_with(" GPU/")) {
            return Some(Self::GraphChannel);
        }
        let (word, number) = head.split_once(' ')?;
        let ranks = || rest.trim_start().bytes().all(|it| it.is_ascii_digit() || b" .".contains(&it));
        match word {
            "Channel" if ranks() => Some(Self::RingList),
            "Ring" if digits(number) => Some(Self::Ring),
            "Tree" if digits(number) => Some(Self::Tree),
            _ => None,
        }
    }

    /// What it is about, in NCCL's words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Graph => "Pattern",
            Self::GraphChannel => "channels of Pattern",
            Self::Counts => "coll channels",
            Self::RingList => "Channel",
            Self::Ring => "Ring",
            Self::Tree => "Tree",
            Self::Trees => "Trees",
            Self::NvlsHead => "NVLS Head",
            Self::Chunk => "P2P Chunksize",
            Self::Table => "tuning table",
            Self::Thresholds => "threadThresholds",
            Self::Call => "calls",
        }
    }
}

/// What a process prints once.
#[derive(Default)]
struct Said {
    network: Option<String>,
    host_id: Option<String>,
    latency: Option<f64>,
    direct: BTreeSet<u32>,
}

/// The communicators of a log that show a decision, in the order in which they begin.
pub fn decided(text: &[u8]) -> Vec<Decided> {
    let anchor = Anchor::default();
    let mut all: Vec<Decided> = Vec::new();
    let mut current: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    // What a process prints before its first communicator counts for all that follow.
    let mut before: BTreeMap<Vec<u8>, Said> = BTreeMap::new();
    for (number, line) in (1..).zip(text.split(|it| *it == b'\n')) {
        let line = strip::unwrap(line, strip::Marks::default());
        let Some(line) = anchor.split(&line) else { continue };
        let message = String::from_utf8_lossy(line.message);
        let message = message.trim_end_matches(['\r', '\n']);
        let process = process(line.thread);
        if let Some(name) = message.strip_prefix("Using network ") {
            before.entry(process.clone()).or_default().network = Some(name.trim().to_owned());
        }
        if let Some(id) = message.strip_prefix("NCCL_HOSTID set by environment to ") {
            before.entry(process.clone()).or_default().host_id = Some(id.trim_end_matches('.').to_owned());
        }
        if let Some(latency) = word_after(message, "Internode latency set at ").and_then(|it| it.parse().ok())
        {
            before.entry(process.clone()).or_default().latency = Some(latency);
        }
        if let Some(nic) = direct(message) {
            before.entry(process.clone()).or_default().direct.insert(nic);
        }
        if message.ends_with("Init START") || !current.contains_key(line.thread) {
            current.insert(line.thread.to_vec(), all.len());
            all.push(Decided { thread: line.thread.to_vec(), ..Decided::default() });
        }
        let Some(one) = current.get(line.thread).and_then(|it| all.get_mut(*it)) else { continue };
        if let Some(said) = before.get(&process) {
            one.network.clone_from(&said.network);
            one.host_id.clone_from(&said.host_id);
            one.latency = said.latency;
        }
        one.take(number, message);
    }
    all.retain(|it| !it.lines.is_empty());
    for one in &mut all {
        // Of a log that ends in the middle of a system, it is another machine.
        if !one.whole {
            one.system = None;
            one.tree.clear();
            one.gpus.clear();
        }
        // Connections are made after the setup, often by another thread.
        if let Some(said) = before.get(&process(&one.thread)) {
            one.direct.clone_from(&said.direct);
        }
    }
    all
}

/// The NIC of `Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/3/GDRDMA`; `None` without GPUDirect.
fn direct(message: &str) -> Option<u32> {
    let (_, path) = message.split_once(" via NET/")?;
    let mut parts = path.split('/');
    // With PXN the rank that sends stands behind the NIC: `3(5)`.
    let nic = parts.find_map(|it| it.split('(').next()?.parse::<u32>().ok())?;
    parts.any(|it| it.starts_with("GDRDMA")).then_some(nic)
}

/// The lines from which the system of one rank is read: what its process printed before the system (the NICs), and what its
/// thread printed from there until it began another communicator.
pub fn system_lines(text: &[u8], one: &Decided) -> Vec<u8> {
    let anchor = Anchor::default();
    let (start, own) = (one.system.unwrap_or(u64::MAX), process(&one.thread));
    let mut kept = Vec::new();
    for (number, line) in (1..).zip(text.split_inclusive(|it| *it == b'\n')) {
        let bare = strip::unwrap(line.trim_ascii_end(), strip::Marks::default());
        let Some(split) = anchor.split(&bare) else {
            // Up to 2.27 the release is on a line without prefix.
            if bare.starts_with(b"NCCL version ") {
                kept.extend_from_slice(line);
            }
            continue;
        };
        let wanted = if number < start {
            process(split.thread) == own && !split.message.starts_with(b"===")
        } else {
            if number > start && split.thread == one.thread && split.message.ends_with(b"Init START") {
                break;
            }
            split.thread == one.thread
        };
        if wanted {
            kept.extend_from_slice(line);
        }
    }
    kept
}

/// `host` of `host:pid:tid [0]`.
pub fn host(thread: &[u8]) -> &[u8] {
    thread.split(|it| *it == b':').next().unwrap_or_default()
}

/// `host:pid` of `host:pid:tid [0]`.
fn process(thread: &[u8]) -> Vec<u8> {
    let end = thread.iter().rposition(|it| *it == b':').unwrap_or(thread.len());
    thread.get(..end).unwrap_or_default().to_vec()
}

impl Decided {
    /// `+ PCI[48.0] - GPU/0-201c0 (0)` as far as nodes have it in common.
    fn grow(&mut self, message: &str) {
        self.tree.push_str(message.split(" (").next().unwrap_or_default());
        self.tree.push('\n');
    }

    fn take(&mut self, number: u64, message: &str) {
        if let Some(kind) = DecidedKind::of(message) {
            self.lines.push(DecidedLine { number, kind, text: message.to_owned() });
        } else if message.starts_with("=== System :") {
            self.system = Some(number);
            self.whole = false;
            self.tree.clear();
        } else if message.starts_with("=====") {
            self.whole = true;
        } else if let Some((_, gpu)) = message.split_once("] - GPU/") {
            // A link to another GPU names it a second time.
            let name = gpu.split(' ').next().unwrap_or_default().to_owned();
            if let Err(place) = self.gpus.binary_search(&name) {
                self.gpus.insert(place, name);
            }
            self.grow(message);
        } else if message.starts_with("CPU/") || message.contains("] - ") {
            self.grow(message);
        } else if message.contains("NVLS multicast support is ") {
            self.multicast = Some(!message.contains("is not available"));
        } else if message.contains(" [send] via COLLNET/") || message.contains(" [receive] via COLLNET/") {
            self.collnet = true;
        } else if message.contains("comm 0x") && message.contains(" rank ") {
            let number = |name: &str| word_after(message, name).and_then(|it| it.parse::<u32>().ok());
            self.rank = self.rank.or_else(|| number(" rank "));
            self.ranks = self.ranks.or_else(|| number(" nranks ").or_else(|| number(" nRanks ")));
            self.nodes = self.nodes.or_else(|| number(" nNodes "));
            self.local_ranks = self.local_ranks.or_else(|| number(" localRanks "));
            self.local_rank = self.local_rank.or_else(|| number(" localRank "));
            self.device = self.device.or_else(|| number(" nvmlDev "));
            let hex = |name: &str| word_after(message, name).and_then(|it| u64::from_str_radix(it, 16).ok());
            self.bus = self.bus.or_else(|| hex(" busId "));
            self.id = self.id.or_else(|| hex(" commId 0x").filter(|it| *it != 0));
            self.color = self.color.or_else(|| word_after(message, " color ")?.parse().ok());
            self.mnnvl |= number(" MNNVL ").is_some_and(|it| it > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DecidedKind, decided, direct};

    #[test]
    fn connections_show_nics_with_gpudirect() {
        let at = |via: &str| direct(&format!("Channel 00/0 : 1[1] -> 8[0] [send] via {via}"));
        assert_eq!(at("NET/IB/3/GDRDMA"), Some(3));
        assert_eq!(at("NET/AWS Libfabric/0(1)/GDRDMA/Shared"), Some(0));
        assert_eq!(at("NET/Libfabric/1/GDRDMA(PCI)/Shared"), Some(1));
        assert_eq!(at("NET/IB/3"), None);
        assert_eq!(at("P2P/CUMEM"), None);
    }

    #[test]
    fn kinds_are_told_apart() {
        for (line, kind) in [
            ("Pattern 4, crossNic 0, nChannels 1", Some(DecidedKind::Graph)),
            (" 0 : NET/0-0 GPU/0-201c0 NET/0-0", Some(DecidedKind::GraphChannel)),
            ("Channel 00/16 :  0  7  6", Some(DecidedKind::RingList)),
            ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", None),
            ("Ring 00 : 8 -> 0 -> 7", Some(DecidedKind::Ring)),
            ("Tree 0 : -1 -> 0 -> 1/8/-1", Some(DecidedKind::Tree)),
            ("Trees [0] 1/-1/-1->0->-1", Some(DecidedKind::Trees)),
            (" Max NThreads |            512 |", Some(DecidedKind::Table)),
            ("threadThresholds 8/8/64 | 128/8/64 | 512 | 512", Some(DecidedKind::Thresholds)),
            ("GPU/0-201c0 :GPU/0-201c0 (0/5000.0/LOC)", None),
        ] {
            assert_eq!(DecidedKind::of(line), kind, "{line}");
        }
    }

    #[test]
    fn ranks_of_one_log_are_kept_apart() {
        let log = "\
            a:1:2 [0] NCCL INFO Using network IB\n\
            a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1 commId 0x9 - Init START\n\
            b:3:4 [0] NCCL INFO ncclCommInitRank comm 0x2 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 1 commId 0x9 - Init START\n\
            a:1:2 [0] NCCL INFO NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)\n\
            b:3:4 [0] NCCL INFO Ring 00 : 0 -> 1 -> 0\n\
            a:1:2 [0] NCCL INFO Ring 00 : 1 -> 0 -> 1\n\
            a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n";
        let all = decided(log.as_bytes());
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].rank, all[0].ranks, all[0].nodes), (Some(0), Some(2), Some(2)));
        assert_eq!((all[0].network.as_deref(), all[0].multicast), (Some("IB"), Some(false)));
        assert_eq!((all[0].lines[0].number, &*all[0].lines[0].text), (6, "Ring 00 : 1 -> 0 -> 1"));
        assert_eq!((all[1].rank, all[1].network.as_deref()), (Some(1), None));
    }
}
