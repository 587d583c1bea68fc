//! A rule: its text, how much it matters, what it reads and how it is checked.

use evidence::node::NodeState;
use evidence::{Missing, Source};
use job::submitted::Submitted;
use serde::Serialize;

use crate::{Finding, Log};

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// Stable kebab-case name. It is printed, linked to and written in `# plumb: allow` comments.
    pub id: &'static str,
    /// One line, lowercase, naming the problem rather than the remedy.
    pub title: &'static str,
    /// The severity of its findings unless one says otherwise.
    pub severity: Severity,
    /// Whether it names a cause or a consequence.
    pub role: Role,
    /// The facts that its check of a log reads.
    pub needs: &'static [Source],
    /// What is wrong and what it costs.
    pub why: &'static str,
    /// What to do about it: the exact setting or command.
    pub fix: &'static str,
    /// Documentation elsewhere.
    pub references: &'static [&'static str],
    /// At most one for each kind of input.
    pub checks: &'static [Check],
}

/// How a rule is checked, by what it reads.
#[derive(Debug, Clone, Copy)]
pub enum Check {
    /// Logs and other output of a job.
    Log(fn(&Log) -> Checked),
    /// Files that are submitted: manifests, scripts, settings.
    Submission(fn(&Submitted<'_>) -> Checked),
    /// The state of one node.
    Node(fn(&NodeState) -> Checked),
    /// The states of several nodes, compared with each other.
    Nodes(fn(&[NodeState]) -> Checked),
}

/// `Missing` means that the rule could not be checked, never that all is well.
pub type Checked = Result<Vec<Finding>, Missing>;

impl Rule {
    /// The check of logs, if there is one.
    pub fn log(&self) -> Option<fn(&Log) -> Checked> {
        self.checks.iter().find_map(|it| if let Check::Log(check) = it { Some(*check) } else { None })
    }

    /// The check of submitted files, if there is one.
    pub fn submission(&self) -> Option<fn(&Submitted<'_>) -> Checked> {
        self.checks.iter().find_map(|it| if let Check::Submission(check) = it { Some(*check) } else { None })
    }

    /// The check of a node, if there is one.
    pub fn node(&self) -> Option<fn(&NodeState) -> Checked> {
        self.checks.iter().find_map(|it| if let Check::Node(check) = it { Some(*check) } else { None })
    }

    /// The check of several nodes, if there is one.
    pub fn nodes(&self) -> Option<fn(&[NodeState]) -> Checked> {
        self.checks.iter().find_map(|it| if let Check::Nodes(check) = it { Some(*check) } else { None })
    }

    /// The English text.
    pub fn text(&self) -> Text {
        Text { title: self.title, why: self.why, fix: self.fix }
    }
}

/// What a rule says, in one language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text {
    /// See [`Rule::title`].
    pub title: &'static str,
    /// See [`Rule::why`].
    pub why: &'static str,
    /// See [`Rule::fix`].
    pub fix: &'static str,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Info,
    /// Costs performance, or will cost it.
    Warning,
    /// Breaks the job or wastes most of the hardware.
    Error,
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// One of several explanations; the input cannot decide.
    Possible,
    /// The usual cause of what was seen.
    Likely,
    /// The input says so itself.
    Certain,
}

/// Causes are reported before what follows from them. A finding is one or the other, see [`Role::of_finding`]; a rule may say
/// more exactly what it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Something to repair.
    Cause,
    /// A cause by its kind only: beside a specific cause it is a consequence.
    #[serde(rename = "cause")]
    General,
    /// A rank is missing, as those say that wait for it: a cause unless a rank reports a failure of its own.
    #[serde(rename = "cause")]
    Missing,
    /// What follows from a cause.
    Consequence,
    /// What ranks report that lost another.
    #[serde(rename = "consequence")]
    CutOff,
    /// What ranks report that waited for another.
    #[serde(rename = "consequence")]
    Waiting,
    /// What no other rule explains: a fact without its cause.
    #[serde(rename = "consequence")]
    Unexplained,
}

impl Role {
    /// Cause or consequence.
    #[must_use]
    pub fn of_finding(self) -> Self {
        match self {
            Self::Cause | Self::General | Self::Missing => Self::Cause,
            Self::Consequence | Self::CutOff | Self::Waiting | Self::Unexplained => Self::Consequence,
        }
    }

    /// Whether only ranks report it that wait for another or were cut off by it.
    pub fn is_messenger(self) -> bool {
        matches!(self, Self::Missing | Self::CutOff | Self::Waiting)
    }
}

impl Severity {
    /// The word used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl Confidence {
    /// The word used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::Certain => "certain",
        }
    }
}
