//! Rules about what is submitted, before it runs: one file a rule, found by name in its family.
//!
//! A rule looks at all files together ([`Context`]) and returns [`Flaw`]s, each with its places in one file and, where it is safe
//! to do without asking, the edits that cure it. Silences are taken away here, once for all rules.

mod cluster;
mod deepspeed;
mod devices;
mod document;
mod launch;
mod pod;
mod settings;
mod silence;

#[cfg(test)]
pub(crate) mod testing;

use std::ops::Range;

use evidence::submission::{Pod, Submission, Workload};
use evidence::yaml::Span;
use fabric::Version;
use fabric::instance::{self, Instance};

use crate::{Confidence, Severity};

pub use settings::{Objection, objections};
pub use silence::UNUSED_ALLOW;

/// A rule about what is submitted.
#[derive(Debug)]
pub struct LintRule {
    /// Stable kebab-case name. It is printed and linked to.
    pub id: &'static str,
    /// One line, lowercase, naming the problem rather than the remedy.
    pub title: &'static str,
    /// The severity of its flaws unless one says otherwise.
    pub severity: Severity,
    /// What is wrong and what it costs.
    pub why: &'static str,
    /// What to do about it: the exact change.
    pub fix: &'static str,
    /// Where this is documented by others.
    pub references: &'static [&'static str],
    /// Reads the files.
    pub check: fn(&Context<'_>) -> Vec<Flaw>,
}

/// All that is known.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The files, in the order they were given.
    pub files: &'a [Submission],
    /// What was said on the command line.
    pub given: &'a Given,
}

impl<'a> Context<'a> {
    /// All pods, with the file, the workload and the pod.
    pub fn pods(&self) -> impl Iterator<Item = (usize, &'a Workload, &'a Pod)> {
        self.files
            .iter()
            .enumerate()
            .flat_map(|(at, file)| file.pods().map(move |(workload, pod)| (at, workload, pod)))
    }

    /// The instance types a pod can run on, as far as its selectors, its job's other pods or the command line tell. Types that plumb does
    /// not know are left out.
    pub fn instances(&self, workload: &Workload, pod: &Pod) -> Vec<&'static Instance> {
        let named =
            |pod: &Pod| pod.instances().iter().filter_map(|it| instance::find(it.0)).collect::<Vec<_>>();
        let own = named(pod);
        if !own.is_empty() {
            return own;
        }
        let beside: Vec<&'static Instance> = workload.pods.iter().flat_map(named).collect();
        if !beside.is_empty() {
            return beside;
        }
        self.given.instance.as_deref().and_then(instance::find).into_iter().collect()
    }
}

/// What a person says beside the files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// The release of NCCL.
    pub nccl: Option<Version>,
    /// The release of aws-ofi-nccl.
    pub plugin: Option<Version>,
    /// The release of libfabric.
    pub libfabric: Option<Version>,
    /// The instance type, where no file names it.
    pub instance: Option<String>,
}

/// Something wrong in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Flaw {
    /// The file, by its place in [`Context::files`].
    pub file: usize,
    /// What is wrong, with its numbers and names.
    pub message: String,
    /// How sure it is.
    pub confidence: Confidence,
    /// Another severity than the rule's.
    pub severity: Option<Severity>,
    /// The first is the most telling; each with a word or two.
    pub places: Vec<Label>,
    /// Another why than the rule's.
    pub why: Option<String>,
    /// The exact change, where it can be said more exactly than by the rule.
    pub fix: Option<String>,
    /// What cures it without asking anyone. Empty where a person must decide.
    pub edits: Vec<Edit>,
}

/// A place and what is to be seen there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// A few words; may be empty.
    pub text: String,
}

/// A change of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Bytes to replace; empty to insert.
    pub range: Range<usize>,
    /// What to put there.
    pub text: String,
}

impl Flaw {
    /// A flaw at a place, certain.
    pub fn new(file: usize, span: &Span, message: impl Into<String>) -> Self {
        Self {
            file,
            message: message.into(),
            confidence: Confidence::Certain,
            severity: None,
            places: vec![Label { span: span.clone(), text: String::new() }],
            why: None,
            fix: None,
            edits: Vec::new(),
        }
    }

    /// What is to be seen at the first place.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> Self {
        if let Some(first) = self.places.first_mut() {
            first.text = text.into();
        }
        self
    }

    /// Another place that belongs to it.
    #[must_use]
    pub fn also(mut self, span: &Span, text: impl Into<String>) -> Self {
        self.places.push(Label { span: span.clone(), text: text.into() });
        self
    }

    /// How sure it is.
    #[must_use]
    pub fn confidence(mut self, confidence: Confidence) -> Self {
        self.confidence = confidence;
        self
    }

    /// Another severity than the rule's.
    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = Some(severity);
        self
    }

    /// Another why than the rule's.
    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// The exact change, in words.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// A change that is safe: it cures the flaw, and nobody could want the text as it was.
    #[must_use]
    pub fn edit(mut self, range: Range<usize>, text: impl Into<String>) -> Self {
        self.edits.push(Edit { range, text: text.into() });
        self
    }
}

/// A flaw with the rule that found it.
#[derive(Debug, Clone)]
pub struct Linted {
    /// The rule.
    pub rule: &'static LintRule,
    /// The flaw.
    pub flaw: Flaw,
}

impl Linted {
    /// The severity that counts.
    pub fn severity(&self) -> Severity {
        self.flaw.severity.unwrap_or(self.rule.severity)
    }
}

/// The families, each a list of rules.
static FAMILIES: &[&[&LintRule]] = &[
    cluster::RULES,
    deepspeed::RULES,
    devices::RULES,
    document::RULES,
    launch::RULES,
    pod::RULES,
    settings::RULES,
];

/// All rules, sorted by id.
pub fn all() -> Vec<&'static LintRule> {
    let mut all: Vec<&LintRule> = FAMILIES.iter().flat_map(|it| it.iter().copied()).collect();
    all.push(&UNUSED_ALLOW);
    all.sort_by_key(|it| it.id);
    all
}

/// The rule of this id.
pub fn find(id: &str) -> Option<&'static LintRule> {
    all().into_iter().find(|it| it.id == id)
}

/// Runs every rule over the files, takes away what is silenced, and sorts by file and place.
pub fn lint(files: &[Submission], given: &Given) -> Vec<Linted> {
    let context = Context { files, given };
    let mut found: Vec<Linted> = Vec::new();
    for rule in all() {
        found.extend((rule.check)(&context).into_iter().map(|flaw| Linted { rule, flaw }));
    }
    let mut found = silence::apply(files, found);
    let key =
        |it: &Linted| (it.flaw.file, it.flaw.places.first().map_or(0, |it| it.span.range.start), it.rule.id);
    found.sort_by(|a, b| key(a).cmp(&key(b)));
    found.dedup_by(|a, b| key(a) == key(b) && a.flaw.message == b.flaw.message);
    found
}

/// Applies the safe edits of one file. Where two overlap, the first counts; a second run finds the rest.
pub fn apply(text: &str, edits: &[Edit]) -> String {
    let mut edits: Vec<&Edit> = edits.iter().collect();
    edits.sort_by_key(|it| (it.range.start, it.range.end));
    edits.dedup();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for edit in edits {
        let inside =
            edit.range.start >= at && edit.range.end <= text.len() && edit.range.start <= edit.range.end;
        let Some(before) = text.get(at..edit.range.start).filter(|_| inside) else { continue };
        out.push_str(before);
        out.push_str(&edit.text);
        at = edit.range.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::{Edit, all, apply};

    #[test]
    fn ids_are_unique_and_kebab() {
        let ids: Vec<&str> = all().iter().map(|it| it.id).collect();
        assert!(ids.windows(2).all(|it| it[0] < it[1]), "{ids:?}");
        for rule in all() {
            assert!(
                rule.id.bytes().all(|it| it == b'-' || it.is_ascii_lowercase() || it.is_ascii_digit()),
                "{}",
                rule.id
            );
            assert!(!rule.why.is_empty() && !rule.fix.is_empty(), "{}", rule.id);
            assert!(rule.id == "unused-allow" || !rule.references.is_empty(), "{} has no reference", rule.id);
            assert!(
                crate::find(rule.id).is_none_or(|it| it.title == rule.title),
                "{} is another rule of doctor",
                rule.id
            );
        }
    }

    #[test]
    fn edits_that_overlap_are_not_mixed() {
        let edit = |range, text: &str| Edit { range, text: text.to_owned() };
        let text = "abcdef";
        assert_eq!(
            apply(text, &[edit(4..5, "E"), edit(1..3, "X"), edit(2..4, "Y"), edit(6..6, "!")]),
            "aXdEf!"
        );
        assert_eq!(apply(text, &[edit(9..12, "?")]), text);
    }
}
