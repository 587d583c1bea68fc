//! SARIF 2.1.0, as GitHub code scanning reads it.
//!
//! GitHub rejects a whole file for one result without a location
//! (<https://github.com/github/codeql-action/issues/2459>), so a finding without a line is placed at the
//! first input as a whole. It tells runs apart by `automationDetails`, and recognises a result in the next
//! run by `primaryLocationLineHash`, which it cannot compute itself for a file outside the repository.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rules::{Confidence, Severity};
use serde_json::{Map, Value, json};

use crate::model::by_rule;
use crate::{Doctor, Evidence, Finding};

/// Writes the findings of `plumb doctor` as SARIF 2.1.0, indented, with a final newline.
pub fn sarif(doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
    let run = Run {
        command: "doctor",
        findings: &doctor.findings,
        input: doctor.inputs.first().map(|it| it.file.as_str()),
        successful: true,
        notifications: notifications(doctor),
        properties: json!({ "schema": doctor.schema, "verdict": doctor.verdict }),
    };
    run.write(out)
}

/// One run of a command.
pub(crate) struct Run<'a> {
    /// `doctor`, `lint`, ...
    pub(crate) command: &'static str,
    pub(crate) findings: &'a [Finding],
    /// The location of a finding without a line.
    pub(crate) input: Option<&'a str>,
    /// Whether all of the input could be checked.
    pub(crate) successful: bool,
    /// What could not be read or checked.
    pub(crate) notifications: Vec<Value>,
    /// More about the run.
    pub(crate) properties: Value,
}

impl Run<'_> {
    /// Writes it, indented, with a final newline.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let rules = by_rule(self.findings);
        let indices: BTreeMap<&str, usize> = rules.iter().enumerate().map(|(at, it)| (it.0, at)).collect();
        let mut driver = json!({
            "name": "plumb",
            "version": env!("CARGO_PKG_VERSION"),
            "semanticVersion": env!("CARGO_PKG_VERSION"),
            "rules": rules.iter().filter_map(|it| it.1.first()).map(|it| rule(it)).collect::<Vec<_>>(),
        });
        if !env!("CARGO_PKG_REPOSITORY").is_empty() {
            driver["informationUri"] = json!(env!("CARGO_PKG_REPOSITORY"));
        }
        let log = json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": { "driver": driver },
                "automationDetails": { "id": format!("plumb/{}/", self.command) },
                "columnKind": "unicodeCodePoints",
                "invocations": [{
                    "executionSuccessful": self.successful,
                    "toolExecutionNotifications": self.notifications,
                }],
                "results": self.results(&indices),
                "properties": self.properties,
            }],
        });
        crate::json::write_json(&log, out)
    }

    fn results(&self, indices: &BTreeMap<&str, usize>) -> Vec<Value> {
        let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
        let result = |finding: &Finding| {
            let file = finding.evidence.first().map_or("", |it| it.file.as_str());
            let hash = fingerprint(&[&finding.id, &finding.message, file]);
            let count = seen.entry(hash).or_default();
            *count += 1;
            self.result(finding, indices.get(finding.id.as_str()), &format!("{hash:016x}:{count}"))
        };
        self.findings.iter().map(result).collect()
    }

    fn result(&self, finding: &Finding, index: Option<&usize>, fingerprint: &str) -> Value {
        let mut result = Map::new();
        let mut put = |name: &str, value: Value| result.insert(name.to_owned(), value);
        put("ruleId", json!(finding.id));
        put("ruleIndex", json!(index));
        put("level", json!(level(finding.severity)));
        // A review shows only this text next to the line.
        let message = format!("{}. {}", finding.message.trim_end_matches('.'), finding.fix);
        put("message", json!({ "text": message }));
        put(
            "partialFingerprints",
            json!({ "primaryLocationLineHash": fingerprint, "plumbFinding/v1": fingerprint }),
        );
        match finding.evidence.split_first() {
            Some((first, others)) => {
                put("locations", json!([location(first)]));
                if !others.is_empty() {
                    put("relatedLocations", (1..).zip(others).map(|(id, it)| related(id, it)).collect());
                }
            }
            None => {
                let whole =
                    |it: &str| json!([{ "physicalLocation": { "artifactLocation": { "uri": uri(it) } } }]);
                if let Some(input) = self.input {
                    put("locations", whole(input));
                }
            }
        }
        let mut properties = Map::new();
        let mut put = |name: &str, value: Value| properties.insert(name.to_owned(), value);
        put("confidence", json!(finding.confidence));
        put("role", json!(finding.role));
        put("entities", json!(finding.entities));
        put("also", json!(finding.also));
        put("fixable", json!(finding.fixable));
        let text = rules::text(&finding.id);
        if text.is_some_and(|it| it.why != finding.why) {
            put("why", json!(finding.why));
        }
        if text.is_some_and(|it| it.fix != finding.fix) {
            put("fix", json!(finding.fix));
        }
        result.insert("properties".to_owned(), Value::Object(properties));
        Value::Object(result)
    }
}

fn rule(finding: &Finding) -> Value {
    // A finding may say more than its rule; the text of a rule is the same in every run.
    let severity = rules::find(&finding.id).map_or(finding.severity, |it| it.severity);
    let (why, fix) =
        rules::text(&finding.id).map_or((finding.why.as_str(), finding.fix.as_str()), |it| (it.why, it.fix));
    let sources: Vec<String> = finding.references.iter().map(|it| format!("- {it}")).collect();
    let (mut text, mut markdown) = (fix.to_owned(), format!("{why}\n\n**What to do:** {fix}"));
    if !sources.is_empty() {
        text.push_str(&format!("\n\nSources:\n{}", sources.join("\n")));
        markdown.push_str(&format!("\n\n**Sources**\n\n{}", linked(&finding.references)));
    }
    json!({
        "id": finding.id,
        "name": finding.id,
        "shortDescription": { "text": finding.title },
        "fullDescription": { "text": why },
        "help": { "text": text, "markdown": markdown },
        "defaultConfiguration": { "level": level(severity) },
        "properties": {
            "tags": ["interconnect", "nccl"],
            "precision": precision(finding.confidence),
            "problem.severity": problem(severity),
        },
    })
}

fn linked(references: &[String]) -> String {
    let line = |it: &String| {
        if it.starts_with("https://") && !it.contains(' ') { format!("- <{it}>") } else { format!("- {it}") }
    };
    references.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

fn problem(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "recommendation",
    }
}

fn precision(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Certain => "very-high",
        Confidence::Likely => "high",
        Confidence::Possible => "medium",
    }
}

fn location(it: &Evidence) -> Value {
    let mut location = json!({ "physicalLocation": physical(it) });
    if let Some(span) = it.span.as_ref().filter(|it| !it.label.is_empty()) {
        location["message"] = json!({ "text": span.label });
    }
    location
}

fn related(id: u32, it: &Evidence) -> Value {
    let label = it.span.as_ref().map(|it| it.label.as_str()).filter(|it| !it.is_empty());
    let text = match label {
        Some(label) => label.to_owned(),
        None if it.text.is_empty() => format!("line {} of {}", it.line, it.file),
        None => it.text.clone(),
    };
    json!({ "id": id, "physicalLocation": physical(it), "message": { "text": text } })
}

fn physical(it: &Evidence) -> Value {
    let mut region = json!({ "startLine": it.line.max(1) });
    if let Some(span) = &it.span {
        region["startColumn"] = json!(span.column.max(1));
        region["endLine"] = json!(span.end_line.max(1));
        region["endColumn"] = json!(span.end_column.max(1));
    } else if !it.text.is_empty() {
        region["snippet"] = json!({ "text": it.text });
    }
    json!({ "artifactLocation": { "uri": uri(&it.file) }, "region": region })
}

/// Rules that were not checked, by what they need, and inputs that could not be read.
fn notifications(doctor: &Doctor) -> Vec<Value> {
    let mut needs: Vec<(&str, Vec<&str>)> = Vec::new();
    for it in &doctor.not_checked {
        match needs.iter_mut().find(|(known, _)| *known == it.needs) {
            Some((_, ids)) => ids.push(&it.id),
            None => needs.push((&it.needs, vec![&it.id])),
        }
    }
    let unread = doctor.inputs.iter().filter_map(|input| {
        let problem = input.problem.as_ref()?;
        let message = format!("{} could not be read to its end: {problem}", input.file);
        Some(not_read("warning", &message, &input.file, None))
    });
    let unchecked = needs.iter().map(|(needs, ids)| {
        let n = ids.len();
        json!({
            "level": "note",
            "message": { "text": format!("{n} rule{} not checked, missing: {needs}", if n == 1 { "" } else { "s" }) },
            "descriptor": { "id": "not-checked" },
            "properties": { "rules": ids },
        })
    });
    unread.chain(unchecked).collect()
}

/// An input that could not be read, or not to its end.
pub(crate) fn not_read(level: &str, message: &str, file: &str, region: Option<Value>) -> Value {
    let mut place = json!({ "artifactLocation": { "uri": uri(file) } });
    if let Some(region) = region {
        place["region"] = region;
    }
    json!({
        "level": level,
        "message": { "text": message },
        "descriptor": { "id": "not-read" },
        "locations": [{ "physicalLocation": place }],
    })
}

/// A path as a URI: relative, or with the scheme `file` where it is absolute.
fn uri(path: &str) -> String {
    let mut path = path.to_owned();
    // `C:\logs\a.log`
    let drive = matches!(path.as_bytes(), [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic());
    if drive {
        path = format!("/{}", path.replace('\\', "/"));
    }
    let path = path.strip_prefix("./").unwrap_or(&path);
    let mut uri = String::with_capacity(path.len() + 8);
    if path.starts_with('/') {
        uri.push_str("file://");
    }
    for (at, byte) in path.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) || (drive && at == 2);
        if plain {
            uri.push(char::from(byte));
        } else {
            uri.push('%');
            uri.extend(
                [byte >> 4, byte & 15]
                    .map(|it| char::from_digit(it.into(), 16).unwrap_or('0').to_ascii_uppercase()),
            );
        }
    }
    uri
}

/// A hash over the parts, each followed by a byte that no text contains.
fn fingerprint(parts: &[&str]) -> u64 {
    fnv(parts.iter().flat_map(|it| it.bytes().chain([0xff])))
}

/// FNV-1a with 64 bits: short and stable.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::{fingerprint, fnv, uri};

    #[test]
    fn paths_become_uris() {
        assert_eq!(uri("logs/rank 0.log"), "logs/rank%200.log");
        assert_eq!(uri("./a.log"), "a.log");
        assert_eq!(uri("/var/log/ä.log"), "file:///var/log/%C3%A4.log");
        assert_eq!(uri("a:b%.log"), "a%3Ab%25.log");
        assert_eq!(uri("C:\\logs\\a.log"), "file:///C:/logs/a.log");
        assert_eq!(uri("standard input"), "standard%20input");
    }

    #[test]
    fn fingerprints_tell_parts_apart() {
        assert_eq!(fnv(b"a".iter().copied()), 0xaf63_dc4c_8601_ec8c, "the published value");
        assert_ne!(fingerprint(&["ab", "c"]), fingerprint(&["a", "bc"]));
        assert_eq!(fingerprint(&["ab", "c"]), fingerprint(&["ab", "c"]));
    }
}
