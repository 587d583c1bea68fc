//! `JUnit` XML, as CI systems show it: findings at or above `--fail-on` are failures, other checks pass, rules that were not checked are
//! skipped.

use std::io::{self, Write};

use rules::{Severity, State};

use crate::model::by_rule;
use crate::text::is_unprintable;
use crate::{Check, Doctor, Evidence, Finding};

/// Writes the answer of `plumb doctor` as one test suite. Findings below `fail_on` are not failures; with `None` none is.
pub fn junit(doctor: &Doctor, fail_on: Option<Severity>, out: &mut impl Write) -> io::Result<()> {
    if let Some(fleet) = &doctor.fleet {
        return fleet.junit_with(&doctor.findings, fail_on, out);
    }
    let suite = Suite {
        command: "doctor",
        properties: vec![
            ("schema", &doctor.schema),
            ("verdict.level", doctor.verdict.level.name()),
            ("verdict.text", &doctor.verdict.text),
        ],
        findings: &doctor.findings,
        fail_on,
        others: doctor.checks.iter().map(|it| checked(it, doctor, fail_on)).collect(),
    };
    suite.write(out)
}

/// The answer of a command as a test suite.
pub(crate) struct Suite<'a> {
    /// `doctor`, `lint`, ...
    pub(crate) command: &'static str,
    /// Names and values.
    pub(crate) properties: Vec<(&'static str, &'a str)>,
    pub(crate) findings: &'a [Finding],
    /// The lowest severity that counts as a failure.
    pub(crate) fail_on: Option<Severity>,
    /// Test cases besides those of the findings: the check list, the files.
    pub(crate) others: Vec<TestCase>,
}

/// A test case.
pub(crate) struct TestCase {
    pub(crate) class: &'static str,
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    /// Information that is not a failure.
    pub(crate) output: Vec<String>,
}

pub(crate) enum Outcome {
    Passed,
    Skipped(String),
    Failed {
        severity: Severity,
        message: String,
        text: String,
    },
    /// It could not be checked.
    Broken(String),
}

impl Suite<'_> {
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let found = by_rule(self.findings);
        let found: Vec<TestCase> = found.iter().map(|(id, all)| about(id, all, self.fail_on)).collect();
        let cases = || found.iter().chain(&self.others);
        let count = |wanted: fn(&Outcome) -> bool| cases().filter(|it| wanted(&it.outcome)).count();
        let counts = format!(
            "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"",
            cases().count(),
            count(|it| matches!(it, Outcome::Failed { .. })),
            count(|it| matches!(it, Outcome::Broken(_))),
            count(|it| matches!(it, Outcome::Skipped(_)))
        );
        writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
        writeln!(out, "<testsuites name=\"plumb\" {counts}>")?;
        writeln!(out, "  <testsuite name=\"plumb {}\" {counts}>", self.command)?;
        writeln!(out, "    <properties>")?;
        for (name, value) in &self.properties {
            writeln!(out, "      <property name=\"{name}\" value=\"{}\"/>", attribute(value))?;
        }
        writeln!(out, "    </properties>")?;
        for case in cases() {
            case.write(out)?;
        }
        writeln!(out, "  </testsuite>")?;
        writeln!(out, "</testsuites>")
    }
}

impl TestCase {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        write!(out, "    <testcase classname=\"{}\" name=\"{}\"", self.class, attribute(&self.name))?;
        if matches!(self.outcome, Outcome::Passed) && self.output.is_empty() {
            return writeln!(out, "/>");
        }
        writeln!(out, ">")?;
        match &self.outcome {
            Outcome::Passed => {}
            Outcome::Skipped(needs) => writeln!(out, "      <skipped message=\"{}\"/>", attribute(needs))?,
            Outcome::Broken(problem) => writeln!(out, "      <error message=\"{}\"/>", attribute(problem))?,
            Outcome::Failed { severity, message, text } => {
                let (severity, message, text) = (severity.name(), attribute(message), escaped(text));
                writeln!(out, "      <failure type=\"{severity}\" message=\"{message}\">{text}</failure>")?;
            }
        }
        if !self.output.is_empty() {
            writeln!(out, "      <system-out>{}</system-out>", escaped(&self.output.join("\n\n")))?;
        }
        writeln!(out, "    </testcase>")
    }
}

/// The test case of a rule that found something.
fn about(id: &str, all: &[&Finding], fail_on: Option<Severity>) -> TestCase {
    let (failed, others): (Vec<&Finding>, Vec<&Finding>) =
        all.iter().partition(|it| fails(it.severity, fail_on));
    let worst = failed.iter().map(|it| it.severity).max();
    let outcome = match (failed.as_slice(), worst) {
        ([first, more @ ..], Some(severity)) => {
            let more = if more.is_empty() { String::new() } else { format!(" (and {} more)", more.len()) };
            Outcome::Failed {
                severity,
                message: format!("{}{more}", first.message),
                text: failed.iter().map(|it| described(it)).collect::<Vec<_>>().join("\n\n"),
            }
        }
        _ => Outcome::Passed,
    };
    let output = others.into_iter().map(described).collect();
    TestCase { class: "plumb.finding", name: id.to_owned(), outcome, output }
}

fn checked(check: &Check, doctor: &Doctor, fail_on: Option<Severity>) -> TestCase {
    let place = check.evidence.iter().map(placed);
    let text = || std::iter::once(check.text.clone()).chain(place.clone()).collect::<Vec<_>>().join("\n");
    let severity = match check.state {
        State::Error => Some(Severity::Error),
        State::Warning => Some(Severity::Warning),
        State::Ok | State::Note | State::NotChecked => None,
    };
    let (outcome, output) = match (check.state, severity.filter(|it| fails(*it, fail_on))) {
        (State::NotChecked, _) => (Outcome::Skipped(check.text.clone()), Vec::new()),
        (_, Some(severity)) => {
            let same = |it: &&Finding| check.rule == Some(it.id.as_str()) && fails(it.severity, fail_on);
            let outcome = match doctor.findings.iter().find(same) {
                // One problem is one failure: its check does not pass either, and refers to the finding.
                Some(finding) => Outcome::Skipped(format!("reported as {}", finding.id)),
                None => Outcome::Failed { severity, message: check.text.clone(), text: text() },
            };
            (outcome, Vec::new())
        }
        (State::Ok, None) => (Outcome::Passed, Vec::new()),
        (_, None) => (Outcome::Passed, vec![text()]),
    };
    TestCase { class: "plumb.check", name: check.id.clone(), outcome, output }
}

fn fails(severity: Severity, fail_on: Option<Severity>) -> bool {
    fail_on.is_some_and(|it| severity >= it)
}

fn described(finding: &Finding) -> String {
    let mut lines = vec![finding.message.clone()];
    lines.extend(finding.evidence.iter().map(placed));
    lines.push(format!("why: {}", finding.why));
    lines.push(format!("fix: {}", finding.fix));
    lines.join("\n")
}

/// `rank0.log:12: the line`
fn placed(it: &Evidence) -> String {
    let column = it.span.as_ref().map(|it| format!(":{}", it.column)).unwrap_or_default();
    format!("{}:{}{column}: {}", it.file, it.line, it.text)
}

/// Text escaped for an element. Characters that XML 1.0 does not allow and terminal control characters are dropped.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\r' => out.push_str("&#13;"),
            '\t' | '\n' => out.push(it),
            _ if is_unprintable(it) => {}
            '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}' => {
                out.push(it);
            }
            _ => {}
        }
    }
    out
}

/// Text escaped for an attribute, where a parser would turn line ends into spaces.
fn attribute(text: &str) -> String {
    escaped(text).replace('\n', "&#10;").replace('\t', "&#9;")
}

#[cfg(test)]
mod tests {
    use super::{attribute, escaped};

    #[test]
    fn escapes_and_drops() {
        assert_eq!(escaped("a<b>&\"'\n"), "a&lt;b&gt;&amp;&quot;&apos;\n");
        assert_eq!(escaped("\0\u{1b}[36mhost\u{fffe}\u{ffff}\u{1f600}"), "[36mhost\u{1f600}");
        assert_eq!(escaped("a\u{9b}2J\u{7f}\u{202e}b"), "a2Jb");
        assert_eq!(attribute("a\tb\nc\r"), "a&#9;b&#10;c&#13;");
    }
}
