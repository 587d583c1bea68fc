//! What one process said, as it is gathered.
//!
//! Facts of parts of the input are joined with `merge`, in the order of the
//! input; reading a file whole or in pieces gives the same facts.

use std::collections::BTreeMap;
use std::sync::Arc;

use fabric::Transport;

use crate::nccl::{
    BootstrapTimings, ChannelCounts, CommLine, Direction, Hca, InitTimings, Interface, Layout, LinkLine,
    Phase, PluginEvent, RingLine, TreeNode, transport,
};
use crate::ofi::Ofi;
use crate::source::{Distinct, Quote, Seen, Spot};

/// What holds for a whole process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProcessFacts {
    /// `NCCL version 2.27.3+cuda12.9`
    pub version: Distinct<Box<str>>,
    /// `cudaDriverVersion 13000`
    pub cuda_driver: Distinct<u32>,
    /// Variables NCCL read: name and value.
    pub environment: Distinct<(Box<str>, Box<str>)>,
    /// `Comm config Blocking set to 1`
    pub comm_config: Distinct<Box<str>>,
    /// The interface of the setup messages.
    pub bootstrap: Distinct<Vec<Interface>>,
    /// The interfaces of the socket network.
    pub sockets: Distinct<Vec<Interface>>,
    /// The InfiniBand and `RoCE` adapters.
    pub hcas: Distinct<Vec<Hca>>,
    /// `NET/IB : No device found.`
    pub no_ib_device: Distinct<()>,
    /// GPUDirect by adapter: name and whether it is enabled.
    pub hca_gpudirect: Distinct<(Box<str>, bool)>,
    /// GPUDirect refused or granted by distance.
    pub gpudirect_by_distance: Distinct<bool>,
    /// Plugins that were loaded, not found, asked for.
    pub plugins: Distinct<PluginEvent>,
    /// The aws-ofi-nccl plugin.
    pub ofi: Ofi,
    /// `NVLS multicast support is [not] available`
    pub nvls: Distinct<bool>,
    /// `DMA-BUF is available on GPU device 0`
    pub dmabuf: Distinct<()>,
    /// `RAS client listening socket at ::1<28028>`
    pub ras: Distinct<Box<str>>,
    /// `TUNER/Plugin: Using tuner plugin nccl_ofi_tuner`
    pub tuner: Distinct<Box<str>>,
    /// `Loading topology file ...`
    pub topology_file: Distinct<Box<str>>,
    /// Warnings: the first ones of each text.
    pub warnings: Warnings,
    /// `FILE:LINE -> CODE`
    pub propagated: Distinct<u32>,
    /// `Using network Libfabric`, by any of its communicators.
    pub networks: Distinct<Arc<str>>,
}

/// The first warnings of a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Warnings {
    /// The first few, with their time where there is one.
    pub first: Vec<(Quote, Option<Box<str>>)>,
    /// All of them.
    pub count: u64,
}

impl Warnings {
    const LIMIT: usize = 8;

    pub(crate) fn note(&mut self, time: Option<&str>, quote: impl FnOnce() -> Quote) {
        self.count += 1;
        if self.first.len() < Self::LIMIT {
            self.first.push((quote(), time.map(Into::into)));
        }
    }

    fn merge(&mut self, later: Self) {
        self.count += later.count;
        let room = Self::LIMIT.saturating_sub(self.first.len());
        self.first.extend(later.first.into_iter().take(room));
    }
}

impl ProcessFacts {
    pub(crate) fn merge(&mut self, later: Self) {
        let Self {
            version,
            cuda_driver,
            environment,
            comm_config,
            bootstrap,
            sockets,
            hcas,
            no_ib_device,
            hca_gpudirect,
            gpudirect_by_distance,
            plugins,
            ofi,
            nvls,
            dmabuf,
            ras,
            tuner,
            topology_file,
            warnings,
            propagated,
            networks,
        } = later;
        self.version.merge(version);
        self.cuda_driver.merge(cuda_driver);
        self.environment.merge(environment);
        self.comm_config.merge(comm_config);
        self.bootstrap.merge(bootstrap);
        self.sockets.merge(sockets);
        self.hcas.merge(hcas);
        self.no_ib_device.merge(no_ib_device);
        self.hca_gpudirect.merge(hca_gpudirect);
        self.gpudirect_by_distance.merge(gpudirect_by_distance);
        self.plugins.merge(plugins);
        self.ofi.merge(ofi);
        self.nvls.merge(nvls);
        self.dmabuf.merge(dmabuf);
        self.ras.merge(ras);
        self.tuner.merge(tuner);
        self.topology_file.merge(topology_file);
        self.warnings.merge(warnings);
        self.propagated.merge(propagated);
        self.networks.merge(networks);
    }
}

/// A connection from one rank to another, over all channels that use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The sending rank.
    pub from: u32,
    /// The receiving rank.
    pub to: u32,
    /// Which side said so.
    pub direction: Direction,
    /// Connections for send and receive (as against collectives).
    pub point_to_point: bool,
    /// How many lines said so.
    pub count: u32,
    /// The channels, as a set of bits (channels above 63 share the last).
    pub channels: u64,
    /// The way, as printed after `via`. The ranks of a job share few.
    pub via: Arc<str>,
    /// What it means; `None` for a text of a release we do not know.
    pub transport: Option<Arc<Transport>>,
    /// The first of the lines.
    pub quote: Quote,
}

impl Link {
    /// The way, if it is understood.
    pub fn transport(&self) -> Option<&Transport> {
        self.transport.as_deref()
    }

    fn is(&self, other: &Self) -> bool {
        self.from == other.from
            && self.to == other.to
            && self.direction == other.direction
            && self.via == other.via
    }
}

/// What is printed after `via`, and what it means.
pub(crate) type Way = (Arc<str>, Option<Arc<Transport>>);

pub(crate) fn way(text: &[u8]) -> Way {
    let text = String::from_utf8_lossy(text);
    (Arc::from(&*text), transport(&text).map(Arc::new))
}

/// `use ring PXN a GDR b`, printed since 2.24.
pub type RingSummary = Option<(bool, bool)>;

/// Connections that are made, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connected(u8);

impl Connected {
    /// `Connected all trees`
    pub const TREES: Self = Self(1);
    /// `Connected binomial trees` (PAT)
    pub const BINOMIAL_TREES: Self = Self(2);
    /// `Connected NVLS tree`
    pub const NVLS: Self = Self(4);
    /// Anything else, such as `Connected CollNet`.
    pub const OTHER: Self = Self(8);

    pub(crate) fn read(text: &[u8]) -> Self {
        if text.starts_with(b"all trees") {
            Self::TREES
        } else if text.starts_with(b"binomial") {
            Self::BINOMIAL_TREES
        } else if text.starts_with(b"NVLS") {
            Self::NVLS
        } else {
            Self::OTHER
        }
    }

    /// Whether all of `other` is in it.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What was said about one communicator by one rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommFacts {
    /// Who the rank is; the fullest line that names the communicator.
    pub line: Option<CommLine>,
    /// `Init START`
    pub start: Option<Quote>,
    /// `Init COMPLETE`
    pub complete: Option<Quote>,
    /// `Destroy COMPLETE`, `Abort COMPLETE`
    pub end: Option<Quote>,
    /// How NCCL counts nodes and local ranks.
    pub layout: Option<Seen<Layout>>,
    /// `Using network Libfabric`
    pub network: Option<Seen<Arc<str>>>,
    /// The rings, by channel (rank 0 only).
    pub rings: Vec<RingLine>,
    /// The first ring line.
    pub ring_quote: Option<Quote>,
    /// This rank's places in the trees.
    pub trees: Option<Seen<Vec<TreeNode>>>,
    /// How many channels.
    pub channels: Option<Seen<ChannelCounts>>,
    /// Time spent finding the other ranks.
    pub bootstrap_timings: Option<Seen<BootstrapTimings>>,
    /// Time spent in all.
    pub init_timings: Option<Seen<InitTimings>>,
    /// The connections this rank made.
    pub links: Vec<Link>,
    /// `Connected all rings[, use ring PXN a GDR b]`
    pub rings_connected: Option<Seen<RingSummary>>,
    /// `Connected all trees`, `Connected NVLS tree`, ...
    pub connected: Connected,
}

/// Connections, before their communicator is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Connections {
    pub(crate) links: Vec<Link>,
    pub(crate) rings: Option<Box<Seen<RingSummary>>>,
    pub(crate) connected: Connected,
}

fn keep<T>(slot: &mut Option<Seen<T>>, value: T, quote: impl FnOnce() -> Quote) {
    match slot {
        Some(seen) => seen.count += 1,
        None => *slot = Some(Seen { value, count: 1, quote: quote() }),
    }
}

fn join<T>(slot: &mut Option<Seen<T>>, later: Option<Seen<T>>) {
    match (slot.as_mut(), later) {
        (Some(mine), Some(later)) => mine.count += later.count,
        (None, later) => *slot = later,
        (Some(_), None) => {}
    }
}

fn first(slot: &mut Option<Quote>, later: Option<Quote>) {
    if slot.is_none() {
        *slot = later;
    }
}

impl CommFacts {
    pub(crate) fn comm(&mut self, line: CommLine, quote: impl FnOnce() -> Quote) {
        let slot = match line.phase {
            Phase::Start | Phase::Named => &mut self.start,
            Phase::Complete => &mut self.complete,
            Phase::End => &mut self.end,
        };
        if slot.is_none() {
            *slot = Some(quote());
        }
        self.line = Some(fuller(self.line.take(), line));
    }

    pub(crate) fn layout(&mut self, value: Layout, quote: impl FnOnce() -> Quote) {
        keep(&mut self.layout, value, quote);
    }

    pub(crate) fn network(&mut self, value: Arc<str>, quote: impl FnOnce() -> Quote) {
        keep(&mut self.network, value, quote);
    }

    pub(crate) fn ring(&mut self, value: RingLine, quote: impl FnOnce() -> Quote) {
        if self.ring_quote.is_none() {
            self.ring_quote = Some(quote());
        }
        self.add_ring(value);
    }

    fn add_ring(&mut self, value: RingLine) {
        if self.rings.len() < 256 && !self.rings.iter().any(|it| it.channel == value.channel) {
            self.rings.push(value);
        }
    }

    pub(crate) fn trees(&mut self, value: Vec<TreeNode>, quote: impl FnOnce() -> Quote) {
        keep(&mut self.trees, value, quote);
    }

    pub(crate) fn channels(&mut self, value: ChannelCounts, quote: impl FnOnce() -> Quote) {
        keep(&mut self.channels, value, quote);
    }

    pub(crate) fn bootstrap_timings(&mut self, value: BootstrapTimings, quote: impl FnOnce() -> Quote) {
        keep(&mut self.bootstrap_timings, value, quote);
    }

    pub(crate) fn init_timings(&mut self, value: InitTimings, quote: impl FnOnce() -> Quote) {
        keep(&mut self.init_timings, value, quote);
    }

    pub(crate) fn connect(&mut self, later: Connections) {
        merge_links(&mut self.links, later.links);
        join(&mut self.rings_connected, later.rings.map(|it| *it));
        self.connected.add(later.connected);
    }

    pub(crate) fn merge(&mut self, later: Self) {
        let Self {
            line,
            start,
            complete,
            end,
            layout,
            network,
            rings,
            ring_quote,
            trees,
            channels,
            bootstrap_timings,
            init_timings,
            links,
            rings_connected,
            connected,
        } = later;
        if let Some(line) = line {
            self.line = Some(fuller(self.line.take(), line));
        }
        first(&mut self.start, start);
        first(&mut self.complete, complete);
        first(&mut self.end, end);
        join(&mut self.layout, layout);
        join(&mut self.network, network);
        for ring in rings {
            self.add_ring(ring);
        }
        first(&mut self.ring_quote, ring_quote);
        join(&mut self.trees, trees);
        join(&mut self.channels, channels);
        join(&mut self.bootstrap_timings, bootstrap_timings);
        join(&mut self.init_timings, init_timings);
        merge_links(&mut self.links, links);
        join(&mut self.rings_connected, rings_connected);
        self.connected.add(connected);
    }
}

/// The first line, completed by what a later one says more.
fn fuller(old: Option<CommLine>, new: CommLine) -> CommLine {
    let Some(old) = old else { return new };
    CommLine {
        cuda_device: old.cuda_device.or(new.cuda_device),
        nvml_device: old.nvml_device.or(new.nvml_device),
        bus_id: old.bus_id.or(new.bus_id),
        comm_id: old.comm_id.or(new.comm_id),
        parent: old.parent.or(new.parent),
        color: old.color.or(new.color),
        ..old
    }
}

/// How many different connections of one rank are kept: more than any rank has peers in rings and trees.
const LINK_LIMIT: usize = 4096;

fn merge_links(links: &mut Vec<Link>, later: Vec<Link>) {
    if links.is_empty() {
        *links = later;
        return;
    }
    for link in later {
        if let Some(known) = links.iter_mut().rev().find(|it| it.is(&link)) {
            known.channels |= link.channels;
            known.count += link.count;
            known.point_to_point |= link.point_to_point;
        } else if links.len() < LINK_LIMIT {
            links.push(link);
        }
    }
}

impl Connections {
    pub(crate) fn link(
        &mut self,
        line: &LinkLine<'_>,
        way: impl FnOnce() -> Way,
        quote: impl FnOnce() -> Quote,
    ) {
        let bit = 1_u64 << line.channel.min(63);
        // Lines about one peer come together: the last link is the likeliest.
        let same = |it: &&mut Link| {
            it.from == line.from
                && it.to == line.to
                && it.direction == line.direction
                && it.via.as_bytes() == line.via
        };
        if let Some(link) = self.links.iter_mut().rev().find(same) {
            link.channels |= bit;
            link.count += 1;
            link.point_to_point |= line.connection > 0;
        } else if self.links.len() < LINK_LIMIT {
            if self.links.len() == self.links.capacity() {
                self.links.reserve_exact(self.links.len().max(2));
            }
            let (via, transport) = way();
            self.links.push(Link {
                from: line.from,
                to: line.to,
                direction: line.direction,
                point_to_point: line.connection > 0,
                count: 1,
                channels: bit,
                via,
                transport,
                quote: quote(),
            });
        }
    }

    pub(crate) fn rings(&mut self, summary: Option<(bool, bool)>, quote: impl FnOnce() -> Quote) {
        match &mut self.rings {
            Some(seen) => seen.count += 1,
            None => self.rings = Some(Box::new(Seen { value: summary, count: 1, quote: quote() })),
        }
    }

    /// Whether `other` says nothing new.
    fn holds(&self, other: &Self) -> bool {
        self.rings.is_some() == other.rings.is_some()
            && self.connected.has(other.connected)
            && other.links.iter().all(|it| self.links.iter().any(|mine| mine.is(it)))
    }

    fn merge(&mut self, later: Self) {
        merge_links(&mut self.links, later.links);
        match (&mut self.rings, later.rings) {
            (Some(mine), Some(later)) => mine.count += later.count,
            (mine @ None, later) => *mine = later,
            (Some(_), None) => {}
        }
        self.connected.add(later.connected);
    }
}

/// What one thread said about one communicator.
///
/// Few lines name their communicator, so lines are gathered into segments by
/// what kind of line may follow which. Whether a line continues a segment
/// depends on what came before, which the reader of a region cannot see: it
/// makes a new segment wherever that could matter, and [`ThreadFacts::push`]
/// joins segments in the order of the input.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Segment {
    /// The communicator's address, once a line names it.
    pub(crate) comm: Option<u64>,
    pub(crate) first: Spot,
    /// The setup, if lines of one were read.
    pub(crate) setup: Option<Box<CommFacts>>,
    pub(crate) connections: Connections,
    /// What the first line is about.
    about: About,
    /// `Init COMPLETE` was read: what follows belongs to another setup, or to connections made later.
    closed: bool,
    /// A `Connected ...` line was read: further connections may be another communicator's.
    connected: bool,
    /// Connections made after a setup was complete.
    later: bool,
}

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// The setup of a communicator that is not named yet.
    Setup,
    /// A communicator that the line names, and whether its setup is over.
    Named(u64, bool),
    /// Connections, and whether they are all made now.
    Connections(bool),
    /// The times of a setup, printed after its end.
    Timings,
}

impl Segment {
    fn new(about: About, first: Spot) -> Self {
        Self {
            comm: None,
            first,
            setup: None,
            connections: Connections::default(),
            about,
            closed: false,
            connected: false,
            later: false,
        }
    }

    fn absorb(&mut self, later: Self) {
        self.comm = self.comm.or(later.comm);
        self.closed |= later.closed;
        self.connected |= later.connected;
        match (&mut self.setup, later.setup) {
            (Some(mine), Some(later)) => mine.merge(*later),
            (mine @ None, later) => *mine = later,
            (Some(_), None) => {}
        }
        self.connections.merge(later.connections);
    }

    /// Everything the segment says.
    pub(crate) fn into_facts(self) -> Box<CommFacts> {
        let mut facts = self.setup.unwrap_or_default();
        facts.connect(self.connections);
        facts
    }
}

/// How many segments one thread may have before equal ones are joined. No job comes near it.
const SEGMENT_LIMIT: usize = 4096;

/// What one thread said, in segments.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ThreadFacts {
    pub(crate) tid: u32,
    pub(crate) segments: Vec<Segment>,
    /// How many segments there may be before equal ones are joined.
    room: usize,
}

impl ThreadFacts {
    pub(crate) fn new(tid: u32) -> Self {
        Self { tid, segments: Vec::new(), room: SEGMENT_LIMIT }
    }

    /// A log that says the same again and again must not fill the memory: joins setups of one
    /// communicator, and connections that say nothing new. The last segment stays as it is.
    fn compact(&mut self) {
        let Some(last) = self.segments.pop() else { return };
        let mut kept: Vec<Segment> = Vec::new();
        let id = |it: &Segment| {
            it.setup.as_ref().and_then(|it| it.line.as_ref()).map(|it| (it.comm_id, it.parent))
        };
        let mut places = BTreeMap::new();
        for segment in std::mem::take(&mut self.segments) {
            let key = (segment.comm, id(&segment));
            let known = places.get(&key).and_then(|at: &usize| kept.get_mut(*at));
            match known {
                Some(mine) if segment.comm.is_some() || mine.connections.holds(&segment.connections) => {
                    mine.absorb(segment);
                }
                _ => {
                    places.insert(key, kept.len());
                    kept.push(segment);
                }
            }
        }
        kept.push(last);
        self.room = (kept.len() * 2).max(SEGMENT_LIMIT);
        self.segments = kept;
    }

    /// The setup that a line adds to.
    pub(crate) fn setup(&mut self, about: About, spot: Spot) -> &mut CommFacts {
        self.segment(about, spot).setup.get_or_insert_default()
    }

    /// The connections that a line adds to.
    pub(crate) fn connections(&mut self, all_made: bool, spot: Spot) -> &mut Connections {
        &mut self.segment(About::Connections(all_made), spot).connections
    }

    fn segment(&mut self, about: About, spot: Spot) -> &mut Segment {
        let continues = self.segments.last().is_some_and(|last| match about {
            About::Named(comm, _) => last.comm == Some(comm),
            About::Setup => !last.closed && matches!(last.about, About::Setup | About::Named(..)),
            About::Connections(_) => !last.closed && !last.connected && last.about != About::Timings,
            About::Timings => true,
        });
        if !continues {
            if self.segments.len() >= self.room {
                self.compact();
            }
            self.segments.push(Segment::new(about, spot));
        }
        let last = self.segments.len() - 1;
        let segment = &mut self.segments[last];
        match about {
            About::Named(comm, complete) => {
                segment.comm = Some(comm);
                segment.closed |= complete;
            }
            About::Connections(all) => segment.connected |= all,
            About::Setup | About::Timings => {}
        }
        segment
    }

    /// Adds what a later part of the input says.
    pub(crate) fn merge(&mut self, later: Self) {
        for segment in later.segments {
            self.push(segment);
        }
    }

    fn push(&mut self, mut segment: Segment) {
        let continues = self.segments.last().is_some_and(|last| match segment.about {
            About::Named(..) => {
                last.comm == segment.comm || (last.comm.is_none() && !last.later && !last.closed)
            }
            About::Setup => !last.later && !last.closed,
            About::Connections(_) => !(last.closed || last.later && last.connected),
            About::Timings => true,
        });
        match self.segments.last_mut() {
            Some(last) if continues => {
                last.absorb(segment);
            }
            last => {
                segment.later = last.is_some() && matches!(segment.about, About::Connections(_));
                self.segments.push(segment);
            }
        }
    }
}
