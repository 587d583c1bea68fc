//! The most threads of a channel, and how many bytes each is to have before NCCL takes more channels or threads.
//!
//! `getNthreads` and the end of `ncclTopoTuneModel` in `src/graph/tuning.cc`; the limits are in `src/include/device.h`
//! (`devcomm.h` before 2.19) and `src/include/comm.h`, equal from 2.18 to 2.30.

use super::{GraphInfo, Protocol};
use crate::{Algorithm, Settings};

pub(super) const WARP: u32 = 32;
/// `NCCL_MAX_NTHREADS`.
pub(super) const MOST: u32 = 640;
/// `NCCL_SIMPLE_MAX_NTHREADS` and `NCCL_LL_MAX_NTHREADS`.
const SIMPLE: u32 = 512;
/// `NCCL_LL128_MAX_NTHREADS`.
const LL128: u32 = 640;
/// `PCI_BW` in `src/graph/topo.h`: what PCI Express 3.0 with 16 lanes gives.
const PCI_BW: f32 = 12.0;

/// By algorithm and protocol.
pub(super) type ByAlgorithm = [[u32; 3]; 7];

pub(super) fn threads(settings: &Settings, ring: &GraphInfo) -> ByAlgorithm {
    #[expect(clippy::cast_precision_loss, reason = "channels are few")]
    let slow = ring.bw_intra * ring.channels as f32 <= PCI_BW;
    let simple = |default| wanted(settings, "NCCL_NTHREADS", 2 * WARP, SIMPLE, default);
    let ll128 = wanted(settings, "NCCL_LL128_NTHREADS", LL128 / 4, LL128, LL128);
    let mut all = [[0, 0, MOST]; 7];
    all[Algorithm::Tree.index()] = [simple(SIMPLE), ll128, simple(SIMPLE)];
    all[Algorithm::Ring.index()] = [simple(SIMPLE), ll128, simple(if slow { 256 } else { SIMPLE })];
    // PAT always runs with the most threads and has no entry.
    all[Algorithm::Pat.index()] = [0; 3];
    all
}

fn wanted(settings: &Settings, name: &str, least: u32, most: u32, default: u32) -> u32 {
    let asked = settings.number(name, -2);
    match u32::try_from(asked) {
        Ok(1..) if asked % i64::from(WARP) != 0 => most,
        Ok(asked @ 1..) => asked.clamp(least, most),
        Ok(0) => default,
        // NCCL keeps the low 32 bits of a larger number; any such text is a mistake.
        Err(_) if asked > 0 => most,
        Err(_) => default,
    }
}

/// Bytes per thread, by algorithm and protocol.
pub(super) type Thresholds = [[i64; 3]; 7];

pub(super) fn thresholds(settings: &Settings, ranks: u32) -> Thresholds {
    let mut all = [[8, 8, 64]; 7];
    all[Algorithm::Ring.index()][Protocol::Ll.index()] *= i64::from(ranks);
    for algorithm in [Algorithm::CollNetDirect, Algorithm::CollNetChain] {
        all[algorithm.index()][Protocol::Simple.index()] = 512;
    }
    // Tree LL, LL128, Simple, then ring's; a negative number leaves the default.
    let text = settings.text("NCCL_THREAD_THRESHOLDS").unwrap_or_default();
    let numbers = text.split_whitespace().map_while(|it| it.parse::<i64>().ok());
    for (place, number) in numbers.take(6).enumerate() {
        if number >= 0 {
            all[place / 3][place % 3] = number;
        }
    }
    all
}
