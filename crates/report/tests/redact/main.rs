//! What `redact` hides, what it leaves, and that it forgets nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod forms;
mod hosts;
mod masks;
mod whole;

use std::sync::LazyLock;

use evidence::read_texts;
use report::{Doctor, Evidence, Finding, Options, json, redact};

fn read(texts: &[(&str, &str)]) -> Doctor {
    let log = rules::Log::new(read_texts(texts.iter().map(|(name, text)| (*name, text.as_bytes()))));
    Doctor::new(&log, &rules::diagnose(&log), Options { matrix: true })
}

fn evidence(file: &str, text: &str) -> Evidence {
    Evidence { file: file.to_owned(), line: 1, text: text.to_owned(), span: None }
}

fn finding(message: &str, lines: &[&str]) -> Finding {
    Finding {
        id: "test-rule".to_owned(),
        severity: rules::Severity::Warning,
        confidence: rules::Confidence::Likely,
        role: rules::Role::Cause,
        title: "a title".to_owned(),
        message: message.to_owned(),
        evidence: lines.iter().map(|it| evidence("job.log", it)).collect(),
        why: "why".to_owned(),
        fix: "fix".to_owned(),
        references: vec!["https://example.org/home/someone".to_owned()],
        entities: Vec::new(),
        also: Vec::new(),
        cost: None,
        price: None,
        fixable: false,
    }
}

fn written(doctor: &Doctor) -> String {
    let mut out = Vec::new();
    json(doctor, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The lines as they are after redaction, all in one answer.
fn redacted(lines: &[&str]) -> Vec<String> {
    static EMPTY: LazyLock<Doctor> = LazyLock::new(|| read(&[]));
    let mut doctor = EMPTY.clone();
    doctor.findings.push(finding("message", lines));
    redact(&mut doctor);
    doctor.findings[0].evidence.iter().map(|it| it.text.clone()).collect()
}

#[track_caller]
fn check(line: &str, want: &str) {
    assert_eq!(redacted(&[line]), [want]);
}

#[track_caller]
fn kept(line: &str) {
    check(line, line);
}
