//! How one rank reaches another, and why.
//!
//! NCCL tries P2P, then shared memory, then the network, and uses the first that works.

use std::fmt;

use fabric::settings::{Level, Origin};
use fabric::{P2pKind, Transport, Version};

use crate::decisions::LocalRank;
use crate::{Decisions, Path, PathType, Paths, VisibleDevice};

/// How one rank reaches another.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// As the sender has it; `None` where NCCL stops with `No transport found`. The NIC is that of send and receive on
    /// channel 0: a ring or tree may leave the node by the NIC of another GPU.
    pub transport: Option<Transport>,
    /// As the receiver has it, where it can differ: over the network.
    pub received: Option<Transport>,
    /// The path between the GPUs, or to the NIC.
    pub path: Option<Path>,
    /// Why.
    pub reason: Reason,
}

/// Why NCCL uses a transport.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// Peer access is possible and allowed.
    Near {
        /// The path between the GPUs.
        path: PathType,
    },
    /// NVLink, through another GPU.
    ThroughGpu {
        /// The index of that GPU.
        gpu: u32,
    },
    /// The GPUs are too far apart for P2P, so shared memory.
    TooFar {
        /// The path between the GPUs by the wires, before the detour through the CPU.
        path: PathType,
        /// How far P2P is allowed.
        level: Level,
        /// The release that says so.
        version: Version,
    },
    /// The ranks are on different machines.
    OtherMachine,
    /// The ranks are on different machines of one NVLink domain.
    NvlinkDomain,
    /// The ranks are on one machine, in pods with different host names.
    OtherHostName,
    /// The ranks are on one machine, in pods that do not share `/dev/shm`.
    OtherSharedMemory,
    /// The NICs of both GPUs are faster than the path between the GPUs.
    NetFaster {
        /// What the slower of the two NICs gives, in GB/s.
        net: f64,
        /// What the path between the GPUs gives.
        direct: f64,
    },
    /// NCCL cut the node between the two GPUs because their NICs are faster; since 2.30 it still uses shared memory there.
    CutNode,
    /// P2P is not possible, and `NCCL_SHM_DISABLE` forbids shared memory.
    NoSharedMemory {
        /// The path between the GPUs.
        path: PathType,
        /// How far P2P is allowed.
        level: Level,
    },
    /// Neither P2P nor shared memory are possible, and `NCCL_NET_DISABLE_INTRA` forbids the network inside a node.
    Nothing,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Near { path: PathType::Nvl } => f.write_str("the GPUs are joined by NVLink"),
            Self::Near { path } => {
                write!(f, "the GPUs reach each other over {} ({path}), near enough for P2P", path.meaning())
            }
            Self::ThroughGpu { gpu } => write!(f, "the GPUs are joined by NVLink through GPU {gpu}"),
            Self::TooFar { path, level, version } => {
                write!(f, "the path between the GPUs crosses {} ({path}) and ", path.meaning())?;
                match level.origin {
                    Origin::Release => write!(f, "NCCL {version} allows P2P only up to {} here", level.kind),
                    Origin::Variable("NCCL_P2P_DISABLE") => f.write_str("NCCL_P2P_DISABLE=1 forbids P2P"),
                    Origin::Variable(name) => write!(f, "{name} allows P2P only up to {}", level.kind),
                }
            }
            Self::OtherMachine => f.write_str("the ranks are on different machines"),
            Self::NvlinkDomain => {
                f.write_str("the machines are in one NVLink domain; IMEX has to run on all of them")
            }
            Self::OtherHostName => {
                f.write_str("the pods have different host names, so NCCL counts them as two nodes")
            }
            Self::OtherSharedMemory => {
                f.write_str("the pods do not share /dev/shm, so NCCL allows neither P2P nor shared memory")
            }
            Self::NetFaster { net, direct } => write!(
                f,
                "the NICs next to the GPUs give {net:.1} GB/s and the path between the GPUs {direct:.1} GB/s"
            ),
            Self::CutNode => f.write_str(
                "NCCL counts the two GPUs as two nodes because their NICs are faster, but tries shared memory first",
            ),
            Self::NoSharedMemory { path, level } => write!(
                f,
                "the path between the GPUs is {path} and P2P is allowed only up to {}; NCCL_SHM_DISABLE=1 forbids \
                 shared memory",
                level.kind
            ),
            Self::Nothing => f.write_str(
                "neither P2P nor shared memory is possible and NCCL_NET_DISABLE_INTRA=1 forbids the network inside \
                 a node: NCCL stops with `No transport found`",
            ),
        }
    }
}

impl Decisions {
    /// How one rank reaches another. `None` for a rank that does not exist, and for a rank and itself.
    pub fn transport(&self, from: u64, to: u64) -> Option<Decision> {
        let (machine, here) = self.local_rank(from)?;
        let (other_machine, there) = self.local_rank(to)?;
        if from == to {
            return None;
        }
        let domain = u64::from(self.domain.max(1));
        if machine != other_machine && machine / domain == other_machine / domain {
            return Some(self.over_domain(here, there));
        }
        if machine != other_machine {
            return self.over_net(machine, here, there, Reason::OtherMachine);
        }
        if here.pod != there.pod && !self.layout.same_host {
            return self.over_net(machine, here, there, Reason::OtherHostName);
        }
        let forbidden = self.settings.net_disabled_inside();
        let net = |reason| {
            if forbidden { Some(Decision::nothing()) } else { self.over_net(machine, here, there, reason) }
        };
        if here.pod != there.pod && !self.layout.shared_memory {
            return net(Reason::OtherSharedMemory);
        }
        let level = |paths: &Paths| self.settings.p2p_level(paths.about.cpu, paths.gpus().len());
        let (one, other) = (here.gpu.position, there.gpu.position);
        let paths = self.nodes.get(here.node)?;
        if here.node != there.node {
            // The node was cut between them.
            let uncut = self.uncut(here);
            let reason = match net_is_faster(uncut, one, other, true) {
                Some((net, direct)) => Reason::NetFaster { net, direct },
                None => {
                    Reason::NoSharedMemory { path: uncut.gpu_wires(one, other).kind, level: level(uncut) }
                }
            };
            if self.settings.since(2, 30, 0) && !self.settings.shm_disabled() {
                return Some(Decision::shm(uncut.gpu_to_gpu(one, other), Reason::CutNode));
            }
            return net(reason);
        }
        let (path, wires) = (paths.gpu_to_gpu(one, other), paths.gpu_wires(one, other).kind);
        let allowed = p2p_is_allowed(paths, one, other);
        if allowed
            && let Some(gpu) = paths.middle(one, other)
            && !self.settings.p2p_copy_engine()
        {
            let transport = Transport::P2p { kind: P2pKind::Indirect, read: self.reads(paths, one, other) };
            return Some(Decision::local(
                transport,
                path,
                Reason::ThroughGpu { gpu: self.index_beside(here, gpu) },
            ));
        }
        if let Some((faster, direct)) = net_is_faster(paths, one, other, false) {
            return net(Reason::NetFaster { net: faster, direct });
        }
        if allowed {
            let kind = self.p2p_kind(here.pod == there.pod);
            let transport = Transport::P2p { kind, read: self.reads(paths, one, other) };
            return Some(Decision::local(transport, path, Reason::Near { path: path.kind }));
        }
        if self.settings.shm_disabled() {
            return net(Reason::NoSharedMemory { path: wires, level: level(paths) });
        }
        let reason = Reason::TooFar { path: wires, level: level(paths), version: self.settings.version };
        Some(Decision::shm(path, reason))
    }

    fn over_domain(&self, here: LocalRank, there: LocalRank) -> Decision {
        let (one, other) = (here.gpu.position, there.gpu.position);
        // A GPU reaches its twin on another machine as it reaches any GPU of its own.
        let peer = if one == other {
            self.whole.gpus().iter().map(|it| it.position).find(|it| *it != one)
        } else {
            Some(other)
        };
        let path = peer.map(|it| self.whole.gpu_to_gpu(one, it));
        let transport =
            Transport::P2p { kind: P2pKind::Mnnvl, read: self.reads(&self.whole, one, peer.unwrap_or(one)) };
        Decision { transport: Some(transport), received: None, path, reason: Reason::NvlinkDomain }
    }

    fn p2p_kind(&self, same_pod: bool) -> P2pKind {
        let one_process = same_pod && self.layout.one_process;
        if one_process && !self.settings.p2p_direct_disabled() && !self.settings.p2p_copy_engine() {
            P2pKind::DirectPointer
        } else if self.domain > 1 {
            P2pKind::Mnnvl
        } else if self.settings.cumem() {
            P2pKind::Cumem
        } else {
            P2pKind::Ipc
        }
    }

    /// The receiver pulls between two A100 over NVLink, unless a variable says otherwise.
    fn reads(&self, paths: &Paths, from: usize, to: usize) -> bool {
        let ampere = |gpu: usize| paths.about.compute.get(gpu).copied().flatten() == Some(80);
        let default = paths.gpu_to_gpu(from, to).kind == PathType::Nvl && ampere(from) && ampere(to);
        !self.settings.p2p_copy_engine() && self.settings.p2p_read().unwrap_or(default)
    }

    fn over_net(&self, machine: u64, here: LocalRank, there: LocalRank, reason: Reason) -> Option<Decision> {
        let paths = self.nodes.get(here.node)?;
        let sent = paths.nic_to_send(here.gpu, there.gpu.number, 0);
        let (nic, relay) = sent.unzip();
        let through = relay.flatten().and_then(|it| self.rank_of(machine, it));
        let gpudirect = nic.is_some_and(|nic| paths.gpudirect(here.gpu.position, nic, true).is_on());
        let transport = self.net(paths, nic, gpudirect, through);
        let their_paths = self.nodes.get(there.node)?;
        let their_nic = their_paths.local_nic(there.gpu, 0);
        let theirs =
            their_nic.is_some_and(|nic| their_paths.gpudirect(there.gpu.position, nic, false).is_on());
        Some(Decision {
            transport: Some(transport),
            received: Some(self.net(their_paths, their_nic, theirs, None)),
            path: nic.map(|nic| paths.gpu_to_nic(here.gpu.position, nic)),
            reason,
        })
    }

    fn net(&self, paths: &Paths, nic: Option<usize>, gpudirect: bool, through: Option<u64>) -> Transport {
        Transport::Net {
            network: self.network.name().into(),
            // A machine without a known NIC still has the one it is reached by.
            device: nic.and_then(|it| paths.nic_number(it)).unwrap_or(0),
            gpudirect,
            through: through.and_then(|it| u32::try_from(it).ok()),
        }
    }
}

impl Decision {
    fn local(transport: Transport, path: Path, reason: Reason) -> Self {
        Self { transport: Some(transport), received: None, path: Some(path), reason }
    }

    fn shm(path: Path, reason: Reason) -> Self {
        Self::local(Transport::Shm, path, reason)
    }

    fn nothing() -> Self {
        Self { transport: None, received: None, path: None, reason: Reason::Nothing }
    }
}

impl Paths {
    /// The NIC a GPU sends by to a peer of this number on another node, and the GPU that sends for it (PXN).
    pub(crate) fn nic_to_send(
        &self,
        gpu: VisibleDevice,
        peer_number: u32,
        channel: usize,
    ) -> Option<(usize, Option<usize>)> {
        let own = self.local_nic(gpu, channel)?;
        let level = self.settings.p2p_pxn_level();
        if self.settings.cross_nic() != 0 && level == 0 {
            return Some((own, None));
        }
        // The NIC that our GPU of the peer's number uses: the peer most likely receives by its twin.
        let twin = self.gpus().iter().find(|it| it.number == peer_number);
        let Some(nic) = twin.and_then(|it| self.local_nic(*it, channel)) else { return Some((own, None)) };
        let fallback = if self.settings.cross_nic() == 0 { nic } else { own };
        if level == 1 && self.gpu_to_nic(gpu.position, nic).kind.within(PathType::Pxn, self.version()) {
            return Some((nic, self.relay(gpu.position, nic)));
        }
        if level == 2
            && let Some(peer) = self.local_gpu(nic)
            && self.may_relay(peer, gpu.position, nic)
            && (!self.settings.since(2, 30, 3) || self.gpudirect(peer, nic, false).is_on())
        {
            return Some((nic, Some(peer).filter(|it| *it != gpu.position)));
        }
        Some((fallback, None))
    }
}

/// Whether two GPUs are near enough for peer access.
pub(crate) fn p2p_is_allowed(paths: &Paths, from: usize, to: usize) -> bool {
    let level = paths.settings.p2p_level(paths.about.cpu, paths.gpus().len()).kind;
    paths.are_peers(from, to) && paths.gpu_to_gpu(from, to).kind.within(level, paths.version())
}

/// What NICs and direct path give, where the NICs of both GPUs give more. Only NICs that are reached without the CPU count.
/// While NCCL decides what a node is, it uses the wires alone (`plain`).
pub(crate) fn net_is_faster(paths: &Paths, from: usize, to: usize, plain: bool) -> Option<(f64, f64)> {
    if paths.settings.net_disabled_inside() {
        return None;
    }
    let direct = paths.gpu_to_gpu(from, to).bandwidth;
    let best = |gpu: usize| {
        let path = |nic: usize| {
            if plain { paths.nic_wires(gpu, nic) } else { paths.gpu_to_nic(gpu, nic) }
        };
        let near = paths.nics().iter().map(|it| path(it.position));
        near.filter(|it| it.kind.within(PathType::Pxb, paths.version()))
            .map(|it| it.bandwidth)
            .fold(0.0, f64::max)
    };
    let net = best(from).min(best(to));
    (net > direct).then_some((net, direct))
}
