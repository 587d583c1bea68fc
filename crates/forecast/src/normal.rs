//! The interval of bus bandwidth that is normal, and whether a measured number is.

use fabric::Collective;

use crate::algorithm::{self, Algorithm, Candidate, Ceiling};
use crate::cluster::Cluster;
use crate::constants::constants;

/// What is normal for one collective at one size.
#[derive(Debug, Clone, PartialEq)]
pub struct Normal {
    /// The lowest normal bus bandwidth, in GB/s.
    pub low: f64,
    /// The one to expect.
    pub expected: f64,
    /// The highest.
    pub high: f64,
    /// How long a call takes at the expected bandwidth, in microseconds.
    pub time: f64,
    /// How much of that is latency.
    pub overhead: f64,
    /// The algorithm that NCCL uses.
    pub algorithm: Algorithm,
    /// The link that limits long messages.
    pub ceiling: Ceiling,
    /// Bus bandwidth of very long messages.
    pub asymptote: f64,
    /// Whether it rests on measurements; if not, the interval is wider.
    pub measured: bool,
}

/// What is normal; `None` for a single rank, which sends nothing.
pub fn normal(collective: Collective, cluster: &Cluster, bytes: u64) -> Option<Normal> {
    normal_by(collective, cluster, bytes, |_| true)
}

/// What is normal at one of several sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct NormalAt {
    /// Bytes, as nccl-tests counts them.
    pub bytes: u64,
    /// What is normal.
    pub normal: Normal,
}

/// What is normal by size; empty for a single rank.
pub fn table(collective: Collective, cluster: &Cluster, sizes: &[u64]) -> Vec<NormalAt> {
    let at = |&bytes: &u64| Some(NormalAt { bytes, normal: normal(collective, cluster, bytes)? });
    sizes.iter().filter_map(at).collect()
}

/// The same, with only some algorithms.
pub(crate) fn normal_by(
    collective: Collective,
    cluster: &Cluster,
    bytes: u64,
    allowed: impl Fn(Algorithm) -> bool,
) -> Option<Normal> {
    let candidates = algorithm::candidates(collective, cluster);
    let ranks = cluster.ranks()?;
    let all = candidates
        .iter()
        .filter(|it| allowed(it.algorithm))
        .map(|candidate| of_candidate(candidate, collective, ranks, bytes));
    all.min_by(|a, b| a.time.total_cmp(&b.time))
}

#[allow(clippy::cast_precision_loss, reason = "sizes of messages are far below 2^53")]
fn of_candidate(candidate: &Candidate, collective: Collective, ranks: u32, bytes: u64) -> Normal {
    let factor = collective.bus_factor(ranks);
    let moved = bytes.max(1) as f64 * factor / 1e3;
    let wire = moved / candidate.bandwidth;
    // Pipelining: with the best length of pieces, what is lost grows with the root of the length until pieces are whole.
    let fill = (2.0 * (candidate.steps * wire).sqrt()).min(candidate.fill);
    let overhead = candidate.launch + candidate.steps + fill;
    let time = overhead + wire;
    let expected = moved / time;
    let spread = &constants().spread;
    let unmeasured = if candidate.measured { 0.0 } else { spread.unmeasured };
    let part = |of_overhead: f64, of_link: f64| {
        ((overhead / time * of_overhead).powi(2) + (wire / time * of_link).powi(2) + unmeasured.powi(2))
            .sqrt()
    };
    Normal {
        low: expected * (-part(spread.overhead_down, spread.link_down)).exp(),
        expected,
        high: expected * part(spread.overhead_up, spread.link_up).exp(),
        time,
        overhead,
        algorithm: candidate.algorithm,
        ceiling: candidate.ceiling,
        asymptote: candidate.bandwidth,
        measured: candidate.measured,
    }
}
