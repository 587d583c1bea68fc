//! What one process said, as it is gathered.
//!
//! Facts of parts of the input are joined with `merge`, in the order of the
//! input; reading a file whole or in pieces gives the same facts.

use fabric::Transport;

use crate::nccl::{
    BootstrapTimings, ChannelCounts, CommLine, Direction, Hca, InitTimings, Interface, Layout, LinkLine, Phase, PluginEvent, RingLine,
    TreeNode, transport,
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
            version, cuda_driver, environment, comm_config, bootstrap, sockets, hcas, no_ib_device, hca_gpudirect,
            gpudirect_by_distance, plugins, ofi, nvls, dmabuf, ras, tuner, topology_file, warnings, propagated,
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
    }
}

/// A connection from one rank to another, over all channels that use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The sending rank.
    pub from: u32,
    /// The receiving rank.
    pub to: u32,
    /// The sender's device, as printed.
    pub from_device: u64,
    /// The receiver's device.
    pub to_device: u64,
    /// Which side said so.
    pub direction: Direction,
    /// The text after `via`.
    pub via: Box<str>,
    /// What it means; `None` for a text of a release we do not know.
    pub transport: Option<Transport>,
    /// The channels, as a set of bits (channels above 63 share the last).
    pub channels: u64,
    /// Connections for send and receive (as against collectives).
    pub point_to_point: bool,
    /// How many lines said so.
    pub count: u64,
    /// The first of them.
    pub quote: Quote,
}

/// What one thread said about one communicator.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Segment {
    /// The communicator's address, once a line names it.
    pub(crate) comm: Option<u64>,
    /// `Init COMPLETE` was read: a new setup begins a new segment.
    pub(crate) closed: bool,
    /// The first thing of the segment is the choice of a network, which begins a setup.
    opens: bool,
    pub(crate) first: Spot,
    pub(crate) facts: CommFacts,
}

/// What was said about one communicator by one rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommFacts {
    /// `Init START`
    pub start: Option<Seen<CommLine>>,
    /// `Init COMPLETE`
    pub complete: Option<Seen<CommLine>>,
    /// `Destroy COMPLETE`, `Abort COMPLETE`
    pub end: Option<Seen<CommLine>>,
    /// How NCCL counts nodes and local ranks.
    pub layout: Option<Seen<Layout>>,
    /// `Using network Libfabric`
    pub network: Option<Seen<Box<str>>>,
    /// The rings, by channel (rank 0 only).
    pub rings: Vec<RingLine>,
    /// The first ring line.
    pub ring_quote: Option<Quote>,
    /// This rank's places in the trees.
    pub trees: Option<Seen<Vec<TreeNode>>>,
    /// How many channels.
    pub channels: Option<Seen<ChannelCounts>>,
    /// The connections this rank made.
    pub links: Vec<Link>,
    /// `Connected all rings[, use ring PXN a GDR b]`
    pub rings_connected: Option<Seen<Option<(bool, bool)>>>,
    /// `Connected all trees`, `Connected NVLS tree`, ...
    pub connected: Distinct<Box<str>>,
    /// Time spent finding the other ranks.
    pub bootstrap_timings: Option<Seen<BootstrapTimings>>,
    /// Time spent in all.
    pub init_timings: Option<Seen<InitTimings>>,
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

impl CommFacts {
    pub(crate) fn comm(&mut self, line: CommLine, quote: impl FnOnce() -> Quote) {
        match line.phase {
            Phase::Start | Phase::Named => keep(&mut self.start, line, quote),
            Phase::Complete => keep(&mut self.complete, line, quote),
            Phase::End => keep(&mut self.end, line, quote),
        }
    }

    pub(crate) fn layout(&mut self, value: Layout, quote: impl FnOnce() -> Quote) {
        keep(&mut self.layout, value, quote);
    }

    pub(crate) fn network(&mut self, value: Box<str>, quote: impl FnOnce() -> Quote) {
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

    pub(crate) fn rings_connected(&mut self, summary: Option<(bool, bool)>, quote: impl FnOnce() -> Quote) {
        keep(&mut self.rings_connected, summary, quote);
    }

    pub(crate) fn bootstrap_timings(&mut self, value: BootstrapTimings, quote: impl FnOnce() -> Quote) {
        keep(&mut self.bootstrap_timings, value, quote);
    }

    pub(crate) fn init_timings(&mut self, value: InitTimings, quote: impl FnOnce() -> Quote) {
        keep(&mut self.init_timings, value, quote);
    }

    /// How many different connections of one rank are kept: more than any rank has peers in rings and trees.
    const LINK_LIMIT: usize = 4096;

    pub(crate) fn link(&mut self, line: &LinkLine<'_>, quote: impl FnOnce() -> Quote) {
        let bit = 1_u64 << line.channel.min(63);
        // Lines about one peer come together: the last link is the likeliest.
        let same = |it: &&mut Link| {
            it.from == line.from && it.to == line.to && it.direction == line.direction && it.via.as_bytes() == line.via
        };
        if let Some(link) = self.links.iter_mut().rev().find(same) {
            link.channels |= bit;
            link.count += 1;
            link.point_to_point |= line.connection > 0;
        } else if self.links.len() < Self::LINK_LIMIT {
            let via: Box<str> = String::from_utf8_lossy(line.via).into();
            self.links.push(Link {
                from: line.from,
                to: line.to,
                from_device: line.from_device,
                to_device: line.to_device,
                direction: line.direction,
                transport: transport(&via),
                via,
                channels: bit,
                point_to_point: line.connection > 0,
                count: 1,
                quote: quote(),
            });
        }
    }

    fn add_link(&mut self, later: Link) {
        let same = |it: &&mut Link| {
            it.from == later.from && it.to == later.to && it.direction == later.direction && it.via == later.via
        };
        if let Some(link) = self.links.iter_mut().rev().find(same) {
            link.channels |= later.channels;
            link.count += later.count;
            link.point_to_point |= later.point_to_point;
        } else if self.links.len() < Self::LINK_LIMIT {
            self.links.push(later);
        }
    }

    pub(crate) fn merge(&mut self, later: Self) {
        let Self {
            start, complete, end, layout, network, rings, ring_quote, trees, channels, links, rings_connected, connected,
            bootstrap_timings, init_timings,
        } = later;
        join(&mut self.start, start);
        join(&mut self.complete, complete);
        join(&mut self.end, end);
        join(&mut self.layout, layout);
        join(&mut self.network, network);
        rings.into_iter().for_each(|it| self.add_ring(it));
        if self.ring_quote.is_none() {
            self.ring_quote = ring_quote;
        }
        join(&mut self.trees, trees);
        join(&mut self.channels, channels);
        links.into_iter().for_each(|it| self.add_link(it));
        join(&mut self.rings_connected, rings_connected);
        self.connected.merge(connected);
        join(&mut self.bootstrap_timings, bootstrap_timings);
        join(&mut self.init_timings, init_timings);
    }
}

impl Segment {
    fn new(first: Spot, opens: bool) -> Self {
        Self { comm: None, closed: false, opens, first, facts: CommFacts::default() }
    }
}

/// The segments of one thread, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ThreadFacts {
    pub(crate) tid: u32,
    pub(crate) segments: Vec<Segment>,
}

impl ThreadFacts {
    /// The segment that a line without a communicator's address belongs to.
    pub(crate) fn current(&mut self, spot: Spot) -> &mut CommFacts {
        if self.segments.is_empty() {
            self.segments.push(Segment::new(spot, false));
        }
        let last = self.segments.len() - 1;
        &mut self.segments[last].facts
    }

    /// The segment of a line that begins a setup (`Using network`).
    pub(crate) fn opening(&mut self, spot: Spot) -> &mut CommFacts {
        if self.segments.last().is_none_or(|it| it.closed) {
            self.segments.push(Segment::new(spot, true));
        }
        self.current(spot)
    }

    /// The segment of a line that names its communicator.
    pub(crate) fn named(&mut self, comm: u64, complete: bool, spot: Spot) -> &mut CommFacts {
        match self.segments.last_mut() {
            Some(last) if last.comm.is_none() || last.comm == Some(comm) => {}
            _ => self.segments.push(Segment::new(spot, false)),
        }
        if let Some(last) = self.segments.last_mut() {
            last.comm = Some(comm);
            last.closed |= complete;
        }
        self.current(spot)
    }

    pub(crate) fn merge(&mut self, later: Self) {
        for segment in later.segments {
            let continues = self.segments.last().is_some_and(|last| {
                let same = segment.comm.is_none() || last.comm.is_none() || last.comm == segment.comm;
                same && !(last.closed && segment.opens)
            });
            match self.segments.last_mut() {
                Some(last) if continues => {
                    last.comm = last.comm.or(segment.comm);
                    last.closed |= segment.closed;
                    last.facts.merge(segment.facts);
                }
                _ => self.segments.push(segment),
            }
        }
    }
}
