//! `JUnit` XML: a test case a file, failed where something is an error or a warning.

use std::io::{self, Write};

use super::Lint;
use crate::junit::attribute;

/// Writes the answer as one test suite of `JUnit` XML.
pub fn junit(lint: &Lint, out: &mut impl Write) -> io::Result<()> {
    let counts = |it: &str| lint.findings.iter().any(|found| found.file == it && found.severity != "info");
    let failures = lint.files.iter().filter(|it| it.problem.is_none() && counts(&it.file)).count();
    let errors = lint.files.iter().filter(|it| it.problem.is_some()).count();
    let head =
        format!("tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"0\"", lint.files.len());
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(out, "<testsuites name=\"plumb\" {head}>")?;
    writeln!(out, "  <testsuite name=\"plumb lint\" {head}>")?;
    for file in &lint.files {
        writeln!(out, "    <testcase classname=\"plumb.lint\" name=\"{}\">", attribute(&file.file))?;
        if let Some(problem) = &file.problem {
            let text = format!("{}:{}: {}", problem.line, problem.column, problem.text);
            writeln!(out, "      <error message=\"{}\"/>", attribute(&text))?;
        }
        for it in lint.findings.iter().filter(|it| it.file == file.file) {
            let place =
                it.places.first().map(|it| format!("{}:{}: ", it.line, it.column)).unwrap_or_default();
            let text = attribute(&format!("{place}{}[{}]: {}", it.severity, it.id, it.message));
            if it.severity == "info" {
                writeln!(out, "      <system-out>{text}</system-out>")?;
            } else {
                writeln!(
                    out,
                    "      <failure type=\"{}\" message=\"{text}\">{}</failure>",
                    attribute(&it.id),
                    attribute(&it.fix)
                )?;
            }
        }
        writeln!(out, "    </testcase>")?;
    }
    writeln!(out, "  </testsuite>")?;
    writeln!(out, "</testsuites>")
}
