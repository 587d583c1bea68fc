//! The JSON is what `docs/doctor.schema.json` says, and the schema says all of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use evidence::read_texts;
use report::{Doctor, Options, json, redact};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn schema() -> Value {
    serde_json::from_str(&fs::read_to_string(root().join("docs/doctor.schema.json")).unwrap()).unwrap()
}

fn value(doctor: &Doctor) -> Value {
    let mut out = Vec::new();
    json(doctor, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

fn read(texts: &[(&str, &[u8])]) -> Doctor {
    let log = rules::Log::new(read_texts(texts.iter().copied()));
    Doctor::new(&log, &rules::diagnose(&log), Options { matrix: true })
}

/// Small texts, each for something that the recorded cases may lack.
fn small() -> Vec<(&'static str, Doctor)> {
    let texts = [
        ("nothing", ""),
        ("not understood", "the moon\nis in the wrong house\n"),
        ("not UTF-8", "n-1:1:1 [0] NCCL INFO \u{fffd}\u{0}\u{1b}[36m\n"),
        (
            "an error",
            "n:1:2 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000\n",
        ),
        (
            "a training run",
            "***** Running training *****\n  Num examples = 36,718\n{'loss': 1.2, 'epoch': 0.1}\n\
             {'train_runtime': 2441.04, 'train_loss': 1.1, 'epoch': 0.3}\n\
             MA 14.96 GB         Max_MA 14.96 GB         CA 15.08 GB         Max_CA 15 GB\n\
             CPU Virtual Memory:  used = 27.2 GB, percent = 7.3%\niter 83593: loss 2.6294, time: 6669.64ms\n",
        ),
        (
            "a measurement",
            "# nccl-tests version 2.13.9\n# Using devices\n\
             #  Rank  0 Group  0 Pid   1 on      node-a device  0 [0x8d] NVIDIA H100\n\
             #  Rank  1 Group  0 Pid   2 on      node-b device  0 [0x8d] NVIDIA H100\n#\n\
             #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
             #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n\
             \x20    1048576        262144     float     sum      -1    50.25   20.87   20.87      0    49.91   21.01   21.01      0\n\
             # Out of bounds values : 0 OK\n# Avg bus bandwidth    : 20.94\n",
        ),
    ];
    texts.into_iter().map(|(what, text)| (what, read(&[("job.log", text.as_bytes())]))).collect()
}

/// Every folder of `cases` as one answer, and every file of it as one.
fn recorded() -> Vec<(String, Doctor)> {
    let mut answers = Vec::new();
    let mut folders: Vec<PathBuf> =
        fs::read_dir(root().join("cases")).unwrap().map(|it| it.unwrap().path()).collect();
    folders.sort();
    for folder in folders.into_iter().filter(|it| it.is_dir()) {
        let mut paths: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path()).collect();
        paths.retain(|it| it.is_file() && it.file_name().is_some_and(|it| it != "README.md"));
        paths.sort();
        let files: Vec<(String, Vec<u8>)> =
            paths.iter().map(|it| (it.display().to_string(), fs::read(it).unwrap())).collect();
        let texts: Vec<(&str, &[u8])> = files.iter().map(|it| (it.0.as_str(), it.1.as_slice())).collect();
        answers.push((folder.display().to_string(), read(&texts)));
        if texts.len() > 1 {
            answers.extend(texts.iter().map(|it| (it.0.to_owned(), read(&[*it]))));
        }
    }
    assert!(answers.len() > 60, "{} cases", answers.len());
    answers
}

/// Every answer, as it is and redacted.
static ALL: LazyLock<Vec<(String, Value)>> = LazyLock::new(|| {
    let named = small().into_iter().map(|(what, it)| (what.to_owned(), it)).chain(recorded());
    let mut values = Vec::new();
    for (what, mut doctor) in named {
        values.push((what.clone(), value(&doctor)));
        redact(&mut doctor);
        values.push((format!("{what}, redacted"), value(&doctor)));
    }
    values
});

#[test]
fn the_schema_is_a_schema() {
    assert!(jsonschema::meta::is_valid(&schema()));
}

#[test]
fn every_answer_fits_the_schema() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for (what, value) in ALL.iter() {
        let errors: Vec<String> =
            validator.iter_errors(value).take(5).map(|it| format!("{}: {it}", it.instance_path())).collect();
        assert!(errors.is_empty(), "{what}: {errors:#?}");
    }
}

/// A new field fails here until the schema describes it.
#[test]
fn the_schema_names_every_field() {
    let schema = schema();
    let mut seen = BTreeSet::new();
    for (what, value) in ALL.iter() {
        describe(&schema, &schema, value, "$", what, &mut seen);
    }
    // The cases must show every kind of object, or this test would pass by seeing nothing.
    let shown = seen.iter().filter(|it| it.starts_with("#/$defs/")).count();
    let described = schema["$defs"].as_object().unwrap().len();
    let missing: Vec<&String> = schema["$defs"]
        .as_object()
        .unwrap()
        .keys()
        .filter(|it| !seen.contains(&format!("#/$defs/{it}")))
        .collect();
    assert_eq!(shown, described, "no case shows {missing:?}");
}

/// Follows a value and its schema together.
fn describe(whole: &Value, schema: &Value, value: &Value, at: &str, what: &str, seen: &mut BTreeSet<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        if !value.is_null() {
            seen.insert(reference.to_owned());
        }
        let target = whole
            .pointer(reference.trim_start_matches('#'))
            .unwrap_or_else(|| panic!("{reference} leads nowhere"));
        return describe(whole, target, value, at, what, seen);
    }
    if let Some(either) = schema["anyOf"].as_array() {
        return describe(whole, &either[0], value, at, what, seen);
    }
    match value {
        Value::Object(fields) => {
            let properties = schema["properties"].as_object();
            for (name, value) in fields {
                let described = properties
                    .and_then(|it| it.get(name))
                    .or_else(|| Some(&schema["additionalProperties"]).filter(|it| it.is_object()));
                let at = format!("{at}.{name}");
                let described = described
                    .unwrap_or_else(|| panic!("docs/doctor.schema.json does not describe {at} ({what})"));
                describe(whole, described, value, &at, what, seen);
            }
            // What is always written is promised.
            if let Some(properties) = properties {
                let required = schema["required"].as_array().unwrap();
                for name in properties.keys() {
                    assert!(fields.contains_key(name), "{at}.{name} is described but not written ({what})");
                    assert!(required.iter().any(|it| it == name), "{at}.{name} is written but not required");
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                describe(whole, &schema["items"], item, &format!("{at}[]"), what, seen);
            }
        }
        _ => {}
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let good = value(&read(&[]));
    assert!(validator.is_valid(&good));
    for (pointer, wrong) in [
        ("/schema", Value::from("plumb.doctor/3")),
        ("/verdict/level", Value::from("fine")),
        ("/facts/job/ranks", Value::from(-1)),
        ("/checks/0/state", Value::from("passed")),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = wrong;
        assert!(!validator.is_valid(&bad), "{pointer}");
    }
    let mut less = good.clone();
    less.as_object_mut().unwrap().remove("inputs");
    assert!(!validator.is_valid(&less));
    // Later fields may be added.
    let mut more = good;
    more["verdict"]["later"] = Value::from(1);
    assert!(validator.is_valid(&more));
}
