//! Short words for tests of rules.

use evidence::{Case, read_texts};

use crate::{Checked, Finding, Rule, diagnose};

/// The case a text makes.
pub(crate) fn case(text: &str) -> Case {
    read_texts([("test.log", text.as_bytes())])
}

/// Runs one rule over a case.
#[track_caller]
pub(crate) fn check(rule: &Rule, case: &Case) -> Checked {
    rule.log().expect("a rule about logs")(case)
}

/// What one rule finds in a text; panics when it says it could not check.
#[track_caller]
pub(crate) fn findings(rule: &Rule, text: &str) -> Vec<Finding> {
    check(rule, &case(text)).unwrap_or_else(|missing| panic!("{} was not checked: {missing:?}", rule.id))
}

/// Asserts that a rule is quiet on a text, checked or not.
#[track_caller]
pub(crate) fn quiet(rule: &Rule, text: &str) {
    if let Ok(findings) = check(rule, &case(text)) {
        assert!(findings.is_empty(), "{}: {findings:#?}", rule.id);
    }
}

/// The ids of all findings in a text, in order.
pub(crate) fn ids(text: &str) -> Vec<&'static str> {
    diagnose(&case(text)).findings.iter().map(|it| it.rule.id).collect()
}
