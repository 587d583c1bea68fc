//! The constants of NCCL's time model, by release: microseconds and GB/s.
//!
//! All from `src/graph/tuning.cc`: the arrays `baseLat`, `hwLat`, `llMaxBws`, `perChMax*Bws` up to 2.27, and
//! `ncclTunerConstantsDefaults` since 2.28. The first tag that has a value stands beside it.

use fabric::Version;

/// LL, LL128 and Simple.
pub(super) type ByProtocol = [f32; 3];
/// One node, two nodes, more.
pub(super) type ByScale = [f64; 3];

/// What latencies and bandwidths are made of. Indices are those of [`super::Algorithm`], [`super::Protocol`] and [`Generation`].
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Constants {
    pub(super) base: [ByProtocol; 7],
    /// By hardware: NVLink, PCI Express, network.
    pub(super) hardware: [[ByProtocol; 7]; 3],
    pub(super) ll: [ByScale; 4],
    pub(super) ring_ll128: [ByScale; 4],
    pub(super) tree_ll128: [ByScale; 4],
    pub(super) tree: [ByScale; 4],
    /// Since 2.28.
    pub(super) nvls_tree: [ByScale; 4],
}

pub(super) const NVLINK: usize = 0;
pub(super) const PCI: usize = 1;
pub(super) const NET: usize = 2;

/// The generation of GPUs, by the smallest compute capability: `compCapIndex` in `ncclTopoTuneModel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Generation {
    Volta,
    Ampere,
    Hopper,
    /// A row of its own since 2.25.
    Blackwell,
}

impl Generation {
    pub(super) fn new(compute: u32, version: Version) -> Self {
        match compute {
            100.. if version >= Version::new(2, 25, 0) => Self::Blackwell,
            90.. => Self::Hopper,
            80.. => Self::Ampere,
            _ => Self::Volta,
        }
    }

    /// What part of NVLink's bandwidth NVLS reaches: `nvlsEfficiency`, 2.28.
    pub(super) fn nvls_efficiency(self) -> f32 {
        match self {
            Self::Volta | Self::Ampere => 0.0,
            Self::Hopper => 0.85,
            Self::Blackwell => 0.74,
        }
    }
}

/// The columns of tree, ring, `CollNetDirect`, `CollNetChain`, NVLS, `NVLSTree` and PAT, of which only Simple has a value from the third on.
const fn row(tree: ByProtocol, ring: ByProtocol, simple: [f32; 5]) -> [ByProtocol; 7] {
    let [direct, chain, nvls, nvls_tree, pat] = simple;
    [
        tree,
        ring,
        [0.0, 0.0, direct],
        [0.0, 0.0, chain],
        [0.0, 0.0, nvls],
        [0.0, 0.0, nvls_tree],
        [0.0, 0.0, pat],
    ]
}

impl Constants {
    pub(super) fn new(version: Version) -> Self {
        let since = |minor, patch| version >= Version::new(2, minor, patch);
        // 28 in 2.18.1 and from 2.19 to 2.22, otherwise by hardware.
        let slow_tree = !since(18, 3) || (since(19, 0) && !since(23, 0));
        let tree_simple = |other| if slow_tree { 28.0 } else { other };
        Self {
            base: base(version),
            hardware: [
                row(
                    [0.6, 1.25, tree_simple(4.0)],
                    [0.6, 1.9, 3.4],
                    match () {
                        () if since(21, 0) => [3.7, 2.8, 25.0, 25.0, 4.0],
                        () if since(19, 0) => [3.7, 2.8, 23.0, 23.0, 0.0],
                        () => [8.0, 4.75, 0.0, 0.0, 0.0],
                    },
                ),
                row(
                    [1.0, 1.9, tree_simple(if since(23, 0) { 4.0 } else { 6.0 })],
                    [1.0, 2.5, 5.7],
                    if since(19, 0) { [3.7, 2.8, 0.0, 0.0, 4.0] } else { [8.0, 8.0, 0.0, 0.0, 0.0] },
                ),
                row(
                    [5.0, 8.5, tree_simple(14.0)],
                    [2.7, 4.0, 14.0],
                    match () {
                        () if since(28, 9) => [31.0, 30.0, 18.0, 20.9, 14.0],
                        () if since(28, 0) => [31.0, 30.0, 18.0, 14.0, 14.0],
                        // The latency of PAT has no row before 2.28: what is past the end of the table is never read.
                        () if since(19, 0) => [31.0, 30.0, 18.0, 14.0, 0.0],
                        () => [10.7, 14.0, 18.0, 19.0, 0.0],
                    },
                ),
            ],
            ll: [
                [39.0, 39.0, 20.4],
                [87.7, 22.5, 19.0],
                if since(21, 0) { [141.0, 45.0, 35.0] } else { [87.7, 22.5, 19.0] },
                [282.0, 90.0, 70.0],
            ],
            ring_ll128: [
                [20.0; 3],
                [20.0; 3],
                [36.7; 3],
                match () {
                    () if since(29, 7) => [40.0; 3],
                    () if since(29, 0) => [34.5, 34.6, 34.5],
                    () if since(28, 7) => [73.4, 34.6, 73.4],
                    () => [73.4; 3],
                },
            ],
            tree_ll128: [
                [20.0; 3],
                [20.0; 3],
                if since(18, 3) { [36.7, 36.7, 29.0] } else { [36.7; 3] },
                if since(28, 0) { [55.6, 31.67, 20.0] } else { [73.4, 73.4, 58.0] },
            ],
            tree: [
                [26.5, 18.5, 10.0],
                [24.0, 23.6, 17.8],
                if since(18, 3) { [38.7, 41.4, 36.0] } else { [38.7, 41.4, 33.0] },
                if since(28, 0) { [70.0, 42.8, 24.0] } else { [77.4, 82.8, 72.0] },
            ],
            nvls_tree: [
                [26.5, 18.5, 10.0],
                [24.0, 23.6, 17.8],
                [0.0, 57.7, 45.5],
                match () {
                    () if since(30, 0) => [0.0, 96.0, 80.0],
                    () if since(28, 9) => [0.0, 96.0, 43.8],
                    () => [0.0, 96.0, 43.1],
                },
            ],
        }
    }
}

fn base(version: Version) -> [ByProtocol; 7] {
    let since = |minor| version >= Version::new(2, minor, 0);
    let tree = [6.8, 14.0, if since(23) { 8.4 } else { 0.0 }];
    let ring = [6.6, 14.0, 8.4];
    if since(19) {
        // PAT counts its 8 us itself before 2.28; the sum is the same.
        [tree, ring, [0.0; 3], [0.0; 3], [0.0; 3], [0.0; 3], [8.0; 3]]
    } else {
        let collnet = [6.8, 14.0, 0.0];
        [tree, ring, collnet, collnet, [0.0, 0.0, 23.0], [0.0, 0.0, 23.0], [0.0; 3]]
    }
}
