//! The answer in one line, for a ticket.

use std::collections::BTreeSet;

use serde::Serialize;

use evidence::Kind;
use job::State;

use crate::diagnosis::{Unchecked, count};
use crate::{Confidence, Found, Log, Role, Severity, Summary};

/// The state of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing that was read allows an answer.
    Unknown,
    /// Nothing to report.
    Ok,
    /// Something worth knowing.
    Info,
    /// Something costs performance.
    Warning,
    /// Something is broken.
    Error,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The state of the job.
    pub level: Level,
    /// The line.
    pub text: String,
    /// The job in the line: its size, its software and the path of its data.
    pub job: String,
    /// How far the answer reaches: which ranks were seen to complete their setup, and how the job ended.
    pub reach: String,
    /// What would settle an answer that is `unknown`.
    pub next: Option<String>,
}

impl Level {
    /// The word used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Sums the findings up.
pub(crate) fn verdict(log: &Log, summary: &Summary, findings: &[Found], unchecked: &[Unchecked]) -> Verdict {
    let lack = lack(log, summary, unchecked);
    let level = match (findings.iter().map(Found::severity).max(), &lack) {
        (Some(Severity::Error), _) => Level::Error,
        (Some(Severity::Warning), _) => Level::Warning,
        // No finding does not mean success: `ok` is said only of a job that was seen to start and whose paths are known.
        (_, Some(_)) => Level::Unknown,
        (Some(Severity::Info), None) => Level::Info,
        (None, None) => Level::Ok,
    };
    let mut parts: Vec<String> = Vec::new();
    parts.extend(size(log, summary));
    parts.extend(stack(summary));
    let path = path(log, summary);
    let head = parts.join(", ");
    let mut text = match (head.is_empty(), path.is_empty()) {
        (false, false) => format!("{head}: {path}"),
        (false, true) => head,
        (true, false) => path,
        (true, true) => topology(log).unwrap_or_else(|| "the input shows no NCCL setup".to_owned()),
    };
    let job = text.clone();
    // The error comes first: people paste this line.
    let broken = findings.iter().find(|it| it.severity() == Severity::Error);
    if let Some(first) = broken {
        // What is reported without a cause is a fact, not a possibility.
        let guess = first.finding.confidence == Confidence::Possible && first.rule.role != Role::Unexplained;
        let sure = if guess { "possibly " } else { "" };
        text = format!("{sure}{}; {text}", first.finding.message);
    }
    text.push_str("; ");
    text.push_str(&problems(findings));
    let next = lack.filter(|_| level == Level::Unknown);
    Verdict { level, text, job, reach: reach(log), next }
}

/// What is missing for the word `ok`, as what to do about it; `None` where it is earned.
fn lack(log: &Log, summary: &Summary, unchecked: &[Unchecked]) -> Option<String> {
    let outcome = &log.job.outcome;
    if let Some(line) = &outcome.trouble {
        let text = crate::sentence::shorten(line.text.trim());
        return Some(format!("find out whether the job went on after `{text}`"));
    }
    let logs = "give plumb the log of a run with NCCL_DEBUG=INFO, from its start, of all ranks";
    let setup = &outcome.setup;
    if setup.seen == 0 {
        let judged = |id: &str| !unchecked.iter().any(|it| it.rule.id == id);
        let measured = log.case.tests.iter().any(|it| !it.rows.is_empty());
        return match measured && judged("bandwidth-below-normal") && outcome.state == State::Finished {
            true => None,
            false if measured => Some(
                "name the machine, so that the bandwidth can be judged: `plumb doctor --instance NAME`"
                    .to_owned(),
            ),
            false => Some(match elsewhere(log) {
                Some(other) => format!("{other}; for a diagnosis {logs}"),
                None => logs.to_owned(),
            }),
        };
    }
    if setup.n_ranks.is_some_and(|it| it > MOST_RANKS) {
        return Some(format!(
            "check the log: it gives a size of {} ranks",
            setup.n_ranks.unwrap_or_default()
        ));
    }
    if setup.complete < setup.seen || setup.unfinished > 0 {
        return Some(
            "give plumb the rest of the log: the setup of a communicator begins here and does not end"
                .to_owned(),
        );
    }
    let alone = setup.n_ranks == Some(1);
    let between = log.job.size.spans_nodes() == Some(true);
    if !alone
        && ((between && summary.networks.is_empty())
            || (!between && summary.inside.is_empty() && summary.networks.is_empty()))
    {
        return Some("give plumb the lines `Channel ... via ...` too: NCCL_DEBUG=INFO without a filter by NCCL_DEBUG_SUBSYS".to_owned());
    }
    None
}

/// The command that answers about such an input, where all of it is for another one.
fn elsewhere(log: &Log) -> Option<&'static str> {
    let files = log.case.sources.files.iter().filter(|it| it.problem.is_none());
    let mut kinds: Vec<Kind> = files.map(|it| it.tally.kind()).collect();
    kinds.dedup();
    match kinds.as_slice() {
        [] => None,
        all if all.iter().all(|it| matches!(it, Kind::TopologyMatrix | Kind::TopologyXml)) => {
            Some("`plumb topo FILE` shows the machine")
        }
        all if all.iter().all(|it| *it == Kind::Manifest) => Some("`plumb lint FILE` checks the manifest"),
        _ => None,
    }
}

/// More ranks than any job has had; a larger number in a log is a fault of the log.
const MOST_RANKS: u32 = 4_000_000;

/// `setup complete on 4 of 16 ranks; how the job ended is not in this input`
fn reach(log: &Log) -> String {
    let outcome = &log.job.outcome;
    let setup = &outcome.setup;
    let ranks = |n: u32| if n == 1 { "1 rank".to_owned() } else { format!("{n} ranks") };
    let mut parts = Vec::new();
    match (setup.seen, setup.n_ranks) {
        (0, _) => {}
        (_, Some(n)) => parts.push(format!("setup complete on {} of {}", setup.complete, ranks(n))),
        (seen, None) => parts.push(format!("setup complete on {} of the {seen} ranks seen", setup.complete)),
    }
    let steps = log.case.training.loss_lines;
    parts.push(match outcome.state {
        State::Failed => "the job failed".to_owned(),
        State::Hung => "the job hung".to_owned(),
        State::Finished => "the job finished".to_owned(),
        State::Running if steps > 0 => {
            format!("{steps} steps logged; the end of the job is not in this input")
        }
        State::Running => "the job was at work when the log ends".to_owned(),
        State::Unknown => "how the job ended is not in this input".to_owned(),
    });
    parts.join("; ")
}

/// `2 errors, 1 warning`, or that there are none.
fn problems(findings: &[Found]) -> String {
    let counted = |severity, one: &str| {
        let n = count(findings, severity);
        format!("{n} {one}{}", if n == 1 { "" } else { "s" })
    };
    format!(
        "{}, {}, {}",
        counted(Severity::Error, "error"),
        counted(Severity::Warning, "warning"),
        counted(Severity::Info, "note")
    )
}

fn size(log: &Log, summary: &Summary) -> Option<String> {
    let n = summary.n_ranks?;
    let ranks = if n == 1 { "1 rank".to_owned() } else { format!("{n} ranks") };
    let ids = if log.job.has_host_ids() { " (NCCL_HOSTID on one host)" } else { "" };
    Some(match (summary.n_nodes, summary.ranks_per_node) {
        (Some(1), _) => format!("{ranks} on 1 node"),
        (Some(nodes), Some(local)) if nodes.checked_mul(local) == Some(n) && !summary.host_memory => {
            format!(
                "{ranks} on {nodes} nodes{ids} with {local} GPU{} each",
                if local == 1 { "" } else { "s" }
            )
        }
        (Some(nodes), _) => format!("{ranks} on {nodes} nodes{ids}"),
        (None, _) => ranks,
    })
}

fn stack(summary: &Summary) -> Vec<String> {
    let mut parts = Vec::new();
    if summary.host_memory {
        parts.push("host memory".to_owned());
    }
    if let Some(nccl) = &summary.nccl {
        parts.push(format!("NCCL {}", nccl.split('+').next().unwrap_or(nccl)));
    }
    if let Some(rccl) = &summary.rccl {
        parts.push(format!("RCCL {rccl}"));
    }
    if let Some(plugin) = &summary.plugin {
        parts.push(format!("{} {}", plugin.name, plugin.version));
    }
    if let Some(instance) = &summary.instance {
        parts.push(instance.clone());
    }
    parts
}

/// `8 GPUs, NV18 between all of them`
fn topology(log: &Log) -> Option<String> {
    let matrix = log.case.matrices.first()?;
    let paths: BTreeSet<&str> = matrix.gpu_paths().map(|it| it.path).collect();
    let gpus = matrix.n_gpus();
    let paths: Vec<&str> = paths.into_iter().collect();
    Some(match paths.as_slice() {
        [] => format!("a topology of {gpus} GPU{}", if gpus == 1 { "" } else { "s" }),
        [one] => format!("a topology of {gpus} GPUs, {one} between all of them"),
        many => format!("a topology of {gpus} GPUs with {} between them", many.join(", ")),
    })
}

fn ring_without_gpudirect(log: &Log) -> bool {
    let mut members = log.case.communicators.iter().flat_map(|it| it.members.values());
    members.any(|it| {
        it.facts
            .rings_connected
            .as_ref()
            .is_some_and(|it| matches!(it.value, Some(evidence::facts::RingSummary { gpudirect: false, .. })))
    })
}

/// Which network and transports carry the data.
fn path(log: &Log, summary: &Summary) -> String {
    let mut parts = Vec::new();
    let several = log.job.size.spans_nodes() != Some(false);
    if several && !summary.networks.is_empty() {
        let network = summary.networks.join(" and ");
        parts.push(match summary.gpudirect {
            (0, 0) => format!("{network} between nodes"),
            // NCCL's summary of the ring covers all ranks, also those whose logs are missing.
            (_, 0) if ring_without_gpudirect(log) => {
                format!(
                    "{network} between nodes, with GPUDirect on the ranks in this input but not on all ranks"
                )
            }
            (_, 0) => format!("{network} between nodes with GPUDirect"),
            (0, _) if summary.networks == ["TCP sockets"] => format!("{network} between nodes"),
            (0, _) => format!("{network} between nodes without GPUDirect"),
            (with, without) => {
                format!("{network} between nodes, GPUDirect on {with} of {} connections", with + without)
            }
        });
    }
    let inside: Vec<&str> = summary
        .inside
        .keys()
        .map(|it| match *it {
            "P2P" => "peer-to-peer",
            _ => "shared memory",
        })
        .collect();
    if !inside.is_empty() {
        parts.push(format!("{} inside a node", inside.join(" and ")));
    }
    parts.join(", ")
}
