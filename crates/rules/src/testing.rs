//! Helpers for tests of rules.

use evidence::read_texts;

use crate::{Checked, Finding, Log, Rule, diagnose};

/// The logs that a text makes.
pub(crate) fn read(text: &str) -> Log {
    let setups = vec![("test.log".to_owned(), text.as_bytes().to_vec())];
    Log::new(read_texts([("test.log", text.as_bytes())])).with_setups(setups)
}

/// Runs one rule over logs.
#[track_caller]
pub(crate) fn check(rule: &Rule, log: &Log) -> Checked {
    rule.log().expect("a rule about logs")(log)
}

/// What one rule finds in a text; panics when it could not be checked.
#[track_caller]
pub(crate) fn findings(rule: &Rule, text: &str) -> Vec<Finding> {
    check(rule, &read(text)).unwrap_or_else(|missing| panic!("{} was not checked: {missing:?}", rule.id))
}

/// Asserts that a rule finds nothing in a text, checked or not.
#[track_caller]
pub(crate) fn quiet(rule: &Rule, text: &str) {
    if let Ok(findings) = check(rule, &read(text)) {
        assert!(findings.is_empty(), "{}: {findings:#?}", rule.id);
    }
}

/// The ids of all findings in a text, in order.
pub(crate) fn ids(text: &str) -> Vec<&'static str> {
    diagnose(&read(text)).findings.iter().map(|it| it.rule.id).collect()
}
