//! How a call is cut: over channels, and into chunks. All in `src/enqueue.cc`: `scheduleCollTasksToPlan`, `computeColl` (2.18, 2.19),
//! `computeCollChunkInfo` (2.20, 2.21), `calcCollChunking` (since 2.22).

use fabric::collective::Collective;
use fabric::machine::Maker;

use super::table::Tuning;
use super::{Protocol, log2};
use crate::{Algorithm, Settings};

/// What `chunk` cuts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// The channels it goes over together.
    pub(super) channels: u32,
    /// Its bytes.
    pub(super) bytes: u64,
}

/// What one channel has of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    /// Channels that carry data.
    pub(super) channels: u32,
    /// Since 2.22 a chunk is made for what one channel has; before, for the whole call.
    pub(super) together: u32,
    /// The bytes that a chunk is made for.
    pub(super) bytes: u64,
}

/// Steps of a buffer (`NCCL_STEPS`).
pub(crate) const STEPS: u64 = 8;

impl Share {
    pub(super) fn new(
        tuning: &Tuning,
        collective: Collective,
        algorithm: Algorithm,
        protocol: Protocol,
        bytes: u64,
        most: u32,
    ) -> Self {
        let settings = &tuning.settings;
        let one = &tuning.communicator;
        let all = Self { channels: most, together: most, bytes };
        let in_network = matches!(algorithm, Algorithm::CollNetDirect | Algorithm::CollNetChain)
            || (algorithm == Algorithm::Nvls && one.nodes > 1);
        if !settings.since(2, 20, 0) || in_network || most == 0 {
            return all;
        }
        let ranks = u64::from(one.ranks.max(1));
        // What a rank has in its send buffer, or in its receive buffer for reduce-scatter.
        let gathering = matches!(collective, Collective::AllGather | Collective::ReduceScatter);
        let own = if gathering { bytes.div_ceil(ranks) } else { bytes };
        if !settings.since(2, 22, 0) {
            let each = own.div_ceil(u64::from(most)).div_ceil(16).saturating_mul(16);
            let channels = u32::try_from(own.div_ceil(each.max(1))).unwrap_or(most).clamp(1, most);
            return Self { channels, ..all };
        }
        // `ncclFuncTrafficPerByte`
        let traffic = match collective {
            Collective::AllReduce => 2,
            _ if gathering => ranks,
            _ => 1,
        };
        let traffic =
            if protocol == Protocol::Ll && settings.since(2, 26, 0) { traffic * 4 } else { traffic };
        let least: u64 = match () {
            () if settings.since(2, 29, 0) => 32 << 10,
            () if settings.since(2, 23, 0) => 16 << 10,
            () => 512,
        };
        let cell = if settings.since(2, 23, 0) { least.div_ceil(traffic).div_ceil(16) * 16 } else { 16 };
        let nvls = matches!(algorithm, Algorithm::Nvls | Algorithm::NvlsTree);
        let available = u64::from(if nvls { one.nvls_channels } else { one.channels }).max(1);
        let total = own.saturating_mul(traffic);
        let total = if settings.since(2, 23, 0) { total.max(least) } else { total };
        let equal = total / u64::from(most).min(available);
        let per_channel =
            if settings.since(2, 29, 0) { equal.div_ceil(16).saturating_mul(16) } else { equal.max(least) };
        let cells = own.div_ceil(cell).max(1);
        let fitting = per_channel.div_ceil(cell.saturating_mul(traffic)).min(cells);
        let first = match () {
            () if available == 1 => cells,
            () if settings.since(2, 23, 0) => fitting,
            () => (per_channel / (cell * traffic)).min(cells),
        };
        let rest = cells - first;
        let channels = u64::from(first > 0) + rest.div_ceil(fitting.max(1));
        // Every channel but the last has as much as the first, or nearly.
        let mine = if first > 0 { first } else { fitting };
        let factor = if gathering { ranks } else { 1 };
        Self {
            channels: u32::try_from(channels.min(available)).unwrap_or(most).max(1),
            together: 1,
            bytes: mine.saturating_mul(cell).min(own).saturating_mul(factor),
        }
    }
}

/// The buffer of a channel, in bytes: `computeBuffSizes` in `src/init.cc`.
pub(crate) fn buffer(settings: &Settings, cpu: Maker, protocol: Protocol) -> u64 {
    let arm = cpu == Maker::Arm && !settings.since(2, 20, 0);
    let (name, default) = match protocol {
        Protocol::Ll => ("NCCL_LL_BUFFSIZE", 8 * 512 * STEPS * 16),
        Protocol::Ll128 => ("NCCL_LL128_BUFFSIZE", 120 * 640 * STEPS * 8),
        Protocol::Simple if arm => ("NCCL_BUFFSIZE", 1 << 20),
        Protocol::Simple => ("NCCL_BUFFSIZE", 1 << 22),
    };
    match settings.number(name, -2) {
        -2 => default,
        it => size(it).unwrap_or(default),
    }
}

impl Tuning {
    /// What the buffer allows.
    pub(super) fn largest_chunk(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        protocol: Protocol,
    ) -> u64 {
        let ring = algorithm == Algorithm::Ring && protocol == Protocol::Simple;
        // A ring moves half a buffer at once, except for broadcast and reduce.
        let steps = match collective {
            Collective::Broadcast | Collective::Reduce => 1,
            _ if ring => STEPS / 2,
            _ => 1,
        };
        let size = buffer(&self.settings, self.communicator.cpu, protocol) / STEPS * steps;
        match protocol {
            Protocol::Ll if self.settings.since(2, 20, 0) => size / 2,
            Protocol::Ll128 if self.settings.since(2, 20, 0) => size / 16 * 15,
            _ => size,
        }
    }

    /// Bytes of a chunk.
    pub(super) fn chunk(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        protocol: Protocol,
        part: Part,
    ) -> u64 {
        let settings = &self.settings;
        let one = &self.communicator;
        let size = self.largest_chunk(collective, algorithm, protocol);
        let channels = u64::from(part.channels.max(1));
        let per_node = u64::from((one.ranks / one.nodes.max(1)).max(1));
        let depth = per_node - 1 + u64::from(log2(u64::from(one.nodes)));
        let size = match algorithm {
            Algorithm::Tree if protocol == Protocol::Simple && !settings.since(2, 20, 0) => {
                let size = shrink(size, 131_072, |it| part.bytes / (channels * it) < depth * 8);
                let size = shrink(size, 65_536, |it| part.bytes / (channels * it) < depth * 4);
                shrink(size, 32_768, |it| part.bytes / (channels * it) < depth)
            }
            Algorithm::Tree if protocol == Protocol::Ll128 => self.tree_ll128(size, part),
            Algorithm::CollNetDirect => {
                let heads = u64::from(one.collnet.map_or(1, |it| it.heads.max(1)));
                let depth = if one.local_ranks > 1 { 2 } else { 1 };
                let rounds = |it: u64| part.bytes / (channels * heads * it);
                let size = shrink(size, 131_072, |it| rounds(it) < depth * 64);
                shrink(size, 32_768, |it| rounds(it) < depth * 8)
            }
            Algorithm::CollNetChain => {
                let size = size.min(262_144);
                let rounds = |it: u64| part.bytes / (channels * it);
                let size = shrink(size, 131_072, |it| rounds(it) < per_node * 64);
                let size = shrink(size, 65_536, |it| rounds(it) < per_node * 8);
                shrink(size, 32_768, |it| rounds(it) < per_node)
            }
            Algorithm::Nvls => {
                let slow = one.nodes > 1
                    && self.cell(Collective::AllReduce, Algorithm::Nvls, Protocol::Simple).bandwidth < 150.0
                    && settings.since(2, 20, 0);
                let most = if slow { 32_768 } else { self.nvls_chunk() };
                self.nvls(size.min(most), part, &[(64, 65_536), (8, 32_768), (2, 16_384)])
            }
            Algorithm::NvlsTree => {
                let size = if settings.since(2, 19, 0) { self.nvls_tree_chunk() } else { size };
                self.nvls(size, part, &[(32, 262_144), (16, 131_072), (4, 65_536), (1, 32_768)])
            }
            Algorithm::Pat => {
                let rounds = if collective == Collective::AllGather { 32 } else { 16 };
                shrink(size, 65_536, |it| it * channels * rounds > part.bytes)
            }
            Algorithm::Tree | Algorithm::Ring => size,
        };
        self.in_grains(size, protocol)
    }

    /// Since 2.22 a chunk is a multiple of what a warp takes: `ncclProtoGrainSize`.
    pub(super) fn in_grains(&self, size: u64, protocol: Protocol) -> u64 {
        let grain = match protocol {
            _ if !self.settings.since(2, 22, 0) => 1,
            Protocol::Ll => 16,
            Protocol::Ll128 => 1920,
            Protocol::Simple => 512,
        };
        size / grain * grain
    }

    fn tree_ll128(&self, size: u64, part: Part) -> u64 {
        let ppn = f64::from(self.communicator.ppn());
        #[expect(clippy::cast_possible_truncation, reason = "NCCL keeps single precision")]
        let steps = (f64::from(1 + log2(u64::from(self.communicator.nodes))) + 0.1 * ppn) as f32;
        let limit = |times: f32| steps * times / self.communicator.ppn();
        #[expect(clippy::cast_precision_loss, reason = "as NCCL computes it")]
        let rounds = |it: u64| (part.bytes / (u64::from(part.channels.max(1)) * it)) as f32;
        let size = shrink(size, 131_072, |it| rounds(it) < limit(64.0));
        shrink(size, 32_768, |it| rounds(it) < limit(16.0))
    }

    fn nvls_chunk(&self) -> u64 {
        let asked = self.settings.number("NCCL_NVLS_CHUNKSIZE", 131_072);
        size(asked).unwrap_or(131_072).max(1)
    }

    fn nvls_tree_chunk(&self) -> u64 {
        let chunk = self.nvls_chunk();
        let default = if self.communicator.nodes >= 4 { 65_536 } else { chunk };
        let most = self.settings.number("NCCL_NVLSTREE_MAX_CHUNKSIZE", -2);
        chunk.min(size(most).unwrap_or(default))
    }

    /// Smaller chunks where there are few rounds.
    fn nvls(&self, mut size: u64, part: Part, limits: &[(u64, u64)]) -> u64 {
        let heads = u64::from(self.communicator.local_ranks.max(1));
        let together = u64::from(part.channels.max(1)) * heads;
        for &(rounds, smaller) in limits {
            if part.bytes < rounds * together * size && size > smaller {
                size = smaller;
            }
        }
        size
    }
}

/// A size as NCCL holds it, with a sign in 32 bits. What does not fit there is a mistake, and counts as the most.
fn size(asked: i64) -> Option<u64> {
    u64::try_from(asked).ok().map(|it| it.min(i32::MAX.unsigned_abs().into()))
}

/// Halves a chunk while it is larger than `least` and there is too little for it.
fn shrink(mut size: u64, least: u64, too_little: impl Fn(u64) -> bool) -> u64 {
    while size > least && too_little(size) {
        size /= 2;
    }
    size
}
