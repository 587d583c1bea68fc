//! What NCCL uses for one call: `ncclTopoGetAlgoTime` in `src/graph/tuning.cc`, and in `src/enqueue.cc` `getAlgoInfo` (2.18, 2.19),
//! `topoGetAlgoInfo` with `getChannnelThreadInfo` (2.20, 2.21) or `updateCollCostTable` (since 2.22).
//!
//! For a call on its own: NCCL adds up calls of a group. The data are of a type that NVLS reduces (16-bit floats, say), are summed, and
//! lie in buffers that are not registered.

use fabric::collective::Collective;

use super::chunk::{Part, Share};
use super::table::Tuning;
use super::threads::{MOST, WARP};
use super::{Protocol, TUNED, algorithms};
use crate::Algorithm;
use crate::tuner::OfiTuner;

/// What NCCL uses for a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// Channels that carry data, from channel 0 on.
    pub channels: u32,
    /// Threads of each channel.
    pub threads: u32,
    /// Bytes of a chunk: what a rank sends at once.
    pub chunk: u64,
    /// The time by NCCL's model, in microseconds. It ranks; it is not what is measured.
    pub time: f32,
}

/// Sizes with one choice of algorithm and protocol.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The smallest size, in bytes.
    pub from: u64,
    /// The largest size, in bytes.
    pub to: u64,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The protocol.
    pub protocol: Protocol,
}

/// An algorithm with a protocol.
#[derive(Clone, Copy)]
struct Kind {
    algorithm: Algorithm,
    protocol: Protocol,
}

/// How much slower a tree is than the model says, by the logarithm of 64-byte units: `treeCorrectionFactor`.
const TREE: [[f32; 24]; 3] = [
    [
        1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0,
        1.0, 1.0, 1.0, 1.0,
    ],
    [
        1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9,
        0.9, 1.0, 1.0, 1.0,
    ],
    [
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7,
        0.8, 0.9, 0.9, 0.9,
    ],
];

/// The most GPUs of a node for `CollNetDirect` (`NCCL_MAX_DIRECT_ARITY` and one).
const DIRECT_RANKS: u32 = 8;

/// The most GPUs of an NVLink domain for NVLS, other than for all-reduce (`NCCL_MAX_NVLS_ARITY`).
const NVLS_RANKS: u32 = 32;

impl Tuning {
    /// The time of a call by one algorithm and protocol, in microseconds; `None` if NCCL may not use it.
    pub fn time(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        protocol: Protocol,
        bytes: u64,
    ) -> Option<f32> {
        let cell = self.cell(collective, algorithm, protocol);
        let bandwidth = Some(cell.bandwidth).filter(|it| it.abs() > 0.0)?;
        Some(self.estimate(collective, algorithm, protocol, bytes, bandwidth, cell.latency))
    }

    fn estimate(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        protocol: Protocol,
        bytes: u64,
        mut bandwidth: f32,
        mut latency: f32,
    ) -> f32 {
        let since = |minor| self.settings.since(2, minor, 0);
        // Up to 2.21 less than 64 bytes count as 64.
        let log = (bytes >> 6).checked_ilog2().or_else(|| (!since(22)).then_some(0));
        let corrected = match algorithm {
            Algorithm::Tree => 23,
            Algorithm::NvlsTree
                if since(29) && self.communicator.min_compute >= 100 && self.communicator.is_x86() =>
            {
                24
            }
            _ => 0,
        };
        if let Some(log) = log.filter(|it| *it < corrected) {
            let log = usize::try_from(log).unwrap_or(0);
            bandwidth *= TREE[protocol.index()][log];
        }
        let plateau = algorithm == Algorithm::Ring
            && protocol == Protocol::Simple
            && collective == Collective::AllReduce
            && self.communicator.nodes > 1
            && !(self.communicator.mnnvl && since(20) && !since(21));
        let lanes = u64::from(self.communicator.channels) * u64::from(self.communicator.ranks);
        if plateau && bytes.checked_div(lanes).is_some_and(|it| it >= 64) {
            let factor = if self.communicator.min_compute < 80 { 1.9 } else { 1.4 };
            #[expect(clippy::cast_possible_truncation, reason = "NCCL keeps single precision")]
            let slower = (f64::from(latency) * factor) as f32;
            latency = slower;
        }
        #[expect(clippy::cast_precision_loss, reason = "as NCCL computes it")]
        let bytes = bytes as f32;
        latency + bytes / (1000.0 * bandwidth)
    }

    /// Whether NCCL considers an algorithm for a call, besides what the table says.
    fn considers(&self, collective: Collective, algorithm: Algorithm) -> bool {
        let since = |minor| self.settings.since(2, minor, 0);
        let one = &self.communicator;
        let gathering = matches!(collective, Collective::AllGather | Collective::ReduceScatter);
        match algorithm {
            Algorithm::Tree | Algorithm::Ring | Algorithm::Pat => true,
            Algorithm::CollNetDirect => {
                one.collnet.is_some() && (!since(23) || one.local_ranks <= DIRECT_RANKS)
            }
            Algorithm::CollNetChain => {
                one.collnet.is_some() && (!since(28) || one.local_ranks <= DIRECT_RANKS)
            }
            Algorithm::Nvls | Algorithm::NvlsTree if one.nvls_channels == 0 => false,
            Algorithm::NvlsTree => true,
            Algorithm::Nvls if one.nodes > 1 && one.collnet.is_none() => false,
            Algorithm::Nvls if !gathering => true,
            Algorithm::Nvls if since(27) => one.local_ranks <= NVLS_RANKS,
            Algorithm::Nvls => one.nodes == 1 && (!since(25) || one.ranks <= NVLS_RANKS),
        }
    }

    /// Whether NCCL may use an algorithm and protocol for a collective.
    pub fn is_usable(&self, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> bool {
        self.considers(collective, algorithm)
            && self.cell(collective, algorithm, protocol).bandwidth.abs() > 0.0
    }

    /// Whether GPUs reduce in the `NVSwitch`es.
    pub fn has_nvls(&self) -> bool {
        self.communicator.nvls_channels > 0
    }

    /// What NCCL uses for a call if a tuner plugin has its say.
    pub fn choose_with(&self, tuner: &OfiTuner, collective: Collective, bytes: u64) -> Option<Choice> {
        let Ok(advice) = tuner.advise(self, collective, bytes) else {
            return self.choose(collective, bytes);
        };
        let (algorithm, protocol) = (advice.algorithm, advice.protocol);
        let time = self.time(collective, algorithm, protocol, bytes).unwrap_or(0.0);
        let (most, threads) = self.channels_and_threads(bytes, algorithm, protocol);
        let most = advice.channels.unwrap_or(most);
        let kind = Kind { algorithm, protocol };
        let mut choice = self.shared(collective, bytes, kind, most, threads, time);
        let share = Share::new(self, collective, algorithm, protocol, bytes, most);
        if let Some(asked) = tuner.chunk_size(collective, algorithm, protocol, share.bytes) {
            let largest = self.largest_chunk(collective, algorithm, protocol);
            choice.chunk = self.in_grains(asked.min(largest), protocol);
        }
        Some(choice)
    }

    /// What NCCL uses for a call of this many bytes, counted as nccl-tests does: all that a rank has in the larger of its two buffers.
    /// `None` for what NCCL builds from sends and receives, or if no algorithm is left.
    pub fn choose(&self, collective: Collective, bytes: u64) -> Option<Choice> {
        let (algorithm, protocol, time) = self.fastest(collective, bytes)?;
        let (most, threads) = self.channels_and_threads(bytes, algorithm, protocol);
        Some(self.shared(collective, bytes, Kind { algorithm, protocol }, most, threads, time))
    }

    fn fastest(&self, collective: Collective, bytes: u64) -> Option<(Algorithm, Protocol, f32)> {
        if !TUNED.contains(&collective) {
            return None;
        }
        if self.communicator.ranks <= 1 {
            return Some((Algorithm::Ring, Protocol::Simple, 0.0));
        }
        let mut best: Option<(Algorithm, Protocol, f32)> = None;
        for &algorithm in algorithms(self.settings.version) {
            if !self.considers(collective, algorithm) {
                continue;
            }
            for protocol in Protocol::ALL {
                let Some(time) = self.time(collective, algorithm, protocol, bytes) else { continue };
                if time >= 0.0 && best.is_none_or(|it| time < it.2) {
                    best = Some((algorithm, protocol, time));
                }
            }
        }
        best.or_else(|| self.spare(collective, bytes))
    }

    /// From 2.19 to 2.23 the ring stands in if nothing else is left.
    fn spare(&self, collective: Collective, bytes: u64) -> Option<(Algorithm, Protocol, f32)> {
        if !self.settings.since(2, 19, 0) || self.settings.since(2, 24, 0) {
            return None;
        }
        let place = TUNED.iter().position(|it| *it == collective)?;
        let ring = |protocol: Protocol| {
            let bandwidth = self.spare_ring[place][protocol.index()];
            let latency = self.cell(collective, Algorithm::Ring, protocol).latency;
            let time = self.estimate(collective, Algorithm::Ring, protocol, bytes, bandwidth, latency);
            (bandwidth.abs() > 0.0 && time >= 0.0).then_some((Algorithm::Ring, protocol, time))
        };
        Protocol::ALL.into_iter().filter_map(ring).min_by(|one, other| one.2.total_cmp(&other.2))
    }

    fn shared(
        &self,
        collective: Collective,
        bytes: u64,
        kind: Kind,
        most: u32,
        threads: u32,
        time: f32,
    ) -> Choice {
        let Kind { algorithm, protocol } = kind;
        let share = Share::new(self, collective, algorithm, protocol, bytes, most);
        let part = Part { channels: share.together, bytes: share.bytes };
        Choice {
            algorithm,
            protocol,
            channels: share.channels,
            threads,
            chunk: self.chunk(collective, algorithm, protocol, part),
            time,
        }
    }

    /// Small calls take fewer channels, then fewer threads.
    fn channels_and_threads(&self, bytes: u64, algorithm: Algorithm, protocol: Protocol) -> (u32, u32) {
        let apart = self.settings.since(2, 20, 0) && !self.settings.since(2, 22, 0);
        let one = &self.communicator;
        let mut channels = if apart { one.coll_channels } else { one.channels }.max(1);
        let mut threads = self.threads[algorithm.index()][protocol.index()];
        let mut each = self.thresholds[algorithm.index()][protocol.index()].max(0).unsigned_abs();
        let wanted = |channels: u32, threads: u32, each: u64| {
            u64::from(channels).saturating_mul(u64::from(threads)).saturating_mul(each)
        };
        match algorithm {
            Algorithm::CollNetDirect => {
                let heads = u64::from(self.communicator.collnet.map_or(1, |it| it.heads.max(1)));
                let (mut least, mut too_small) = (16, true);
                while least >= 1 && too_small {
                    loop {
                        too_small = bytes < wanted(channels, threads, each).saturating_mul(heads);
                        if !too_small || channels <= least {
                            break;
                        }
                        if channels == least + least / 2 {
                            each /= 2;
                        }
                        channels -= 1;
                    }
                    least /= 2;
                }
            }
            Algorithm::Nvls | Algorithm::NvlsTree => {
                let nvls = self.communicator.nvls_channels;
                let both = algorithm == Algorithm::Nvls
                    && self.communicator.nodes > 1
                    && self.settings.since(2, 28, 0);
                channels = if both { nvls.min(channels) } else { nvls };
            }
            _ => {
                while channels >= 2 && bytes < wanted(channels, threads, each) {
                    channels -= 1;
                }
                while threads.is_multiple_of(128) && threads > 0 && bytes < wanted(channels, threads, each) {
                    threads /= 2;
                }
            }
        }
        (channels, self.extra_threads(algorithm, protocol, threads))
    }

    fn extra_threads(&self, algorithm: Algorithm, protocol: Protocol, threads: u32) -> u32 {
        // Since 2.22 a tree always has the most; PAT, too.
        if algorithm == Algorithm::Pat || (algorithm == Algorithm::Tree && self.settings.since(2, 22, 0)) {
            return MOST;
        }
        let extra = match (algorithm, protocol) {
            (Algorithm::Ring, Protocol::Simple) => WARP,
            (Algorithm::Tree, Protocol::Simple) => 4 * WARP,
            _ => 0,
        };
        (threads + extra).max(3 * WARP)
    }

    /// Which algorithm and protocol NCCL uses for which sizes, up to the largest size asked for.
    pub fn spans(&self, collective: Collective, largest: u64) -> Vec<Span> {
        let kind = |bytes| self.fastest(collective, bytes).map(|it| (it.0, it.1));
        let mut spans: Vec<Span> = Vec::new();
        let mut note = |from: u64, found: Option<(Algorithm, Protocol)>| {
            let Some((algorithm, protocol)) = found else { return };
            match spans.last_mut() {
                Some(last) if (last.algorithm, last.protocol) == (algorithm, protocol) => last.to = from,
                last => {
                    if let Some(last) = last {
                        last.to = from - 1;
                    }
                    spans.push(Span { from, to: from, algorithm, protocol });
                }
            }
        };
        // The model is linear between powers of two, where its corrections change, and has one step more.
        for place in sizes(largest).windows(2) {
            let (mut low, high) = (place[0], place[1]);
            note(low, kind(low));
            while kind(low) != kind(high) {
                let next = first_other(low, high, &kind);
                note(next, kind(next));
                low = next;
            }
            note(high, kind(high));
        }
        spans
    }
}

/// Eight sizes for each power of two.
fn sizes(largest: u64) -> Vec<u64> {
    let mut all = vec![1];
    let mut size = 8_u64;
    while size < largest {
        all.extend((0..8).map(|it| size + size / 8 * it).take_while(|it| *it < largest));
        size = size.saturating_mul(2);
    }
    all.push(largest.max(2));
    all
}

/// The smallest size above `low` with another choice, if there is one change up to `high`.
fn first_other<T: PartialEq>(low: u64, high: u64, kind: &dyn Fn(u64) -> T) -> u64 {
    let (mut same, mut other) = (low, high);
    while other - same > 1 {
        let middle = same + (other - same) / 2;
        if kind(middle) == kind(low) { same = middle } else { other = middle }
    }
    other
}
