//! What carries the data of a job: the transport inside a node, the network, GPUDirect.

use evidence::{MemberLink, Quote, plugin};
use fabric::machine::NicKind;
use fabric::{Network, Transport};
use forecast::training::{Inter, Intra, Job, JobError};

use crate::Log;

/// The paths that a log shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Paths {
    /// Whether ranks of one node exchange data through host memory (SHM), or directly (P2P).
    pub host_memory: Option<Path<bool>>,
    /// The network between nodes.
    pub network: Option<Path<NicKind>>,
    /// Whether NICs reach the memory of GPUs.
    pub gpudirect: Option<Path<bool>>,
}

/// A value and a line that shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Path<T> {
    /// What it is.
    pub value: T,
    /// Where.
    pub quote: Quote,
}

impl<T> Path<T> {
    fn new(value: T, quote: &Quote) -> Self {
        Self { value, quote: quote.clone() }
    }
}

impl Paths {
    pub(super) fn of(log: &Log, notes: &mut Vec<String>) -> Self {
        // Connections of sends and receives may take other ways than those of collectives.
        let links = || log.case.links().filter(|it| !it.link.point_to_point);
        let through = |wanted: fn(&Transport) -> bool| {
            links().find(|it| it.link.transport().is_some_and(wanted)).map(|it| &it.link.quote)
        };
        let shared = through(|it| *it == Transport::Shm);
        let direct = through(|it| matches!(it, Transport::P2p { .. }));
        let host_memory = match (shared, direct) {
            (Some(quote), None) => Some(Path::new(true, quote)),
            (None, Some(quote)) => Some(Path::new(false, quote)),
            (Some(quote), Some(_)) => {
                notes.push(
                    "some ranks of a node exchange data through host memory: a ring is as slow as these"
                        .to_owned(),
                );
                Some(Path::new(true, quote))
            }
            (None, None) => None,
        };
        let mut networks: Vec<(NicKind, &Quote, bool)> = Vec::new();
        let mut elsewhere = None;
        for MemberLink { link, member, .. } in links() {
            let Some((name, _, gpudirect)) = link.transport().and_then(Transport::network) else { continue };
            let Some(kind) = kind(log, name) else { continue };
            match networks.iter_mut().find(|it| it.0 == kind) {
                Some(known) => known.2 &= gpudirect,
                None => networks.push((kind, &link.quote, gpudirect)),
            }
            elsewhere = elsewhere.or_else(|| member.facts.ring_without_gpudirect());
        }
        if let [first, second, ..] = networks.as_slice() {
            notes.push(format!(
                "the log shows {} and {}: the first in it is taken",
                first.0.network(),
                second.0.network()
            ));
        }
        let used = networks.first();
        let gpudirect = used.map(|it| match elsewhere.filter(|_| it.2) {
            Some(ring) => {
                notes.push(
                    "the ranks in the log use GPUDirect, but NCCL reports GDR 0 for the ring: the ring is as slow as the rank without it"
                        .to_owned(),
                );
                Path::new(false, ring)
            }
            None => Path::new(it.2, it.1),
        });
        let chosen = || {
            let seen = log.case.networks().next()?;
            Some(Path::new(kind(log, &seen.value)?, &seen.quote))
        };
        Self { host_memory, network: used.map(|it| Path::new(it.0, it.1)).or_else(chosen), gpudirect }
    }

    /// The same job over these paths.
    pub(super) fn apply(&self, job: &Job) -> Result<Job, JobError> {
        let mut changed = job.clone();
        if let Some(it) = &self.host_memory {
            changed.cluster.intra = inside(job, it.value);
        }
        if let Some(kind) = self.network.as_ref().map(|it| it.value)
            && changed.cluster.inter.is_some_and(|it| it.kind != kind)
        {
            changed = match kind {
                NicKind::Ethernet => changed.with("network=tcp")?,
                _ => {
                    changed.cluster.inter = changed.cluster.inter.map(|it| Inter { kind, ..it });
                    changed
                }
            };
        }
        if let (Some(it), Some(inter)) = (&self.gpudirect, &mut changed.cluster.inter) {
            inter.gpudirect = it.value && inter.kind != NicKind::Ethernet;
        }
        Ok(changed)
    }

    /// In words: `EFA without GPUDirect, SHM inside a node`.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(network) = &self.network {
            let gpudirect = match self.gpudirect.as_ref().map(|it| it.value) {
                _ if network.value == NicKind::Ethernet => "",
                Some(true) => " with GPUDirect",
                Some(false) => " without GPUDirect",
                None => "",
            };
            words.push(format!("{}{gpudirect} between nodes", network.value.network()));
        }
        if let Some(inside) = &self.host_memory {
            words.push(format!("{} inside a node", if inside.value { "SHM" } else { "P2P" }));
        }
        words
    }
}

/// How the GPUs of a node exchange data if it is through host memory, or directly.
pub(super) fn inside(job: &Job, host_memory: bool) -> Intra {
    let model = fabric::gpu::find(job.cluster.gpu.name);
    let generation = model.and_then(|it| it.pcie_gen).unwrap_or(4);
    match (host_memory, job.cluster.intra) {
        (false, intra @ (Intra::NvLink { .. } | Intra::Pci { .. })) => intra,
        (_, intra) => Intra::pci(generation, !host_memory).unwrap_or(intra),
    }
}

/// The kind of a network by its name in NCCL's log.
fn kind(log: &Log, name: &str) -> Option<NicKind> {
    match plugin::network(name)? {
        Network::Socket => Some(NicKind::Ethernet),
        Network::Ib => {
            let of_machine = log.job.model().map(|it| it.network);
            Some(of_machine.filter(|it| *it == NicKind::Roce).unwrap_or(NicKind::InfiniBand))
        }
        Network::Libfabric => Some(NicKind::Efa),
    }
}
