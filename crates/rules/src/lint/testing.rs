//! What tests of lint rules share.

use evidence::submission::Submission;
use evidence::yaml::Span;

use super::{Given, Submitted, apply};
use crate::{Evidence, Finding, Rule};

/// The files of a test: name and text.
pub(crate) fn files(texts: &[(&str, &str)]) -> Vec<Submission> {
    texts
        .iter()
        .map(|(name, text)| Submission::read(name, text).unwrap_or_else(|it| panic!("{name}: {it:?}")))
        .collect()
}

/// What a rule says of one file.
pub(crate) fn findings(rule: &Rule, text: &str) -> Vec<Finding> {
    findings_given(rule, text, &Given::default())
}

/// The same with releases or an instance type from the command line.
pub(crate) fn findings_given(rule: &Rule, text: &str, given: &Given) -> Vec<Finding> {
    let files = files(&[("job.yaml", text)]);
    check(rule, &Submitted::new(&files, *given))
}

/// What a rule finds in submitted files.
#[track_caller]
pub(crate) fn check(rule: &Rule, submitted: &Submitted<'_>) -> Vec<Finding> {
    let check = rule.submission().expect("a rule about submitted files");
    check(submitted).unwrap_or_else(|missing| panic!("{} was not checked: {missing:?}", rule.id))
}

impl Evidence {
    /// The span; panics where it is a line.
    #[track_caller]
    pub(crate) fn at(&self) -> &Span {
        self.span().expect("a span")
    }

    /// The label of a span.
    pub(crate) fn label(&self) -> &str {
        match self {
            Self::Span { label, .. } => label,
            Self::Line(_) => "",
        }
    }
}

/// A rule says nothing of a file.
#[track_caller]
pub(crate) fn quiet(rule: &Rule, text: &str) {
    let found = findings(rule, text);
    assert!(found.is_empty(), "{found:#?}");
}

/// The text after the safe edits of a rule. A second run must find nothing to edit.
#[track_caller]
pub(crate) fn fixed(rule: &Rule, text: &str) -> String {
    let edits: Vec<_> = findings(rule, text).into_iter().flat_map(|it| it.edits).collect();
    assert!(!edits.is_empty(), "nothing to edit");
    let after = apply(text, &edits);
    let again: Vec<_> = findings(rule, &after).into_iter().flat_map(|it| it.edits).collect();
    assert!(again.is_empty(), "a second run edits again: {again:?}\n{after}");
    after
}
