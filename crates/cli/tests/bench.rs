//! `plumb bench` as a user runs it, where nothing goes wrong.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;
#[expect(dead_code, reason = "other tests use the rest")]
mod job;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Answer, command, folder, plumb, root};
use job::{ENDLESS, Job, SOON};
use serde_json::{Value, json};
use testbed::{LIMIT, free_port};

/// A short run with these flags.
#[track_caller]
fn bench(flags: &[&str]) -> Answer {
    let short = ["bench", "all_reduce", "--ranks", "2", "-e", "4K", "-f", "8"];
    let repeats = if flags.contains(&"--repeats") { &[][..] } else { &["--repeats", "0"] };
    let answer = plumb(short.iter().chain(repeats).chain(flags));
    assert_eq!(answer.code, Some(0), "{answer:?}");
    answer
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("JSON")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn every_collective_is_right() {
    for collective in fabric::Collective::ALL.map(fabric::Collective::name) {
        for transport in ["shm", "tcp"] {
            let flags = ["--ranks", "3", "-b", "1", "-e", "100K", "-f", "37", "--transport", transport];
            let answer =
                plumb(["bench", collective, "--repeats", "0", "--format", "json"].iter().chain(&flags));
            assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{collective} {transport}");
            let json = answer.json();
            assert_eq!(json["wrong"], 0, "{collective} {transport}");
            assert_eq!((json["collective"].as_str(), json["ranks"].as_u64()), (Some(collective), Some(3)));
            assert_eq!(json["results"].as_array().map(Vec::len), Some(4));
        }
    }
}

#[test]
fn flags_without_effect_are_named_once() {
    let stderr = |flags: &[&str]| bench(flags).stderr;
    assert_eq!(
        stderr(&["--nccl-library", "/nowhere"]),
        "note: --nccl-library has no effect on the host-memory engine\n"
    );
    assert_eq!(
        stderr(&["--nodes", "4"]),
        "note: no expected bandwidth: --nodes and --pods need --instance or --cluster\n"
    );
}

#[test]
fn the_table_goes_to_stdout_and_the_rest_to_stderr() {
    let answer = bench(&["-p", "1"]);
    assert_eq!(answer.stderr, "note: -p is accepted for compatibility with nccl-tests and has no effect\n");
    assert!(
        answer.stdout.contains("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : "),
        "{}",
        answer.stdout
    );
    let rows: Vec<&str> = answer.stdout.lines().filter(|it| it.contains("float")).collect();
    let sizes: Vec<&str> = rows.iter().filter_map(|it| it.split_whitespace().next()).collect();
    assert_eq!(sizes, ["8", "64", "512", "4096"]);
    assert!(rows.iter().all(|it| it.split_whitespace().count() == 13), "{rows:?}");
    // No terminal: no colour, no progress.
    assert!(!answer.stdout.contains('\x1b') && !answer.stdout.contains('\r'));
}

#[test]
fn colour_is_a_matter_of_choice() {
    let coloured = |flags: &[&str], variable: Option<&str>| {
        let mut command = command(
            ["bench", "all_reduce", "--ranks", "2", "--repeats", "0", "-e", "64"].iter().chain(flags),
        );
        command.envs(variable.map(|it| (it, "1")));
        common::finish(command).stdout.contains('\x1b')
    };
    assert!(!coloured(&[], None));
    assert!(!coloured(&[], Some("NO_COLOR")));
    assert!(!coloured(&["--color", "never"], None));
}

#[test]
fn nccl_tests_json_is_read_and_holds_no_environment() {
    let folder = folder("bench_nccl_tests_json");
    let path = folder.join("result.json");
    let run = |path: &Path| {
        let mut command = command([
            "bench",
            "all_reduce",
            "--ranks",
            "2",
            "-e",
            "4K",
            "-f",
            "8",
            "--repeats",
            "0",
            "-J",
            text(path),
        ]);
        command.env("AWS_SECRET_ACCESS_KEY", "hunter2").env("NCCL_DEBUG", "WARN");
        let answer = common::finish(command);
        assert_eq!(answer.code, Some(0), "{answer:?}");
        answer
    };
    let answer = run(&path);
    assert!(answer.stderr.contains("result.json"), "{}", answer.stderr);
    let written = fs::read_to_string(&path).expect("the result");
    assert!(!written.contains("hunter2") && !written.contains("AWS_SECRET"), "{written}");
    let value = json(&path);
    assert_eq!(value["results"].as_array().map(Vec::len), Some(4));
    // A second run does not overwrite the first.
    run(&path);
    assert_eq!(fs::read_to_string(&path).expect("the first"), written);
    assert!(folder.join("result.json.0").exists());
    let doctor = plumb(["doctor", "--format", "json", text(&path)]);
    let input = &doctor.json()["inputs"][0];
    assert_eq!((&input["kind"], &input["understood"]), (&"nccl-tests".into(), &input["lines"]), "{input}");
    assert!(input["lines"].as_u64().is_some_and(|it| it > 10), "{input}");
    let answer = plumb(["doctor", "-v", text(&path)]).stdout;
    assert!(answer.contains("measured all_reduce_perf on 2 GPUs: 4 rows"), "{answer}");
}

#[test]
fn the_answer_fits_the_schema() {
    let schema = json(&root().join("docs/bench.schema.json"));
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    for flags in [
        &["--repeats", "1", "-n", "5"][..],
        &["-d", "half", "-o", "max", "-I", "1", "-n", "5"],
        &["-c", "0", "-S", "1", "-N", "2"],
    ] {
        let value = bench(&[&["--format", "json"], flags].concat()).json();
        let errors: Vec<String> = validator.iter_errors(&value).map(|it| it.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new(), "{flags:?}");
        let repeats = value["results"][0]["in_place"]["looks_us"].as_array().map(Vec::len);
        assert_eq!(repeats, Some(usize::from(flags.contains(&"--repeats"))));
    }
}

#[test]
fn each_format_has_its_file() {
    let folder = folder("bench_formats");
    let [result, plot] = ["result.json", "plot.svg"].map(|it| folder.join(it));
    let answer =
        bench(&["--format", "json", "--output", text(&result), "--format", "text", "--plot", text(&plot)]);
    assert!(answer.stdout.contains("# Avg bus bandwidth"), "{}", answer.stdout);
    assert_eq!(json(&result)["schema"], "plumb.bench/1");
    let svg = fs::read_to_string(plot).expect("the plot");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
}

/// A result with every time the same, and one with another time. What was measured says nothing here: it depends on how busy the machine is.
fn results(folder: &Path, microseconds: [f64; 2]) -> [PathBuf; 2] {
    let measured = bench(&["--repeats", "3", "--format", "json"]).json();
    [("old.json", microseconds[0]), ("new.json", microseconds[1])].map(|(name, time)| {
        let mut value = measured.clone();
        for row in value["results"].as_array_mut().expect("rows") {
            for place in ["out_of_place", "in_place"] {
                let times = row[place].as_object_mut().expect("a measurement").iter_mut();
                times.filter(|(name, _)| name.ends_with("_us")).for_each(|(_, it)| set(it, time));
            }
        }
        let path = folder.join(name);
        fs::write(&path, value.to_string()).expect("a file");
        path
    })
}

fn set(value: &mut Value, time: f64) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|it| set(it, time)),
        it => *it = time.into(),
    }
}

#[test]
fn the_exit_code_of_a_comparison() {
    let folder = folder("bench_compare");
    let [old, new] = results(&folder, [100.0, 200.0]);
    let compare = |old: &Path, new: &Path| plumb(["bench", "--compare", text(old), text(new)]);
    let same = compare(&old, &old);
    assert_eq!((same.code, same.stderr.as_str()), (Some(0), ""));
    assert!(same.stdout.starts_with("the same within noise in all 8 measurements"), "{}", same.stdout);
    let slower = compare(&old, &new);
    assert_eq!(slower.code, Some(1), "{}", slower.stdout);
    assert!(slower.stdout.starts_with("slower in "), "{}", slower.stdout);
    assert_eq!(compare(&new, &old).code, Some(0), "faster is no failure");
    let broken = folder.join("broken.json");
    for content in ["", "{", "[]", "{}", "{\"schema\": \"plumb.bench/9\"}", "{\"schema\": \"plumb.bench/1\"}"]
    {
        fs::write(&broken, content).expect("a file");
        let answer = compare(&old, &broken);
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""), "{content}");
        assert!(answer.stderr.contains("broken.json: "), "{}", answer.stderr);
    }
}

/// The doctor's answer about the logs of two ranks, each with its own idea of the host.
fn diagnosed(test: &str, hosts: [&str; 2], more: &[&str]) -> Answer {
    let log = folder(test).join("log");
    let port = free_port();
    let arguments =
        [&["bench", "all_reduce", "-e", "1M", "--repeats", "0", "--log", text(&log)], more].concat();
    let ranks = [0, 1].map(|it| Job::rank_with(it, 2, port, &arguments, &[("PLUMB_HOSTID", hosts[it])]));
    for rank in ranks {
        rank.end(LIMIT).succeeded();
    }
    let other = log.with_file_name("log.1");
    let answer = plumb(["doctor", "--format", "json", text(&log), text(&other)]);
    for (path, input) in [&log, &other].into_iter().zip(answer.json()["inputs"].as_array().expect("inputs")) {
        // All of it, also which algorithms it chose, which NCCL would not say.
        let written = fs::read_to_string(path).expect("a log");
        assert!(written.contains(" NCCL INFO plumb: all_reduce by "), "{written}");
        let unread = input["lines"].as_u64().zip(input["understood"].as_u64()).map(|(all, read)| all - read);
        assert_eq!((input["kind"].as_str(), unread), (Some("nccl-log"), Some(0)), "{written}");
    }
    answer
}

#[test]
fn the_doctor_reads_its_logs() {
    let near = diagnosed("bench_log_near", ["a", "a"], &[]);
    let far = diagnosed("bench_log_far", ["a", "b"], &[]);
    for answer in [&near, &far] {
        let answer = answer.json();
        assert_eq!(
            (&answer["findings"], &answer["not_checked"]),
            (&json!([]), &json!([])),
            "no GPU, no advice"
        );
        assert_eq!(answer["facts"]["ranks"][1]["cuda_device"], json!(null));
    }
    let verdict = |it: &Answer| it.json()["verdict"]["text"].as_str().expect("a verdict").to_lowercase();
    assert!(verdict(&near).contains("shared memory"), "{}", verdict(&near));
    assert!(verdict(&far).contains("socket") || verdict(&far).contains("tcp"), "{}", verdict(&far));
    assert!(!verdict(&far).contains("shared memory"), "{}", verdict(&far));
    let inside = diagnosed("bench_log_inside", ["a", "a"], &["--transport", "tcp"]);
    assert!(!inside.json().to_string().contains("not used"), "{}", inside.json());
}

#[test]
fn whoever_has_read_enough_ends_it() {
    // `head` reads a line and closes the pipe; the exit code is that of plumb.
    let script = "{ \"$0\" \"$@\"; echo $? >&2; } | head -n 1";
    let mut shell = testbed::program("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_plumb")]).args(ENDLESS).args(["--ranks", "3"]);
    let answer = common::finish(shell);
    assert!(answer.stdout.starts_with("# "), "{answer:?}");
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), "0\n"), "{answer:?}");
}

#[test]
fn a_full_disk_is_reported() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let mut command = command(["bench", "all_reduce", "--ranks", "2", "-e", "8", "--repeats", "0"]);
    command.stdout(full);
    let answer = common::finish(command);
    assert_eq!(
        (answer.code, answer.stderr.as_str()),
        (Some(2), "error: No space left on device (os error 28)\n")
    );
}

#[test]
fn one_rank_alone_works() {
    let job = Job::start(["bench", "all_reduce", "--ranks", "1", "-e", "1K", "--repeats", "0"], &[]);
    job.end(SOON).succeeded();
}
