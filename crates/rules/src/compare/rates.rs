//! Bandwidths of collectives that runs measured.

use std::collections::BTreeMap;

use evidence::plain::NcclTests;
use fabric::Collective;
use forecast::Cluster;
use job::size::NodeLayout;

use super::{Amount, Side};
use crate::performance::bandwidth;

/// The name of a collective and a size.
type Key = (&'static str, u64);

/// A bandwidth that was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// What was run.
    pub collective: Collective,
    /// Bytes.
    pub size: u64,
    /// Bus bandwidth in GB/s.
    pub rate: f64,
    /// The lowest and the highest of its samples, where several were timed.
    pub spread: Option<(f64, f64)>,
}

/// The bus bandwidth of a collective of one size, in GB/s.
#[derive(Debug, Clone, PartialEq)]
pub struct Rate {
    /// What was run.
    pub collective: Collective,
    /// Bytes.
    pub size: u64,
    /// What each run reached: the middle one of several.
    pub amounts: Vec<Option<Amount>>,
    /// What is normal on the machines of each run, where these are known.
    pub normal: Vec<Option<Expected>>,
}

/// A normal bandwidth in GB/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// The lowest.
    pub low: f64,
    /// The one to expect.
    pub expected: f64,
    /// The highest.
    pub high: f64,
}

pub(super) fn of(sides: &[Side<'_>]) -> Vec<Rate> {
    let mut all: BTreeMap<Key, (Collective, Vec<Vec<Measured>>)> = BTreeMap::new();
    for (at, side) in sides.iter().enumerate() {
        let of_log = side.run.log.case.tests.iter().flat_map(of_test);
        for it in of_log.chain(side.run.measured.iter().copied()) {
            let entry = all
                .entry((it.collective.name(), it.size))
                .or_insert_with(|| (it.collective, vec![Vec::new(); sides.len()]));
            if let Some(found) = entry.1.get_mut(at).filter(|_| it.rate.is_finite() && it.rate > 0.0) {
                found.push(it);
            }
        }
    }
    let clusters: Vec<_> = sides.iter().map(|it| clusters(it)).collect();
    let rates = all.into_iter().map(|(key, (collective, mut found))| Rate {
        collective,
        size: key.1,
        normal: clusters.iter().map(|it| normal(it, collective, key.1)).collect(),
        amounts: found.iter_mut().map(|it| middle(it)).collect(),
    });
    rates.collect()
}

fn of_test(test: &NcclTests) -> impl Iterator<Item = Measured> {
    let collective = test.collective();
    test.rows.iter().filter_map(move |row| {
        let rate = row.out_of_place.or(row.in_place)?.busbw;
        Some(Measured { collective: collective?, size: row.size, rate, spread: None })
    })
}

/// On what the collectives of a run were measured: as each test says, else as NCCL reports it.
struct Clusters {
    of_tests: Vec<(Collective, Cluster)>,
    reported: Option<Cluster>,
}

fn clusters(side: &Side<'_>) -> Clusters {
    let log = side.run.log;
    let tests = bandwidth::measured(log).unwrap_or_default();
    let reported = || {
        let layout = log.job.size.reported_layout().filter(NodeLayout::is_even)?;
        log.expected()?.cluster(layout.nodes, layout.ranks_per_node)
    };
    Clusters {
        of_tests: tests.into_iter().map(|it| (it.collective, it.cluster)).collect(),
        reported: reported().filter(|_| !side.run.measured.is_empty()),
    }
}

/// Below this size latency matters, and it differs between hosts more than bandwidth does.
const SMALLEST: u64 = 1 << 20;

fn normal(clusters: &Clusters, collective: Collective, size: u64) -> Option<Expected> {
    let of_test = clusters.of_tests.iter().find(|it| it.0 == collective).map(|it| &it.1);
    let cluster = of_test.or(clusters.reported.as_ref()).filter(|_| size >= SMALLEST)?;
    let it = forecast::normal(collective, cluster, size)?;
    Some(Expected { low: it.low, expected: it.expected, high: it.high })
}

/// The middle one of several measurements; between which bandwidths they and their samples lie.
fn middle(found: &mut [Measured]) -> Option<Amount> {
    found.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    let value = found.get(found.len() / 2)?.rate;
    let ends = |it: &Measured| it.spread.unwrap_or((it.rate, it.rate));
    let low = found.iter().map(|it| ends(it).0).fold(f64::MAX, f64::min);
    let high = found.iter().map(|it| ends(it).1).fold(0.0, f64::max);
    let spread = (found.len() > 1 || found.iter().any(|it| it.spread.is_some())).then_some((low, high));
    Some(Amount { value, spread, how: None })
}
