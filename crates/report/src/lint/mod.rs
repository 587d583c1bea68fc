//! The answer of `plumb lint`, with owned texts: every format is written from it. Schema `plumb.lint/1`.

mod diff;
mod junit;
mod sarif;
mod text;

use std::io::{self, Write};

use evidence::submission::Submission;
use evidence::yaml::Trouble;
use rules::lint::{Label, Linted};
use serde::Serialize;

pub use diff::diff;
pub use junit::junit;
pub use sarif::sarif;
pub use text::text;

/// What is wrong in some files.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Lint {
    /// `plumb.lint/1`.
    pub schema: &'static str,
    /// The files, in the order they were given.
    pub files: Vec<LintFile>,
    /// What was found, by file and place.
    pub findings: Vec<LintFinding>,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LintFile {
    /// Its name.
    pub file: String,
    /// `kubernetes`, `deepspeed`, `sbatch`, `script`, `dockerfile`, `environment`, `other`; none where it could not be read.
    pub kind: Option<String>,
    /// Pods found in it.
    pub pods: usize,
    /// Variables found in it.
    pub settings: usize,
    /// Commands found in it that start ranks.
    pub launches: usize,
    /// Why it could not be read.
    pub problem: Option<LintProblem>,
}

/// Why a file could not be read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LintProblem {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub text: String,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LintFinding {
    /// The rule.
    pub id: String,
    /// `error`, `warning`, `info`.
    pub severity: String,
    /// `certain`, `likely`, `possible`.
    pub confidence: String,
    /// What the rule is about.
    pub title: String,
    /// What is wrong here.
    pub message: String,
    /// The file.
    pub file: String,
    /// Where; the first is the most telling.
    pub places: Vec<LintPlace>,
    /// What it costs.
    pub why: String,
    /// What to change.
    pub fix: String,
    /// Whether `--fix` changes it.
    pub fixable: bool,
    /// Where this is documented by others.
    pub references: Vec<String>,
}

/// A place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LintPlace {
    /// The line of its beginning, from 1.
    pub line: usize,
    /// The column of its beginning in characters, from 1.
    pub column: usize,
    /// The line of its end.
    pub end_line: usize,
    /// The column after its end.
    pub end_column: usize,
    /// What is to be seen there.
    pub text: String,
    /// The line as it stands in the file.
    pub source: String,
}

impl Lint {
    /// The answer for files that were read, and those that could not be, in the order they were given.
    pub fn new(read: &[Result<&Submission, (String, Trouble)>], found: &[Linted]) -> Self {
        let submissions: Vec<&Submission> = read.iter().filter_map(|it| it.as_ref().ok().copied()).collect();
        let files = read.iter().map(|it| match it {
            Ok(it) => LintFile {
                file: it.name.to_string(),
                kind: Some(format!("{:?}", it.kind).to_lowercase()),
                pods: it.pods().count(),
                settings: it.settings.len(),
                launches: it.launches.len(),
                problem: None,
            },
            Err((name, trouble)) => LintFile {
                file: name.clone(),
                kind: None,
                pods: 0,
                settings: 0,
                launches: 0,
                problem: Some(LintProblem {
                    line: trouble.line,
                    column: trouble.column,
                    text: trouble.text.clone(),
                }),
            },
        });
        let findings = found.iter().filter_map(|it| Some(finding(submissions.get(it.flaw.file)?, it)));
        Self { schema: "plumb.lint/1", files: files.collect(), findings: findings.collect() }
    }

    /// How many findings have this severity.
    pub fn count(&self, severity: &str) -> usize {
        self.findings.iter().filter(|it| it.severity == severity).count()
    }

    /// For programs.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        crate::json::write_json(self, out)
    }
}

fn finding(file: &Submission, it: &Linted) -> LintFinding {
    let (rule, flaw) = (it.rule, &it.flaw);
    LintFinding {
        id: rule.id.to_owned(),
        severity: it.severity().name().to_owned(),
        confidence: flaw.confidence.name().to_owned(),
        title: rule.title.to_owned(),
        message: flaw.message.clone(),
        file: file.name.to_string(),
        places: flaw.places.iter().map(|it| place(file, it)).collect(),
        why: flaw.why.clone().unwrap_or_else(|| rule.why.to_owned()),
        fix: flaw.fix.clone().unwrap_or_else(|| rule.fix.to_owned()),
        fixable: !flaw.edits.is_empty(),
        references: rule.references.iter().map(|it| (*it).to_owned()).collect(),
    }
}

fn place(file: &Submission, label: &Label) -> LintPlace {
    let span = &label.span;
    let text = &*file.text;
    let end =
        text.get(span.range.clone()).map_or(span.range.start, |it| span.range.start + it.trim_end().len());
    let end = file.span(end.max(span.range.start)..end.max(span.range.start));
    let source = text.lines().nth(span.line.saturating_sub(1)).unwrap_or_default();
    LintPlace {
        line: span.line,
        column: span.column,
        end_line: end.line,
        end_column: end.column,
        text: label.text.clone(),
        source: source.chars().take(400).collect(),
    }
}
