//! SARIF 2.1.0: findings beside the line in a review.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{Lint, LintFinding, LintPlace};

/// Writes the findings as SARIF 2.1.0, indented, with a final newline.
pub fn sarif(lint: &Lint, out: &mut impl Write) -> io::Result<()> {
    let mut ids: Vec<&str> = lint.findings.iter().map(|it| it.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    let rules: Vec<Value> =
        ids.iter().filter_map(|id| lint.findings.iter().find(|it| it.id == *id)).map(rule).collect();
    let notifications: Vec<Value> = lint
        .files
        .iter()
        .filter_map(|it| {
            let problem = it.problem.as_ref()?;
            let region = json!({ "startLine": problem.line.max(1), "startColumn": problem.column.max(1) });
            Some(json!({
                "level": "error",
                "message": { "text": problem.text },
                "locations": [{ "physicalLocation": { "artifactLocation": { "uri": it.file }, "region": region } }],
            }))
        })
        .collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "plumb",
                "version": env!("CARGO_PKG_VERSION"),
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "automationDetails": { "id": "plumb/lint/" },
            "columnKind": "unicodeCodePoints",
            "invocations": [{ "executionSuccessful": notifications.is_empty(), "toolExecutionNotifications": notifications }],
            "results": lint.findings.iter().map(|it| result(it, &ids)).collect::<Vec<_>>(),
        }],
    });
    crate::json::write_json(&log, out)
}

fn level(severity: &str) -> &'static str {
    match severity {
        "error" => "error",
        "warning" => "warning",
        _ => "note",
    }
}

fn rule(it: &LintFinding) -> Value {
    // A finding may know more than its rule; what belongs to the rule is the same in every run.
    let known = rules::lint::find(&it.id);
    let (why, fix) = known.map_or((it.why.as_str(), it.fix.as_str()), |it| (it.why, it.fix));
    let severity = known.map_or(it.severity.as_str(), |it| it.severity.name());
    json!({
        "id": it.id,
        "name": it.id,
        "shortDescription": { "text": it.title },
        "fullDescription": { "text": why },
        "help": { "text": format!("{fix}\n\nSources:\n{}", it.references.join("\n")) },
        "defaultConfiguration": { "level": level(severity) },
        "properties": { "tags": ["interconnect", "nccl"] },
    })
}

fn result(it: &LintFinding, ids: &[&str]) -> Value {
    let location = |place: &LintPlace| {
        json!({
            "physicalLocation": {
                "artifactLocation": { "uri": it.file },
                "region": {
                    "startLine": place.line.max(1),
                    "startColumn": place.column.max(1),
                    "endLine": place.end_line.max(1),
                    "endColumn": place.end_column.max(1),
                },
            },
            "message": { "text": if place.text.is_empty() { it.message.clone() } else { place.text.clone() } },
        })
    };
    json!({
        "ruleId": it.id,
        "ruleIndex": ids.iter().position(|id| *id == it.id),
        "level": level(&it.severity),
        "message": { "text": format!("{}. {}", it.message, it.fix) },
        "locations": it.places.iter().take(1).map(location).collect::<Vec<_>>(),
        "relatedLocations": it.places.iter().skip(1).map(location).collect::<Vec<_>>(),
        "properties": { "confidence": it.confidence, "why": it.why, "fixable": it.fixable },
    })
}
