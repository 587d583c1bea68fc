//! What NCCL decides for a job, as far as bandwidth depends on it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use fabric::machine::{Machine, NicKind};
use fabric::{Collective, Layout, Settings, Version};
use nccl::tuning::Protocol;
use nccl::{Abilities, Job, Prediction};

use crate::algorithm::Algorithm;
use crate::cluster::{Allowed, Between, Cluster, Inside};
use crate::release::Release;
use crate::seen::seen_by_nccl;

/// The machine and settings a cluster was made from, from which NCCL's decisions follow.
#[derive(Clone, Default)]
pub struct Origin(Option<Arc<Inner>>);

struct Inner {
    machine: Machine,
    settings: Settings,
    /// The releases that are possible: one where it is known.
    releases: Vec<Release>,
    inside: Inside,
    between: Option<Between>,
    allowed: Allowed,
    /// The latest answers with their questions, newest last.
    latest: Mutex<Vec<(Asked, Answer)>>,
}

type Answer = Arc<Vec<Decided>>;

/// Beyond this many nodes NCCL's choice is that for this many: predicting it takes time.
const MOST_NODES: u32 = 64;

/// Answers that are kept: one question is often asked again with another network.
const KEPT: usize = 8;

/// What decisions depend on besides the machine and the settings.
#[derive(Debug, Clone, PartialEq)]
struct Asked {
    nodes: u32,
    pods: u32,
    gpus: u32,
    inside: Inside,
    between: Option<Between>,
    allowed: Allowed,
}

impl Origin {
    pub(crate) fn new(
        machine: &Machine,
        settings: &Settings,
        releases: Vec<Release>,
        cluster: &Cluster,
    ) -> Self {
        Self(Some(Arc::new(Inner {
            machine: machine.clone(),
            settings: settings.clone(),
            releases,
            inside: cluster.inside.clone(),
            between: cluster.between,
            allowed: cluster.allowed,
            latest: Mutex::default(),
        })))
    }

    /// The same where the release of NCCL, that of aws-ofi-nccl, or neither is known.
    pub(crate) fn of_release(
        &self,
        cluster: &Cluster,
        nccl: Option<Version>,
        plugin: Option<Version>,
    ) -> Self {
        self.with_releases(cluster, |_| Release::known(cluster, nccl, plugin))
    }

    /// The same with the newest of the possible releases.
    pub(crate) fn of_newest_release(&self, cluster: &Cluster) -> Self {
        self.with_releases(cluster, |all| all.last().copied().into_iter().collect())
    }

    /// The oldest and the newest release of NCCL that is possible.
    pub(crate) fn releases(&self) -> Option<(Version, Version)> {
        let all = || self.0.iter().flat_map(|it| &it.releases).map(|it| it.nccl);
        all().min().zip(all().max())
    }

    fn with_releases(&self, cluster: &Cluster, releases: impl FnOnce(&[Release]) -> Vec<Release>) -> Self {
        let Some(inner) = &self.0 else { return Self::default() };
        Self::new(&inner.machine, &inner.settings, releases(&inner.releases), cluster)
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Origin(machine)" } else { "Origin" })
    }
}

impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => {
                one.machine == other.machine
                    && one.settings == other.settings
                    && one.releases == other.releases
            }
            (None, None) => true,
            _ => false,
        }
    }
}

/// NCCL's choices for a job by one release.
#[derive(Debug)]
pub(crate) struct Decided {
    prediction: Prediction,
    /// Channels of a rank for sends to one peer.
    per_peer: u32,
    /// Channels of NVLS.
    nvls_channels: u32,
    /// Whether each chunk that arrives is flushed through the NIC.
    flushes: bool,
}

/// What NCCL chooses for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Algorithm and protocol; `None` for what NCCL builds from sends and receives.
    pub(crate) kind: Option<(Algorithm, Protocol)>,
    /// Channels of a rank for sends to one peer.
    pub(crate) per_peer: u32,
    /// Channels of NVLS, each with one GPU that reaches the network.
    pub(crate) nvls_channels: u32,
    /// Bytes that all channels of one GPU send at once, where each chunk that arrives is flushed through the NIC.
    pub(crate) flushed: Option<u64>,
    /// Channels for the sends of a rank to one peer, for the bytes of this call.
    pub(crate) of_message: u32,
}

impl Decided {
    /// What NCCL decides on this cluster, by release; nothing where the machine is not known or cannot be decided for.
    pub(crate) fn new(cluster: &Cluster) -> Answer {
        let Some(inner) = cluster.origin.0.as_ref() else { return Answer::default() };
        let asked = Asked {
            nodes: cluster.nodes.min(MOST_NODES),
            pods: cluster.pods,
            gpus: cluster.gpus,
            inside: cluster.inside.clone(),
            between: cluster.between,
            allowed: cluster.allowed,
        };
        let mut latest = inner.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, answer)) = latest.iter().find(|it| it.0 == asked) {
            return Arc::clone(answer);
        }
        let decided = inner.releases.iter().filter_map(|it| predict(inner, *it, &asked));
        let answer = Arc::new(decided.collect());
        if latest.len() >= KEPT {
            latest.remove(0);
        }
        latest.push((asked, Arc::clone(&answer)));
        answer
    }

    pub(crate) fn choose(&self, collective: Collective, bytes: u64) -> Choice {
        let chosen = self.prediction.choose(collective, bytes);
        let flushed = chosen.filter(|_| self.flushes).map(|it| u64::from(it.channels) * it.chunk);
        let kind = chosen.and_then(|choice| {
            let algorithm = match choice.algorithm {
                nccl::Algorithm::Tree => Algorithm::Tree,
                nccl::Algorithm::Ring => Algorithm::Ring,
                nccl::Algorithm::Nvls => Algorithm::Nvls,
                nccl::Algorithm::NvlsTree => Algorithm::NvlsTree,
                nccl::Algorithm::Pat => Algorithm::Pat,
                nccl::Algorithm::CollNetDirect | nccl::Algorithm::CollNetChain => return None,
            };
            Some((algorithm, choice.protocol))
        });
        let ranks = self.prediction.communicator.n_ranks as u64;
        let message = if collective == Collective::SendRecv { bytes } else { bytes.div_ceil(ranks.max(1)) };
        let of_message = self.prediction.channels_of_message(0, message).unwrap_or(self.per_peer);
        let of_message = if kind.is_some() { self.per_peer } else { of_message };
        Choice { kind, per_peer: self.per_peer, nvls_channels: self.nvls_channels, flushed, of_message }
    }
}

fn predict(inner: &Inner, release: Release, asked: &Asked) -> Option<Decided> {
    let mut settings = Settings { version: release.nccl, ..inner.settings.clone() };
    let mut machine = inner.machine.clone();
    // What was changed since the machine was described.
    if asked.inside != inner.inside {
        match asked.inside {
            Inside::Pci { peer_to_peer: false } => settings = settings.with("NCCL_P2P_DISABLE", "1"),
            Inside::Pci { peer_to_peer: true } => machine.nvlinks.clear(),
            Inside::Switch { .. } | Inside::Mesh { .. } => {}
        }
    }
    if !asked.allowed.nvls && inner.allowed.nvls {
        settings = settings.with("NCCL_NVLS_ENABLE", "0");
    }
    if let (Some(now), Some(before)) = (asked.between, inner.between) {
        if now.kind == NicKind::Ethernet && before.kind != now.kind {
            settings = settings.with("NCCL_NET", "Socket");
        }
        if now.gpudirect != before.gpudirect {
            machine.nics.iter_mut().for_each(|it| it.gpudirect = Some(now.gpudirect));
        }
        if now.nics < before.nics {
            // Every so-and-so-many-th of them.
            let count = machine.nics.len();
            let (keep, all) = (now.nics as usize, before.nics as usize);
            let is_kept = |it: usize| it * keep / all < (it + 1) * keep / all;
            let kept = (0..all).filter(|it| is_kept(*it)).filter_map(|it| machine.nics.get(it).cloned());
            machine.nics = kept.collect();
            if machine.nics.is_empty() || machine.nics.len() > count {
                return None;
            }
        }
    }
    let machine = seen_by_nccl(&machine, &settings);
    let layout = Layout::new(asked.pods, asked.gpus).on(asked.nodes);
    let domain = match asked.inside {
        Inside::Switch { domain, .. } if asked.pods == 1 => {
            domain / u32::try_from(inner.machine.gpus.len()).ok()?.max(1)
        }
        _ => 1,
    };
    let mut job = Job::new(&machine, &layout, &settings);
    job.plugin = Some(release.plugin);
    job.abilities = Abilities { domain, ..Abilities::default() };
    let prediction = Prediction::new(&job).ok()?;
    let per_peer = prediction.p2p.iter().map(|it| it.per_peer).min()?;
    let nvls_channels = u32::try_from(prediction.communicator.connected.nvls_channels).ok()?;
    let flushes = release.flushes(&machine);
    Some(Decided { prediction, per_peer, nvls_channels, flushes })
}
