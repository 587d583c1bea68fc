//! What is normal for one collective at one size, and what a measured number means there.

use fabric::Collective;

use crate::cluster::Cluster;
use crate::judge::{Verdict, describe, judge};
use crate::normal::{Normal, normal};

/// What is normal, and the opinion on a measured number where there is one.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// The collective.
    pub collective: Collective,
    /// Bytes, as nccl-tests counts them.
    pub bytes: u64,
    /// What is normal.
    pub normal: Normal,
    /// The measured bus bandwidth, in GB/s.
    pub measured: Option<f64>,
    /// What it is; none without a measured number.
    pub verdict: Option<Verdict>,
    /// Why, in a sentence or two.
    pub reason: String,
    /// What would explain a low number, likeliest first.
    pub explanations: Vec<String>,
}

/// What to expect of a collective; `None` for a single rank, which sends nothing.
pub fn expect(
    collective: Collective,
    cluster: &Cluster,
    bytes: u64,
    measured: Option<f64>,
) -> Option<Expected> {
    let normal = normal(collective, cluster, bytes)?;
    let judgement = measured.map(|it| judge(collective, cluster, bytes, it, &normal));
    let (verdict, reason, explanations) = match judgement {
        Some(it) => (Some(it.verdict), it.reason, it.explanations),
        None => (None, describe(collective, cluster, &normal), Vec::new()),
    };
    Some(Expected { collective, bytes, normal, measured, verdict, reason, explanations })
}
