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
    let validator = strict("docs/predict.schema.json");
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

const LOG: &str = "cases/g6e-4x4-efa/rank0.log";

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A schema that allows no other fields.
fn strict(name: &str) -> jsonschema::Validator {
    let text = fs::read_to_string(root().join(name)).expect("the schema is there");
    let mut schema: Value = serde_json::from_str(&text).expect("it is JSON");
    schema["additionalProperties"] = Value::from(false);
    let parts = schema["$defs"].as_object_mut().expect("it has parts").values_mut();
    for it in parts.filter(|it| it["properties"].is_object()) {
        it["additionalProperties"] = Value::from(false);
    }
    jsonschema::validator_for(&schema).expect("it is a schema")
}

#[test]
fn the_job_of_a_log_with_gpudirect() {
    let asked = predict(&["--from", LOG]);
    assert_eq!(asked.code, Some(2));
    assert!(
        asked.stderr.contains("the tokens of a sequence: --set seq=2048, or `seq` in [run]"),
        "{}",
        asked.stderr
    );
    let answer =
        predict(&["--from", LOG, "--set", "seq=512", "--what-if", "gpudirect=true", "--format", "json"])
            .json();
    let errors: Vec<String> =
        strict("docs/predict.schema.json").iter_errors(&answer).map(|it| it.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    // The same job as in the job file, which was written by hand.
    let by_hand = predict(&[JOB, "--format", "json"]).json();
    assert_eq!(answer["step_time_s"], by_hand["step_time_s"]);
    assert!(answer["what_if"][0]["ratio"].as_f64().unwrap() < 0.8, "{answer}");
    let says = answer["log"]["says"].as_array().unwrap();
    let zero = says.iter().find(|it| it["key"] == "run.zero").unwrap();
    assert_eq!((&zero["value"], &zero["source"]), (&Value::from(3), &Value::from(format!("{LOG}:361"))));
    assert!(says.iter().all(|it| it["key"] != "run.seq"), "{says:?}");
    assert!(answer["measured"].is_null() && answer["what_if"][0]["scaled_s"].is_null());
}

#[test]
fn what_ifs_are_scaled_to_a_measured_step() {
    let folder = testbed::Folder::new("predict-measured");
    let log = folder.path().join("rank0.log");
    let text = fs::read_to_string(root().join(LOG)).unwrap();
    fs::write(&log, format!("{text}{{'train_runtime': 2441.04, 'train_samples_per_second': 5.2}}\n"))
        .unwrap();
    let log = log.to_str().unwrap();
    let arguments = [JOB, "--from", log, "--what-if", "gpudirect=true", "--what-if", "network=tcp,zero=2"];
    let answer = predict(&[&arguments[..], &["--format", "json"]].concat()).json();
    assert_eq!(answer["measured"]["step_time_s"], 48.82);
    let change = &answer["what_if"][0];
    let scaled = change["ratio"].as_f64().unwrap() * 48.82;
    assert!((change["scaled_s"].as_f64().unwrap() - scaled).abs() < 0.01, "{change}");
    let text = predict(&arguments).stdout;
    assert!(text.starts_with("48.8 s per step measured; predicted "), "{text}");
    assert!(
        words(&text).contains("What-ifs are the measured step, changed by the predicted ratio"),
        "{text}"
    );
    let refused = predict(&[JOB, "--from", "cases/g6e-eni-vs-efa/eni.log", "--what-if", "gpudirect=true"]);
    assert!(refused.stderr.contains("TCP has no GPUDirect"), "{}", refused.stderr);
}

#[test]
fn a_step_is_drawn() {
    let folder = testbed::Folder::new("predict-timeline");
    let (trace, svg) = (folder.path().join("step.json"), folder.path().join("step.svg"));
    let pipeline = folder.path().join("pipeline.toml");
    let text = "[model]\nlayers = 48\nhidden = 6144\nheads = 48\nvocab = 51200\n[cluster]\ngpu = 'A100-80GB'\ngpus_per_node = 8\nnodes = 8\n\
                intra = 'nvlink3'\ninter = { kind = 'infiniband', nics = 8, gbps = 200 }\n[run]\ntp = 4\npp = 4\nvpp = 2\nzero = 1\nglobal_batch = 64\n";
    fs::write(&pipeline, text).unwrap();
    for (job, stages) in [(JOB, 1), (pipeline.to_str().unwrap(), 4)] {
        let files =
            ["--timeline", trace.to_str().unwrap(), "--svg", svg.to_str().unwrap(), "--format", "json"];
        let answer = predict(&[&[job], &files[..]].concat()).json();
        let drawn: Value = serde_json::from_str(&fs::read_to_string(&trace).unwrap()).unwrap();
        let events = drawn["traceEvents"].as_array().unwrap();
        let number = |it: &Value, key: &str| it[key].as_f64().unwrap();
        let complete = || events.iter().filter(|it| it["ph"] == "X");
        assert!(
            complete().all(|it| number(it, "dur") >= 0.0 && number(it, "ts") >= 0.0 && it["pid"].is_u64())
        );
        let end = complete().map(|it| number(it, "ts") + number(it, "dur")).fold(0.0, f64::max) / 1e6;
        assert!((end / answer["step_time_s"].as_f64().unwrap() - 1.0).abs() < 1e-3, "{end}");
        let names = || events.iter().filter(|it| it["name"] == "process_name");
        assert_eq!(names().count(), stages);
        // Every part of the answer is drawn, and adds up on the slowest stage without a pipeline.
        for part in answer["breakdown"].as_array().unwrap().iter().filter(|it| it["kind"] != "bubble") {
            let of = || complete().filter(|it| it["cat"] == part["kind"] && it["args"]["hidden"] == false);
            let exposed = number(part, "exposed_s");
            assert!(of().next().is_some() || exposed == 0.0, "{part}");
            let sum: f64 = of().map(|it| number(it, "dur")).sum::<f64>() / 1e6;
            assert!(stages > 1 || (sum / exposed - 1.0).abs() < 1e-3, "{part}: {sum}");
        }
        let picture = fs::read_to_string(&svg).unwrap();
        assert!(
            picture.starts_with("<svg ")
                && picture.ends_with("</svg>\n")
                && picture.contains(" per step</title>")
        );
    }
    let own = predict(&[pipeline.to_str().unwrap(), "--svg", pipeline.to_str().unwrap()]);
    assert!(own.code == Some(2) && fs::read_to_string(&pipeline).unwrap() == text, "{}", own.stderr);
}

#[test]
fn findings_have_a_price() {
    let doctor = |more: &[&str]| {
        let given = ["doctor", "cases/g6e-eni-vs-efa/eni.log", "--instance", "g6e.12xlarge"];
        plumb(given.into_iter().chain(more.iter().copied()))
    };
    let price = |answer: &Value, id: &str| {
        let found = answer["findings"].as_array().unwrap().iter().find(|it| it["id"] == id);
        found.unwrap_or_else(|| panic!("{answer}"))["price"].clone()
    };
    let answer = doctor(&["--format", "json"]).json();
    assert!(answer["findings"].as_array().unwrap().iter().all(|it| it["price"].is_null()));
    let answer = doctor(&["--job", JOB, "--price-per-hour", "10", "--format", "json"]).json();
    let found = price(&answer, "ofi-plugin-not-loaded");
    assert_eq!(price(&answer, "socket-fallback"), found);
    assert!(found["share"].as_f64().unwrap() > 0.4, "{found}");
    assert!(found["cost"].as_f64().is_some_and(|it| it > 0.0) && found["cost_of"] == "run", "{found}");
    // 133 seconds of the run are its start.
    let [lost, step, of_run] =
        ["seconds_per_step", "step_s", "share_of_run"].map(|it| found[it].as_f64().unwrap());
    assert!((of_run / (lost * 50.0 / (133.0 + 50.0 * step)) - 1.0).abs() < 0.01, "{found}");
    assert!(
        (found["cost"].as_f64().unwrap() / (lost * 50.0 * 4.0 * 10.0 / 3600.0) - 1.0).abs() < 0.01,
        "{found}"
    );
    let text = doctor(&["--job", JOB, "--price-per-hour", "10"]).stdout;
    assert!(
        words(&text).contains(" s per step, ") && words(&text).contains("of the price of the run"),
        "{text}"
    );

    let folder = testbed::Folder::new("lint-price");
    let manifest = folder.path().join("job.yaml");
    let text = fs::read_to_string(root().join("crates/cli/tests/predict/no-efa.yaml")).unwrap();
    fs::write(&manifest, text).unwrap();
    let lint = ["lint", manifest.to_str().unwrap(), "--job", JOB, "--format", "json"];
    let answer = plumb(lint).json();
    assert!(price(&answer, "efa-resource-missing")["seconds_per_step"].as_f64().unwrap() > 10.0, "{answer}");

    let topo = ["topo", "--instance", "p5.48xlarge", "--nodes", "2", "--pods", "8x1"];
    let job = "crates/cli/tests/predict/llama-8b.toml";
    let answer = plumb(topo.into_iter().chain(["--job", job, "--format", "json"])).json();
    assert!(answer["price"]["seconds_per_step"].as_f64().unwrap() > 0.0, "{answer}");
    assert!(words(&plumb(topo.into_iter().chain(["--job", job])).stdout).contains("this layout costs"));
}
