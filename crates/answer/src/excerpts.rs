//! The lines around those that are evidence, read again for a page.

use std::collections::BTreeMap;

use report::{Doctor, Evidence, Excerpt};

use crate::Files;
use crate::context::around;
use crate::doctor::Landmarks;

/// Lines before and after.
const AROUND: u64 = 4;
/// Findings whose lines are looked up, and lines of each.
const FINDINGS: usize = 24;
const LINES: usize = 3;
/// A line further down may cost much to reach, as compressed files are read from their beginning: only so many of a file are looked up.
const FAR: u64 = 100_000;
const FAR_LINES: usize = 3;
/// The most characters of a line.
const WIDEST: usize = 600;

/// The lines around the evidence of the findings, as far as they can be read again.
pub(crate) fn excerpts(doctor: &Doctor, files: &dyn Files, landmarks: &Landmarks) -> Vec<Excerpt> {
    let mut all: Vec<Excerpt> = Vec::new();
    let mut far: BTreeMap<&str, usize> = BTreeMap::new();
    let findings = doctor.findings.iter().take(FINDINGS).flat_map(|it| it.evidence.iter().take(LINES));
    for it in findings.filter(|it| it.line > 0 && it.span.is_none()) {
        if it.line > FAR {
            let looked = far.entry(&it.file).or_default();
            *looked += 1;
            if *looked > FAR_LINES {
                continue;
            }
        }
        let first = it.line.saturating_sub(AROUND).max(1);
        if all.iter().any(|known| known.file == it.file && known.first == first) {
            continue;
        }
        let near = landmarks.get(&it.file).and_then(|them| them.range(..=first).next_back());
        let Ok(lines) = around(files, &it.file, it.line, AROUND, near.map(|(line, byte)| (*line, *byte)))
        else {
            continue;
        };
        let lines = lines.into_iter().map(|it| it.text.chars().take(WIDEST).collect()).collect();
        let excerpt = Excerpt { file: it.file.clone(), first, lines };
        all.extend(Some(excerpt).filter(|excerpt| fits(excerpt, it)));
    }
    all
}

/// Whether it holds the line that was read before: the file may have changed.
fn fits(excerpt: &Excerpt, it: &Evidence) -> bool {
    let at = it.line.checked_sub(excerpt.first).and_then(|it| usize::try_from(it).ok());
    let beginning: String = it.text.trim().chars().take(24).collect();
    at.and_then(|it| excerpt.lines.get(it)).is_some_and(|line| line.contains(&beginning))
}
