//! How it runs: bandwidth, start, environment, RAS.

use std::collections::BTreeMap;

use evidence::{Quote, Source};
use forecast::Verdict;

use super::{ChecklistItem, List, lacks, not_checked, note, ok};
use crate::expectation::{self, Expectation};
use crate::performance::bandwidth::{measured, size};

impl List<'_> {
    pub(super) fn bandwidth(&self) -> ChecklistItem {
        let measured = measured(self.case);
        if let Some((run, largest)) = measured.iter().flatten().find_map(|it| Some((it, it.rows.first()?))) {
            let text = format!(
                "{} of {} reached {} GB/s; {} is normal on {}",
                run.collective,
                size(largest.row.size),
                expectation::number(largest.rate),
                expectation::interval(&largest.normal),
                expectation::layout(&run.cluster)
            );
            let state = if run.verdict() == Verdict::Normal { ok } else { note };
            return state("bandwidth", text, Some(&largest.row.quote));
        }
        let expectation = Expectation::of(self.case);
        let cluster = expectation.as_ref().and_then(|it| {
            if self.case.spans_nodes()? { it.across(self.case) } else { it.inside(self.case) }
        });
        match cluster.filter(|_| self.set_up()).and_then(|it| expectation::is_normal(&it)) {
            Some(text) => {
                let told = expectation.as_ref().and_then(|it| it.told);
                note("bandwidth", format!("not measured. {text}"), told)
            }
            None => lacks("bandwidth", Source::NcclTests),
        }
    }

    pub(super) fn start(&self) -> ChecklistItem {
        let timings = self
            .case
            .communicators
            .iter()
            .flat_map(|it| it.members.values())
            .filter_map(|it| it.facts.init_timings.as_ref());
        match timings.max_by(|a, b| a.value.total.total_cmp(&b.value.total)) {
            Some(seen) => {
                let what = if seen.value.split { "a split" } else { "a communicator" };
                ok(
                    "start",
                    format!(
                        "the slowest setup, {what} of {} ranks, took {:.2} s",
                        seen.value.n_ranks, seen.value.total
                    ),
                    Some(&seen.quote),
                )
            }
            None => not_checked("start", "printed by NCCL 2.22 and later"),
        }
    }

    pub(super) fn environment(&self) -> ChecklistItem {
        let mut names: BTreeMap<&str, (bool, &Quote)> = BTreeMap::new();
        for process in &self.case.processes {
            for seen in &process.facts.environment {
                let name = &*seen.value.0;
                let by_plugin = process.added_by_plugin(name);
                names.entry(name).or_insert((by_plugin, &seen.quote));
            }
        }
        let Some((_, quote)) = names.values().next() else {
            return if self.set_up() {
                ok("environment", "no variable was read by NCCL in these lines", None)
            } else {
                lacks("environment", Source::NcclLog)
            };
        };
        let by = |plugin: bool| {
            names.iter().filter(|it| it.1.0 == plugin).map(|it| *it.0).collect::<Vec<_>>().join(", ")
        };
        let (user, plugin) = (by(false), by(true));
        let text = match (user.is_empty(), plugin.is_empty()) {
            (false, false) => format!("set for the job: {user}; by the plugin: {plugin}"),
            (false, true) => format!("set for the job: {user}"),
            _ => format!("set by the plugin: {plugin}"),
        };
        ok("environment", text, Some(quote))
    }

    pub(super) fn ras(&self) -> ChecklistItem {
        match self.case.processes.iter().find_map(|it| it.facts.ras.first()) {
            Some(seen) => {
                ok("ras", format!("while it runs, the job answers at {}", seen.value), Some(&seen.quote))
            }
            None => not_checked("ras", "printed by NCCL 2.24 and later"),
        }
    }
}
