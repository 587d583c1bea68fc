//! Settings that differ between runs: possible causes that no prediction of steps includes, priced by `expect` where it models them.

use fabric::Collective;
use forecast::Cluster;
use job::size::NodeLayout;

use super::{Fact, Side};
use crate::expected::Expected;

/// A variable or a release in which a run differs from the baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// The run, by its position.
    pub run: usize,
    /// `NCCL_MAX_NCHANNELS`, `libfabric`.
    pub name: String,
    /// What the run has.
    pub value: String,
    /// What the baseline has.
    pub baseline: String,
    /// What it does to bandwidth.
    pub price: Price,
}

/// What a setting does to the bandwidth that `expect` gives for the run.
#[derive(Debug, Clone, PartialEq)]
pub enum Price {
    /// Times the bandwidth with the value of the baseline, for [`COLLECTIVE`] of [`SIZE`].
    Bandwidth(f64),
    /// It is not priced, for this reason.
    None(&'static str),
}

/// What is priced: most of training is made of large ones.
pub const COLLECTIVE: Collective = Collective::AllReduce;
/// Bytes.
pub const SIZE: u64 = 256 << 20;

/// Ratios closer to one than this: the model does not know the variable, or it does nothing there.
const SAME: f64 = 0.01;

/// Releases that may change how fast a run is.
const RELEASES: [&str; 4] = ["NCCL", "RCCL", "network plugin", "libfabric"];

/// Variables that say what is printed, and change nothing else.
const PRINTED: [&str; 6] = [
    "NCCL_DEBUG",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_DEBUG_TIMESTAMP_FORMAT",
    "NCCL_DEBUG_TIMESTAMP_LEVELS",
    "NCCL_GRAPH_DUMP_FILE",
    "NCCL_TOPO_DUMP_FILE",
];

/// Of each run that is not the baseline.
pub(super) fn of(sides: &[Side<'_>], facts: &[Fact], baseline: usize) -> Vec<Setting> {
    let Some(base) = sides.get(baseline) else { return Vec::new() };
    let is_variable = |it: &Fact| it.variable && !PRINTED.contains(&&*it.name);
    let wanted = |it: &&Fact| it.differs && (is_variable(it) || RELEASES.contains(&&*it.name));
    let mut all = Vec::new();
    for (run, side) in sides.iter().enumerate().filter(|(at, _)| *at != baseline) {
        for fact in facts.iter().filter(wanted) {
            let value = |at: usize| fact.values.get(at).cloned().flatten();
            let Some((value, baseline)) = value(run).zip(value(baseline)).filter(|it| it.0 != it.1) else {
                continue;
            };
            let price = if fact.variable {
                priced(side, base, &fact.name)
            } else {
                Price::None("expect does not tell one release from another here")
            };
            all.push(Setting { run, name: fact.name.clone(), value, baseline, price });
        }
    }
    all
}

/// The bandwidth of the run over that of the same run with the variable as the baseline has it.
fn priced(side: &Side<'_>, base: &Side<'_>, name: &str) -> Price {
    let job = &side.run.log.job;
    let Some(layout) = job.size.reported_layout().filter(NodeLayout::is_even) else {
        return Price::None("the layout of the ranks is not known");
    };
    let mut other = job.clone();
    other.settings.variables.retain(|it| &*it.name != name);
    other.settings.variables.extend(base.run.log.job.settings.named(name).cloned());
    let rate = |job: &job::Job| {
        let machine = Expected::of(job)?.plain;
        let cluster = Cluster::of_machine(&machine, layout.nodes, &job.effective_settings()).ok()?;
        let cluster = cluster.with_pods(1, layout.ranks_per_node).ok()?;
        Some(forecast::normal(COLLECTIVE, &cluster, SIZE)?.expected).filter(|it| *it > 0.0)
    };
    if job.machines.is_empty() {
        return Price::None("the machine is not known; --instance NAME gives it");
    }
    match rate(job).zip(rate(&other)).map(|(mine, other)| mine / other) {
        Some(ratio) if (ratio - 1.0).abs() > SAME => Price::Bandwidth(ratio),
        Some(_) => Price::None("expect gives the same bandwidth for both values"),
        None => Price::None("expect gives no bandwidth for this job"),
    }
}
