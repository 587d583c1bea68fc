//! The answer of `plumb node`: is this machine fit to train? Schemas `plumb.node/1` and, for several machines, `plumb.nodes/1`.

pub(crate) mod facts;
mod fleet;
mod health;
mod prometheus;
pub(crate) mod text;

#[cfg(test)]
mod tests;

use std::io::{self, Write};

use evidence::node::{NodeState, NotSeen, SCHEMA};
use rules::node::{Fitness, Judged};
use rules::{Confidence, Severity};
use serde::Serialize;

use crate::{Entity, Finding, NotChecked};

pub use fleet::Nodes;
pub(crate) use fleet::One;
pub use health::{Nagios, health_line};

/// What was seen of a machine, and what is wrong with it.
#[derive(Debug, Clone, Serialize)]
pub struct Node {
    /// `plumb.node/1`
    pub schema: &'static str,
    /// Whether it is fit to train.
    pub verdict: Fitness,
    /// The verdict in a sentence.
    pub text: String,
    /// What is wrong, the worst first.
    pub findings: Vec<Shape>,
    /// Rules that could not be checked.
    pub not_checked: Vec<NotChecked>,
    /// Everything that was seen.
    pub state: NodeState,
    #[serde(skip)]
    pub(crate) full: Vec<Finding>,
    /// No GPU was seen, and nothing says that there should be one or none.
    #[serde(skip)]
    expects_nothing: bool,
}

/// A finding in the shape of `plumb.node/1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shape {
    /// The rule's id.
    pub id: String,
    /// How much it matters.
    pub severity: Severity,
    /// How certain it is.
    pub confidence: Confidence,
    /// The problem in general.
    pub title: String,
    /// The problem here, with its numbers.
    pub message: String,
    /// Why it matters.
    pub why: String,
    /// What to do.
    pub fix: String,
    /// Sources.
    pub references: Vec<String>,
    /// What it is about.
    pub entities: Vec<Entity>,
}

impl Shape {
    fn new(it: &Finding) -> Self {
        let it = it.clone();
        Self {
            id: it.id,
            severity: it.severity,
            confidence: it.confidence,
            title: it.title,
            message: it.message,
            why: it.why,
            fix: it.fix,
            references: it.references,
            entities: it.entities,
        }
    }
}

impl Node {
    /// The answer about one machine.
    pub fn new(state: NodeState, judged: &Judged) -> Self {
        let full: Vec<Finding> = judged.findings.iter().map(|it| Finding::new(it, Vec::new())).collect();
        let verdict = judged.fitness();
        let not_checked = judged
            .unchecked
            .iter()
            .map(|it| NotChecked { id: it.rule.id.to_owned(), needs: it.missing.0.how_to_get().to_owned() });
        Self {
            schema: SCHEMA,
            verdict,
            text: sentence(&state, verdict, judged),
            findings: full.iter().map(Shape::new).collect(),
            not_checked: not_checked.collect(),
            expects_nothing: judged.expects_nothing(),
            state,
            full,
        }
    }

    /// Writes the answer as JSON.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        crate::json::write_json(self, out)
    }

    /// The severity of the worst finding.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|it| it.severity).max()
    }

    /// What could not be seen and how to let plumb see it, what matters most first.
    pub(crate) fn not_seen(&self) -> Vec<String> {
        let unexpected = self.expects_nothing.then(|| {
            "GPUs: none is on the PCI bus, and nothing says how many there should be. To judge the machine: `--gpus 0` for a login or CPU node, \
             otherwise `--gpus 8` or `--instance NAME`."
                .to_owned()
        });
        let said = |it: &NotSeen| format!("{}: {}. To see it: {}.", it.what, it.why, it.how);
        unexpected.into_iter().chain(self.state.not_seen.iter().map(said)).collect()
    }

    /// How many findings have this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|it| it.severity == severity).count()
    }
}

/// The verdict in a sentence.
fn sentence(state: &NodeState, verdict: Fitness, judged: &Judged) -> String {
    let (host, findings) = (&state.host, &judged.findings);
    let devices = facts::devices(state);
    let first = findings.first().map(|it| it.finding.message.as_str()).unwrap_or_default();
    let more = match findings.iter().filter(|it| it.severity() >= Severity::Warning).count() {
        0 | 1 => String::new(),
        all => format!(", and {}", crate::text::counted(all - 1, "more problem")),
    };
    match verdict {
        Fitness::Fit => format!("{host} is fit: {devices}; nothing wrong was found."),
        Fitness::Warnings => format!("{host} is fit with warnings: {first}{more}."),
        Fitness::NotFit => format!("{host} is not fit to train: {first}{more}."),
        Fitness::Unknown if judged.expects_nothing() => format!(
            "{host} cannot be judged: no NVIDIA GPU was seen, and nothing says how many there should be (--gpus N; 0 for none)."
        ),
        Fitness::Unknown if facts::has_gpus(state) && state.gpus.is_none() => {
            let problem = state.driver.as_ref().and_then(|it| it.problem.as_deref());
            format!(
                "{host} cannot be judged: it has {devices}, but the state of its GPUs could not be read: {}.",
                problem.unwrap_or("NVML does not answer")
            )
        }
        Fitness::Unknown => {
            let unseen = state.not_seen.first();
            let why = unseen.map_or_else(String::new, |it| format!(" ({})", it.why));
            let what = unseen.map_or("its devices", |it| &*it.what);
            format!("{host} cannot be judged: the {what} could not be seen{why}.")
        }
    }
}
