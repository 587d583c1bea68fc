//! SARIF and `JUnit`, as programs read them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use evidence::read_texts;
use evidence::submission::Submission;
use evidence::yaml::Trouble;
use report::lint::{Lint, Unread};
use report::{Check, Doctor, Evidence, Options, junit, sarif};
use rules::{Severity, State};
use serde_json::Value;

const DUPLICATE: &str = "n-1:1:2 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000\n\
     n-1:1:2 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 3 and rank 1 both on CUDA device 2000\n";

fn read(name: &str, text: &str) -> Doctor {
    let log = rules::Log::new(read_texts([(name, text.as_bytes())]));
    Doctor::new(&log, &rules::diagnose(&log), Options::default())
}

fn as_sarif(doctor: &Doctor) -> Value {
    let mut out = Vec::new();
    sarif(doctor, &mut out).unwrap();
    assert_eq!(out.last(), Some(&b'\n'));
    serde_json::from_slice(&out).unwrap()
}

fn as_junit(doctor: &Doctor) -> String {
    let mut out = Vec::new();
    junit(doctor, Some(Severity::Warning), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn recorded() -> Vec<(String, Doctor)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let mut logs: Vec<_> = fs::read_dir(root).unwrap().map(|it| it.unwrap().path().join("job.log")).collect();
    logs.retain(|it| it.is_file());
    logs.sort();
    assert!(logs.len() > 30);
    logs.iter()
        .map(|it| {
            let bytes = fs::read(it).unwrap();
            let name = it.display().to_string();
            let log = rules::Log::new(read_texts([(name.as_str(), bytes.as_slice())]));
            (name.clone(), Doctor::new(&log, &rules::diagnose(&log), Options::default()))
        })
        .collect()
}

#[test]
fn sarif_has_what_code_scanning_asks_for() {
    let doctor = read("logs/rank 0.log", DUPLICATE);
    let log = as_sarif(&doctor);
    assert_eq!(log["version"], "2.1.0");
    assert_eq!(log["$schema"], "https://json.schemastore.org/sarif-2.1.0.json");
    let run = &log["runs"][0];
    assert_eq!(run["tool"]["driver"]["name"], "plumb");
    assert_eq!(run["invocations"][0]["executionSuccessful"], true);
    let rule = &run["tool"]["driver"]["rules"][0];
    assert_eq!(rule["id"], "duplicate-gpu");
    assert_eq!(rule["shortDescription"]["text"], doctor.findings[0].title.as_str());
    assert_eq!(rule["defaultConfiguration"]["level"], "error");
    assert_eq!(rule["properties"]["precision"], "very-high");
    assert!(
        rule["help"]["markdown"].as_str().unwrap().contains("<https://github.com/NVIDIA/nccl/issues/1241>")
    );
    let result = &run["results"][0];
    assert_eq!(result["ruleId"], "duplicate-gpu");
    assert_eq!(result["ruleIndex"], 0);
    assert_eq!(result["level"], "error");
    let finding = &doctor.findings[0];
    assert_eq!(result["message"]["text"], format!("{}. {}", finding.message, finding.fix));
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "logs/rank%200.log");
    assert_eq!(place["region"]["startLine"], 1);
    assert!(place["region"]["snippet"]["text"].as_str().unwrap().contains("Duplicate GPU"));
    assert_eq!(result["relatedLocations"][0]["physicalLocation"]["region"]["startLine"], 2);
    assert_eq!(result["properties"]["confidence"], "certain");
    assert_eq!(result["properties"]["entities"][0]["kind"], "host");
}

#[test]
fn sarif_groups_what_was_not_checked() {
    let doctor = read("a.log", DUPLICATE);
    let log = as_sarif(&doctor);
    let notes = log["runs"][0]["invocations"][0]["toolExecutionNotifications"].as_array().unwrap();
    let named: usize = notes.iter().map(|it| it["properties"]["rules"].as_array().unwrap().len()).sum();
    assert_eq!(named, doctor.not_checked.len());
    assert!(notes.len() < named || named < 2);
    assert!(notes.iter().all(|it| it["level"] == "note"));
}

#[test]
fn sarif_without_a_line_still_has_a_place() {
    let mut doctor = read("a.log", DUPLICATE);
    doctor.findings[0].evidence.clear();
    let log = as_sarif(&doctor);
    let place = &log["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "a.log");
    assert_eq!(place["region"], Value::Null);
    doctor.inputs.clear();
    assert_eq!(as_sarif(&doctor)["runs"][0]["results"][0]["locations"], Value::Null);
}

#[test]
fn sarif_fingerprints_are_stable_and_differ() {
    let mut doctor = read("a.log", DUPLICATE);
    let print = |it: &Doctor, n: usize| {
        as_sarif(it)["runs"][0]["results"][n]["partialFingerprints"]["primaryLocationLineHash"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let first = print(&doctor, 0);
    assert_eq!(first, print(&doctor, 0));
    // The line may move; the finding is the same.
    doctor.findings[0].evidence[0].line += 7;
    assert_eq!(first, print(&doctor, 0));
    // The same once more is told apart, and another file or message is another finding.
    doctor.findings.push(doctor.findings[0].clone());
    assert_eq!(first, print(&doctor, 0));
    assert_ne!(first, print(&doctor, 1));
    doctor.findings[0].message.push('!');
    assert_ne!(first, print(&doctor, 0));
    assert_ne!(first, print(&read("b.log", DUPLICATE), 0));
}

#[test]
fn sarif_of_every_case() {
    for (name, doctor) in recorded() {
        let log = as_sarif(&doctor);
        let run = &log["runs"][0];
        let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
        let results = run["results"].as_array().unwrap();
        assert_eq!(results.len(), doctor.findings.len(), "{name}");
        for result in results {
            let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            assert_eq!(rules[index]["id"], result["ruleId"], "{name}");
            assert!(["error", "warning", "note"].contains(&result["level"].as_str().unwrap()), "{name}");
            let uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].as_str().unwrap();
            assert!(uri.starts_with("file:///") && !uri.contains(' '), "{uri}");
        }
        let ids: Vec<&Value> = rules.iter().map(|it| &it["id"]).collect();
        assert!(ids.iter().enumerate().all(|(i, it)| !ids[..i].contains(it)), "{name}: {ids:?}");
        assert_eq!(log, as_sarif(&doctor));
    }
}

/// An element, with its attributes and all text directly in it.
#[derive(Debug, Default)]
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    children: Vec<Element>,
    text: String,
}

impl Element {
    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|it| it.0 == name).map(|it| it.1.as_str())
    }

    fn number(&self, name: &str) -> usize {
        self.attribute(name).unwrap().parse().unwrap()
    }

    fn all(&self, name: &str) -> Vec<&Element> {
        self.children.iter().filter(|it| it.name == name).collect()
    }
}

/// Reads XML strictly, as far as it is needed here, and panics where it is not well-formed.
fn parse(xml: &str) -> Element {
    let forbidden = |it: char| (it < ' ' && !"\t\n\r".contains(it)) || "\u{fffe}\u{ffff}".contains(it);
    assert!(!xml.contains(forbidden), "a character that XML 1.0 forbids");
    let mut rest = xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").expect("a declaration");
    let mut open = vec![Element::default()];
    while let Some(at) = rest.find('<') {
        let text = unescaped(&rest[..at]);
        open.last_mut().unwrap().text.push_str(&text);
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            let closed = open.pop().unwrap();
            assert_eq!(closed.name, name);
            open.last_mut().unwrap().children.push(closed);
            continue;
        }
        let (tag, empty) = tag.strip_suffix('/').map_or((tag, false), |it| (it, true));
        let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut element = Element { name: name.to_owned(), ..Element::default() };
        while let Some((name, value)) = attributes.split_once("=\"") {
            let (value, after) = value.split_once('"').expect("an attribute ends");
            assert!(!value.contains(['<', '\n']), "{value}");
            element.attributes.push((name.trim().to_owned(), unescaped(value)));
            attributes = after;
        }
        if empty {
            open.last_mut().unwrap().children.push(element);
        } else {
            open.push(element);
        }
    }
    assert_eq!(open.len(), 1, "every element is closed");
    assert_eq!(rest.trim(), "");
    open.pop().unwrap().children.pop().unwrap()
}

fn unescaped(text: &str) -> String {
    let mut parts = text.split('&');
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let (name, after) = part.split_once(';').expect("an entity ends");
        out.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            "#10" => '\n',
            "#9" => '\t',
            "#13" => '\r',
            other => panic!("unknown entity {other}"),
        });
        out.push_str(after);
    }
    out
}

fn suite(doctor: &Doctor) -> Element {
    counted(&as_junit(doctor))
}

/// Checks the counts and returns the suite.
fn counted(xml: &str) -> Element {
    let mut suites = parse(xml);
    assert_eq!(suites.name, "testsuites");
    let suite = suites.children.pop().unwrap();
    assert!(suites.children.is_empty());
    let cases = suite.all("testcase");
    let having = |name: &str| cases.iter().filter(|it| !it.all(name).is_empty()).count();
    for it in [&suites, &suite] {
        assert_eq!(it.number("tests"), cases.len());
        assert_eq!(it.number("failures"), having("failure"));
        assert_eq!(it.number("skipped"), having("skipped"));
        assert_eq!(it.number("errors"), having("error"));
    }
    assert!(cases.iter().all(|it| it.all("failure").len() + it.all("skipped").len() <= 1));
    let names: Vec<_> = cases.iter().map(|it| (it.attribute("classname"), it.attribute("name"))).collect();
    assert!(names.iter().enumerate().all(|(i, it)| !names[..i].contains(it)), "{names:?}");
    suite
}

fn case<'a>(suite: &'a Element, name: &str) -> &'a Element {
    suite.all("testcase").into_iter().find(|it| it.attribute("name") == Some(name)).unwrap()
}

#[test]
fn junit_tells_failures_passes_and_skips() {
    let mut doctor = read("a.log", DUPLICATE);
    let ranks = doctor.checks.iter_mut().find(|it| it.id == "ranks").unwrap();
    ranks.text.push_str(", in other words");
    let suite = suite(&doctor);
    assert_eq!(suite.attribute("name"), Some("plumb doctor"));
    let failure = case(&suite, "duplicate-gpu").all("failure")[0];
    assert_eq!(failure.attribute("type"), Some("error"));
    assert_eq!(failure.attribute("message"), Some(doctor.findings[0].message.as_str()));
    for part in ["a.log:1: n-1:1:2", &doctor.findings[0].why, &doctor.findings[0].fix] {
        assert!(failure.text.contains(part), "{}", failure.text);
    }
    // The check `ranks` says the same: it is not counted twice, and does not pass.
    assert_eq!(
        case(&suite, "ranks").all("skipped")[0].attribute("message"),
        Some("reported as duplicate-gpu")
    );
    assert_eq!(suite.number("failures"), 1);
    let unchecked = doctor.checks.iter().find(|it| it.state == State::NotChecked).unwrap();
    assert_eq!(
        case(&suite, &unchecked.id).all("skipped")[0].attribute("message"),
        Some(unchecked.text.as_str())
    );
}

#[test]
fn junit_joins_the_findings_of_a_rule() {
    let mut doctor = read("a.log", DUPLICATE);
    let mut second = doctor.findings[0].clone();
    second.message = "another".to_owned();
    let mut third = second.clone();
    third.severity = Severity::Info;
    third.message = "worth knowing".to_owned();
    let mut other = third.clone();
    other.id = "other-rule".to_owned();
    doctor.findings.extend([second, third, other]);
    let suite = suite(&doctor);
    let it = case(&suite, "duplicate-gpu");
    let failure = it.all("failure")[0];
    assert!(failure.attribute("message").unwrap().ends_with(" (and 1 more)"));
    assert!(failure.text.contains("another") && !failure.text.contains("worth knowing"));
    assert!(it.all("system-out")[0].text.contains("worth knowing"));
    let info = case(&suite, "other-rule");
    assert!(info.all("failure").is_empty() && info.all("system-out").len() == 1);
}

#[test]
fn junit_fails_a_check_that_no_finding_explains() {
    let mut doctor = read("a.log", "");
    let evidence = Some(Evidence { file: "a.log".to_owned(), line: 3, text: "x".to_owned(), span: None });
    let check = |id: &str, state: State| Check {
        id: id.to_owned(),
        state,
        text: "what was seen".to_owned(),
        rule: None,
        evidence: evidence.clone(),
    };
    doctor.checks = vec![check("one", State::Warning), check("two", State::Ok), check("three", State::Note)];
    let suite = suite(&doctor);
    assert_eq!(case(&suite, "one").all("failure")[0].text, "what was seen\na.log:3: x");
    assert!(case(&suite, "two").children.is_empty());
    assert_eq!(case(&suite, "three").all("system-out").len(), 1);
    assert_eq!(suite.number("failures"), 1);
}

#[test]
fn junit_fails_what_reaches_fail_on() {
    let doctor = read("a.log", DUPLICATE);
    let failures = |fail_on: Option<Severity>| {
        let mut out = Vec::new();
        junit(&doctor, fail_on, &mut out).unwrap();
        counted(&String::from_utf8(out).unwrap()).number("failures")
    };
    let levels = [Some(Severity::Info), Some(Severity::Error), None];
    assert_eq!(levels.map(failures), [1, 1, 0]);
}

/// Two files with a finding in the second, and one that could not be read between them.
fn linted() -> Lint {
    let pod = "kind: Pod\nspec:\n  containers:\n  - resources: {limits: {nvidia.com/gpus: 8}}\n";
    let texts = [("good.yaml", "kind: Service\n"), ("a dir/bad.yaml", pod)];
    let files: Vec<_> = texts.iter().map(|it| Submission::read(it.0, it.1).unwrap()).collect();
    let trouble = Trouble { line: 3, column: 2, text: "is not YAML".to_owned() };
    let unread = [Unread { position: 1, name: "broken.yaml".to_owned(), trouble }];
    Lint::new(&files, &unread, &rules::lint::lint(&files, &rules::lint::Given::default()))
}

#[test]
fn sarif_of_lint_is_like_that_of_doctor() {
    let lint = linted();
    let names: Vec<&str> = lint.files.iter().map(|it| it.file.as_str()).collect();
    assert_eq!(names, ["good.yaml", "broken.yaml", "a dir/bad.yaml"]);
    let mut out = Vec::new();
    report::lint::sarif(&lint, &mut out).unwrap();
    let log: Value = serde_json::from_slice(&out).unwrap();
    let run = &log["runs"][0];
    assert_eq!(run["automationDetails"]["id"], "plumb/lint/");
    assert_eq!(run["invocations"][0]["executionSuccessful"], false);
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), lint.findings.len());
    let result = results.iter().find(|it| it["ruleId"] == "resource-misspelt").unwrap();
    let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
    let rule = &run["tool"]["driver"]["rules"][index];
    assert_eq!(rule["id"], "resource-misspelt");
    assert!(rule["help"]["markdown"].as_str().unwrap().contains("**Sources**"));
    assert!(result["partialFingerprints"]["primaryLocationLineHash"].is_string());
    assert_eq!(result["properties"]["fixable"], true);
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "a%20dir/bad.yaml");
    assert_eq!((&place["region"]["startLine"], &place["region"]["startColumn"]), (&4.into(), &26.into()));
}

#[test]
fn junit_of_lint_is_like_that_of_doctor() {
    let lint = linted();
    let written = |fail_on| {
        let mut out = Vec::new();
        report::lint::junit(&lint, fail_on, &mut out).unwrap();
        counted(&String::from_utf8(out).unwrap())
    };
    let suite = written(Some(Severity::Error));
    assert_eq!(suite.attribute("name"), Some("plumb lint"));
    let misspelt = case(&suite, "resource-misspelt");
    assert!(misspelt.all("failure")[0].text.contains("a dir/bad.yaml:4:26: "));
    assert_eq!(case(&suite, "broken.yaml").all("error")[0].attribute("message"), Some("3:2: is not YAML"));
    assert!(case(&suite, "good.yaml").children.is_empty());
    assert_eq!(written(None).number("failures"), 0);
}

#[test]
fn junit_is_well_formed_whatever_it_says() {
    let mut doctor = read("a.log", DUPLICATE);
    let nasty = "<b>&amp; \"quoted\" 'too' ]]> \0\u{1b}[36m\u{fffe}\r\n\tß\u{1f600}";
    doctor.findings[0].message = nasty.to_owned();
    doctor.findings[0].id = nasty.to_owned();
    doctor.findings[0].evidence[0].text = nasty.to_owned();
    doctor.verdict.text = nasty.to_owned();
    let shown = "<b>&amp; \"quoted\" 'too' ]]> [36m\r\n\tß\u{1f600}";
    let suite = suite(&doctor);
    assert_eq!(case(&suite, shown).all("failure")[0].attribute("message"), Some(shown));
}

#[test]
fn junit_of_every_case() {
    for (_, doctor) in recorded() {
        suite(&doctor);
        assert_eq!(as_junit(&doctor), as_junit(&doctor));
    }
}
