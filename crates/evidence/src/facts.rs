//! What the lines of one process say.
//!
//! Facts of parts of the input are joined with `merge`, in the order of the
//! input; reading a file whole or in pieces gives the same facts.

use std::sync::Arc;

use fabric::Transport;
use messages::Entry;

use crate::nccl::{
    BootstrapTimings, ChannelCounts, CommLine, Direction, Hca, InitTimings, Interface, Layout, Phase,
    PluginEvent, RingLine, Trees, transport,
};
use crate::plugin::PluginFacts;
use crate::segment::Connections;
use crate::source::{Distinct, Quote, Seen};

/// What holds for a whole process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProcessFacts {
    /// `NCCL version 2.27.3+cuda12.9`
    pub version: Distinct<Box<str>>,
    /// `cudaDriverVersion 13000`
    pub cuda_driver: Distinct<u32>,
    /// Variables NCCL read.
    pub environment: Distinct<Assignment>,
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
    /// GPUDirect by adapter.
    pub hca_gpudirect: Distinct<AdapterGpuDirect>,
    /// GPUDirect refused or granted by distance.
    pub gpudirect_by_distance: Distinct<bool>,
    /// Plugins that were loaded, not found, requested.
    pub plugins: Distinct<PluginEvent>,
    /// What the network plugin printed.
    pub plugin: PluginFacts,
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
    /// Ordinary lines that word a trouble and that no parser reads.
    pub troubles: Warnings,
    /// `FILE:LINE -> CODE`
    pub propagated: Distinct<u32>,
    /// `Using network Libfabric`, by any of its communicators.
    pub networks: Distinct<Arc<str>>,
    /// `plumb: data in host memory, no GPU`
    pub host_memory: Distinct<()>,
}

/// A name and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// `NCCL_DEBUG`
    pub name: Box<str>,
    /// `INFO`
    pub value: Box<str>,
}

/// Whether an adapter can use GPUDirect RDMA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterGpuDirect {
    /// `mlx5_0`
    pub adapter: Box<str>,
    /// Whether NCCL enabled it.
    pub enabled: bool,
}

/// A warning of NCCL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The line.
    pub quote: Quote,
    /// Its time, where it has one.
    pub time: Option<Box<str>>,
    /// What it is known as; [`Warning::found`] has the values in it.
    pub entry: Option<&'static Entry>,
}

/// The first warnings of a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Warnings {
    /// The first few, and of one wording at most three.
    pub first: Vec<Warning>,
    /// All of them.
    pub count: u64,
}

impl Warnings {
    const LIMIT: usize = 24;
    const ALIKE: usize = 3;

    pub(crate) fn note(
        &mut self,
        time: Option<&str>,
        entry: Option<&'static Entry>,
        quote: impl FnOnce() -> Quote,
    ) {
        self.count += 1;
        if self.has_room(entry) {
            self.first.push(Warning { quote: quote(), time: time.map(Into::into), entry });
        }
    }

    fn has_room(&self, entry: Option<&'static Entry>) -> bool {
        let same = |it: &&Warning| it.entry.zip(entry).is_some_and(|(kept, new)| std::ptr::eq(kept, new));
        self.first.len() < Self::LIMIT
            && (entry.is_none() || self.first.iter().filter(same).count() < Self::ALIKE)
    }

    fn merge(&mut self, later: Self) {
        self.count += later.count;
        for warning in later.first {
            if self.has_room(warning.entry) {
                self.first.push(warning);
            }
        }
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
            plugin,
            nvls,
            dmabuf,
            ras,
            tuner,
            topology_file,
            warnings,
            troubles,
            propagated,
            networks,
            host_memory,
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
        self.plugin.merge(plugin);
        self.nvls.merge(nvls);
        self.dmabuf.merge(dmabuf);
        self.ras.merge(ras);
        self.tuner.merge(tuner);
        self.topology_file.merge(topology_file);
        self.warnings.merge(warnings);
        self.troubles.merge(troubles);
        self.propagated.merge(propagated);
        self.networks.merge(networks);
        self.host_memory.merge(host_memory);
    }
}

/// A connection from one rank to another, over all channels that use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The sending rank.
    pub from: u32,
    /// The receiving rank.
    pub to: u32,
    /// Which side printed it.
    pub direction: Direction,
    /// Connections for send and receive (as against collectives).
    pub point_to_point: bool,
    /// How many lines say so.
    pub count: u32,
    /// The channels, as a set of bits (channels above 63 share the last).
    pub channels: u64,
    /// The transport, as printed after `via`. The ranks of a job share few.
    pub via: Arc<str>,
    /// What it means; `None` for the text of an unknown release.
    pub transport: Option<Arc<Transport>>,
    /// The first of the lines.
    pub quote: Quote,
}

impl Link {
    /// The transport, if it is understood.
    pub fn transport(&self) -> Option<&Transport> {
        self.transport.as_deref()
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.from == other.from
            && self.to == other.to
            && self.direction == other.direction
            && self.via == other.via
    }
}

/// What is printed after `via`, and what it means.
#[derive(Debug, Clone)]
pub(crate) struct Via {
    pub(crate) text: Arc<str>,
    pub(crate) transport: Option<Arc<Transport>>,
}

impl Via {
    pub(crate) fn new(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        Self { text: Arc::from(&*text), transport: transport(&text).map(Arc::new) }
    }
}

/// `use ring PXN a GDR b`, printed since 2.24: whether all ranks of the ring have each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingSummary {
    /// Some rank sends through another GPU's NIC.
    pub pxn: bool,
    /// Every network connection has GPUDirect RDMA.
    pub gpudirect: bool,
}

/// Connections that are open, as a set.
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

/// What the lines of one rank say about one communicator.
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
    /// This rank's positions in the trees.
    pub trees: Option<Seen<Trees>>,
    /// How many channels.
    pub channels: Option<Seen<ChannelCounts>>,
    /// Time spent finding the other ranks.
    pub bootstrap_timings: Option<Seen<BootstrapTimings>>,
    /// Time spent in all.
    pub init_timings: Option<Seen<InitTimings>>,
    /// The connections this rank made.
    pub links: Vec<Link>,
    /// `Connected all rings[, use ring PXN a GDR b]`
    pub rings_connected: Option<Seen<Option<RingSummary>>>,
    /// `Connected all trees`, `Connected NVLS tree`, ...
    pub connected: Connected,
}

impl CommFacts {
    /// How many seconds of the setup the rank waited for others to join, and the line that says so.
    pub fn waited(&self) -> Option<(f64, &Quote)> {
        match (self.init_timings.as_ref().filter(|it| it.value.split), &self.bootstrap_timings) {
            (Some(it), _) => Some((it.value.rest, &it.quote)),
            (None, Some(it)) => Some((it.value.total, &it.quote)),
            (None, None) => None,
        }
    }

    /// The line in which NCCL reports that some rank of the ring does not use GPUDirect.
    pub fn ring_without_gpudirect(&self) -> Option<&Quote> {
        let seen = self.rings_connected.as_ref()?;
        matches!(seen.value, Some(RingSummary { gpudirect: false, .. })).then_some(&seen.quote)
    }
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

    pub(crate) fn trees(&mut self, value: Trees, quote: impl FnOnce() -> Quote) {
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
pub(crate) const LINK_LIMIT: usize = 4096;

pub(crate) fn merge_links(links: &mut Vec<Link>, later: Vec<Link>) {
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
