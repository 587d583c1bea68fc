//! A finding: one problem, with the evidence that shows it.

use std::ops::Range;

use evidence::yaml::Span;
use evidence::{Quote, Sighting};
use serde::Serialize;

use crate::training::Slower;
use crate::{Confidence, Log, Price, Role, Rule, Severity};

/// One problem, as its rule states it.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The sentence that states the problem with its numbers.
    pub message: String,
    /// The message as a sentence without the variable and its value, for answers that print those above it.
    pub reason: Option<String>,
    /// Set where it differs from the rule's severity.
    pub severity: Option<Severity>,
    /// Set where it differs from the rule's role.
    pub role: Option<Role>,
    /// How sure it is.
    pub confidence: Confidence,
    /// What shows it, the strongest evidence first.
    pub evidence: Vec<Evidence>,
    /// Why it matters here, where that is more exact than the rule's text.
    pub why: Option<String>,
    /// What to do here, where that is more exact than the rule's text.
    pub fix: Option<String>,
    /// The value that the variable at the first span should have instead, where it should have one.
    pub instead: Option<String>,
    /// What it is about.
    pub entities: Vec<Entity>,
    /// Ids of other rules whose cause would give the same lines.
    pub also: Vec<&'static str>,
    /// What it costs in bandwidth, where that is known.
    pub cost: Option<Cost>,
    /// What it costs in time of the training job, where the job is known well enough.
    pub price: Option<Price>,
    /// How a submitted job is slower than it could be: with a training job this gives the price.
    pub slower: Option<Slower>,
    /// Changes of the file of the first span that repair it safely. Empty where a person must decide.
    pub edits: Vec<Edit>,
}

/// What a problem costs: expected bandwidth of a large all-reduce.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// How many times slower.
    pub factor: f64,
    /// The bandwidths, where both are known.
    pub rates: Option<Rates>,
    /// The paths that are slow.
    pub paths: Option<Extent>,
}

/// Which paths of a job a problem is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// Those between ranks of one node.
    InsideNodes,
    /// Those between nodes.
    BetweenNodes,
}

/// Bus bandwidths in GB/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Without the problem.
    pub normal: f64,
    /// With it.
    pub here: f64,
}

/// What shows a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// A line of a log.
    Line(Quote),
    /// A part of a submitted file.
    Span {
        /// Index into [`Submitted::files`](job::submitted::Submitted::files).
        file: usize,
        /// Where in the file.
        span: Span,
        /// A few words about it; may be empty.
        label: String,
    },
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entity {
    /// What it is.
    pub kind: EntityKind,
    /// Its name or number.
    pub name: String,
}

/// What an entity is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EntityKind {
    /// A rank.
    Rank,
    /// A host.
    Host,
    /// A GPU.
    Gpu,
    /// A NIC.
    Nic,
    /// An environment variable.
    Variable,
    /// A communicator.
    Communicator,
    /// A file.
    File,
}

/// A change of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Bytes to replace; empty to insert.
    pub range: Range<usize>,
    /// The new text.
    pub text: String,
}

impl Evidence {
    /// The line, if it is one.
    pub fn quote(&self) -> Option<&Quote> {
        match self {
            Self::Line(quote) => Some(quote),
            Self::Span { .. } => None,
        }
    }

    /// The span, if it is one.
    pub fn span(&self) -> Option<&Span> {
        match self {
            Self::Span { span, .. } => Some(span),
            Self::Line(_) => None,
        }
    }
}

impl Finding {
    /// A finding without evidence yet.
    pub fn new(confidence: Confidence, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            reason: None,
            severity: None,
            role: None,
            confidence,
            evidence: Vec::new(),
            why: None,
            fix: None,
            instead: None,
            entities: Vec::new(),
            also: Vec::new(),
            cost: None,
            price: None,
            slower: None,
            edits: Vec::new(),
        }
    }

    /// A certain finding at a span of a submitted file.
    pub fn at(file: usize, span: &Span, message: impl Into<String>) -> Self {
        let span = Evidence::Span { file, span: span.clone(), label: String::new() };
        Self { evidence: vec![span], ..Self::new(Confidence::Certain, message) }
    }

    /// The submitted file of the first span.
    pub fn file(&self) -> Option<usize> {
        self.evidence.iter().find_map(|it| match it {
            Evidence::Span { file, .. } => Some(*file),
            Evidence::Line(_) => None,
        })
    }

    /// Where the first span begins in its file.
    pub fn start(&self) -> Option<usize> {
        self.evidence.iter().find_map(|it| Some(it.span()?.range.start))
    }

    /// The lines of logs that show it.
    pub fn quotes(&self) -> impl Iterator<Item = &Quote> {
        self.evidence.iter().filter_map(Evidence::quote)
    }

    /// How many lines of evidence a finding carries at most.
    pub const EVIDENCE_LIMIT: usize = 5;

    /// Adds a line of evidence.
    #[must_use]
    pub fn seen(mut self, quote: &Quote) -> Self {
        if self.evidence.len() < Self::EVIDENCE_LIMIT && !self.quotes().any(|it| it == quote) {
            self.evidence.push(Evidence::Line(quote.clone()));
        }
        self
    }

    /// Adds lines of evidence.
    #[must_use]
    pub fn seen_all<'a>(self, quotes: impl IntoIterator<Item = &'a Quote>) -> Self {
        quotes.into_iter().fold(self, Self::seen)
    }

    /// Adds what it costs in every step.
    #[must_use]
    pub fn priced(mut self, price: Option<Price>) -> Self {
        self.price = price.or(self.price);
        self
    }

    /// Labels the first span.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> Self {
        if let Some(Evidence::Span { label, .. }) = self.evidence.first_mut() {
            *label = text.into();
        }
        self
    }

    /// Adds another span of the same file.
    #[must_use]
    pub fn also_at(mut self, span: &Span, label: impl Into<String>) -> Self {
        if let Some(file) = self.file() {
            self.evidence.push(Evidence::Span { file, span: span.clone(), label: label.into() });
        }
        self
    }

    /// Sets how sure it is.
    #[must_use]
    pub fn confidence(mut self, confidence: Confidence) -> Self {
        self.confidence = confidence;
        self
    }

    /// Sets the severity.
    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = Some(severity);
        self
    }

    /// Sets the message without the variable and its value.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Sets why it matters here.
    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// Sets what to do here.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Names the value that the variable should have instead.
    #[must_use]
    pub fn instead(mut self, value: impl Into<String>) -> Self {
        self.instead = Some(value.into());
        self
    }

    /// Adds a safe change: it fixes the problem, and nobody can want the old text.
    #[must_use]
    pub fn edit(mut self, range: Range<usize>, text: impl Into<String>) -> Self {
        self.edits.push(Edit { range, text: text.into() });
        self
    }

    fn about(mut self, kind: EntityKind, name: &impl ToString) -> Self {
        let entity = Entity { kind, name: name.to_string() };
        if !entity.name.is_empty() && self.entities.len() < 64 && !self.entities.contains(&entity) {
            self.entities.push(entity);
        }
        self
    }

    /// Adds another cause that would give the same lines.
    #[must_use]
    pub fn or(mut self, id: &'static str) -> Self {
        self.also.push(id);
        self
    }

    /// Adds the rank and host of each sighting.
    #[must_use]
    pub fn by(self, log: &Log, sightings: &[&Sighting]) -> Self {
        sightings.iter().fold(self, |it, sighting| {
            let it = it.seen(&sighting.quote);
            let it = match log.case.rank_of(sighting) {
                Some(rank) => it.about_rank(rank),
                None => it,
            };
            match &sighting.process {
                Some(id) => it.about_host(&id.host),
                None => it,
            }
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "numbers and texts are given as they come")]
impl Finding {
    /// Adds a rank that it is about.
    #[must_use]
    pub fn about_rank(self, name: impl ToString) -> Self {
        self.about(EntityKind::Rank, &name)
    }

    /// Adds a host that it is about.
    #[must_use]
    pub fn about_host(self, name: impl ToString) -> Self {
        self.about(EntityKind::Host, &name)
    }

    /// Adds a GPU that it is about.
    #[must_use]
    pub fn about_gpu(self, name: impl ToString) -> Self {
        self.about(EntityKind::Gpu, &name)
    }

    /// Adds a NIC that it is about.
    #[must_use]
    pub fn about_nic(self, name: impl ToString) -> Self {
        self.about(EntityKind::Nic, &name)
    }

    /// Adds an environment variable that it is about.
    #[must_use]
    pub fn about_variable(self, name: impl ToString) -> Self {
        self.about(EntityKind::Variable, &name)
    }

    /// Adds a communicator that it is about.
    #[must_use]
    pub fn about_communicator(self, name: impl ToString) -> Self {
        self.about(EntityKind::Communicator, &name)
    }

    /// Adds a file that it is about.
    #[must_use]
    pub fn about_file(self, name: impl ToString) -> Self {
        self.about(EntityKind::File, &name)
    }
}

/// A finding and the rule it came from.
#[derive(Debug, Clone)]
pub struct Found {
    /// The rule.
    pub rule: &'static Rule,
    /// What it found.
    pub finding: Finding,
}

impl Found {
    /// The severity: the finding's own, or the rule's.
    pub fn severity(&self) -> Severity {
        self.finding.severity.unwrap_or(self.rule.severity)
    }

    /// Whether it is a cause or follows from one: as the finding says, or the rule.
    pub fn role(&self) -> Role {
        self.finding.role.unwrap_or(self.rule.role).of_finding()
    }

    /// Why it matters: the finding's own text, or the rule's.
    pub fn why(&self) -> &str {
        self.finding.why.as_deref().unwrap_or(self.rule.text().why)
    }

    /// What to do: the finding's own text, or the rule's.
    pub fn fix(&self) -> &str {
        self.finding.fix.as_deref().unwrap_or(self.rule.text().fix)
    }
}
