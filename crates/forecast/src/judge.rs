//! Whether a measured number is normal, and what would explain it if not.

use fabric::Collective;
use fabric::machine::NicKind;
use serde::Serialize;

use crate::algorithm::{Algorithm, Ceiling};
use crate::cluster::{Allowed, Between, Cluster, Inside};
use crate::digits::{rounded, shown};
use crate::normal::{self, Normal};

/// An opinion on a measured number.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// What it is.
    pub verdict: Verdict,
    /// Why, in a sentence or two.
    pub reason: String,
    /// What would explain a low number, likeliest first.
    pub explanations: Vec<String>,
}

/// What a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Normal,
    /// Lower than this hardware gives.
    Low,
    /// Higher than this hardware can give: something else was measured.
    TooGood,
}

impl Verdict {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Low => "low",
            Self::TooGood => "too_good",
        }
    }
}

/// What a bus bandwidth in GB/s is.
pub fn verdict(measured: f64, normal: &Normal) -> Verdict {
    if measured > normal.high.max(normal.wire.bandwidth) {
        Verdict::TooGood
    } else if measured < normal.low {
        Verdict::Low
    } else {
        Verdict::Normal
    }
}

/// Judges a bus bandwidth in GB/s.
pub fn judge(
    collective: Collective,
    cluster: &Cluster,
    bytes: u64,
    measured: f64,
    normal: &Normal,
) -> Judgement {
    let verdict = verdict(measured, normal);
    if verdict == Verdict::TooGood {
        let reason = too_good(collective, cluster, measured, normal);
        Judgement { verdict, reason, explanations: Vec::new() }
    } else if verdict == Verdict::Low {
        let share = 100.0 * measured / normal.expected;
        let reason = format!(
            "{share:.0} % of the {} GB/s expected. {}",
            shown(rounded(normal.expected)),
            describe(collective, cluster, normal)
        );
        let explanations = explain(collective, cluster, bytes, measured, normal);
        Judgement { verdict: Verdict::Low, reason, explanations }
    } else {
        let mut reason = describe(collective, cluster, normal);
        if measured > normal.high {
            reason.push_str(&format!(
                "; {} GB/s are more than plumb expects and less than the {} GB/s that the links allow",
                rate(measured),
                rate(normal.wire.bandwidth)
            ));
        }
        if let Some(wire) = wire(cluster).filter(|it| measured > *it && cluster.groups() == 2) {
            reason.push_str(&format!(
                "; it is more than the {wire:.0} GB/s of a node's NICs, and right: with two nodes each byte crosses the network \
                 once, while bus bandwidth counts it {:.2} times. More nodes will give less",
                collective.bus_factor(cluster.ranks().unwrap_or(2))
            ));
        }
        Judgement { verdict: Verdict::Normal, reason, explanations: Vec::new() }
    }
}

/// What limits a call, in words.
pub fn describe(collective: Collective, cluster: &Cluster, normal: &Normal) -> String {
    let algorithm = match normal.algorithm {
        Algorithm::Ring => "a ring",
        Algorithm::Tree => "a tree",
        Algorithm::Nvls => "NVLS",
        Algorithm::NvlsTree => "NVLS in each node and a tree between them",
        Algorithm::Pat => "trees of all ranks (PAT)",
        Algorithm::Pairs => "every pair by itself",
    };
    let most = rate(normal.asymptote);
    let share = normal.overhead / normal.time;
    let ceiling = normal.ceiling.describe();
    let text = if share > 0.5 {
        format!(
            "{collective} by {algorithm}: {:.0} of {:.0} us are latency at this size; long messages reach {most} GB/s, limited by {ceiling}",
            normal.overhead, normal.time
        )
    } else {
        format!(
            "{collective} by {algorithm}: limited to {most} GB/s by {ceiling}; latency takes {:.0} % of the time",
            100.0 * share
        )
    };
    let nodes = cluster.groups();
    if nodes > 1 && matches!(normal.ceiling, Ceiling::NvLink | Ceiling::Nvls) {
        format!("{text} (the network between the {nodes} nodes is not the limit)")
    } else {
        text
    }
}

/// All NICs of a node, in GB/s.
fn wire(cluster: &Cluster) -> Option<f64> {
    cluster.between.map(|it| f64::from(it.nics) * it.gbps / 8.0)
}

fn too_good(collective: Collective, cluster: &Cluster, measured: f64, normal: &Normal) -> String {
    // Rounded down: the sentence must not name more than was measured.
    let most = match normal.wire.bandwidth {
        it if it >= 10.0 => it.floor().to_string(),
        it => format!("{:.2}", (it * 100.0).floor() / 100.0),
    };
    let link = match (normal.wire.ceiling, &cluster.inside, cluster.between) {
        (Ceiling::Nics, _, Some(between)) => format!(
            "NICs of a node ({} of {} Gbit/s) allow at most {most} GB/s of bus bandwidth",
            between.nics, between.gbps
        ),
        (Ceiling::NvLink, Inside::Switch { links, .. }, _) => {
            format!("the {links} NVLinks of a GPU allow at most {most} GB/s of bus bandwidth")
        }
        (ceiling, ..) => format!("{} allows at most {most} GB/s of bus bandwidth", ceiling.describe()),
    };
    format!(
        "{collective}: {link}. Check what was measured ({measured}): bus or algorithm bandwidth, GB/s or \
         Gbit/s, as many ranks and nodes as said here, results checked (#wrong 0)?"
    )
}

/// What else would give this number: what is below normal, and nearer to the number than normal is.
fn explain(
    collective: Collective,
    cluster: &Cluster,
    bytes: u64,
    measured: f64,
    usual: &Normal,
) -> Vec<String> {
    // One release is enough to see what a change does.
    let cluster = &cluster.clone().of_newest_release();
    let distance = |it: &Normal| (it.expected / measured).ln().abs();
    let fits = |it: &Normal| {
        (it.low..=it.high).contains(&measured)
            && it.expected < usual.low
            && distance(it) < distance(usual) / 2.0
    };
    let mut found = Vec::new();
    let mut add = |normal: Option<Normal>, text: &dyn Fn(&Normal) -> String| {
        if let Some(normal) = normal.filter(fits) {
            found.push((distance(&normal), text(&normal)));
        }
    };
    let nvls = |it: Algorithm| matches!(it, Algorithm::Nvls | Algorithm::NvlsTree);
    if nvls(usual.algorithm) {
        let allowed = Allowed { nvls: false, ..cluster.allowed };
        add(normal::normal(collective, &Cluster { allowed, ..cluster.clone() }, bytes), &|it| {
            format!(
                "NCCL without NVLS gives {:.0} GB/s: NCCL_NVLS_ENABLE=0, or no multicast on this machine",
                it.expected
            )
        });
    }
    if let Some(between) = cluster.between.filter(|_| cluster.groups() > 1) {
        let changed = |between: Between| Cluster { between: Some(between), ..cluster.clone() };
        if between.gpudirect {
            add(
                normal::normal(collective, &changed(Between { gpudirect: false, ..between }), bytes),
                &|it| {
                    format!(
                        "without GPUDirect RDMA {:.1} GB/s are expected: check the `via` lines of the log for GDRDMA",
                        it.expected
                    )
                },
            );
        }
        for nics in [2, 4, 8, 16].map(|it| between.nics / it).into_iter().chain([1]) {
            if nics > 0 && nics < between.nics {
                add(normal::normal(collective, &changed(Between { nics, ..between }), bytes), &|it| {
                    format!("{nics} of {} NICs in use give {:.0} GB/s", between.nics, it.expected)
                });
            }
        }
        if between.kind != NicKind::Ethernet {
            let tcp = Between { kind: NicKind::Ethernet, gpudirect: false, ..between };
            add(normal::normal(collective, &changed(tcp), bytes), &|it| {
                format!("plain TCP gives {:.1} GB/s: check the log for NET/Socket", it.expected)
            });
        }
    }
    if cluster.gpus > 1 && !matches!(cluster.inside, Inside::Pci { peer_to_peer: false }) {
        let shared = Cluster { inside: Inside::Pci { peer_to_peer: false }, ..cluster.clone() };
        add(normal::normal(collective, &shared, bytes), &|it| {
            format!(
                "GPUs that exchange data through host memory (SHM) give {:.0} GB/s: peer-to-peer is off or broken",
                it.expected
            )
        });
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut found: Vec<String> = found.into_iter().map(|it| it.1).collect();
    found.dedup();
    found.truncate(3);
    if found.is_empty() {
        found.push("nothing that plumb models gives this number: run with NCCL_DEBUG=INFO and give the log to `plumb doctor`".to_owned());
    }
    found
}

/// `483`, `8.3`, `0.11`: at least two digits.
fn rate(number: f64) -> String {
    match number {
        it if it >= 10.0 => format!("{it:.0}"),
        it if it >= 1.0 => format!("{it:.1}"),
        it => format!("{it:.2}"),
    }
}
