//! Rings and trees over all ranks (`src/graph/connect.cc`).

use crate::search::max_channels;
use crate::trees::double;
use crate::{Graphs, Pattern, Settings};

/// The channels of a communicator; NCCL's `ncclTopoPreset` and `ncclTopoPostset` (`src/graph/connect.cc`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connected {
    /// The rings that differ.
    pub rings: Vec<Ring>,
    /// The trees that differ: twice as many as rings.
    pub trees: Vec<Tree>,
    /// Of each channel its ring and its tree.
    pub channels: Vec<ConnectedChannel>,
    /// The channels collectives use; `NN coll channels` in the log is the length of [`Connected::channels`], which are more where
    /// NVLS has more.
    pub coll_channels: usize,
    /// `NN nvls channels`.
    pub nvls_channels: usize,
    /// The ranks that pull from the `NVSwitch`es, head by head: one of each node.
    pub nvls_heads: Vec<Vec<u32>>,
}

/// A channel, by what it uses. Channels that NCCL copies share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectedChannel {
    /// An index into [`Connected::rings`].
    pub ring: usize,
    /// An index into [`Connected::trees`].
    pub tree: usize,
}

/// A ring over all ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ring {
    /// The rank before each rank.
    pub prev: Vec<u32>,
    /// The rank after each rank.
    pub next: Vec<u32>,
}

/// A tree over all ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// The links of each rank.
    pub ranks: Vec<TreeLinks>,
}

/// The place of a rank in a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TreeLinks {
    /// The parent.
    pub up: Option<u32>,
    /// The children.
    pub down: [Option<u32>; 3],
}

/// A node that is connected to others.
#[derive(Debug, Clone)]
pub(crate) struct Member<'a> {
    pub(crate) graphs: &'a Graphs,
    /// The rank of each GPU, by its position in the machine.
    pub(crate) ranks: Vec<Option<u32>>,
}

impl Member<'_> {
    fn rank(&self, gpu: usize) -> u32 {
        self.ranks.get(gpu).copied().flatten().unwrap_or(0)
    }

    fn ring(&self, channel: usize) -> Vec<u32> {
        self.graphs.ring.channels[channel].intra.iter().map(|it| self.rank(*it)).collect()
    }

    fn tree(&self, channel: usize) -> Vec<u32> {
        self.graphs.tree.channels[channel].intra.iter().map(|it| self.rank(*it)).collect()
    }

    /// The ranks that pull from the `NVSwitch`es, each once.
    fn heads(&self) -> Vec<u32> {
        let mut heads = Vec::new();
        for channel in &self.graphs.nvls.channels {
            let head = channel.intra.first().map_or(0, |it| self.rank(*it));
            if !heads.contains(&head) {
                heads.push(head);
            }
        }
        heads
    }
}

/// What all ranks know of each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Common<'a> {
    pub(crate) settings: &'a Settings,
    /// The graphs with the minima of all ranks.
    pub(crate) agreed: &'a Graphs,
    pub(crate) ranks: usize,
    pub(crate) min_compute: u32,
    pub(crate) collnet: bool,
    pub(crate) nvls_channels: usize,
}

/// Connects the channels of all nodes, in the order of their numbers.
pub(crate) fn connect(nodes: &[Member<'_>], common: Common<'_>) -> Connected {
    let searched = common.agreed.ring.channels.len().min(common.agreed.tree.channels.len());
    let mut connected = Connected {
        rings: rings(nodes, searched, common),
        trees: trees(nodes, searched, common.ranks),
        ..Connected::default()
    };
    // The second half has the rings of the first and the second tree.
    let tree = |tree: usize| ConnectedChannel { ring: tree % searched, tree };
    connected.channels = (0..(searched * 2).min(max_channels(common.settings))).map(tree).collect();
    connected.set_channels(nodes.len(), common);
    connected.connect_nvls(nodes, common);
    connected
}

impl Connected {
    /// How many channels the kernels use.
    fn set_channels(&mut self, nodes: usize, common: Common<'_>) {
        let settings = common.settings;
        let most = max_channels(settings);
        let chain = &common.agreed.collnet_chain;
        if common.collnet && chain.bw_intra > chain.bw_inter && common.ranks > nodes {
            let channels = self.channels.len();
            self.copy(most.min(channels + channels / 2));
        }
        // Four channels of kernels for each of the search where it takes that many to fill the links.
        let channels = self.channels.len();
        let few = if settings.since(2, 20, 3) { channels < 16 } else { channels * 2 <= most };
        let new = if settings.since(2, 25, 1) { common.min_compute >= 90 } else { common.min_compute == 90 };
        if new && nodes > 1 && common.agreed.ring.bw_intra > 45.0 && few {
            self.copy(channels * 2);
        }
        let limits = Limits::new(settings);
        self.channels.truncate(limits.max_channels.min(limits.max_ctas));
        self.copy(limits.min_channels.max(limits.min_ctas));
        self.coll_channels = self.channels.len();
    }

    /// Copies channels from the first on until there are this many.
    fn copy(&mut self, wanted: usize) {
        let had = self.channels.len();
        for channel in had..wanted {
            self.channels.push(self.channels[channel - had]);
        }
    }

    fn connect_nvls(&mut self, nodes: &[Member<'_>], common: Common<'_>) {
        let heads: Vec<Vec<u32>> = nodes.iter().map(Member::heads).collect();
        let count = heads.iter().map(Vec::len).min().unwrap_or(0);
        self.nvls_heads = (0..count).map(|head| heads.iter().map(|it| it[head]).collect()).collect();
        // 2.20.3 to 2.27: as many channels as NVLS has, whatever was asked for.
        if common.settings.since(2, 20, 3) && !common.settings.since(2, 28, 3) {
            self.copy(common.nvls_channels);
        }
        self.nvls_channels = if count == 0 { 0 } else { common.nvls_channels };
    }
}

/// The limits of variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    max_channels: usize,
    min_channels: usize,
    pub(crate) max_ctas: usize,
    pub(crate) min_ctas: usize,
}

impl Limits {
    /// `NCCL_MIN_NCHANNELS`, `NCCL_MAX_NCHANNELS` with their old names, and `NCCL_MIN_CTAS`, `NCCL_MAX_CTAS` (`src/init.cc`,
    /// `envConfigOverride`).
    pub(crate) fn new(settings: &Settings) -> Self {
        let most = max_channels(settings);
        let number = |name: &str| Some(settings.number(name, -2)).filter(|it| *it != -2);
        let within = |it: i64, least: usize| usize::try_from(it).unwrap_or(0).clamp(least, most);
        let either = |new: &str, old: &str| number(new).or_else(|| number(old));
        let max_channels = either("NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS").map_or(most, |it| within(it, 1));
        let min_channels = either("NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS").map_or(0, |it| within(it, 0));
        // Since 2.27 a limit below 1 is ignored.
        let ctas = |name: &str| {
            let set =
                settings.text(name).map(|_| settings.number(name, i64::MIN)).filter(|it| *it != i64::MIN);
            set.filter(|it| *it > 0 || !settings.since(2, 27, 3)).map(|it| within(it, 0))
        };
        let max_ctas = ctas("NCCL_MAX_CTAS").unwrap_or(most);
        let min_ctas = ctas("NCCL_MIN_CTAS").unwrap_or(1).min(max_ctas);
        Self { max_channels, min_channels, max_ctas, min_ctas }
    }
}

/// The rings: through each node in the order that was found, from the last GPU of a node to the first of the next.
fn rings(nodes: &[Member<'_>], searched: usize, common: Common<'_>) -> Vec<Ring> {
    let mut rings = vec![Ring { prev: vec![0; common.ranks], next: vec![0; common.ranks] }; searched];
    for (channel, ring) in rings.iter_mut().enumerate() {
        let part = |node: usize| {
            let other = if alternates(nodes, node, searched, common) { channel ^ 1 } else { channel };
            nodes[node].ring(other)
        };
        let first = part(0);
        let mut here = first.clone();
        for node in 0..nodes.len() {
            for pair in here.windows(2) {
                ring.join(pair[0], pair[1]);
            }
            let next = if node + 1 == nodes.len() { first.clone() } else { part(node + 1) };
            if let (Some(&last), Some(&next)) = (here.last(), next.first()) {
                ring.join(last, next);
            }
            here = next;
        }
    }
    rings
}

/// Whether a node exchanges each two of its rings, so that a ring that changes the NIC in a node comes in by the NIC of the same
/// number in the next.
fn alternates(nodes: &[Member<'_>], node: usize, searched: usize, common: Common<'_>) -> bool {
    let settings = common.settings;
    let since = |minor, patch| settings.since(2, minor, patch);
    if node.is_multiple_of(2) || !searched.is_multiple_of(2) {
        return false;
    }
    let (own, agreed) = (nodes[node].graphs.ring.cross_nic, common.agreed.ring.cross_nic);
    if since(28, 3) {
        own == 2
    } else if since(26, 2) {
        agreed == 2
    } else if since(21, 5) {
        agreed != 0
    } else {
        since(20, 3) && own != 0 && nodes.len().is_multiple_of(2)
    }
}

impl Ring {
    fn join(&mut self, from: u32, to: u32) {
        self.next[from as usize] = to;
        self.prev[to as usize] = from;
    }

    /// The ranks in their order, from one on; as many as there are even if the ring does not close.
    pub fn order(&self, from: u32) -> Vec<u32> {
        let next = |it: &u32| self.next.get(*it as usize).copied();
        std::iter::successors(Some(from), next).take(self.next.len()).collect()
    }
}

/// The trees: chains inside nodes, and over nodes two binary trees.
fn trees(nodes: &[Member<'_>], searched: usize, ranks: usize) -> Vec<Tree> {
    let mut trees = vec![Tree { ranks: vec![TreeLinks::default(); ranks] }; searched * 2];
    let places: Vec<_> = (0..nodes.len()).map(|node| double(nodes.len(), node)).collect();
    for channel in 0..searched {
        let chains: Vec<Vec<u32>> = nodes.iter().map(|it| it.tree(channel)).collect();
        let ends: Vec<Ends> =
            nodes.iter().zip(&chains).map(|it| Ends::new(it.0.graphs.tree.pattern, it.1)).collect();
        for which in 0..2 {
            let tree = &mut trees[which * searched + channel];
            for chain in &chains {
                for pair in chain.windows(2) {
                    tree.ranks[pair[0] as usize].down[0] = Some(pair[1]);
                    tree.ranks[pair[1] as usize].up = Some(pair[0]);
                }
            }
            for (end, place) in ends.iter().zip(&places) {
                let place = place[which];
                if let Some(up) = place.up {
                    tree.ranks[end.parent as usize].up = Some(ends[up].children[place.child]);
                }
                for (child, down) in end.children.iter().zip(place.down) {
                    if let Some(down) = down {
                        tree.ranks[*child as usize].add(ends[down].parent);
                    }
                }
            }
        }
    }
    trees
}

/// The ranks of a node that talk to other nodes.
struct Ends {
    /// To the parent.
    parent: u32,
    /// To the two children.
    children: [u32; 2],
}

impl Ends {
    fn new(pattern: Pattern, chain: &[u32]) -> Self {
        let at = |step: usize| chain.get(step).or_else(|| chain.first()).copied().unwrap_or(0);
        let first = usize::from(pattern != Pattern::Tree);
        let second = usize::from(pattern == Pattern::SplitTree);
        Self { parent: at(0), children: [at(first), at(second)] }
    }
}

impl TreeLinks {
    fn add(&mut self, child: u32) {
        if let Some(free) = self.down.iter_mut().find(|it| it.is_none()) {
            *free = Some(child);
        }
    }
}
