//! What NCCL decides for a job, as far as bandwidth depends on it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use fabric::machine::Machine;
use fabric::{Collective, Layout, Settings};
use nccl::{Job, Prediction};

use crate::algorithm::{Algorithm, Candidate};
use crate::cluster::{Allowed, Between, Cluster, Inside};

/// Beyond this many nodes NCCL's choice is that for this many: predicting it takes time, and trees win long before.
const MOST_NODES: u32 = 8;

/// The machine and settings a cluster was made from, from which NCCL's decisions follow.
#[derive(Clone, Default)]
pub struct Origin(Option<Arc<Inner>>);

struct Inner {
    machine: Machine,
    settings: Settings,
    inside: Inside,
    between: Option<Between>,
    allowed: Allowed,
    /// The latest answer with its number of nodes, pods and GPUs.
    latest: Mutex<Option<(Key, Arc<Option<Decided>>)>>,
}

type Key = (u32, u32, u32);

impl Origin {
    pub(crate) fn new(machine: &Machine, settings: &Settings, cluster: &Cluster) -> Self {
        Self(Some(Arc::new(Inner {
            machine: machine.clone(),
            settings: settings.clone(),
            inside: cluster.inside.clone(),
            between: cluster.between,
            allowed: cluster.allowed,
            latest: Mutex::new(None),
        })))
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
            (Some(one), Some(other)) => one.machine == other.machine && one.settings == other.settings,
            (None, None) => true,
            _ => false,
        }
    }
}

/// NCCL's choices for a job.
#[derive(Debug)]
pub(crate) struct Decided {
    prediction: Prediction,
    /// Channels of a rank for sends to one peer.
    pub(crate) per_peer: u32,
}

/// The algorithm of a call, and whether its protocol is the one for low latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) algorithm: Algorithm,
    pub(crate) low_latency: bool,
}

impl Choice {
    /// Whether a candidate is this choice.
    pub(crate) fn is(self, candidate: &Candidate) -> bool {
        candidate.algorithm == self.algorithm && candidate.low_latency == self.low_latency
    }
}

impl Decided {
    /// What NCCL decides on this cluster; `None` where the machine is not known, or was changed since it was described.
    pub(crate) fn new(cluster: &Cluster) -> Option<Arc<Option<Self>>> {
        let inner = cluster.origin.0.as_ref()?;
        let same = inner.inside == cluster.inside
            && inner.between == cluster.between
            && inner.allowed == cluster.allowed
            // NVLink domains of several machines are one node to NCCL, which the prediction does not know.
            && cluster.local() == cluster.gpus;
        if !same {
            return None;
        }
        let key = (cluster.nodes.min(MOST_NODES), cluster.pods, cluster.gpus);
        let mut latest = inner.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, answer)) = latest.as_ref().filter(|it| it.0 == key) {
            return Some(Arc::clone(answer));
        }
        let answer = Arc::new(predict(inner, key));
        *latest = Some((key, Arc::clone(&answer)));
        Some(answer)
    }

    pub(crate) fn choose(&self, collective: Collective, bytes: u64) -> Option<Choice> {
        let choice = self.prediction.choose(collective, bytes)?;
        let algorithm = match choice.algorithm {
            nccl::Algorithm::Tree => Algorithm::Tree,
            nccl::Algorithm::Ring => Algorithm::Ring,
            nccl::Algorithm::Nvls => Algorithm::Nvls,
            nccl::Algorithm::NvlsTree => Algorithm::NvlsTree,
            nccl::Algorithm::CollNetDirect | nccl::Algorithm::CollNetChain | nccl::Algorithm::Pat => {
                return None;
            }
        };
        Some(Choice { algorithm, low_latency: choice.protocol == nccl::tuning::Protocol::Ll })
    }
}

fn predict(inner: &Inner, (nodes, pods, gpus): Key) -> Option<Decided> {
    let layout = Layout::new(pods, gpus).on(nodes);
    let prediction = Prediction::new(&Job::new(&inner.machine, &layout, &inner.settings)).ok()?;
    let per_peer = prediction.p2p.iter().map(|it| it.per_peer).min()?;
    Some(Decided { prediction, per_peer })
}
