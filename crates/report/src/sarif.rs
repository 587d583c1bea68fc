//! SARIF 2.1.0, as GitHub code scanning reads it.
//!
//! GitHub refuses a whole file for one result without a place
//! (<https://github.com/github/codeql-action/issues/2459>), so a finding without a line is placed at the
//! first input as a whole. It tells runs apart by `automationDetails`, and recognises a result in the next
//! run by `primaryLocationLineHash`, which it cannot work out by itself for a file outside the repository.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::{Doctor, Evidence, Finding};

/// Writes the findings as SARIF 2.1.0, indented, with a final newline.
pub fn sarif(doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
    let rules = rule_ids(doctor);
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "plumb",
                "version": env!("CARGO_PKG_VERSION"),
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules.iter().map(|(_, finding)| rule(finding)).collect::<Vec<_>>(),
            }},
            "automationDetails": { "id": "plumb/doctor/" },
            "columnKind": "unicodeCodePoints",
            "invocations": [{
                "executionSuccessful": true,
                "toolExecutionNotifications": notifications(doctor),
            }],
            "results": results(doctor, &rules),
            "properties": { "schema": doctor.schema, "verdict": { "level": doctor.verdict.level, "text": doctor.verdict.text } },
        }],
    });
    crate::json::write_json(&log, out)
}

/// Each rule that found something, in the order of the findings, with its first finding.
fn rule_ids(doctor: &Doctor) -> Vec<(&str, &Finding)> {
    let mut rules: Vec<(&str, &Finding)> = Vec::new();
    for finding in &doctor.findings {
        if !rules.iter().any(|it| it.0 == finding.id) {
            rules.push((&finding.id, finding));
        }
    }
    rules
}

fn rule(finding: &Finding) -> Value {
    // A finding may know more than its rule; what belongs to the rule is the same in every run.
    let known = rules::find(&finding.id);
    let severity = known.map_or(finding.severity.as_str(), |it| it.severity.name());
    let (why, fix) = known.map_or((finding.why.as_str(), finding.fix.as_str()), |it| (it.why, it.fix));
    let sources: Vec<String> = finding.references.iter().map(|it| format!("- {it}")).collect();
    json!({
        "id": finding.id,
        "name": finding.id,
        "shortDescription": { "text": finding.title },
        "fullDescription": { "text": why },
        "help": {
            "text": format!("{fix}\n\nSources:\n{}", sources.join("\n")),
            "markdown": format!("{why}\n\n**What to do:** {fix}\n\n**Sources**\n\n{}", linked(&finding.references)),
        },
        "defaultConfiguration": { "level": level(severity) },
        "properties": {
            "tags": ["interconnect", "nccl"],
            "precision": precision(&finding.confidence),
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

fn level(severity: &str) -> &'static str {
    match severity {
        "error" => "error",
        "warning" => "warning",
        _ => "note",
    }
}

fn problem(severity: &str) -> &'static str {
    match level(severity) {
        "note" => "recommendation",
        level => level,
    }
}

fn precision(confidence: &str) -> &'static str {
    match confidence {
        "certain" => "very-high",
        "likely" => "high",
        _ => "medium",
    }
}

fn results(doctor: &Doctor, rules: &[(&str, &Finding)]) -> Vec<Value> {
    let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
    doctor
        .findings
        .iter()
        .map(|finding| {
            let file = finding.evidence.first().map_or("", |it| it.file.as_str());
            let hash = fingerprint(&[&finding.id, &finding.message, file]);
            let count = seen.entry(hash).or_default();
            *count += 1;
            result(doctor, finding, rules, &format!("{hash:016x}:{count}"))
        })
        .collect()
}

fn result(doctor: &Doctor, finding: &Finding, rules: &[(&str, &Finding)], fingerprint: &str) -> Value {
    let mut result = Map::new();
    let mut put = |name: &str, value: Value| result.insert(name.to_owned(), value);
    put("ruleId", json!(finding.id));
    put("ruleIndex", json!(rules.iter().position(|it| it.0 == finding.id)));
    put("level", json!(level(&finding.severity)));
    put("message", json!({ "text": finding.message }));
    put(
        "partialFingerprints",
        json!({ "primaryLocationLineHash": fingerprint, "plumbFinding/v1": fingerprint }),
    );
    let (first, others) = match finding.evidence.split_first() {
        Some((first, others)) => (Some(physical(first)), others),
        None => (
            doctor.inputs.first().map(|it| json!({ "artifactLocation": { "uri": uri(&it.file) } })),
            finding.evidence.as_slice(),
        ),
    };
    if let Some(first) = first {
        put("locations", json!([{ "physicalLocation": first }]));
    }
    if !others.is_empty() {
        let related = (1..).zip(others).map(|(id, it): (u32, _)| {
            let text =
                if it.text.is_empty() { format!("line {} of {}", it.line, it.file) } else { it.text.clone() };
            json!({ "id": id, "physicalLocation": physical(it), "message": { "text": text } })
        });
        put("relatedLocations", related.collect());
    }
    let mut properties = Map::new();
    let mut put = |name: &str, value: Value| properties.insert(name.to_owned(), value);
    put("confidence", json!(finding.confidence));
    put("entities", json!(finding.entities));
    put("also", json!(finding.also));
    let known = rules::find(&finding.id);
    if known.is_some_and(|it| it.why != finding.why) {
        put("why", json!(finding.why));
    }
    if known.is_some_and(|it| it.fix != finding.fix) {
        put("fix", json!(finding.fix));
    }
    result.insert("properties".to_owned(), Value::Object(properties));
    Value::Object(result)
}

fn physical(it: &Evidence) -> Value {
    let mut region = json!({ "startLine": it.line.max(1) });
    if !it.text.is_empty() {
        region["snippet"] = json!({ "text": it.text });
    }
    json!({ "artifactLocation": { "uri": uri(&it.file) }, "region": region })
}

/// What could not be checked, by what it needs, and what could not be read.
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
        Some(json!({
            "level": "warning",
            "message": { "text": format!("{} could not be read to its end: {problem}", input.file) },
            "descriptor": { "id": "not-read" },
            "locations": [{ "physicalLocation": { "artifactLocation": { "uri": uri(&input.file) } } }],
        }))
    });
    let unchecked = needs.iter().map(|(needs, ids)| {
        let n = ids.len();
        json!({
            "level": "note",
            "message": { "text": format!("{n} rule{} not checked, needed: {needs}", if n == 1 { "" } else { "s" }) },
            "descriptor": { "id": "not-checked" },
            "properties": { "rules": ids },
        })
    });
    unread.chain(unchecked).collect()
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

/// A hash over the parts, each closed by a byte that no text contains.
fn fingerprint(parts: &[&str]) -> u64 {
    fnv(parts.iter().flat_map(|it| it.bytes().chain([0xff])))
}

/// FNV-1a with 64 bits: short, and the same for ever.
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
