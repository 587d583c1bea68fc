//! Several machines, judged each and compared with each other. Schema `plumb.nodes/1`.

use std::collections::BTreeSet;
use std::io::{self, Write};

use evidence::node::NodeState;
use rules::node::{Fitness, Judged};
use rules::{Found, Severity};
use serde::Serialize;

use super::text::{closing, findings, head, row, word};
use super::{Node, Shape, facts};
use crate::Finding;
use crate::text::{Style, counted};

/// What is wrong with machines, and in what they differ.
#[derive(Debug, Clone, Serialize)]
pub struct Nodes {
    /// `plumb.nodes/1`
    pub schema: &'static str,
    /// The worst of all machines and differences.
    pub verdict: Fitness,
    /// The verdict in a sentence.
    pub text: String,
    /// Every machine with its own findings.
    pub nodes: Vec<One>,
    /// In what machines differ, or what changed on one.
    pub differences: Vec<Shape>,
    #[serde(skip)]
    pub(crate) full: Vec<Finding>,
    /// Why machines could not be judged, each reason once.
    #[serde(skip)]
    not_seen: Vec<String>,
}

/// One machine.
#[derive(Debug, Clone, Serialize)]
pub struct One {
    /// The host name.
    pub host: String,
    /// Whether it is fit to train, by itself and beside the others.
    pub verdict: Fitness,
    /// Its devices in a few words.
    pub devices: String,
    /// What is wrong with it.
    pub findings: Vec<Shape>,
}

impl Nodes {
    /// The answer about several machines: each with what rules say about it, and what they say about all together.
    pub fn new(states: Vec<(NodeState, Judged)>, together: &[Found]) -> Self {
        let nodes: Vec<Node> = states.into_iter().map(|it| Node::new(it.0, &it.1)).collect();
        let differences: Vec<Finding> = together.iter().map(|it| Finding::new(it, Vec::new())).collect();
        let of_differences = differences.iter().map(of_difference).max().unwrap_or(Fitness::Fit);
        let verdict =
            nodes.iter().map(|it| it.verdict).chain([of_differences]).max().unwrap_or(Fitness::Unknown);
        let mut named: Vec<String> = Vec::new();
        let broken = nodes.iter().filter(|it| it.verdict == Fitness::NotFit).map(|it| &it.state.host);
        let odd = differences
            .iter()
            .filter(|it| it.severity == Severity::Error)
            .flat_map(|it| &it.entities)
            .map(|it| &it.name);
        for host in broken.chain(odd) {
            if !named.contains(host) {
                named.push(host.clone());
            }
        }
        named.sort();
        let unknown: Vec<&Node> = nodes.iter().filter(|it| it.verdict == Fitness::Unknown).collect();
        if verdict == Fitness::Unknown {
            named = unknown.iter().map(|it| it.state.host.clone()).collect();
        }
        if verdict == Fitness::Warnings {
            named = with_warnings(&nodes, &differences);
        }
        let mut not_seen: Vec<String> =
            unknown.iter().filter_map(|it| it.not_seen().into_iter().next()).collect();
        not_seen.sort();
        not_seen.dedup();
        let text = sentence(nodes.len(), verdict, &named, &differences);
        let full = merged(&nodes, &differences);
        let one = |it: &Node| One {
            host: it.state.host.clone(),
            verdict: beside_others(it, &differences),
            devices: facts::devices(&it.state),
            findings: it.findings.clone(),
        };
        Self {
            schema: "plumb.nodes/1",
            verdict,
            text,
            nodes: nodes.iter().map(one).collect(),
            differences: differences.iter().map(Shape::new).collect(),
            full,
            not_seen,
        }
    }

    /// The severity of the worst finding.
    pub fn worst(&self) -> Option<Severity> {
        self.full.iter().map(|it| it.severity).max()
    }

    /// Writes the answer as JSON.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        crate::json::write_json(self, out)
    }

    /// For people: the verdict, the odd ones, then a line for each machine.
    pub fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let mut devices: Vec<&str> = self.nodes.iter().map(|it| &*it.devices).collect();
        devices.sort_unstable();
        devices.dedup();
        let below = format!("{}: {}", counted(self.nodes.len(), "node"), devices.join("; "));
        head(&self.text, self.verdict, &below, style, out)?;
        findings(&self.full, style, out)?;
        writeln!(out)?;
        let most = if style.verbose { usize::MAX } else { 12 };
        let mut shown: Vec<&One> = self.nodes.iter().collect();
        shown.sort_by_key(|it| std::cmp::Reverse(it.verdict));
        for it in shown.iter().take(most) {
            row(&it.host, &format!("{}: {}", word(it.verdict), it.devices), style, out)?;
        }
        if shown.len() > most {
            row("", &format!("{} more nodes (-v)", shown.len() - most), style, out)?;
        }
        if !self.not_seen.is_empty() {
            writeln!(out)?;
        }
        for it in self.not_seen.iter().take(most) {
            row("not seen", it, style, out)?;
        }
        writeln!(out, "{}", closing(&self.full, style))
    }
}

fn of_difference(it: &Finding) -> Fitness {
    match it.severity {
        Severity::Error => Fitness::NotFit,
        Severity::Warning => Fitness::Warnings,
        Severity::Info => Fitness::Fit,
    }
}

/// Whether a machine is fit by itself and in what it differs from the others: what the first line counts.
fn beside_others(node: &Node, differences: &[Finding]) -> Fitness {
    let own = differences.iter().filter(|it| it.entities.iter().any(|it| it.name == node.state.host));
    own.map(of_difference).fold(node.verdict, Fitness::max)
}

/// The machines that have a warning, by themselves or beside the others, each host once.
fn with_warnings(nodes: &[Node], differences: &[Finding]) -> Vec<String> {
    let warned = nodes.iter().filter(|it| beside_others(it, differences) == Fitness::Warnings);
    let hosts: BTreeSet<String> = warned.map(|it| it.state.host.clone()).collect();
    hosts.into_iter().collect()
}

fn sentence(count: usize, verdict: Fitness, named: &[String], differences: &[Finding]) -> String {
    let list = match named {
        [] => String::new(),
        all if all.len() <= 6 => all.join(", "),
        [first @ .., _] => {
            let shown = first.get(..6).unwrap_or(first);
            format!("{} and {} more", shown.join(", "), named.len() - shown.len())
        }
    };
    match verdict {
        Fitness::NotFit if named.is_empty() => format!(
            "These {count} nodes differ in what must be equal, and nothing says which of them is right."
        ),
        Fitness::NotFit => format!(
            "{} of {count} nodes {} not fit to train: {list}.",
            named.len(),
            if named.len() == 1 { "is" } else { "are" }
        ),
        Fitness::Unknown => format!("{} of {count} nodes could not be judged: {list}.", named.len()),
        Fitness::Warnings if named.is_empty() || named.len() >= count => {
            format!("All {count} nodes are fit, with warnings.")
        }
        Fitness::Warnings => format!("All {count} nodes are fit, {} with warnings: {list}.", named.len()),
        Fitness::Fit if differences.is_empty() => format!("All {count} nodes are fit and alike."),
        Fitness::Fit => format!("All {count} nodes are fit; they differ in what does not matter."),
    }
}

/// The differences first, then the findings of machines, where several machines have the same one once with their names.
fn merged(nodes: &[Node], differences: &[Finding]) -> Vec<Finding> {
    let mut groups: Vec<(Finding, Vec<String>)> = Vec::new();
    for node in nodes {
        for it in &node.full {
            let host = node.state.host.clone();
            match groups.iter_mut().find(|known| known.0.id == it.id && known.0.message == it.message) {
                Some(known) => known.1.push(host),
                None => groups.push((it.clone(), vec![host])),
            }
        }
    }
    let named = |(mut it, hosts): (Finding, Vec<String>)| {
        let list = match hosts.len() {
            0..=4 => hosts.join(", "),
            all if all == nodes.len() => format!("all {all} nodes"),
            all => format!("{} and {} more", hosts.get(..3).unwrap_or_default().join(", "), all - 3),
        };
        it.message = format!("{list}: {}", it.message);
        it
    };
    let mut all: Vec<Finding> = differences.to_vec();
    all.extend(groups.into_iter().map(named));
    all.sort_by_key(|it| std::cmp::Reverse(it.severity));
    all
}
