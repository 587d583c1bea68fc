//! `plumb predict`, as a person runs it.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;

use common::{Answer, plumb, root};
use serde_json::Value;

const JOB: &str = "crates/cli/tests/predict/g6e-zero3.toml";

fn predict(arguments: &[&str]) -> Answer {
    plumb(["predict"].into_iter().chain(arguments.iter().copied()))
}

#[test]
fn the_first_screen_is_the_answer() {
    let answer = predict(&[JOB, "--what-if", "network=eni", "--what-if", "tp=3", "--price-per-hour", "10.5"]);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let text = &answer.stdout;
    assert!(text.lines().count() <= 40 && text.lines().all(|it| it.chars().count() <= 100), "{text}");
    let first = text.lines().next().unwrap();
    assert!(first.contains(" s per step, between ") && first.contains(" GiB of each GPU"), "{first}");
    for part in [
        "4 GPUs of a node share 1 x 100 Gbps of EFA without GPUDirect",
        "cost ",
        "network=eni",
        "impossible: 32 heads are not a multiple of tp = 3",
    ] {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_json_is_as_its_schema_says() {
    let text = fs::read_to_string(root().join("docs/predict.schema.json")).unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    schema["additionalProperties"] = Value::from(false);
    for it in schema["$defs"].as_object_mut().unwrap().values_mut().filter(|it| it["properties"].is_object())
    {
        it["additionalProperties"] = Value::from(false);
    }
    let validator = jsonschema::validator_for(&schema).unwrap();
    for more in [&[][..], &["--what-if", "tp=3", "--what-if", "network=eni", "--price-per-hour", "1"]] {
        let answer = predict(&[&[JOB, "--format", "json"], more].concat()).json();
        let errors: Vec<String> = validator.iter_errors(&answer).map(|it| it.to_string()).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        let parts = answer["breakdown"].as_array().unwrap().iter();
        let sum: f64 = parts.map(|it| it["exposed_s"].as_f64().unwrap()).sum();
        assert!((sum / answer["step_time_s"].as_f64().unwrap() - 1.0).abs() < 1e-3);
    }
}

#[test]
fn a_wrong_job_is_named_with_its_file() {
    let folder = testbed::Folder::new("predict");
    let write = |text: &str| {
        let path = folder.path().join("job.toml");
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let job = fs::read_to_string(root().join(JOB)).unwrap();
    for (text, reason) in [
        (
            job.replace("micro_batch", "microbatch"),
            "[run] has no key `microbatch`: did you mean `micro_batch`?",
        ),
        (job.replace("nodes = 4", "nodes = 0"), "`nodes` is 0: it must be at least 1"),
        (job.replace("[model]", "[model"), "job.toml"),
        (String::new(), "the job has no [model] table"),
    ] {
        let answer = predict(&[&write(&text)]);
        assert_eq!(answer.code, Some(2), "{text}");
        assert!(answer.stderr.starts_with("error: ") && answer.stderr.contains(reason), "{}", answer.stderr);
    }
    let missing = predict(&["no-such-job.toml"]);
    assert_eq!(missing.code, Some(2));
    assert_eq!(missing.stderr.matches("no-such-job.toml").count(), 1, "{}", missing.stderr);
    let bad = predict(&[JOB, "--what-if", "netwrok=eni"]);
    assert!(bad.stderr.contains("did you mean `network`?"), "{}", bad.stderr);
}
