//! SARIF 2.1.0: findings next to the line in a review.

use std::io::{self, Write};

use serde_json::json;

use super::Lint;
use crate::sarif::{Run, not_read};

/// Writes the findings of `plumb lint` as SARIF 2.1.0, indented, with a final newline.
pub fn sarif(lint: &Lint, out: &mut impl Write) -> io::Result<()> {
    let unread = lint.files.iter().filter_map(|it| Some((it, it.problem.as_ref()?)));
    let notifications: Vec<_> = unread
        .map(|(it, problem)| {
            let region = json!({ "startLine": problem.line.max(1), "startColumn": problem.column.max(1) });
            not_read("error", &problem.text, &it.file, Some(region))
        })
        .collect();
    let run = Run {
        command: "lint",
        findings: &lint.findings,
        input: lint.files.first().map(|it| it.file.as_str()),
        successful: notifications.is_empty(),
        notifications,
        properties: json!({ "schema": lint.schema }),
    };
    run.write(out)
}
