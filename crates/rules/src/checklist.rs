//! The check list: what an engineer looks for in a log by hand, one line each.

mod paths;
mod run;
mod shape;
mod stack;

use std::collections::BTreeMap;

use evidence::{Process, Quote, Source};
use serde::Serialize;

use crate::{Found, Log, Severity, Summary};

/// The state of an item of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Checked, and as it should be.
    Ok,
    /// Checked, worth knowing.
    Note,
    /// Checked, costs performance.
    Warning,
    /// Checked, broken.
    Error,
    /// The input does not say.
    #[serde(rename = "not checked")]
    NotChecked,
}

/// An item of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecklistItem {
    /// What is checked: `plugin`, `network`, ...
    pub id: &'static str,
    /// What the check found.
    pub state: State,
    /// What was found, or what input the check needs.
    pub text: String,
    /// The id of the rule whose finding decides the state.
    pub rule: Option<&'static str>,
    /// Where.
    pub evidence: Option<Quote>,
}

impl State {
    /// The word used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::NotChecked => "not checked",
        }
    }
}

/// Checks every item of the list.
pub(crate) fn checklist(log: &Log, summary: &Summary, findings: &[Found]) -> Vec<ChecklistItem> {
    let list = List { log, summary };
    let checks = [
        list.nccl(),
        list.driver(),
        list.plugin(),
        list.provider(),
        list.network(),
        list.interface(),
        list.ranks(),
        list.gpudirect(),
        list.inside(),
        list.transport_protocol(),
        list.protocols(),
        list.nvls(),
        list.channels(),
        list.rings(),
        list.trees(),
        list.tuner(),
        list.bandwidth(),
        list.start(),
        list.environment(),
        list.ras(),
    ];
    let mut checks: Vec<ChecklistItem> = checks.into_iter().collect();
    if summary.host_memory {
        for check in &mut checks {
            let foreign = matches!(check.id, "gpudirect" | "protocols" | "tuner" | "environment");
            if foreign || check.state == State::NotChecked {
                *check = not_checked(check.id, "this log comes from plumb's own host-memory engine");
            } else if check.id == "inside" {
                // Shared memory is second best between GPUs; between CPUs there is nothing better.
                check.state = State::Ok;
            }
        }
    }
    for check in &mut checks {
        if let Some(found) = related(check.id, findings) {
            check.state = if found.severity() == Severity::Error { State::Error } else { State::Warning };
            check.text.clone_from(&found.finding.message);
            check.rule = Some(found.rule.id);
            if let Some(quote) = found.finding.quotes().next() {
                check.evidence = Some(quote.clone());
            }
        }
    }
    checks
}

/// The worst finding about an item of the list.
fn related<'a>(check: &str, findings: &'a [Found]) -> Option<&'a Found> {
    let ids: &[&str] = match check {
        "nccl" => &["nccl-version-mismatch", "nccl-too-old-for-gpu", "wsl-unsupported-nccl"],
        "driver" => &["cuda-driver-too-old", "fabric-manager-not-running"],
        "plugin" => &[
            "ofi-plugin-not-loaded",
            "ofi-plugin-lib-mismatch",
            "plugin-too-old",
            "efa-nccl219-old-libfabric",
        ],
        "provider" => &[
            "efa-provider-not-found",
            "efa-device-not-in-container",
            "efa-nics-unexpected",
            "ib-device-not-in-container",
        ],
        "network" => &[
            "socket-fallback",
            "mixed-network-between-ranks",
            "single-nic-used",
            "nics-unused",
            "nic-without-ring",
            "far-nic",
            "roce-fabric-unreachable",
            "ib-link-flap",
        ],
        "interface" => &[
            "socket-ifname-not-found",
            "socket-ifname-mismatch",
            "loopback-interface-used",
            "docker-bridge-network",
            "bootstrap-on-wrong-interface",
            "routing-same-subnet-two-nics",
        ],
        "ranks" => &[
            "duplicate-gpu",
            "rank-never-joined",
            "more-ranks-than-gpus",
            "one-gpu-of-many",
            "hostname-collision",
        ],
        "gpudirect" => &[
            "gdr-disabled",
            "gdr-off-by-distance",
            "gpudirect-off",
            "gpudirect-missing-on-another-rank",
            "acs-breaks-gdr",
            "dmabuf-unsupported",
        ],
        "inside" => &[
            "nvlink-unused",
            "p2p-unused",
            "p2p-disabled-nvlink",
            "p2p-disabled-by-setting",
            "p2p-not-available-vm",
            "p2p-not-supported",
            "gpu-isolation-per-process",
        ],
        "nvls" => &["nvls-fabric-state"],
        "channels" => &["ranks-disagree", "search-degraded", "fewer-channels"],
        "bandwidth" => &["bandwidth-below-normal"],
        "start" => &["late-ranks"],
        "environment" => &[
            "config-mismatch-between-ranks",
            "unknown-variable",
            "variable-value-misread",
            "topo-file-emptied",
        ],
        _ => &[],
    };
    let found = findings.iter().filter(|it| ids.contains(&it.rule.id) && it.severity() >= Severity::Warning);
    found.max_by_key(|it| (it.severity(), it.finding.confidence))
}

struct List<'a> {
    log: &'a Log,
    summary: &'a Summary,
}

fn ok(id: &'static str, text: impl Into<String>, evidence: Option<&Quote>) -> ChecklistItem {
    ChecklistItem { id, state: State::Ok, text: text.into(), rule: None, evidence: evidence.cloned() }
}

fn note(id: &'static str, text: impl Into<String>, evidence: Option<&Quote>) -> ChecklistItem {
    ChecklistItem { id, state: State::Note, text: text.into(), rule: None, evidence: evidence.cloned() }
}

fn not_checked(id: &'static str, text: impl Into<String>) -> ChecklistItem {
    ChecklistItem { id, state: State::NotChecked, text: text.into(), rule: None, evidence: None }
}

/// An item that needs a source that the input lacks.
fn lacks(id: &'static str, source: Source) -> ChecklistItem {
    not_checked(id, format!("needs {}", source.how_to_get()))
}

impl<'a> List<'a> {
    /// The values that processes report, with one line each, and how many processes report any.
    fn values<T: Ord + Clone + 'a>(
        &self,
        of: impl Fn(&'a Process) -> Option<(T, &'a Quote)>,
    ) -> (BTreeMap<T, &'a Quote>, usize) {
        let mut values = BTreeMap::new();
        let mut said = 0;
        for process in &self.log.case.processes {
            if let Some((value, quote)) = of(process) {
                said += 1;
                values.entry(value).or_insert(quote);
            }
        }
        (values, said)
    }

    /// Whether the input shows a setup up to the number of channels: what NCCL has not reported by then is not the case.
    fn set_up(&self) -> bool {
        let mut members = self.log.case.communicators.iter().flat_map(|it| it.members.values());
        members.any(|it| it.facts.channels.is_some() || it.is_complete())
    }

    fn everyone(&self, said: usize) -> String {
        match self.log.case.processes.len() {
            1 => "the only process seen".to_owned(),
            2 if said == 2 => "both processes".to_owned(),
            all if said == all => format!("all {all} processes"),
            all => format!("{said} of {all} processes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::State;
    use crate::diagnose;
    use crate::testing::read;

    #[test]
    fn nothing_read_is_not_checked() {
        let checks = diagnose(&read("")).checklist;
        assert!(checks.iter().all(|it| it.state == State::NotChecked), "{checks:#?}");
    }
}
