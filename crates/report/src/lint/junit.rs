//! `JUnit` XML: a test case for each rule that found something, and one for each file.

use std::io::{self, Write};

use rules::Severity;

use super::Lint;
use crate::junit::{Outcome, Suite, TestCase};

/// Writes the answer of `plumb lint` as one test suite. Findings below `fail_on` are not failures; with `None` none is.
pub fn junit(lint: &Lint, fail_on: Option<Severity>, out: &mut impl Write) -> io::Result<()> {
    let files = lint.files.iter().map(|it| {
        let outcome = match &it.problem {
            Some(problem) => {
                Outcome::Broken(format!("{}:{}: {}", problem.line, problem.column, problem.text))
            }
            None => Outcome::Passed,
        };
        TestCase { class: "plumb.file", name: it.file.clone(), outcome, output: Vec::new() }
    });
    let suite = Suite {
        command: "lint",
        properties: vec![("schema", lint.schema)],
        findings: &lint.findings,
        fail_on,
        others: files.collect(),
    };
    suite.write(out)
}
