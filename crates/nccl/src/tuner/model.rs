//! The other tuner of aws-ofi-nccl: a model of time, the only one in 1.8 and 1.9, later only with `OFI_NCCL_TUNER_TYPE=Model`.
//!
//! `nccl_ofi_tuner_compute_cost` in `src/tuner/nccl_ofi_model.c` and `.cpp`; the constants are there or, up to 1.9, in
//! `include/nccl_ofi_tuner.h`.

use fabric::Version;

use super::Platform;
use crate::tuning::Protocol;
use crate::{Algorithm, Settings};

pub(super) struct Model<'a> {
    pub(super) settings: &'a Settings,
    pub(super) plugin: Version,
    pub(super) platform: Platform,
    pub(super) ranks: u32,
    pub(super) nodes: u32,
}

/// Bytes per microsecond of 1 GB/s, counted as the plugin does.
const GIGABYTE: f32 = 1024.0 * 1024.0 * 1024.0 * 1e-6;

impl Model<'_> {
    /// The fastest algorithm and protocol for an all-reduce of this many bytes.
    pub(super) fn choose(&self, bytes: u64, nvls: bool) -> Option<(Algorithm, Protocol)> {
        let all = [Algorithm::Tree, Algorithm::Ring, Algorithm::NvlsTree];
        let mut best: Option<(Algorithm, Protocol, f32)> = None;
        for algorithm in all.into_iter().filter(|it| nvls || *it != Algorithm::NvlsTree) {
            for protocol in Protocol::ALL {
                if algorithm == Algorithm::NvlsTree && protocol != Protocol::Simple {
                    continue;
                }
                let cost = self.cost(algorithm, protocol, bytes);
                if cost >= 0.0 && best.is_none_or(|it| cost < it.2) {
                    best = Some((algorithm, protocol, cost));
                }
            }
        }
        best.map(|it| (it.0, it.1))
    }

    fn number(&self, name: &str, default: i64) -> f32 {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let number = self.settings.number(name, default) as f32;
        number
    }

    fn cost(&self, algorithm: Algorithm, protocol: Protocol, bytes: u64) -> f32 {
        let (latency, rail, rails) = match self.platform {
            Platform::P5en => (18.0, 25.0, 2.0),
            _ => (20.0, 12.5, 4.0),
        };
        // A parameter up to 1.9, then a constant.
        let latency = if self.plugin < Version::new(1, 10, 0) {
            self.number("OFI_NCCL_TUNER_NET_LATENCY", 20)
        } else {
            latency
        };
        let completion = self.number("OFI_NCCL_TUNER_NET_COMP_OVERHEAD", 3);
        let net = if protocol == Protocol::Simple { latency + completion } else { latency };
        let peer = peer_latency(algorithm, protocol);
        let channels = self.number("OFI_NCCL_TUNER_NUM_CHANNELS", 8);
        let node = GIGABYTE * rail * rails;
        #[expect(clippy::cast_precision_loss, reason = "as the plugin computes it")]
        let (ranks, nodes, bytes) = (self.ranks as f32, self.nodes.max(1) as f32, bytes as f32);
        let (latency, bandwidth) = match algorithm {
            Algorithm::Ring => {
                let (all, between) = (2.0 * (ranks - 1.0), 2.0 * nodes);
                (between * net + (all - between) * peer, node * channels)
            }
            Algorithm::NvlsTree => {
                let inside = GIGABYTE * 20.0;
                (2.0 * (peer + nodes.log2() * net), inside.min(node / 2.0) * channels)
            }
            _ => {
                let others = (ranks / nodes).floor() - 1.0;
                (2.0 * others * peer + 2.0 * nodes.log2() * net, node * channels / 2.0)
            }
        };
        let useful = match protocol {
            Protocol::Ll => 0.5,
            Protocol::Ll128 => 0.9375,
            Protocol::Simple => 1.0,
        };
        latency + bytes / (bandwidth * useful)
    }
}

/// By NVLink, in microseconds.
fn peer_latency(algorithm: Algorithm, protocol: Protocol) -> f32 {
    match (algorithm, protocol) {
        (Algorithm::Tree | Algorithm::Ring, Protocol::Ll) => 0.6,
        (Algorithm::Tree, Protocol::Ll128) => 1.25,
        (Algorithm::Tree, Protocol::Simple) => 28.0,
        (Algorithm::Ring, Protocol::Ll128) => 1.9,
        (Algorithm::Ring, Protocol::Simple) => 3.4,
        _ => 23.0,
    }
}
