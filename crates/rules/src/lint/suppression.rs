//! `# plumb: allow rule-id (reason)` and the annotation `plumb/allow`.
//!
//! A comment suppresses findings on its own line; alone on a line, on the next line that is not blank. The annotation suppresses findings
//! in its whole object. A comment or annotation that suppresses nothing is reported.

use std::collections::BTreeMap;

use evidence::submission::Submission;
use evidence::yaml::{NodeId, Span};

use super::Submitted;
use crate::{Check, Checked, Finding, Found, Role, Rule, Severity, find};

/// The rules of this file.
pub(crate) static RULES: &[&Rule] = &[&UNUSED_ALLOW];

static UNUSED_ALLOW: Rule = Rule {
    id: "unused-allow",
    title: "a suppression without a finding",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "A comment or annotation suppresses a finding that is not there: the problem was fixed, the id is misspelt, or the comment is \
          on the wrong line. If it stays, it hides the next such finding.",
    fix: "Remove it, or correct the id (`plumb rules` lists them).",
    references: &[],
    checks: &[Check::Submission(check)],
};

/// [`apply`] reports them: only after all rules have run is it known which suppressions are unused.
fn check(_: &Submitted<'_>) -> Checked {
    Ok(Vec::new())
}

/// Suppresses the findings of one rule in a part of a file.
struct Suppression {
    file: usize,
    id: String,
    /// Whether it covers a whole document instead of a line; neither overlaps with others of its kind.
    document: bool,
    /// The bytes that it covers.
    covers: std::ops::Range<usize>,
    span: Span,
    used: bool,
}

/// Removes suppressed findings, and adds one for each suppression that was not used.
pub(super) fn apply(files: &[Submission], found: Vec<Found>) -> Vec<Found> {
    let mut suppressions: Vec<Suppression> =
        files.iter().enumerate().flat_map(|(at, it)| of_file(at, it)).collect();
    let mut starts: BTreeMap<(usize, String, bool, usize), usize> = BTreeMap::new();
    for (at, it) in suppressions.iter().enumerate() {
        starts.entry((it.file, it.id.clone(), it.document, it.covers.start)).or_insert(at);
    }
    let mut left: Vec<Found> = Vec::new();
    for found in found {
        let (file, start) = (found.finding.file().unwrap_or(usize::MAX), found.finding.start().unwrap_or(0));
        let covering = [false, true].into_iter().find_map(|document| {
            let key = |start: usize| (file, found.rule.id.to_owned(), document, start);
            let (_, at) = starts.range(key(0)..=key(start)).next_back()?;
            let covers = &suppressions.get(*at)?.covers;
            (start < covers.end.max(covers.start + 1)).then_some(*at)
        });
        match covering.and_then(|at| suppressions.get_mut(at)) {
            Some(suppression) => suppression.used = true,
            None => left.push(found),
        }
    }
    for suppression in suppressions.iter().filter(|it| !it.used) {
        let covered = if suppression.document { "in this object" } else { "on this line" };
        let message = match find(&suppression.id) {
            Some(_) => format!("there is no `{}` finding {covered} to suppress", suppression.id),
            None => format!("plumb knows no rule `{}`", suppression.id),
        };
        left.push(Found {
            rule: &UNUSED_ALLOW,
            finding: Finding::at(suppression.file, &suppression.span, message),
        });
    }
    left
}

fn of_file(file: usize, submission: &Submission) -> Vec<Suppression> {
    let mut all = comments(file, submission);
    for root in &submission.tree.documents {
        all.extend(annotations(file, submission, *root));
    }
    all
}

fn comments(file: usize, submission: &Submission) -> Vec<Suppression> {
    const MARK: &str = "# plumb: allow ";
    let text = &*submission.text;
    let mut all = Vec::new();
    for (at, _) in text.match_indices(MARK) {
        let line_start = text[..at].rfind('\n').map_or(0, |it| it + 1);
        let line_end = text[at..].find('\n').map_or(text.len(), |it| at + it);
        let alone = text[line_start..at].trim().is_empty();
        let covers = if alone { next_line(text, line_end) } else { line_start..line_end };
        let rest = &text[at + MARK.len()..line_end];
        let mut offset = at + MARK.len();
        for word in rest.split(" (").next().unwrap_or_default().split_inclusive([',', ' ']) {
            let id = word.trim_matches([',', ' ']);
            if !id.is_empty() {
                let span = submission.span(offset..offset + id.len());
                all.push(Suppression {
                    file,
                    id: id.to_owned(),
                    document: false,
                    covers: covers.clone(),
                    span,
                    used: false,
                });
            }
            offset += word.len();
        }
    }
    all
}

/// The next line that is neither blank nor a comment.
fn next_line(text: &str, mut at: usize) -> std::ops::Range<usize> {
    while let Some(rest) = text.get(at + 1..) {
        let end = rest.find('\n').map_or(text.len(), |it| at + 1 + it);
        let line = text[at + 1..end].trim();
        if !line.is_empty() && !line.starts_with('#') {
            return at + 1..end;
        }
        if end >= text.len() {
            break;
        }
        at = end;
    }
    text.len()..text.len()
}

fn annotations(file: usize, submission: &Submission, root: NodeId) -> Vec<Suppression> {
    let tree = &submission.tree;
    let Some(value) = tree.at(root, &["metadata", "annotations", "plumb/allow"]) else { return Vec::new() };
    let Some(text) = tree.text(value) else { return Vec::new() };
    let span = tree.node(value).span.clone();
    let covers = tree.node(root).span.range.clone();
    let ids = text.split([',', ' ']).map(str::trim).filter(|it| !it.is_empty());
    ids.map(|id| Suppression {
        file,
        id: id.to_owned(),
        document: true,
        covers: covers.clone(),
        span: span.clone(),
        used: false,
    })
    .collect()
}
