//! NCCL's decisions on one machine as plain data: every path, the NICs of every GPU, the transports of all pairs of ranks, and
//! what the layout loses.

use fabric::Transport;
use fabric::machine::{Gpu, Machine};

use crate::{Decisions, Device, Loss, NearNics, Path, PathType, Reason};

/// NCCL's decisions on one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Survey {
    /// From every GPU to every other GPU and every NIC; empty for a machine of more than [`Survey::GPUS`] GPUs.
    pub paths: Vec<SurveyedPath>,
    /// The NICs of every GPU that reaches one.
    pub nics: Vec<NicUse>,
    /// The transports between ranks, alike ones together, in the order in which they first occur.
    pub transports: Vec<TransportUse>,
    /// What this layout loses compared with one pod that owns the whole machine.
    pub losses: Vec<Loss>,
}

/// The path from a GPU to another device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SurveyedPath {
    /// The GPU, by its position in the machine.
    pub from: usize,
    /// The other device.
    pub to: Device,
    /// The path NCCL uses.
    pub path: Path,
    /// The path by the wires alone.
    pub wires: Path,
    /// Whether the bandwidth rests on what is known about the machine, not on NCCL's default for unknown links.
    pub known: bool,
}

/// The NICs next to a GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct NicUse {
    /// The GPU, by its position in the machine.
    pub gpu: usize,
    /// Its NICs.
    pub near: NearNics,
    /// Whether the share rests on what is known about the machine.
    pub known: bool,
}

/// Which ranks a transport joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// Ranks of one pod.
    InsidePod,
    /// Ranks of two pods on one machine.
    Pods,
    /// Ranks of two machines.
    Machines,
}

/// Pairs of ranks that have one transport for one reason.
#[derive(Debug, Clone, PartialEq)]
pub struct TransportUse {
    /// Which ranks.
    pub between: Between,
    /// How many pairs, both directions counted.
    pub pairs: u64,
    /// The sender of the first pair.
    pub from: u64,
    /// The receiver of the first pair.
    pub to: u64,
    /// The transport of the first pair; `None` where NCCL stops with `No transport found`.
    pub transport: Option<Transport>,
    /// Why.
    pub reason: Reason,
}

impl Survey {
    /// With more GPUs than this, paths are left out and transports are those of the first ranks: both grow with the square.
    pub const GPUS: usize = 64;

    fn new(decisions: &Decisions, machine: &Machine) -> Self {
        Self {
            paths: paths(decisions, machine),
            nics: nics(decisions, machine),
            transports: transports(decisions),
            losses: decisions.losses(),
        }
    }
}

impl Decisions {
    /// All decisions on one machine; `machine` is the one they were made for.
    pub fn survey(&self, machine: &Machine) -> Survey {
        Survey::new(self, machine)
    }
}

fn paths(decisions: &Decisions, machine: &Machine) -> Vec<SurveyedPath> {
    let n = machine.gpus.len();
    if n > Survey::GPUS {
        return Vec::new();
    }
    let paths = &decisions.whole;
    let mut all = Vec::new();
    for from in 0..n {
        for to in (0..n).filter(|it| *it != from) {
            let path = paths.gpu_to_gpu(from, to);
            all.push(SurveyedPath {
                from,
                to: Device::Gpu(to),
                path,
                wires: paths.gpu_wires(from, to),
                known: gpu_path_is_known(machine, path.kind, from, to),
            });
        }
        for to in 0..machine.nics.len() {
            all.push(SurveyedPath {
                from,
                to: Device::Nic(to),
                path: paths.gpu_to_nic(from, to),
                wires: paths.nic_wires(from, to),
                known: nic_path_is_known(machine, from, to),
            });
        }
    }
    all
}

fn nics(decisions: &Decisions, machine: &Machine) -> Vec<NicUse> {
    let all = (0..machine.gpus.len()).filter_map(|gpu| {
        let near = decisions.whole.near_nics(gpu)?;
        let known = near.nics.iter().all(|&nic| nic_path_is_known(machine, gpu, nic));
        Some(NicUse { gpu, near, known })
    });
    all.collect()
}

fn gpu_path_is_known(machine: &Machine, kind: PathType, from: usize, to: usize) -> bool {
    let both = |test: fn(&Gpu) -> bool| [from, to].iter().all(|it| machine.gpus.get(*it).is_some_and(test));
    match kind {
        PathType::Nvl | PathType::Nvb => both(|it| it.compute.is_some()),
        _ => both(|it| it.link.is_some()),
    }
}

fn nic_path_is_known(machine: &Machine, gpu: usize, nic: usize) -> bool {
    machine.nics.get(nic).is_some_and(|it| it.rate.is_some())
        && machine.gpus.get(gpu).is_some_and(|it| it.link.is_some() || it.c2c.is_some())
}

fn transports(decisions: &Decisions) -> Vec<TransportUse> {
    let layout = decisions.layout();
    let local = layout.ranks_per_node();
    let shown = local.min(Survey::GPUS as u64);
    let nodes = u64::from(layout.nodes);
    let pod = |rank: u64| rank / u64::from(layout.gpus_per_pod.max(1));
    let mut found = Vec::new();
    for from in 0..shown {
        for to in (0..shown).filter(|it| *it != from) {
            let between = if pod(from) == pod(to) { Between::InsidePod } else { Between::Pods };
            add(&mut found, decisions, (from, to), between, nodes);
        }
    }
    // All machines are alike: the first two of a domain represent every two of one, the first of two domains the others. The last
    // domain may have fewer.
    let domain = u64::from(decisions.domain.max(1)).min(nodes);
    let (whole, rest) = (nodes / domain, nodes % domain);
    let inside = whole * domain * (domain - 1) + rest * rest.saturating_sub(1);
    let across = nodes.saturating_mul(nodes - 1) - inside;
    for (machine, pairs) in [(1, inside), (domain, across)].into_iter().filter(|it| it.1 > 0) {
        for from in 0..shown {
            for to in 0..shown {
                add(&mut found, decisions, (from, machine * local + to), Between::Machines, pairs);
            }
        }
    }
    found
}

/// Adds this many pairs that are like this one.
fn add(
    found: &mut Vec<TransportUse>,
    decisions: &Decisions,
    (from, to): (u64, u64),
    between: Between,
    pairs: u64,
) {
    let Some(decision) = decisions.transport(from, to) else { return };
    let (transport, reason) = (decision.transport, decision.reason);
    let alike = |it: &&mut TransportUse| {
        it.between == between
            && same_transport(it.transport.as_ref(), transport.as_ref())
            && same_reason(it.reason, reason)
    };
    match found.iter_mut().find(alike) {
        Some(seen) => seen.pairs = seen.pairs.saturating_add(pairs),
        None => found.push(TransportUse { between, pairs, from, to, transport, reason }),
    }
}

/// Over the network whichever device and whichever rank sends.
fn same_transport(one: Option<&Transport>, other: Option<&Transport>) -> bool {
    match (one, other) {
        (
            Some(Transport::Net { network, gpudirect, through, .. }),
            Some(Transport::Net { network: other, gpudirect: direct, through: by, .. }),
        ) => network == other && gpudirect == direct && through.is_some() == by.is_some(),
        _ => one == other,
    }
}

/// Through whichever GPU.
fn same_reason(one: Reason, other: Reason) -> bool {
    matches!((one, other), (Reason::ThroughGpu { .. }, Reason::ThroughGpu { .. })) || one == other
}
