//! A graph while it is searched for: NCCL's `ncclTopoGraph` with its limits.

use crate::topo::single;
use crate::{Pattern, Settings};

/// A graph while it is searched for. GPUs, NICs and path types are numbers of the model that is searched.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draft {
    pub(super) pattern: Pattern,
    pub(super) cross_nic: u8,
    pub(super) collnet: bool,
    pub(super) min_channels: usize,
    pub(super) max_channels: usize,
    pub(super) n_channels: usize,
    pub(super) bw_intra: f32,
    pub(super) bw_inter: f32,
    pub(super) latency_inter: f32,
    pub(super) type_intra: u8,
    pub(super) type_inter: u8,
    pub(super) same_channels: bool,
    pub(super) hops: i32,
    /// The GPUs of each channel, one channel after the other.
    pub(super) intra: Vec<usize>,
    /// The NICs of each channel.
    pub(super) inter: Vec<[usize; 2]>,
    pub(super) gpus: usize,
}

impl Draft {
    pub(super) fn new(pattern: Pattern, channels: (usize, usize), gpus: usize) -> Self {
        Self {
            pattern,
            cross_nic: 0,
            collnet: false,
            min_channels: channels.0,
            max_channels: channels.1,
            n_channels: 0,
            bw_intra: 0.0,
            bw_inter: 0.0,
            latency_inter: 0.0,
            type_intra: 0,
            type_inter: 0,
            same_channels: false,
            hops: 0,
            intra: Vec::new(),
            inter: Vec::new(),
            gpus,
        }
    }

    /// Room for as many channels as there may be.
    pub(super) fn reserve(&mut self) {
        // NCCL duplicates channels before it looks at the limit again.
        let most = self.max_channels.max(self.n_channels).max(1) * 2;
        self.intra.resize(most * self.gpus, 0);
        self.inter.resize(most, [0; 2]);
    }

    pub(super) fn gpu_at(&self, channel: usize, step: usize) -> usize {
        self.intra[channel * self.gpus + step]
    }

    pub(super) fn put_gpu(&mut self, step: usize, gpu: usize) {
        let at = self.n_channels * self.gpus + step;
        self.intra[at] = gpu;
    }

    /// The NIC the channel that is being searched comes in by.
    pub(super) fn start_net(&self) -> usize {
        self.inter[self.n_channels][0]
    }

    /// Takes over another graph, with the channels it has.
    pub(super) fn copy(&mut self, other: &Self) {
        let (intra, inter) = (std::mem::take(&mut self.intra), std::mem::take(&mut self.inter));
        *self = Self { intra, inter, ..other.without_channels() };
        self.reserve();
        let (gpus, channels) = (self.n_channels * self.gpus, self.n_channels);
        self.intra[..gpus].copy_from_slice(&other.intra[..gpus]);
        self.inter[..channels].copy_from_slice(&other.inter[..channels]);
    }

    fn without_channels(&self) -> Self {
        Self { intra: Vec::new(), inter: Vec::new(), ..*self }
    }

    /// Whether this graph is better than the best so far (`ncclTopoCompareGraphs`).
    pub(super) fn is_better(&self, best: &Self, settings: &Settings) -> bool {
        if self.n_channels < self.min_channels {
            return false;
        }
        let (own, other) = (count(self.n_channels), count(best.n_channels));
        if self.pattern == Pattern::Nvls && settings.since(2, 18, 3) {
            let more = self.n_channels > best.n_channels && self.n_channels <= self.gpus;
            // Since 2.19.1.
            let faster = settings.since(2, 19, 1) && own * self.bw_inter > other * best.bw_inter;
            return more || faster;
        }
        // Up to 2.19 a channel that changes the NIC had to be 15 % better.
        let target = if settings.since(2, 20, 3) {
            1.0
        } else {
            single(1.0 - f64::from(i32::from(best.cross_nic) - i32::from(self.cross_nic)) * 0.15)
        };
        let (own, other) = (own * self.bw_intra, other * best.bw_intra * target);
        if own > other {
            return true;
        }
        if own < other {
            return false;
        }
        self.pattern == best.pattern && self.cross_nic == best.cross_nic && self.hops < best.hops
    }

    /// Doubles the channels and halves their bandwidth where a channel is faster than one block of a kernel
    /// (`ncclTopoDupChannels`).
    pub(super) fn duplicate(&mut self, compute: u32, settings: &Settings) {
        let slow = if settings.since(2, 18, 3) {
            compute > 80 && self.bw_intra < 50.0 && self.n_channels > 4
        } else {
            compute > 90 || compute > 80 && self.bw_intra < 50.0
        };
        if self.n_channels == 0 || self.pattern == Pattern::Nvls || self.bw_intra < 25.0 || slow {
            return;
        }
        self.reserve();
        let had = self.n_channels;
        let channels = (had * 2).min(self.max_channels);
        let more = channels.saturating_sub(had);
        self.intra.copy_within(..more * self.gpus, had * self.gpus);
        self.inter.copy_within(..more, had);
        let share = count(channels.div_ceil(had));
        self.bw_intra /= share;
        self.bw_inter /= share;
        self.n_channels = channels;
    }
}

/// A small number with NCCL's precision.
#[expect(clippy::cast_precision_loss, reason = "there are few channels")]
pub(super) fn count(number: usize) -> f32 {
    number as f32
}
