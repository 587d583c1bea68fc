//! Channels for send and receive: how many there are, how many of them one peer gets, and the chunks they carry.
//!
//! `ncclTopoGetNchannels` and `ncclTopoComputeP2pChannels` in `src/graph/paths.cc`, `computeBuffSizes` in `src/init.cc`. They bound
//! `sendrecv` and `alltoall`, often more than the NIC does.

use fabric::machine::Maker;

use crate::tuning::{Protocol, STEPS, buffer};
use crate::{PathType, Paths, Settings};

/// `16 p2p channels, 2 p2p channels per peer`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct P2pChannels {
    /// All of a rank's.
    pub channels: u32,
    /// Those one peer gets.
    pub per_peer: u32,
    /// Bytes of a chunk: `P2P Chunksize set to 131072`.
    pub chunk: u64,
}

/// The communicator as far as these counts depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct P2pScope {
    /// Ranks.
    pub ranks: u32,
    /// Nodes, as NCCL counts them.
    pub nodes: u32,
    /// Channels of collectives.
    pub channels: u32,
}

impl P2pChannels {
    /// How many channels a message to one peer takes, by the Simple protocol (`addP2pToPlan`, up to 2.21 `calcP2pChunkSize`, in
    /// `src/enqueue.cc`): few for small messages and where many peers share the channels.
    pub fn of_message(self, settings: &Settings, scope: P2pScope, bytes: u64) -> u32 {
        let ranks = u64::from(scope.ranks);
        let fit = |mut count: u32, room: u64| {
            while count > 1 && u64::from(count) * ranks > room {
                count /= 2;
            }
            count
        };
        let one_node = scope.nodes <= 1;
        let old = !settings.since(2, 20, 0);
        // 2.18.1 treats all jobs as those of one node here.
        let alone = one_node || !settings.since(2, 18, 3);
        let channels = u64::from(self.channels);
        let most = if old && alone { fit(self.per_peer, 4 * channels) } else { self.per_peer };
        let few = if old && !alone { self.per_peer } else { fit(self.per_peer, channels) };
        let smallest = self.chunk / if old || one_node { 8 } else { 2 };
        let largest = if one_node { self.chunk.saturating_mul(32) } else { self.chunk };
        let parts = |part: u64| u32::try_from(bytes.div_ceil(part.max(1)).max(1)).unwrap_or(u32::MAX);
        let mut count = few.min(parts(smallest)).max(1);
        while bytes.div_ceil(u64::from(count)).max(smallest) > largest && count <= most / 2 {
            count *= 2;
        }
        count
    }
}

/// GB/s that one channel carries over the network, `NCCL_P2P_PER_CHANNEL_NET_BW` (2.29).
const CHANNEL_BW: i64 = 14;

/// Sends to, or receives from, this many peers fit into one batch of work: `NCCL_MAX_DEV_WORK_P2P_PER_BATCH`.
const PEERS_AT_ONCE: u32 = 8;

/// The counts for the ranks of each node of a machine. Before 2.29 ranks of different nodes do not agree on them.
pub fn p2p_channels(settings: &Settings, nodes: &[Paths], scope: P2pScope) -> Vec<P2pChannels> {
    let total = total(settings, scope);
    let of_gpus = |paths: &Paths| {
        let gpus = paths.gpus().iter();
        gpus.filter_map(|gpu| Of { settings, paths, scope, total }.fewest(gpu.position)).min()
    };
    if !settings.since(2, 29, 0) {
        let per_peer = |paths| of_gpus(paths).map_or(total, |it| it.min(total)).next_power_of_two();
        let channels = limit(settings, total.next_power_of_two());
        let counts = |paths| P2pChannels {
            channels,
            per_peer: per_peer(paths).min(channels),
            chunk: chunk(settings, paths, scope),
        };
        return nodes.iter().map(counts).collect();
    }
    let channels = limit(settings, total.next_power_of_two());
    let fewest = nodes.iter().filter_map(of_gpus).min().unwrap_or(most(settings)).min(most(settings));
    let mut per_peer = fewest.next_power_of_two();
    if scope.nodes > 1 && per_net_peer(settings).is_none() {
        let rounds = peers(settings, scope).div_ceil(PEERS_AT_ONCE);
        while per_peer > 1 && per_peer.saturating_mul(rounds) > channels {
            per_peer /= 2;
        }
    } else {
        per_peer = per_peer.min(channels);
    }
    let counts = |paths| P2pChannels { channels, per_peer, chunk: chunk(settings, paths, scope) };
    nodes.iter().map(counts).collect()
}

/// The chunk between nodes, by NVLink alone, or otherwise; since 2.19 no more than a step of the buffer.
fn chunk(settings: &Settings, paths: &Paths, scope: P2pScope) -> u64 {
    let bytes = |name, default| u64::try_from(settings.number(name, default)).unwrap_or(0);
    let wanted = if scope.nodes > 1 {
        // Twice as much on Grace with Blackwell, which has four GPUs in a node.
        let compute = paths.gpus().iter().map(|it| paths.compute(it.position)).min();
        let grace = paths.about.cpu == Maker::Arm && compute >= Some(100) && settings.since(2, 29, 0);
        bytes("NCCL_P2P_NET_CHUNKSIZE", 1 << 17).saturating_mul(if grace { 2 } else { 1 })
    } else if by_nvlink(settings, paths) {
        bytes("NCCL_P2P_NVL_CHUNKSIZE", 1 << 19)
    } else {
        bytes("NCCL_P2P_PCI_CHUNKSIZE", 1 << 17)
    };
    let step = buffer(settings, paths.about.cpu, Protocol::Simple) / STEPS;
    if settings.since(2, 19, 0) { wanted.min(step) } else { wanted }
}

/// Whether NCCL counts the GPUs of a node as connected by NVLink: all of them, up to 2.24 any two (`ncclTopoPathAllNVLink`).
fn by_nvlink(settings: &Settings, paths: &Paths) -> bool {
    let is_far =
        |from: usize, to: usize| !paths.gpu_to_gpu(from, to).kind.within(PathType::C2c, settings.version);
    let mut pairs = paths.gpus().iter().flat_map(|one| {
        let others = paths.gpus().iter().filter(|it| it.position != one.position);
        others.map(|other| (one.position, other.position))
    });
    if settings.since(2, 25, 0) {
        pairs.all(|(from, to)| !is_far(from, to))
    } else {
        pairs.any(|(from, to)| !is_far(from, to))
    }
}

/// `MAXCHANNELS` in `src/include/device.h`.
fn most(settings: &Settings) -> u32 {
    if settings.since(2, 25, 0) { 64 } else { 32 }
}

/// As many as collectives have, within `NCCL_MAX_P2P_NCHANNELS` and `NCCL_MIN_P2P_NCHANNELS`; the latter wins.
fn total(settings: &Settings, scope: P2pScope) -> u32 {
    let number = |name, default: u32| settings.number(name, i64::from(default));
    let upper = i64::from(scope.channels).min(number("NCCL_MAX_P2P_NCHANNELS", most(settings)));
    let bounded = upper.max(number("NCCL_MIN_P2P_NCHANNELS", 1));
    u32::try_from(bounded.clamp(1, i64::from(most(settings)))).unwrap_or(1)
}

/// Since 2.22 no more channels than fit the arguments of a kernel (`NCCL_WORK_ARGS_BYTES`), 16 bytes each after 32.
fn limit(settings: &Settings, channels: u32) -> u32 {
    let bytes = settings.number("NCCL_WORK_ARGS_BYTES", i64::MAX);
    if !settings.since(2, 22, 0) || bytes < 48 {
        return channels;
    }
    let fitting = u32::try_from((bytes - 32) / 16).unwrap_or(u32::MAX).min(most(settings));
    channels.min(1 << fitting.ilog2())
}

/// `NCCL_NCHANNELS_PER_NET_PEER`, if it is set to something NCCL takes.
fn per_net_peer(settings: &Settings) -> Option<u32> {
    let default = if settings.since(2, 20, 0) { -1 } else { 2 };
    let asked = settings.number("NCCL_NCHANNELS_PER_NET_PEER", default);
    let least = i64::from(settings.since(2, 28, 0));
    u32::try_from(asked).ok().filter(|_| asked >= least)
}

/// How many peers a rank talks to at once: `NCCL_P2P_MAX_PEERS` (2.30), otherwise all.
fn peers(settings: &Settings, scope: P2pScope) -> u32 {
    let asked = if settings.since(2, 30, 0) { settings.number("NCCL_P2P_MAX_PEERS", 0) } else { 0 };
    u32::try_from(asked).ok().filter(|it| *it > 0).map_or(scope.ranks, |it| it.min(scope.ranks))
}

/// The counts of one GPU.
struct Of<'a> {
    settings: &'a Settings,
    paths: &'a Paths,
    scope: P2pScope,
    total: u32,
}

impl Of<'_> {
    /// The fewest channels to any peer.
    fn fewest(&self, gpu: usize) -> Option<u32> {
        let others = self.paths.gpus().iter().filter(|it| it.position != gpu);
        let local = others.map(|it| self.to_gpu(gpu, it.position)).min();
        let here = u32::try_from(self.paths.gpus().len()).unwrap_or(u32::MAX);
        let remote = (self.scope.ranks > here).then(|| self.to_network(gpu));
        local.into_iter().chain(remote).min()
    }

    /// Two for each NVLink to a GPU of the node, two by any other path.
    fn to_gpu(&self, gpu: usize, peer: usize) -> u32 {
        let path = self.paths.gpu_to_gpu(peer, gpu);
        let by_nvlink =
            path.kind == PathType::Nvl || (path.kind == PathType::Nvb && self.settings.since(2, 30, 7));
        if !by_nvlink {
            return 2;
        }
        let compute = self.paths.about.compute.get(gpu).copied().flatten().unwrap_or(0);
        let link = single(fabric::link::nvlink(compute, self.settings.version));
        // NCCL divides in single precision and drops the rest.
        2 * whole(single(path.bandwidth) / link).max(1)
    }

    fn to_network(&self, gpu: usize) -> u32 {
        if let Some(asked) = per_net_peer(self.settings) {
            return asked;
        }
        if self.settings.since(2, 29, 0) {
            return self.to_network_by_bandwidth(gpu);
        }
        // Two, but at most four operations on a channel.
        let two_fit = 2 * u64::from(self.scope.ranks) <= 4 * u64::from(self.total);
        self.nics_needed(gpu).max(if two_fit { 2 } else { 1 })
    }

    /// How many of its NICs a GPU needs to fill its link to the CPU, if it has one: `getLocalNetCountByBw`, 2.20 to 2.28.
    fn nics_needed(&self, gpu: usize) -> u32 {
        let wanted = single(self.paths.about.cpu_links.get(gpu).copied().unwrap_or(0.0));
        let (mut sum, mut count) = (0.0, 0);
        for nic in self.paths.nearest_nics(gpu) {
            if sum >= wanted {
                break;
            }
            sum += single(self.paths.gpu_to_nic(gpu, nic).bandwidth);
            count += 1;
        }
        count
    }

    /// One for each NIC, and enough for their bandwidth; `ncclTopoGetLocalNetCountByBw`, 2.29.
    fn to_network_by_bandwidth(&self, gpu: usize) -> u32 {
        let socket = self.paths.local_socket(gpu);
        let wanted = single(socket.map_or(0.0, |it| self.paths.gpu_to_socket(gpu, it).bandwidth));
        let mut first = None;
        let (mut sum, mut count) = (0.0, 0_u32);
        for channel in 0..64 {
            let Some(nic) = self.paths.nic_for_channel(gpu, channel) else { break };
            if first == Some(nic) {
                break;
            }
            first = first.or(Some(nic));
            sum += single(self.paths.gpu_to_nic(gpu, nic).bandwidth);
            count += 1;
            if sum >= wanted {
                break;
            }
        }
        if count == 0 {
            return 2;
        }
        let each = self.settings.number("NCCL_P2P_PER_CHANNEL_NET_BW", CHANNEL_BW);
        let each = u32::try_from(each).ok().filter(|it| *it > 0).unwrap_or(1);
        whole(sum).div_ceil(each).max(count)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "NCCL keeps single precision")]
fn single(number: f64) -> f32 {
    number as f32
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "NCCL drops the fraction; none is negative"
)]
fn whole(number: f32) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::{P2pChannels, P2pScope};
    use crate::Settings;

    #[test]
    fn large_messages_take_more_channels() {
        let settings = Settings::default();
        let scope = P2pScope { ranks: 16, nodes: 2, channels: 16 };
        let p2p = P2pChannels { channels: 16, per_peer: 4, chunk: 131_072 };
        let of = |bytes| p2p.of_message(&settings, scope, bytes);
        // 16 ranks share 16 channels: one each, until a part is larger than a chunk.
        assert_eq!([0, 1024, 131_072, 131_073, 262_145, 1 << 30].map(of), [1, 1, 1, 2, 4, 4]);
        let alone = P2pScope { ranks: 2, nodes: 1, channels: 16 };
        let of = |bytes| p2p.of_message(&settings, alone, bytes);
        assert_eq!([1024, 20_000, 100_000, 1 << 30].map(of), [1, 2, 4, 4]);
    }
}
