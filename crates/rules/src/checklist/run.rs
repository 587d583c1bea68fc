//! The run: bandwidth, start, environment, RAS.

use std::collections::BTreeMap;

use evidence::Source;
use forecast::Verdict;
use job::{Setter, Variable};

use super::{ChecklistItem, List, lacks, not_checked, note, ok};
use crate::expected;
use crate::performance::bandwidth::{measured, size};

impl List<'_> {
    pub(super) fn bandwidth(&self) -> ChecklistItem {
        let measured = measured(self.log);
        if let Some((run, largest)) = measured.iter().flatten().find_map(|it| Some((it, it.rows.first()?))) {
            let text = format!(
                "{} of {} reached {} GB/s; {} is normal on {}",
                run.collective,
                size(largest.row.size),
                expected::number(largest.rate),
                expected::interval(&largest.normal),
                expected::layout(&run.cluster)
            );
            let state = if run.verdict() == Verdict::Normal { ok } else { note };
            return state("bandwidth", text, Some(&largest.row.quote));
        }
        let expected = self.log.expected();
        let cluster = expected.and_then(|it| {
            if self.log.job.size.spans_nodes()? { it.across(self.log) } else { it.inside(self.log) }
        });
        match cluster.filter(|_| self.set_up()).and_then(|it| expected::is_normal(&it)) {
            Some(text) => {
                let named_by = expected.and_then(|it| it.named_by.as_ref());
                note("bandwidth", format!("not measured. {text}"), named_by)
            }
            None => lacks("bandwidth", Source::NcclTests),
        }
    }

    pub(super) fn start(&self) -> ChecklistItem {
        let timings = self
            .log
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
            None => not_checked("start", "only NCCL 2.22 and later reports it"),
        }
    }

    pub(super) fn environment(&self) -> ChecklistItem {
        let mut names: BTreeMap<&str, &Variable> = BTreeMap::new();
        for it in self.log.job.settings.read_by_nccl() {
            names.entry(&it.name).or_insert(it);
        }
        let Some(first) = names.values().next() else {
            return if self.set_up() {
                ok("environment", "NCCL reports no variable in these lines", None)
            } else {
                lacks("environment", Source::NcclLog)
            };
        };
        let by = |setter: Setter| {
            let all = names.values().filter(|it| it.setter == setter);
            all.map(|it| &*it.name).collect::<Vec<_>>().join(", ")
        };
        let (user, plugin) = (by(Setter::Job), by(Setter::Plugin));
        let text = match (user.is_empty(), plugin.is_empty()) {
            (false, false) => format!("set for the job: {user}; set by the plugin: {plugin}"),
            (false, true) => format!("set for the job: {user}"),
            _ => format!("set by the plugin: {plugin}"),
        };
        ok("environment", text, first.quote())
    }

    pub(super) fn ras(&self) -> ChecklistItem {
        match self.log.case.processes.iter().find_map(|it| it.facts.ras.first()) {
            Some(seen) => ok(
                "ras",
                format!("NCCL RAS listens on {} while the job runs", socket_address(&seen.value)),
                Some(&seen.quote),
            ),
            None => not_checked("ras", "only NCCL 2.24 and later reports it"),
        }
    }
}

/// `::1<28028>`, as NCCL prints it, as `[::1]:28028`.
fn socket_address(printed: &str) -> String {
    match printed.strip_suffix('>').and_then(|it| it.split_once('<')) {
        Some((host, port)) if host.contains(':') => format!("[{host}]:{port}"),
        Some((host, port)) => format!("{host}:{port}"),
        None => printed.to_owned(),
    }
}
