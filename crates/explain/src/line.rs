//! A line of a log: what printed it, what it means, and which rules fire on this line alone.

use evidence::plugin::printed_by;
use evidence::prefix::Anchor;
use evidence::{nccl, signals};

use crate::{Explanation, Kind};

pub(crate) fn explain(asked: &str) -> Vec<Explanation> {
    let split = Anchor::default().split(asked.as_bytes());
    let message = split.map_or(asked.as_bytes(), |it| it.message);
    let mut found = Vec::new();
    if let Some(kind) = nccl::describe(message) {
        let writer = printed_by(kind.example.as_bytes()).map_or("NCCL", |it| it.0.name);
        let mut it = Explanation::new(Kind::Line, format!("a line of {writer}"));
        it.add("printed", kind.since);
        it.add("like", kind.example);
        it.add("meaning", kind.meaning);
        found.push(it);
    }
    for seen in signals::book().find(asked.as_bytes()) {
        let title = format!("a line that plumb looks for: {}", seen.signal.name);
        let mut it = Explanation::new(Kind::Line, title);
        it.add("printed by", seen.signal.source);
        it.add("meaning", seen.signal.meaning);
        for capture in &seen.captures {
            it.add(capture.name, String::from_utf8_lossy(capture.text));
        }
        found.push(it);
    }
    let rules = rules_it_is_enough_for(asked);
    if !rules.is_empty() {
        if found.is_empty() {
            found.push(Explanation::new(Kind::Line, "a line of a log".to_owned()));
        }
        if let Some(last) = found.last_mut() {
            last.add_all("alone gives", rules);
        }
    }
    found
}

/// The findings for a log with only this line.
fn rules_it_is_enough_for(line: &str) -> Vec<String> {
    let log = rules::Log::new(evidence::read_texts([("line", line.as_bytes())]));
    rules::diagnose(&log)
        .findings
        .iter()
        .filter(|it| it.rule.id != "unexplained-warning")
        .map(|it| format!("{} ({}, {})", it.rule.id, it.severity().name(), it.finding.confidence.name()))
        .collect()
}
