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
const NOTES: [&str; 6] = [EFA, ENI, "--instance", "g6e.12xlarge", "--job", JOB];

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
fn the_notes_runs_need_no_flags() {
    let text = compare(&[EFA, ENI]).stdout;
    assert!(
        text.starts_with("eni takes 2.22 times as long per step as efa: 108 s instead of 48.8 s\n"),
        "{text}"
    );
    assert!(text.contains("whole run                   2441 s          5409 s  x2.22\n"), "{text}");
    assert!(text.contains("eni: between nodes TCP (EFA in efa) may be a cause; not priced"), "{text}");
    // A flag counts before the note.
    assert!(compare(&[EFA, ENI, "--took", "eni=4882"]).stdout.contains("4882 s  x2.00\n"));
}

#[test]
fn reports_are_runs_as_their_json_is() {
    let folder = testbed::Folder::new("compare-reports");
    let write = |name: &str, arguments: &[&str]| {
        let answer = plumb(arguments.iter().copied());
        let path = folder.path().join(name);
        fs::write(&path, answer.stdout).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let [two, one] = ["cases/training-2-nodes", "cases/training-2-nodes-1-channel"];
    let pages = [
        write("two.html", &["doctor", two, "-f", "html"]),
        write("one.html", &["doctor", one, "-f", "html"]),
    ];
    let of_pages = json(&pages.each_ref().map(String::as_str));
    assert!((values(&of_pages, "step time")[1].unwrap() - 0.59).abs() < 0.01, "{of_pages}");
    assert_eq!(of_pages["settings"][0]["name"], "NCCL_MAX_NCHANNELS");
    let two_json = write("two.json", &["doctor", two, "-f", "json"]);
    let of_json = json(&[&two_json, &pages[1]]);
    assert_eq!(of_json["figures"], of_pages["figures"]);
    // A page beside a log, and bandwidths of a page.
    assert_eq!(compare(&[two, &pages[1]]).code, Some(0));
    let table = "crates/cli/tests/compare/a.txt";
    let rates = json(&[table, &write("rates.html", &["doctor", table, "-f", "html"])]);
    let largest = rates["bandwidths"].as_array().unwrap().last().unwrap();
    assert_eq!(largest["values"][0]["value"], largest["values"][1]["value"], "{largest}");
    let predicted = write("predicted.html", &["predict", JOB, "-f", "html"]);
    assert!(
        compare(&[EFA, &predicted]).stdout.contains("step time of predicted: predicted by plumb predict")
    );
    // What is not a run says what it is.
    let topo = write("topo.html", &["topo", "--instance", "p5.48xlarge", "-f", "html"]);
    let refused = compare(&[&topo, two]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("is a report of plumb topo, which says nothing about one run"),
        "{}",
        refused.stderr
    );
    // Several reports are no logs for other commands.
    let all = folder.path().to_str().unwrap();
    for arguments in [&["doctor", &pages[0], &pages[1]][..], &["doctor", all], &["lint", &pages[0], &topo]] {
        let refused = plumb(arguments.iter().copied());
        assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{arguments:?}");
        assert!(refused.stderr.contains("are reports of plumb "), "{arguments:?}: {}", refused.stderr);
        fs::remove_file(folder.path().join("two.json")).ok();
    }
    for arguments in [
        &["predict", "--from", &topo][..],
        &["validate", "--replay", &topo],
        &["bench", "--compare", &topo, &topo],
        &["env", "--job", &topo],
        &["expect", "all_reduce", "--cluster", &topo],
        &["compare", EFA, ENI, "--job", &topo],
    ] {
        let refused = plumb(arguments.iter().copied());
        assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{arguments:?}");
        assert!(refused.stderr.contains("is a report of plumb topo"), "{arguments:?}: {}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{arguments:?}: {}", refused.stderr);
    }
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
    let bandwidths = ["crates/cli/tests/compare/a.txt", "crates/cli/tests/compare/b.txt"];
    for runs in [&NOTES[..], &TRAININGS, &bandwidths] {
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

/// The JSON of a comparison.
fn json(runs: &[&str]) -> Value {
    let answer = compare(&[runs, &["--format", "json"]].concat());
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    serde_json::from_str(&answer.stdout).expect("JSON")
}

/// The values of a figure, of each run.
fn values(json: &Value, name: &str) -> Vec<Option<f64>> {
    let figures = json["figures"].as_array().expect("figures");
    let figure = figures.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("{name}: {json}"));
    figure["values"].as_array().expect("values").iter().map(|it| it["value"].as_f64()).collect()
}

/// Real trainings: one rank, two nodes, and two nodes with one channel.
const TRAININGS: [&str; 3] =
    ["cases/training-2-nodes", "cases/training-1-rank", "cases/training-2-nodes-1-channel"];

#[test]
fn three_recorded_trainings() {
    let json = json(&TRAININGS);
    let steps = values(&json, "step time");
    for (found, want) in steps.iter().zip([0.325, 0.034, 0.573]) {
        assert!((found.unwrap() / want - 1.0).abs() < 0.02, "{steps:?}");
    }
    let first = values(&json, "first step");
    assert!(first.iter().flatten().count() == 3 && first[1].unwrap() > 1.5, "{first:?}");
    let tokens = values(&json, "tokens per second");
    assert!((tokens[0].unwrap() / 25_200.0 - 1.0).abs() < 0.02, "{tokens:?}");
    // Every step is there for a picture, the first one included.
    assert_eq!(json["steps"][0].as_array().unwrap().len(), 40);
    let differs: Vec<&str> =
        json["differs"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(differs, ["nodes", "tokens of a step", "ranks", "NCCL_MAX_NCHANNELS"]);
    let text = compare(&TRAININGS).stdout;
    // A step of one rank does half of the work: tokens are compared.
    assert!(text.starts_with("training-1-rank is the fastest of 3: "), "{text}");
    assert!(
        text.contains("training-1-rank reaches 4.78 times the tokens per second of training-2-nodes"),
        "{text}"
    );
    assert!(text.contains("training-2-nodes-1-channel takes 1.76 times as long per step"), "{text}");
    assert!(
        text.contains(
            "training-2-nodes-1-channel: NCCL_MAX_NCHANNELS=1 (not set in training-2-nodes) may be a cause"
        ),
        "{text}"
    );
    // Ratios are there however narrow the table is.
    assert!(text.contains("x1.76") && text.contains("x4.78"), "{text}");
    assert!(text.lines().all(|it| it.chars().count() <= 100), "{text}");
}

#[test]
fn an_archive_of_a_run_is_read_as_its_folder() {
    let folder = testbed::Folder::new("compare-archive");
    let archive = folder.path().join("packed.tar");
    let bytes = fs::read(root().join("cases/bench-2-nodes/bench.json")).unwrap();
    fs::write(&archive, common::tar("run/bench.json", &bytes)).unwrap();
    let json = json(&[archive.to_str().unwrap(), "cases/bench-2-nodes-1-channel"]);
    assert_eq!(json["bandwidths"].as_array().unwrap().len(), 5, "{json}");
}

#[test]
fn folders_with_the_state_of_a_trainer() {
    let folders = ["cases/training-state", "cases/training-state-small-batch"];
    let json_of_folders = json(&folders);
    let steps = values(&json_of_folders, "step time");
    assert!(steps.iter().flatten().all(|it| (0.28..0.33).contains(it)), "{steps:?}");
    let whole = values(&json_of_folders, "whole run");
    assert!(whole.iter().zip([15.1, 13.0]).all(|(it, want)| (it.unwrap() - want).abs() < 0.05), "{whole:?}");
    let text = compare(&folders).stdout;
    assert!(text.starts_with("training-state-small-batch reaches 25 % of the samples per second"), "{text}");
    // The state alone: one counts tokens and so has times, of the other only the whole time is known, by which both are compared.
    let states = folders.map(|it| format!("{it}/out/trainer_state.json"));
    let json = json(&states.each_ref().map(String::as_str));
    assert_eq!(json["runs"], serde_json::json!(["training-state", "training-state-small-batch"]));
    assert_eq!(json["steps"][1].as_array().unwrap().len(), 8);
    let alone = values(&json, "step time");
    assert!(
        alone.iter().zip([0.378, 0.325]).all(|(it, want)| (it.unwrap() - want).abs() < 0.001),
        "{alone:?}"
    );
    for it in json["figures"][0]["values"].as_array().unwrap() {
        assert!(it["how"].as_str().unwrap().starts_with("train_runtime of "), "{it}");
    }
}

#[test]
fn recorded_bandwidths_by_size() {
    let json = json(&["cases/bench-2-nodes", "cases/bench-2-nodes-1-channel"]);
    let sizes = json["bandwidths"].as_array().unwrap();
    assert_eq!(sizes.len(), 5);
    let ratio = |it: &Value| it["values"][1]["ratio"].as_f64().unwrap();
    assert!(ratio(&sizes[0]) > 0.9 && (ratio(&sizes[4]) - 0.5).abs() < 0.02, "{sizes:?}");
    let paths = &json["paths"][0];
    assert_eq!((paths["size"].as_u64(), &paths["expected_ratio"]), (Some(64 << 20), &Value::Null));
    // Of a known machine it is said what its paths explain: here both should be the same.
    let answer = compare(&["crates/cli/tests/compare/a.txt", "crates/cli/tests/compare/b.txt"]);
    assert!(answer.stdout.contains("a factor of 0.45 is not explained"), "{}", answer.stdout);
}

#[test]
fn a_run_that_is_given_twice_or_is_empty() {
    let twice = compare(&["cases/training-2-nodes", "cases/training-2-nodes/"]);
    assert_eq!(twice.code, Some(2));
    assert!(twice.stderr.contains("are the same run"), "{}", twice.stderr);
    let folder = testbed::Folder::new("compare-empty");
    let empty = folder.path().to_str().unwrap().to_owned();
    fs::write(folder.path().join("nothing.log"), "").unwrap();
    let answer = compare(&[&empty, "cases/training-2-nodes"]);
    assert_eq!(answer.code, Some(2));
    assert!(answer.stderr.contains("has no measurement"), "{}", answer.stderr);
    // A run without measurements beside two others is a column without values.
    let three = compare(&["cases/training-2-nodes", "cases/training-1-rank", &empty]);
    assert_eq!(three.code, Some(0), "{}", three.stderr);
    assert!(three.stdout.contains("and training-2-nodes have no measurement in common"), "{}", three.stdout);
}

#[test]
fn runs_without_anything_in_common_say_so() {
    let answer = compare(&[EFA, "crates/cli/tests/compare/a.txt"]);
    assert_eq!(answer.code, Some(2));
    assert!(answer.stderr.contains("have a measurement in common"), "{}", answer.stderr);
    assert!(answer.stderr.contains("a has bandwidths of all_reduce"), "{}", answer.stderr);
    // What differs is listed all the same.
    let both = compare(&["cases/healthy-2-nodes", "cases/late-rank"]);
    assert_eq!(both.code, Some(2));
    assert!(both.stdout.contains("what differs") && both.stdout.contains("ranks"), "{}", both.stdout);
    let missing = compare(&[EFA, "nowhere.log"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("nowhere.log"), "{}", missing.stderr);
    let alone = compare(&[EFA]);
    assert_eq!(alone.code, Some(2));
    for wrong in ["efa", "efa=", "efa=-3", "nobody=4"] {
        assert_eq!(compare(&[EFA, ENI, "--took", wrong]).code, Some(2), "{wrong}");
    }
}

/// What a step does is a cause before what NCCL is told, and what is not known about it is said.
#[test]
fn different_work_is_named_first() {
    let answer = compare(&["cases/trainer-log", "cases/training-state"]).stdout;
    let answer = answer.split_whitespace().collect::<Vec<_>>().join(" ");
    let at = |words: &str| answer.find(words).unwrap_or_else(|| panic!("{words}: {answer}"));
    assert!(at("batch 32 (8 in trainer-log), micro-batch 8 (2") < at("NCCL_SOCKET_IFNAME=lo"));
    at("whole run, different numbers of steps");
    let answer = compare(&["cases/training-lightning", "cases/training-state"]).stdout;
    let answer = answer.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        answer.contains("; the batch of training-lightning is not known, so steps may do different work"),
        "{answer}"
    );
}

#[test]
fn bandwidths_of_a_bench_have_the_spread_of_its_samples() {
    let runs = ["cases/bench-2-nodes", "cases/bench-2-nodes-1-channel"];
    let json: Value = serde_json::from_str(&compare(&[runs[0], runs[1], "--format", "json"]).stdout).unwrap();
    for it in json["bandwidths"].as_array().unwrap().iter().flat_map(|it| it["values"].as_array().unwrap()) {
        let [low, value, high] = [&it["spread"][0], &it["value"], &it["spread"][1]].map(Value::as_f64);
        assert!(low.unwrap() <= value.unwrap() && value.unwrap() <= high.unwrap(), "{it}");
    }
    let page = compare(&[runs[0], runs[1], "--format", "html"]).stdout;
    assert!(page.contains("in brackets the lowest and the highest sample"));
}

/// A trainer's log: its header behind `before`, and updates of its progress bar, `each` seconds apart.
fn trainer(before: &str, each: u32) -> String {
    let header = [
        "***** Running training *****",
        "  Num examples = 400",
        "  Instantaneous batch size per device = 4",
        "  Total train batch size (w. parallel, distributed & accumulation) = 8",
        "  Total optimization steps = 50",
    ];
    let header = header.map(|it| format!("{before}{it}\n")).concat();
    let bar = (1..=50_u32).map(|it| {
        let (took, each) = (it * each + it % 3, each + it % 3);
        format!("{}%|##  | {it}/50 [{:02}:{:02}<10:00, {each}.00s/it]", it * 2, took / 60, took % 60)
    });
    let bar = bar.collect::<Vec<_>>().join("\r");
    format!("{header}{bar}\n{{'train_runtime': {}.0, 'epoch': 1.0}}\n", each * 50 + 60)
}

/// A folder with the logs of such trainers, and their names.
fn trainers(name: &str, logs: &[(&str, String)]) -> (testbed::Folder, Vec<String>) {
    let folder = testbed::Folder::new(name);
    let write = |(name, text): &(&str, String)| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a new folder");
        fs::write(&path, text).expect("a new file");
        path.to_str().expect("a name in UTF-8").to_owned()
    };
    let names = logs.iter().map(write).collect();
    (folder, names)
}

#[test]
fn what_a_logger_writes_before_lines_changes_nothing() {
    let read = |before: &str| {
        let logs = [("a.log", trainer(before, 60)), ("b.log", trainer(before, 90))];
        let (_folder, names) = trainers("compare-loggers", &logs);
        compare(&names.iter().map(String::as_str).collect::<Vec<_>>()).stdout
    };
    let bare = read("");
    assert!(bare.contains("samples per second") && bare.contains("batch 8, steps 50"), "{bare}");
    for before in [
        "[INFO|trainer.py:2128] 2026-01-01 00:00:00,000 >> ",
        "[INFO|2026-01-01 00:00:00] llamafactory.train:12 >> ",
        "01/01/2026 00:00:00 - INFO - transformers.trainer - ",
        "INFO:transformers.trainer:",
    ] {
        assert_eq!(read(before), bare, "{before}");
    }
}

#[test]
fn ratios_are_never_cut() {
    let names = ["first-run", "second-run", "third-run", "fourth-run", "fifth-run", "sixth-run"];
    let logs: Vec<_> =
        names.iter().map(|it| (*it, trainer("", 60 + u32::try_from(it.len()).unwrap()))).collect();
    let (_folder, paths) = trainers("compare-six", &logs);
    for (runs, columns) in [(2, 60), (3, 60), (3, 80), (3, 100), (6, 80), (6, 100), (6, 40)] {
        let mut command =
            common::command(["compare"].iter().copied().chain(paths[..runs].iter().map(|it| &**it)));
        command.env("COLUMNS", columns.to_string());
        let text = common::finish(command).stdout;
        let tables = text.split_once("\n  measured").unwrap().1.split_once("the same in all").unwrap().0;
        for name in ["step time ", "samples per second ", "whole run "] {
            let ratios = tables.lines().filter(|it| it.trim_start().starts_with(name));
            let ratios =
                ratios.map(|it| it.matches("  x1.").count() + it.matches("  x0.").count()).sum::<usize>();
            assert_eq!(ratios, runs - 1, "{columns} columns: {text}");
        }
        assert!(
            tables.lines().all(|it| it.chars().count() <= columns && !it.contains("...")),
            "{columns}: {text}"
        );
    }
}

#[test]
#[cfg(target_os = "linux")]
fn folders_of_the_kernel_do_not_block() {
    let answer = compare(&["cases/training-2-nodes", "/proc"]);
    assert_eq!(answer.code, Some(2));
    assert!(
        answer.stderr.contains("/proc: is on a file system of the kernel (proc): left out"),
        "{}",
        answer.stderr
    );
    let answer = plumb(["doctor", "/proc"]);
    assert_eq!(answer.code, Some(2));
    assert!(answer.stderr.contains("/proc: there is no input"), "{}", answer.stderr);
}

#[test]
fn runs_that_do_not_differ_and_have_nothing_in_common_are_listed() {
    let line = "a:1:2 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n".to_owned();
    let logs = [("a.log", line.clone()), ("b.log", format!("{line}{}", trainer("", 60)))];
    let (_folder, names) = trainers("compare-same", &logs);
    let all = |format: &str| compare(&[&names[0], &names[1], "--format", format]);
    for (format, has) in [
        ("text", "b    step time, samples per second, whole run"),
        ("markdown", "| b | step time, samples per second, whole run"),
        ("html", "What each run has"),
        ("json", "\"measurements\": [\n    [],\n    [\n      \"step time\""),
    ] {
        let answer = all(format);
        assert_eq!(answer.code, Some(2), "{format}");
        assert!(answer.stdout.contains(has), "{format}: {}", answer.stdout);
        assert!(answer.stderr.contains("a has no measurement"), "{}", answer.stderr);
    }
    assert!(all("text").stdout.contains("a    no measurement"), "{}", all("text").stdout);
}

#[test]
fn runs_have_the_names_of_their_folders() {
    let logs = [("r1/logs/x.log", trainer("", 60)), ("r2/logs/x.log", trainer("", 90))];
    let (folder, _) = trainers("compare-names", &logs);
    for (at, runs, names) in [
        ("r1/logs", [".", "../../r2/logs"], ["r1", "r2"]),
        ("r1", [".", "../r2"], ["r1", "r2"]),
        ("", ["r1/../r1/logs/x.log", "./r2"], ["x", "r2"]),
    ] {
        let mut command = common::command(["compare", runs[0], runs[1], "--format", "json"]);
        command.current_dir(folder.path().join(at));
        let json: Value = serde_json::from_str(&common::finish(command).stdout).unwrap();
        assert_eq!(json["runs"], serde_json::json!(names), "{at}");
    }
}
