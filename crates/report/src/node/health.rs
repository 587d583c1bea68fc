//! One line for schedulers and monitoring.

use std::cmp::Reverse;
use std::fmt::Write as _;

use evidence::node::Gpu;
use rules::Severity;
use rules::node::Fitness;

use super::{Node, facts};
use crate::clean;

/// How long a reason may be: Slurm shows the first part of it, Nagios one line.
const MOST: usize = 200;

/// One line for Slurm's `HealthCheckProgram` or prolog, with a prefix by which plumb's own reasons are known; `None` where nothing is
/// wrong.
pub fn health_line(node: &Node) -> Option<String> {
    let problems: Vec<_> = node.findings.iter().filter(|it| it.severity >= Severity::Warning).collect();
    let said = |word: &str| {
        let first = problems.first()?;
        let more =
            if problems.len() > 1 { format!(" (+{} more)", problems.len() - 1) } else { String::new() };
        Some(format!("plumb: {word}{}: {}{more}", first.id, first.message))
    };
    let line = match node.verdict {
        Fitness::Fit => None,
        Fitness::Warnings => said("warning: "),
        Fitness::NotFit => said(""),
        Fitness::Unknown => Some(format!("plumb: unknown: {}", node.text)),
    };
    line.map(|it| one_line(&it))
}

fn one_line(text: &str) -> String {
    let text = clean(&text.replace(['\n', '|'], " "));
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

/// The answer of a Nagios plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nagios {
    /// `PLUMB OK - 8 x H200, 32 EFA devices | gpus=8 ...`
    pub line: String,
    /// 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
    pub code: u8,
}

impl Nagios {
    /// Status, sentence and performance data, as monitoring-plugins.org asks for.
    pub fn new(node: &Node) -> Self {
        let (word, code) = match node.verdict {
            Fitness::Fit => ("OK", 0),
            Fitness::Warnings => ("WARNING", 1),
            Fitness::NotFit => ("CRITICAL", 2),
            Fitness::Unknown => ("UNKNOWN", 3),
        };
        let text = match health_line(node) {
            // The status has said that it is not known.
            Some(line) => line.trim_start_matches("plumb: ").trim_start_matches("unknown: ").to_owned(),
            None => facts::devices(&node.state),
        };
        let line = format!("PLUMB {word} - {} |{}", one_line(&text), performance(node));
        Self { line, code }
    }
}

/// `label=value[unit];[warning];[critical];[least];[most]`
fn performance(node: &Node) -> String {
    let state = &node.state;
    let mut out = String::new();
    let mut add = |label: &str, value: String| {
        let _ = write!(out, " {label}={value}");
    };
    add("errors", node.count(Severity::Error).to_string());
    add("warnings", node.count(Severity::Warning).to_string());
    if let (None, Some(on_bus)) = (&state.gpus, state.pci.gpus) {
        add("gpus_on_bus", on_bus.to_string());
    }
    if let Some(gpus) = &state.gpus {
        add("gpus", gpus.len().to_string());
        if let Some((hot, limit)) = hottest(gpus) {
            add("gpu_temperature_max", format!("{hot}{limit}"));
        }
        let errors = gpus.iter().filter_map(|it| it.ecc?.volatile_uncorrected).fold(0, u64::saturating_add);
        add("ecc_uncorrected", format!("{errors}c"));
    }
    if let Some(ports) = &state.rdma {
        add(
            "rdma_ports_active",
            ports.iter().filter(|it| it.state.as_deref() == Some("ACTIVE")).count().to_string(),
        );
    }
    if let Some(free) = state.memory.shm_free_bytes {
        add("shm_free", format!("{free}B"));
    }
    out
}

/// The highest temperature with the limit of the same GPU, above which a warning is found: others may have other limits.
fn hottest(gpus: &[Gpu]) -> Option<(u32, String)> {
    let limit = |it: &Gpu| it.slowdown_c.filter(|it| *it > 0);
    let hot = gpus
        .iter()
        .filter(|it| it.temperature_c.is_some())
        .max_by_key(|it| (it.temperature_c, Reverse(limit(it).unwrap_or(u32::MAX))))?;
    Some((hot.temperature_c?, limit(hot).map_or(String::new(), |it| format!(";{it}"))))
}
