//! `JUnit` XML, as CI systems show it: what was found fails, what was looked at passes, what was not is skipped.

use std::io::{self, Write};

use crate::text::is_unprintable;
use crate::{Check, Doctor, Evidence, Finding};

/// Writes the answer as one test suite of `JUnit` XML.
pub fn junit(doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
    let mut cases = found(doctor);
    cases.extend(doctor.checks.iter().map(|it| checked(it, doctor)));
    let count = |wanted: fn(&Outcome) -> bool| cases.iter().filter(|it| wanted(&it.outcome)).count();
    let failures = count(|it| matches!(it, Outcome::Failed { .. }));
    let skipped = count(|it| matches!(it, Outcome::Skipped(_)));
    let counts =
        format!("tests=\"{}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\"", cases.len());

    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(out, "<testsuites name=\"plumb\" {counts}>")?;
    writeln!(out, "  <testsuite name=\"plumb doctor\" {counts}>")?;
    writeln!(out, "    <properties>")?;
    for (name, value) in [
        ("schema", &doctor.schema),
        ("verdict.level", &doctor.verdict.level),
        ("verdict.text", &doctor.verdict.text),
    ] {
        writeln!(out, "      <property name=\"{name}\" value=\"{}\"/>", attribute(value))?;
    }
    writeln!(out, "    </properties>")?;
    for case in &cases {
        case.write(out)?;
    }
    writeln!(out, "  </testsuite>")?;
    writeln!(out, "</testsuites>")
}

/// A test case.
struct TestCase {
    class: &'static str,
    name: String,
    outcome: Outcome,
    /// What is worth knowing and no failure.
    output: Vec<String>,
}

enum Outcome {
    Passed,
    Skipped(String),
    Failed { severity: String, message: String, text: String },
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
            Outcome::Failed { severity, message, text } => {
                let (severity, message, text) = (attribute(severity), attribute(message), escaped(text));
                writeln!(out, "      <failure type=\"{severity}\" message=\"{message}\">{text}</failure>")?;
            }
        }
        if !self.output.is_empty() {
            writeln!(out, "      <system-out>{}</system-out>", escaped(&self.output.join("\n\n")))?;
        }
        writeln!(out, "    </testcase>")
    }
}

/// A test case for each rule that found something.
fn found(doctor: &Doctor) -> Vec<TestCase> {
    let mut ids: Vec<&str> = Vec::new();
    for finding in &doctor.findings {
        if !ids.contains(&finding.id.as_str()) {
            ids.push(&finding.id);
        }
    }
    ids.into_iter().map(|id| about(id, doctor)).collect()
}

fn about(id: &str, doctor: &Doctor) -> TestCase {
    let all = || doctor.findings.iter().filter(|it| it.id == id);
    let failed: Vec<&Finding> = all().filter(|it| is_failure(&it.severity)).collect();
    let outcome = match failed.as_slice() {
        [] => Outcome::Passed,
        [first, others @ ..] => {
            let worst =
                if failed.iter().any(|it| it.severity == "error") { "error" } else { &first.severity };
            let more =
                if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
            Outcome::Failed {
                severity: worst.to_owned(),
                message: format!("{}{more}", first.message),
                text: failed.iter().map(|it| described(it)).collect::<Vec<_>>().join("\n\n"),
            }
        }
    };
    let output = all().filter(|it| !is_failure(&it.severity)).map(described).collect();
    TestCase { class: "plumb.finding", name: id.to_owned(), outcome, output }
}

fn checked(check: &Check, doctor: &Doctor) -> TestCase {
    let place = check.evidence.iter().map(placed);
    let text = || std::iter::once(check.text.clone()).chain(place.clone()).collect::<Vec<_>>().join("\n");
    let (outcome, output) = match check.state.as_str() {
        "not checked" => (Outcome::Skipped(check.text.clone()), Vec::new()),
        state if is_failure(state) => {
            match doctor.findings.iter().find(|it| it.message == check.text && is_failure(&it.severity)) {
                // One problem is one failure; nor does the check pass.
                Some(finding) => (Outcome::Skipped(format!("reported as {}", finding.id)), Vec::new()),
                None => (
                    Outcome::Failed { severity: state.to_owned(), message: check.text.clone(), text: text() },
                    Vec::new(),
                ),
            }
        }
        "ok" => (Outcome::Passed, Vec::new()),
        _ => (Outcome::Passed, vec![text()]),
    };
    TestCase { class: "plumb.check", name: check.id.clone(), outcome, output }
}

fn is_failure(severity: &str) -> bool {
    matches!(severity, "error" | "warning")
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
    format!("{}:{}: {}", it.file, it.line, it.text)
}

/// Text as it may stand in an element. Characters that XML 1.0 cannot hold and those that command a terminal are
/// dropped.
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

/// Text as it may stand in an attribute, where a reader would make spaces of line ends.
pub(crate) fn attribute(text: &str) -> String {
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
