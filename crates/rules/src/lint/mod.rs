//! Rules that read what is submitted, before it runs: manifests, scripts, settings.
//!
//! A rule reads all files together ([`Submitted`]). Its findings have spans of one file and, where a change is safe without asking
//! anyone, the edits that repair it. Suppressed findings are removed here, once for all rules.

pub(crate) mod cluster;
pub(crate) mod deepspeed;
pub(crate) mod devices;
pub(crate) mod document;
pub(crate) mod launch;
pub(crate) mod pod;
pub(crate) mod settings;
pub(crate) mod silence;

#[cfg(test)]
pub(crate) mod testing;

use evidence::submission::Submission;

use crate::{Edit, Found, all};

pub use job::submitted::{Given, Submitted};
pub use settings::{Action, Recommendation, recommend};

/// Runs every rule over the files, removes what is suppressed, and sorts by file and place.
pub fn lint(files: &[Submission], given: &Given) -> Vec<Found> {
    let submitted = Submitted::new(files, *given);
    let mut found: Vec<Found> = Vec::new();
    for rule in all() {
        let Some(Ok(findings)) = rule.submission().map(|check| check(&submitted)) else { continue };
        found.extend(findings.into_iter().map(|finding| Found { rule, finding }));
    }
    let mut found = silence::apply(files, found);
    let key = |it: &Found| (it.finding.file(), it.finding.start(), it.rule.id);
    found.sort_by_key(key);
    found.dedup_by(|a, b| key(a) == key(b) && a.finding.message == b.finding.message);
    found
}

/// Applies the safe edits of one file. Where two overlap, the first counts; a second run finds the rest.
pub fn apply(text: &str, edits: &[Edit]) -> String {
    let mut edits: Vec<&Edit> = edits.iter().collect();
    edits.sort_by_key(|it| (it.range.start, it.range.end));
    edits.dedup();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for edit in edits {
        let inside =
            edit.range.start >= at && edit.range.end <= text.len() && edit.range.start <= edit.range.end;
        let Some(before) = text.get(at..edit.range.start).filter(|_| inside) else { continue };
        out.push_str(before);
        out.push_str(&edit.text);
        at = edit.range.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::{Edit, apply};

    #[test]
    fn edits_that_overlap_are_not_mixed() {
        let edit = |range, text: &str| Edit { range, text: text.to_owned() };
        let text = "abcdef";
        assert_eq!(
            apply(text, &[edit(4..5, "E"), edit(1..3, "X"), edit(2..4, "Y"), edit(6..6, "!")]),
            "aXdEf!"
        );
        assert_eq!(apply(text, &[edit(9..12, "?")]), text);
    }
}
