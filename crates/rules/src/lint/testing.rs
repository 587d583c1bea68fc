//! What tests of lint rules share.

use evidence::submission::Submission;

use super::{Context, Flaw, Given, LintRule, apply};

/// The files of a test: name and text.
pub(crate) fn files(texts: &[(&str, &str)]) -> Vec<Submission> {
    texts
        .iter()
        .map(|(name, text)| Submission::read(name, text).unwrap_or_else(|it| panic!("{name}: {it:?}")))
        .collect()
}

/// What a rule says of one file.
pub(crate) fn flaws(rule: &LintRule, text: &str) -> Vec<Flaw> {
    flaws_given(rule, text, &Given::default())
}

/// The same with releases or an instance type said on the command line.
pub(crate) fn flaws_given(rule: &LintRule, text: &str, given: &Given) -> Vec<Flaw> {
    let files = files(&[("job.yaml", text)]);
    (rule.check)(&Context { files: &files, given })
}

/// A rule says nothing of a file.
#[track_caller]
pub(crate) fn quiet(rule: &LintRule, text: &str) {
    let found = flaws(rule, text);
    assert!(found.is_empty(), "{found:#?}");
}

/// The text after the safe edits of a rule. A second run must find nothing to edit.
#[track_caller]
pub(crate) fn fixed(rule: &LintRule, text: &str) -> String {
    let edits: Vec<_> = flaws(rule, text).into_iter().flat_map(|it| it.edits).collect();
    assert!(!edits.is_empty(), "nothing to edit");
    let after = apply(text, &edits);
    let again: Vec<_> = flaws(rule, &after).into_iter().flat_map(|it| it.edits).collect();
    assert!(again.is_empty(), "a second run edits again: {again:?}\n{after}");
    after
}
