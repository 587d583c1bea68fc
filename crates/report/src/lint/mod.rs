//! The answer of `plumb lint`: every format is written from it. Schema `plumb.lint/1`.

mod diff;
mod junit;
mod sarif;
mod text;

use std::io::{self, Write};

use evidence::submission::{Kind, Submission};
use evidence::yaml::Trouble;
use rules::{Confidence, Found, Severity};
use serde::{Serialize, Serializer};

use crate::{Evidence, Finding, Price, Span};

pub use diff::diff;
pub use junit::junit;
pub use sarif::sarif;
pub use text::text;

/// The findings in some files.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Lint {
    /// `plumb.lint/1`.
    pub schema: &'static str,
    /// The files, in the order they were given.
    pub files: Vec<LintFile>,
    /// What was found, by file and place.
    #[serde(serialize_with = "shapes")]
    pub findings: Vec<Finding>,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LintFile {
    /// Its name.
    pub file: String,
    /// Its kind; `None` if it could not be read.
    pub kind: Option<Kind>,
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

/// A file that could not be read.
#[derive(Debug, Clone)]
pub struct Unread {
    /// How many files were read before it.
    pub position: usize,
    /// Its name.
    pub name: String,
    /// Why, and where.
    pub trouble: Trouble,
}

impl Lint {
    /// Builds the answer from the files that were read and those that could not be.
    pub fn new(files: &[Submission], unread: &[Unread], found: &[Found]) -> Self {
        let mut all = Vec::with_capacity(files.len() + unread.len());
        let mut failed = unread.iter().peekable();
        for (position, it) in files.iter().enumerate() {
            while let Some(it) = failed.next_if(|it| it.position <= position) {
                all.push(LintFile::unread(it));
            }
            all.push(LintFile::read(it));
        }
        all.extend(failed.map(LintFile::unread));
        Self {
            schema: "plumb.lint/1",
            files: all,
            findings: found.iter().map(|it| finding(files, it)).collect(),
        }
    }

    /// How many findings have this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|it| it.severity == severity).count()
    }

    /// Whether a file could not be read, or none has anything that plumb knows.
    pub fn is_undecided(&self) -> bool {
        self.files.iter().any(|it| it.problem.is_some()) || self.is_empty()
    }

    /// Whether no file is a manifest, a script or settings.
    pub fn is_empty(&self) -> bool {
        let empty = |it: &LintFile| it.pods + it.settings + it.launches == 0 && it.kind == Some(Kind::Other);
        self.files.iter().all(empty)
    }

    /// For programs.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        crate::json::write_json(self, out)
    }
}

impl LintFile {
    fn read(it: &Submission) -> Self {
        Self {
            file: it.name.to_string(),
            kind: Some(it.kind),
            pods: it.pods().count(),
            settings: it.settings.len(),
            launches: it.launches.len(),
            problem: None,
        }
    }

    fn unread(Unread { name, trouble, .. }: &Unread) -> Self {
        let problem = LintProblem { line: trouble.line, column: trouble.column, text: trouble.text.clone() };
        Self { file: name.clone(), kind: None, pods: 0, settings: 0, launches: 0, problem: Some(problem) }
    }
}

fn finding(files: &[Submission], it: &Found) -> Finding {
    Finding::new(it, it.finding.evidence.iter().filter_map(|it| evidence(files, it)).collect())
}

fn evidence(files: &[Submission], it: &rules::Evidence) -> Option<Evidence> {
    let rules::Evidence::Span { file, span, label } = it else { return None };
    let file = files.get(*file)?;
    let range = &span.range;
    let end = file.text.get(range.clone()).map_or(range.start, |it| range.start + it.trim_end().len());
    let end = file.span(end..end);
    Some(Evidence {
        file: file.name.to_string(),
        line: span.line as u64,
        text: file.line(span.line).chars().take(400).collect(),
        span: Some(Span {
            column: span.column as u64,
            end_line: end.line as u64,
            end_column: end.column as u64,
            label: label.clone(),
        }),
    })
}

/// A finding in the shape of `plumb.lint/1`.
#[derive(Serialize)]
struct Shape<'a> {
    id: &'a str,
    severity: Severity,
    confidence: Confidence,
    title: &'a str,
    message: &'a str,
    /// Of the first place.
    file: &'a str,
    places: Vec<Place<'a>>,
    why: &'a str,
    fix: &'a str,
    fixable: bool,
    references: &'a [String],
    price: Option<&'a Price>,
}

/// A part of a file in the shape of `plumb.lint/1`. Lines and columns count from 1.
#[derive(Serialize)]
struct Place<'a> {
    line: u64,
    column: u64,
    end_line: u64,
    end_column: u64,
    /// The label of the span.
    text: &'a str,
    /// The source line.
    source: &'a str,
}

fn shapes<S: Serializer>(findings: &[Finding], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(findings.iter().map(|it| Shape {
        id: &it.id,
        severity: it.severity,
        confidence: it.confidence,
        title: &it.title,
        message: &it.message,
        file: it.evidence.first().map_or("", |it| &it.file),
        places: it.evidence.iter().filter_map(place).collect(),
        why: &it.why,
        fix: &it.fix,
        fixable: it.fixable,
        references: &it.references,
        price: it.price.as_ref(),
    }))
}

fn place(it: &Evidence) -> Option<Place<'_>> {
    let span = it.span.as_ref()?;
    Some(Place {
        line: it.line,
        column: span.column,
        end_line: span.end_line,
        end_column: span.end_column,
        text: &span.label,
        source: &it.text,
    })
}
