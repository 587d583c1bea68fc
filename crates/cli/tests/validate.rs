//! `plumb validate`, as a person runs it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;

use common::{Answer, plumb, root};
use serde_json::Value;
use testbed::Folder;

fn validate(arguments: &[&str]) -> Answer {
    plumb(["validate"].into_iter().chain(arguments.iter().copied()))
}

/// What `sendrecv_perf` prints for two machines with two GPUs each; without a row where it failed.
fn table(one: usize, other: usize, rate: Option<f64>) -> String {
    let device = |rank: usize, host: usize| {
        format!(
            "#  Rank {rank:2} Group  0 Pid {:6} on gpu-{host:02} device {:2} [0000:1b:00] NVIDIA H100 80GB HBM3\n",
            4000 + rank,
            rank % 2
        )
    };
    let devices: String = [device(0, one), device(1, one), device(2, other), device(3, other)].concat();
    let row = match rate {
        Some(rate) => format!(
            "  1073741824     268435456     float    none      -1   23301.3   {rate:.2}   {rate:.2}      0   23298.8   {rate:.2}   {rate:.2}    N/A\n"
        ),
        None => format!(
            "gpu-{other:02}: Test NCCL failure common.cu:1279 'remote process exited or there was a network error / '\n"
        ),
    };
    format!(
        "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n# Collective test starting: sendrecv_perf\n# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n{devices}#\n#                                                              out-of-place                       in-place\n#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n{row}"
    )
}

/// All pairs of ten machines.
fn pairs(name: &str, rate: impl Fn(usize, usize) -> Option<f64>) -> Folder {
    let folder = Folder::new(name);
    for one in 0..10 {
        for other in one + 1..10 {
            fs::write(folder.path().join(format!("p{one}-{other}.log")), table(one, other, rate(one, other)))
                .unwrap();
        }
    }
    folder
}

#[test]
fn the_slow_machine_among_runs_of_pairs_is_named() {
    let folder = pairs("validate-slow", |one, other| {
        Some(if one == 7 || other == 7 { 22.4 } else { 45.0 + if one % 2 == 0 { 0.3 } else { 0.0 } })
    });
    let path = folder.path().to_string_lossy();
    let answer = validate(&["--replay", &path]);
    assert_eq!(answer.code, Some(1), "{}", answer.stderr);
    let text = &answer.stdout;
    assert!(
        text.starts_with(
            "NO-GO: take out gpu-07\n45 runs of nccl-tests in 45 files, 10 machines with NVIDIA H100 80GB HBM3, NCCL 2.28.7\n"
        ),
        "{text}"
    );
    assert!(text.contains("NODE  gpu-07") && text.contains("slow in 9 of 9"), "{text}");
    assert!(text.contains("  07   49  49"), "{text}");
    assert!(text.contains("what all 10 machines reach together"), "{text}");
}

#[test]
fn machines_that_fall_into_groups_are_shown() {
    let folder = pairs("validate-groups", |one, other| match (one < 4, other < 4) {
        (true, false) => (other != 9).then_some(11.0),
        _ => Some(44.0),
    });
    let answer = validate(&["--replay", &folder.path().to_string_lossy()]);
    assert_eq!(answer.code, Some(1), "{}", answer.stderr);
    assert!(
        answer
            .stdout
            .starts_with("NO-GO: the machines fall into groups of 6 and 4: pairs across them reach 25 %"),
        "{}",
        answer.stdout
    );
    assert!(answer.stdout.contains("group 2: gpu-00, gpu-01, gpu-02, gpu-03"), "{}", answer.stdout);
}

#[test]
fn a_slow_switch_takes_no_machine_out() {
    for (spec, says) in [
        (
            "nodes=32,leaf=16,tier=1:0.6,slow=node003:0.7,noise=1%",
            "NO-GO: take out node003; the way between node[000-015] and node[016-031] is slow; 16 of the others reach ",
        ),
        (
            "nodes=48,leaf=16,tier=1:0.6,slow=node020:0.7,noise=1%",
            "NO-GO: take out node020; the switch of node[016-031] is slow to the outside; 32 of the others reach ",
        ),
        (
            "nodes=32,leaf=8,tier=1:0.6,tier=2:0.6,noise=1%",
            "NO-GO: the switch of node[008-015] is slow to the outside, the switch of node[016-023] is slow to the outside; no machine",
        ),
    ] {
        let answer = validate(&["--simulate", spec]);
        let text = answer.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(answer.code, Some(1), "{text}");
        assert!(text.starts_with(says), "{text}");
    }
}

#[test]
fn a_fleet_that_scatters_too_far_is_not_judged() {
    let answer = validate(&["--simulate", "nodes=16,noise=50%,seed=3"]);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    let says = "INCONCLUSIVE: the measurements scatter too much to tell: pairs reach 370 MB/s to ";
    assert!(answer.stdout.starts_with(says), "{}", answer.stdout);
}

#[test]
fn doctor_shows_a_folder_of_pairs_as_a_fleet() {
    let folder =
        pairs("validate-doctor", |one, other| Some(if one == 7 || other == 7 { 22.4 } else { 45.0 }));
    let path = folder.path().to_string_lossy().into_owned();
    let answer = plumb(["doctor", &path]);
    assert_eq!(answer.code, Some(1), "{}", answer.stderr);
    assert!(answer.stdout.starts_with("NO-GO: take out gpu-07\n45 runs"), "{}", answer.stdout);
    assert!(answer.stdout.lines().count() < 40, "{}", answer.stdout);
    // Programs get the same answer.
    let json = plumb(["doctor", "--format", "json", &path]).json();
    assert!(json["schema"].as_str().unwrap().starts_with("plumb.doctor/"), "{}", json["schema"]);
    assert_eq!(json["facts"]["tests"].as_array().map(Vec::len), Some(45));
    assert_eq!(
        (&json["verdict"]["level"], &json["verdict"]["text"]),
        (&"error".into(), &"NO-GO: take out gpu-07".into())
    );
    assert_eq!(json["fleet"], validate(&["--replay", &path, "--format", "json"]).json());
    for (format, part) in
        [("junit", "<testcase classname=\"plumb.finding\" name=\"node gpu-07\""), ("html", "gpu-07")]
    {
        let answer = plumb(["doctor", "--format", format, &path]);
        assert_eq!(answer.code, Some(1), "{}", answer.stderr);
        assert!(answer.stdout.contains(part), "{format}: {}", answer.stdout);
    }
    // Three runs on different machines are not one job.
    let three =
        ["p0-1.log", "p0-2.log", "p1-2.log"].map(|it| folder.path().join(it).to_string_lossy().into_owned());
    let answer = plumb(["doctor", &three[0], &three[1], &three[2]]);
    assert_eq!(answer.code, Some(2), "{}", answer.stderr);
    assert!(answer.stdout.starts_with("INCONCLUSIVE: none of 3 machines"), "{}", answer.stdout);
    // A few runs of one job are not a fleet.
    let one = folder.path().join("p0-1.log");
    let answer = plumb(["doctor", &one.to_string_lossy()]);
    assert!(!answer.stdout.contains("GO"), "{}", answer.stdout);
}

#[test]
fn what_is_normal_stands_beside_what_was_measured() {
    let folder = pairs("validate-expected", |_, _| Some(9.0));
    let path = folder.path().to_string_lossy().into_owned();
    let answer = validate(&["--replay", &path, "--instance", "p5.48xlarge", "--format", "json"]).json();
    let expected = &answer["tests"][0]["expected"];
    assert_eq!(expected["machine"], "p5.48xlarge");
    let (low, high) = (expected["low_GBps"].as_f64().unwrap(), expected["high_GBps"].as_f64().unwrap());
    assert!(low > 9.0 && low < high, "{expected}");
    let text = answer["text"].as_str().unwrap();
    assert!(text.contains("none of 10 machines is slower than the others, but all are slow"), "{text}");
    // Of another GPU nothing is expected.
    let answer = validate(&["--replay", &path, "--instance", "p4d.24xlarge", "--format", "json"]).json();
    assert!(answer["tests"][0]["expected"].is_null());
}

#[test]
fn the_picture_shows_every_pair() {
    let folder = pairs("validate-svg", |one, other| match (one, other) {
        (1, 2) => None,
        (7, _) | (_, 7) => Some(20.0),
        _ => Some(45.0),
    });
    let picture = folder.path().join("matrix.svg");
    let answer =
        validate(&["--replay", &folder.path().to_string_lossy(), "--svg", &picture.to_string_lossy()]);
    assert_eq!(answer.code, Some(1), "{}", answer.stderr);
    let text = fs::read_to_string(&picture).unwrap();
    let of = |class: &str| text.matches(&format!("<rect class=\"{class}\"")).count();
    // Both halves of the matrix, and one square of each colour in the legend.
    assert_eq!((of("self"), of("failed") - 1), (10, 2), "{text}");
    assert_eq!(of("s6") + of("s5") + of("s4") + of("s3") + of("s2") + of("s1") + of("s0") - 7, 90 - 2);
    assert!(text.contains("gpu-05 - gpu-07: 44 %") || text.contains("gpu-07 - gpu-05: 44 %"), "{text}");
}

#[test]
fn ci_systems_get_a_test_case_for_each_machine() {
    let folder = pairs("validate-junit", |one, other| Some(if one == 7 || other == 7 { 22.4 } else { 45.0 }));
    let answer = validate(&["--replay", &folder.path().to_string_lossy(), "--format", "junit"]);
    assert_eq!(answer.code, Some(1), "{}", answer.stderr);
    let text = &answer.stdout;
    assert_eq!(text.matches("<testcase classname=\"plumb.machine\"").count(), 10, "{text}");
    assert!(
        text.contains("<testcase classname=\"plumb.machine\" name=\"gpu-07\">\n      <failure"),
        "{text}"
    );
    assert!(
        text.contains(
            "<testcase classname=\"plumb.finding\" name=\"node gpu-07\">\n      <failure type=\"error\""
        ),
        "{text}"
    );
    // The verdict, the finding and the machine.
    assert!(text.contains("failures=\"3\""), "{text}");
}

#[test]
fn even_pairs_are_not_go() {
    let folder = pairs("validate-even", |_, _| Some(45.0));
    let answer = validate(&["--replay", &folder.path().to_string_lossy()]);
    assert_eq!(answer.code, Some(2));
    assert!(
        answer.stdout.starts_with("INCONCLUSIVE: none of 10 machines is slower than the others"),
        "{}",
        answer.stdout
    );
    // CI systems show skipped cases as green.
    let junit = validate(&["--replay", &folder.path().to_string_lossy(), "--format", "junit"]).stdout;
    assert!(junit.contains("name=\"fit to train\">\n      <error message=\"INCONCLUSIVE"), "{junit}");
    assert!(junit.contains("errors=\"1\""), "{junit}");
}

#[test]
fn one_end_of_a_bad_link_is_enough() {
    let answer = validate(&["--simulate", "nodes=8,link=node002-node005:0.5"]);
    let wanted =
        "NO-GO: take out one of node005 and node002 (the link between them is bad); the others reach ";
    assert!(answer.stdout.starts_with(wanted), "{}", answer.stdout);
}

#[test]
fn a_modelled_fleet_passes_the_same_steps() {
    let answer = validate(&["--simulate", "nodes=100,slow=node037:0.8,noise=2%"]);
    assert_eq!(answer.code, Some(1), "{}", answer.stderr);
    assert!(answer.stdout.starts_with("NO-GO: take out node037; the others reach "), "{}", answer.stdout);
    assert!(answer.stdout.contains("not real ones"));
    assert_eq!(validate(&["--simulate", "nodes=16"]).code, Some(0));
    assert_eq!(validate(&["--simulate", "nodes=2,slow=node001:0.5"]).code, Some(2));
    // Two machines do not tell whose NIC it is, but they do not hide it.
    let answer = validate(&["--simulate", "nodes=2,nic=node001:3:0.5"]);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    let text = answer.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let says = "INCONCLUSIVE: not known whose NIC 3 is slow, that of node000 or of node001: a third machine would tell";
    assert!(text.starts_with(says), "{text}");
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    for (arguments, says) in [
        (&["--simulate", "nods=3"][..], "did you mean `nodes`?"),
        (&["--simulate", "slow=node099:0.5"], "there are 16 machines"),
        (&["--simulate", "slow=node1:0.8:3"], "`:3` is too much; the form is slow=MACHINE:SHARE"),
        (&["--simulate", "nodes=8,nodes=9"], "`nodes=9`: `nodes` is given twice"),
        (&["--replay", "README.md"], "no run of nccl-tests that names its machines"),
        (&["--replay", "/nowhere"], "/nowhere"),
        (&["--simulate", ""], "the keys are nodes"),
        (&["--mode", "healthcheck", "--hosts", "h1"], "they do not go with --hosts"),
        (&["--simulate", "nodes=4", "--svg", "/nonexistent/a.svg"], "/nonexistent/a.svg: No such file"),
        (&["--simulate", "nodes=4", "--svg", "/tmp"], "/tmp: is a directory"),
        (&["--hosts", "/tmp"], "/tmp: is a folder"),
        (&["--hosts", "/tmp/no-such-hostfile"], "no such file"),
        (
            &["--replay", "crates/cli/tests/data/validations/one-gpu-each", "--least", "3"],
            "the validation recorded what it needs",
        ),
    ] {
        let answer = validate(arguments);
        assert_eq!(answer.code, Some(2), "{arguments:?}");
        assert!(answer.stderr.contains(says) && answer.stdout.is_empty(), "{arguments:?}: {}", answer.stderr);
        assert_eq!(answer.stderr.matches("error: ").count(), 1, "{arguments:?}: {}", answer.stderr);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn hostfiles_are_read_as_launchers_read_them() {
    let folder = Folder::new("validate-hostfile");
    let path = folder.path().join("hosts");
    let shown = |text: &str| {
        fs::write(&path, text).unwrap();
        validate(&["--hosts", &path.to_string_lossy(), "--dry-run"])
    };
    let answer = shown("\u{feff}h1:8\nh2 slots=8\n");
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    assert!(answer.stderr.contains("h1:8 is 8 processes on h1"), "{}", answer.stderr);
    assert!(
        answer.stdout.contains("-O check -- h1\n") && !answer.stdout.contains("'-p'"),
        "{}",
        answer.stdout
    );
    let answer = shown("h1 h2\nh3\n");
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    let says = format!("{}: line 1: host \"h2\": is not a setting", path.display());
    assert!(answer.stderr.contains(&says), "{}", answer.stderr);
}

#[test]
fn the_json_is_as_its_schema_says() {
    let text = fs::read_to_string(root().join("docs/validate.schema.json")).unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    schema["additionalProperties"] = Value::from(false);
    for it in schema["$defs"].as_object_mut().unwrap().values_mut() {
        it["additionalProperties"] = Value::from(false);
    }
    let validator = jsonschema::validator_for(&schema).unwrap();
    let folder = pairs("validate-json", |one, other| match (one < 4, other < 4) {
        (true, false) => (other != 9).then_some(11.0),
        _ => Some(44.0),
    });
    let path = folder.path().to_string_lossy().into_owned();
    for arguments in [
        &["--simulate", "nodes=24,nic=node003:2:0.1"][..],
        &["--simulate", "nodes=64,leaf=16,tier=1:0.6,dead=node060"],
        &["--simulate", "nodes=24,rail=2:0.5"],
        &["--simulate", "nodes=3"],
        &["--replay", &path],
    ] {
        let answer = validate(&[arguments, &["--format", "json"]].concat()).json();
        let errors: Vec<String> = validator.iter_errors(&answer).map(|it| it.to_string()).collect();
        assert!(errors.is_empty(), "{arguments:?}: {errors:#?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn pods_are_shown_with_their_manifest() {
    let pods = [
        "validate",
        "--kubernetes",
        "--nodes",
        "2",
        "--instance",
        "p5.48xlarge",
        "--image",
        "train:1",
        "--dry-run",
    ];
    let answer = plumb(pods);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    for part in [
        "kubectl create -f -",
        "kubectl delete -f -",
        "completionMode: Indexed",
        "activeDeadlineSeconds: 2400",
        "plumb-validate-1  kubectl exec -i plumb-validate-1 -c node -- ",
    ] {
        assert!(answer.stdout.contains(part), "{part}: {}", answer.stdout);
    }
    assert_eq!(plumb(["validate", "--kubernetes", "--nodes", "2"]).code, Some(2));
    assert_eq!(plumb(["validate", "--hosts", "a,b", "--nodes", "2", "--dry-run"]).code, Some(2));
}

/// Machines with one GPU each, recorded inside mpirun: nothing failed because one rank has no bus bandwidth.
#[test]
fn nccl_on_machines_with_one_gpu() {
    let answer = plumb(["validate", "--replay", "crates/cli/tests/data/validations/one-gpu-each"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let words = answer.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "GO: all 4 machines together reach 928 MB/s",
        "2 local ok each of 4 machines by itself: 2062 to 2131 GB/s",
        "4 all ok 4 machines together: 928 MB/s, 300 MB/s needed",
        "7 logs ok NCCL's log of 4 machines: ok: 4 ranks on 4 nodes with 1 GPU each",
    ] {
        assert!(words.contains(part), "{part}: {}", answer.stdout);
    }
    // The machine type says what is missing and what is needed; what was not measured is not GO.
    let named = plumb(["validate", "--replay", "crates/cli/tests/data/validations/two-with-instance"]);
    let words = named.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(matches!(named.code, Some(1 | 2)), "{named:?}");
    for part in ["the node has 0 of the 16 EFA devices of a p5en.48xlarge", "1.87 GB/s, 38.0 needed"] {
        assert!(words.contains(part), "{part}: {}", named.stdout);
    }
}

#[test]
fn what_pairs_cannot_tell_is_said() {
    for (spec, words) in [
        ("nodes=3,link=node000-node001:0.5", "node000 - node001 is slow every time"),
        ("nodes=64,leaf=16,tier=1:0.6", "no machine is to be taken out"),
    ] {
        let answer = plumb(["validate", "--simulate", spec]);
        let said = answer.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(words), "{said}");
        assert!(!said.contains("no pair of machines explains it"), "{said}");
    }
}
