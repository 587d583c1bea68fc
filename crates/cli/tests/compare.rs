//! `plumb compare`, as a person runs it.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;

use common::{Answer, plumb, root};
use serde_json::Value;

const EFA: &str = "cases/g6e-eni-vs-efa/efa.log";
const ENI: &str = "cases/g6e-eni-vs-efa/eni.log";
const JOB: &str = "crates/cli/tests/predict/g6e-zero3.toml";

fn compare(arguments: &[&str]) -> Answer {
    plumb(["compare"].into_iter().chain(arguments.iter().copied()))
}

/// The runs of the field notes: 2441 s over EFA, 5409 s over ENI.
const NOTES: [&str; 10] =
    [EFA, ENI, "--instance", "g6e.12xlarge", "--job", JOB, "--took", "efa=2441.04", "--took", "eni=5408.85"];

#[test]
fn the_notes_runs_come_out_as_they_say() {
    let answer = compare(&NOTES);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let text = &answer.stdout;
    assert!(
        text.starts_with("eni takes 2.29 times as long per step as efa: 106 s instead of 46.2 s\n"),
        "{text}"
    );
    assert!(text.contains("2441 s") && text.contains("5409 s  x2.22"), "{text}");
    assert!(text.contains("of TCP instead of 1 x 100 Gbps of EFA"), "{text}");
    assert!(text.lines().all(|it| it.chars().count() <= 100), "{text}");
    // The network is most of it, and the rest is named.
    let json: Value =
        serde_json::from_str(&compare(&[&NOTES[..], &["--format", "json"]].concat()).stdout).unwrap();
    let causes = &json["causes"][0];
    let (all, rest) = (causes["seconds"].as_f64().unwrap(), causes["unexplained_s"].as_f64().unwrap());
    assert!(rest.abs() < 0.2 * all, "{causes}");
}

#[test]
fn the_json_is_as_its_schema_says() {
    let text = fs::read_to_string(root().join("docs/compare.schema.json")).unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    schema["additionalProperties"] = Value::from(false);
    for it in schema["$defs"].as_object_mut().unwrap().values_mut() {
        it["additionalProperties"] = Value::from(false);
    }
    let validator = jsonschema::validator_for(&schema).unwrap();
    for runs in [&NOTES[..], &["crates/cli/tests/compare/a.txt", "crates/cli/tests/compare/b.txt"]] {
        let answer = compare(&[runs, &["--format", "json"]].concat());
        let json: Value = serde_json::from_str(&answer.stdout).expect("JSON");
        let errors: Vec<String> = validator.iter_errors(&json).map(|it| it.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

#[test]
fn three_runs_and_another_baseline() {
    let folder = testbed::Folder::new("compare-three");
    let log = |name: &str, milliseconds: [u32; 3]| {
        let path = folder.path().join(name);
        let lines = milliseconds.map(|it| {
            format!(
                " iteration 1/ 10 | consumed samples: 1 | elapsed time per iteration (ms): {it}.0 | loss: 1\n"
            )
        });
        fs::write(&path, lines.concat()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let runs = [
        log("one.log", [9000, 1000, 1000]),
        log("two.log", [9000, 2000, 2000]),
        log("three.log", [9000, 500, 500]),
    ];
    let [one, two, three] = runs.each_ref().map(String::as_str);
    let answer = compare(&[one, two, three, "--baseline", two]);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let text = &answer.stdout;
    assert!(text.contains("one takes 50 % less time per step than two: 1.00 s instead of 2.00 s"), "{text}");
    assert!(text.contains("three takes 75 % less time per step than two"), "{text}");
    assert!(!text.contains("two takes "), "{text}");
    let refused = compare(&[one, two, "--baseline", "elsewhere"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("is none of the runs"), "{}", refused.stderr);
}

#[test]
fn markdown_is_text_whatever_names_say() {
    let folder = testbed::Folder::new("compare-names");
    let hostile = folder.path().join("a|b<script>`x`.txt");
    fs::copy(root().join("crates/cli/tests/compare/a.txt"), &hostile).unwrap();
    let answer =
        compare(&[hostile.to_str().unwrap(), "crates/cli/tests/compare/b.txt", "--format", "markdown"]);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    assert!(answer.stdout.contains("a\\|b\\<script\\>\\`x\\`"), "{}", answer.stdout);
    assert!(answer.stdout.contains("| ---: |"), "{}", answer.stdout);
}

#[test]
fn runs_without_anything_in_common_say_so() {
    let answer = compare(&[EFA, "crates/cli/tests/compare/a.txt"]);
    assert_eq!(answer.code, Some(2));
    assert!(answer.stderr.contains("have a measurement in common"), "{}", answer.stderr);
    let missing = compare(&[EFA, "nowhere.log"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("nowhere.log"), "{}", missing.stderr);
    let alone = compare(&[EFA]);
    assert_eq!(alone.code, Some(2));
    for wrong in ["efa", "efa=", "efa=-3", "nobody=4"] {
        assert_eq!(compare(&[EFA, ENI, "--took", wrong]).code, Some(2), "{wrong}");
    }
}
