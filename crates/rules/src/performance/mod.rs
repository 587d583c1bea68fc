//! Speed: what limits it, and where it is lost.

pub(crate) mod bandwidth;
pub mod bandwidth_below_normal;
pub mod bandwidth_too_good;
pub mod far_nic;
pub mod fewer_channels;
pub mod ll128_unused;
pub mod nic_without_ring;
pub mod nics_unused;
pub mod roce_congestion;
pub mod roce_no_flow_control;
pub mod search_degraded;
pub mod single_nic_used;
pub mod topology_limited;
pub mod wrong_results;

#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeSet;

use evidence::Quote;
use evidence::nccl::LinkLayer;
use evidence::plain::{NcclTests, Row};
use evidence::signals::performance::ROCE_NAMED;

use crate::{Log, Rule};

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &bandwidth_below_normal::RULE,
    &bandwidth_too_good::RULE,
    &far_nic::RULE,
    &fewer_channels::RULE,
    &ll128_unused::RULE,
    &nic_without_ring::RULE,
    &nics_unused::RULE,
    &roce_congestion::RULE,
    &roce_no_flow_control::RULE,
    &search_degraded::RULE,
    &single_nic_used::RULE,
    &topology_limited::RULE,
    &wrong_results::RULE,
];

/// The line that shows that RDMA runs over Ethernet.
pub(crate) fn sign_of_roce(log: &Log) -> Option<&Quote> {
    let adapters = log.case.processes.iter().flat_map(|it| it.facts.hcas.iter());
    let adapter = adapters.into_iter().find(|it| it.value.iter().any(|hca| hca.layer == LinkLayer::RoCE));
    let named = || log.case.sightings_of(&ROCE_NAMED).next().map(|it| &it.quote);
    let gid = || log.job.settings.named("NCCL_IB_GID_INDEX").next().and_then(job::Variable::quote);
    adapter.map(|it| &it.quote).or_else(named).or_else(gid)
}

/// Whether a run is known to stay inside one host.
pub(crate) fn on_one_host(run: &NcclTests) -> bool {
    let hosts: BTreeSet<&str> = run.devices.iter().map(|it| &*it.host).collect();
    hosts.len() == 1
}

/// The deepest fall of the bus bandwidth as messages grow: the best before, the row, and its bandwidth.
///
/// Sizes below 64 KiB are ruled by latency, and a single slow measurement does not
/// count: of the two of a row the better is taken.
pub(crate) fn deepest_fall(run: &NcclTests) -> Option<(f64, &Row, f64)> {
    let mut best = 0.0_f64;
    let mut deepest: Option<(f64, &Row, f64)> = None;
    for row in run.rows.iter().filter(|it| it.size >= 64 * 1024) {
        let timings = [row.out_of_place, row.in_place];
        let busbw = timings.iter().flatten().map(|it| it.busbw).fold(0.0_f64, f64::max);
        if busbw > 0.0 && best > 1.0 && deepest.is_none_or(|it| busbw / best < it.2 / it.0) {
            deepest = Some((best, row, busbw));
        }
        best = best.max(busbw);
    }
    deepest.filter(|it| it.2 < it.0)
}
