//! `plumb predict` of what people have: scripts, settings of trainers, manifests, measurements.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;

use common::{Answer, plumb};

fn predict(arguments: &[&str]) -> Answer {
    plumb(["predict"].into_iter().chain(arguments.iter().copied()))
}

fn at(name: &str) -> String {
    format!("crates/cli/tests/predict/{name}")
}

/// The job and the notes of an answer: what was read, without what it takes.
fn read(arguments: &[&str]) -> String {
    let answer = predict(arguments);
    assert!(answer.code == Some(0) || answer.code == Some(1), "{arguments:?}: {}", answer.stderr);
    let mut shown = String::new();
    let mut keep = false;
    for line in answer.stdout.lines().take_while(|it| !it.contains("where the time goes")) {
        match line.get(2..12).unwrap_or_default().trim() {
            "job" | "note" => keep = true,
            "" => {}
            _ => keep = false,
        }
        // What the model itself remarks is not about inputs.
        if keep && !line.is_empty() {
            shown.push_str(line.trim_end());
            shown.push('\n');
        }
    }
    shown
}

#[test]
fn inputs_are_read_as_a_person_gives_them() {
    let (train, args, ds, config, yaml) =
        (at("train.sh"), at("args.json"), at("ds.json"), at("llama.json"), at("job.yaml"));
    let measured = at("measured.toml");
    let cases: [(&str, &[&str]); 8] = [
        ("script", &[&train, "--instance", "p5.48xlarge"]),
        (
            "script-variable-and-nodes",
            &[&train, "--instance", "p5.48xlarge", "--define", "TP=8", "--nodes", "8", "--set", "seq=8192"],
        ),
        ("script-other-model", &[&train, "--instance", "p5.48xlarge", "--model", "llama-3-8b"]),
        (
            "options",
            &[
                "--megatron",
                "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --micro-batch-size 4 --seq-length 1024 --fp16",
                "--instance",
                "p4d.24xlarge",
            ],
        ),
        ("training-arguments", &[&args, "--instance", "g6e.12xlarge", "--nodes", "4"]),
        ("deepspeed-alone", &["--deepspeed", &ds, "--model", &config, "--instance", "p4d.24xlarge"]),
        ("manifest", &[&yaml]),
        ("measured", &[&measured]),
    ];
    let mut all = String::new();
    for (name, arguments) in cases {
        all.push_str(&format!("{name}\n{}\n", read(arguments)));
    }
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => "snapshots/predict-inputs" }, {
        insta::assert_snapshot!("inputs", all);
    });
}

#[test]
fn a_measurement_changes_the_answer() {
    let time = |answer: &Answer| answer.json()["step_time_s"].as_f64().unwrap();
    let folder = testbed::Folder::new("predict-measured");
    let copy = |name: &str, change: &dyn Fn(String) -> String| {
        let text = fs::read_to_string(common::root().join(at(name))).unwrap();
        let path = folder.path().join(name);
        fs::write(&path, change(text)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    copy("llama.json", &|it| it);
    copy("all_reduce.txt", &|it| it);
    let with = copy("measured.toml", &|it| it);
    let fast = time(&predict(&[&with, "--format", "json"]));
    // Ten times slower in every row.
    copy("all_reduce.txt", &|text| {
        let slower = |line: &str| {
            let mut words: Vec<String> = line.split_whitespace().map(ToOwned::to_owned).collect();
            if !line.starts_with('#') && words.len() > 10 {
                for at in [5, 9] {
                    words[at] = format!("{:.1}", words[at].parse::<f64>().unwrap() * 10.0);
                }
            }
            words.join(" ")
        };
        text.lines().map(slower).collect::<Vec<String>>().join("\n")
    });
    let slow = time(&predict(&[&with, "--format", "json"]));
    assert!(slow > 1.5 * fast, "{slow} {fast}");
}

#[test]
fn bad_inputs_are_named_with_file_and_line() {
    let folder = testbed::Folder::new("predict-bad");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cut = write("cut.json", b"{\n\"zero_optimization\": {\n\"stage\": 3");
    let binary = write("binary", &[0x7f, b'E', b'L', b'F', 0, 1, 2, 3, 0xff]);
    let long = write("long.json", &vec![b' '; 100 << 20]);
    let circle = write("circle.sh", b"#!/bin/sh\nsource circle.sh\n");
    let batch = write("batch.json", b"{\"train_batch_size\": 96,\n\"train_micro_batch_size_per_gpu\": 4,\n\"gradient_accumulation_steps\": 2}");
    let measured = write(
        "measured.toml",
        b"[model]\nname = \"llama-3-8b\"\n[cluster]\ninstance = \"p5.48xlarge\"\nmeasured = \"cut.json\"\n",
    );
    let folder_itself = folder.path().to_str().unwrap().to_owned();
    let machine = ["--instance", "p5.48xlarge", "--model", "llama-3-8b"];
    for (job, reason) in [
        (&cut, "cut.json:3: ends in the middle of a value"),
        (&binary, "binary: is not "),
        (&long, "long.json: is longer than 1 MiB"),
        (&circle, "circle.sh:2: sources "),
        (&batch, "train_micro_batch_size_per_gpu 4 ("),
        (&batch, "batch.json:2) x gradient_accumulation_steps 2 ("),
        (&folder_itself, "is a folder"),
        (&measured, "measured.toml:5: "),
    ] {
        let answer = predict(&[&[job.as_str()][..], &machine].concat());
        assert_eq!(answer.code, Some(2), "{job}");
        assert!(
            answer.stderr.starts_with("error: ") && answer.stderr.contains(reason),
            "{reason}: {}",
            answer.stderr
        );
    }
    let ds = at("ds.json");
    for (arguments, reason) in [
        (
            &["--deepspeed", ds.as_str(), "--instance", "p5.48xlarge"][..],
            "the model is not given: add --model NAME",
        ),
        (&["--deepspeed", &ds, "--model", "llama-3-8b"], "the machine is not given: add --instance NAME"),
        (&["--deepspeed", &ds, "--set", "sec=1"], "a job has no key `sec`: did you mean `seq`?"),
        (&["--deepspeed", &ds, "--define", "TP"], "write NAME=VALUE"),
    ] {
        let answer = predict(arguments);
        assert!(answer.code == Some(2) && answer.stderr.contains(reason), "{}", answer.stderr);
    }
}
