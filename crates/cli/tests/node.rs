//! `plumb node`: this machine, recorded states, several of them; exit codes and formats.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;
use std::path::Path;

use common::{Answer, check_schema, plumb, root};
use serde_json::Value;

const NODES: &str = "crates/cli/tests/data/nodes";

fn state(name: &str) -> String {
    format!("{NODES}/{name}.json")
}

fn node(arguments: &[&str]) -> Answer {
    plumb(std::iter::once("node").chain(arguments.iter().copied()))
}

#[test]
fn this_machine_gives_an_answer() {
    let answer = node(&["--format", "json"]);
    assert!(matches!(answer.code, Some(0..=2)), "{answer:?}");
    let json = answer.json();
    check_schema("node.schema.json", &json);
    assert_eq!(json["schema"], "plumb.node/1");
    assert!(!json["state"]["host"].as_str().unwrap().is_empty());
    // What was recorded is read back and judged the same.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    fs::write(&path, &answer.stdout).unwrap();
    let again = node(&[path.to_str().unwrap(), "--format", "json"]);
    assert_eq!(again.json(), json);
    assert_eq!(again.code, answer.code);
}

#[test]
fn a_healthy_and_a_broken_node() {
    let fit = node(&[&state("node01")]);
    assert_eq!(fit.code, Some(0), "{fit:?}");
    assert!(fit.stdout.starts_with("node01 is fit: 1 x H200"), "{}", fit.stdout);
    let broken = node(&[&state("node04")]);
    assert_eq!(broken.code, Some(1));
    for part in
        ["node04 is not fit to train", "error[node-ecc-uncorrected]", "error[node-xid]", "Xid 48", "do: "]
    {
        assert!(broken.stdout.contains(part), "{part}: {}", broken.stdout);
    }
    assert_eq!(node(&[&state("node03")]).code, Some(0), "a warning");
    assert_eq!(node(&[&state("node03"), "--fail-on", "warning"]).code, Some(1));
    assert_eq!(node(&[&state("node04"), "--fail-on", "never"]).code, Some(0));
    let json = node(&[&state("node04"), "--format", "json"]).json();
    check_schema("node.schema.json", &json);
    assert_eq!(
        (json["verdict"].as_str(), json["findings"][0]["id"].as_str()),
        (Some("not_fit"), Some("node-ecc-uncorrected"))
    );
}

#[test]
fn a_node_that_differs_has_one_verdict() {
    // node03 by itself has warnings; its limits differ from those of the others, which is an error.
    let states: Vec<String> = ["node01", "node02", "node03", "node04"].map(state).to_vec();
    let all: Vec<&str> = states.iter().map(String::as_str).collect();
    let answer = node(&all);
    assert!(
        answer.stdout.starts_with("2 of 4 nodes are not fit to train: node03, node04."),
        "{}",
        answer.stdout
    );
    assert!(answer.stdout.contains("  node03      not fit: "), "{}", answer.stdout);
    let json = node(&[&all[..], &["--format", "json"]].concat()).json();
    assert_eq!(json["nodes"][2]["verdict"], "not_fit", "{json}");
}

#[test]
fn what_the_user_expects_counts() {
    let fewer = node(&[&state("node01"), "--gpus", "8"]);
    assert_eq!(fewer.code, Some(1));
    assert!(fewer.stdout.contains("the node has 1 of 8 GPUs"), "{}", fewer.stdout);
    let named = node(&[&state("node01"), "--instance", "p5e.48xlarge"]);
    assert!(named.stdout.contains("0 of the 32 EFA devices of a p5e.48xlarge"), "{}", named.stdout);
}

/// A state that a login node would give: no GPU, no driver.
fn login_node(folder: &Path) -> String {
    let mut state: Value =
        serde_json::from_str(&fs::read_to_string(root().join(state("node01"))).expect("a state"))
            .expect("JSON");
    let own = &mut state["state"];
    (own["gpus"], own["driver"], own["pci"]["gpus"]) = (Value::Null, Value::Null, Value::from(0));
    own["host"] = Value::from("login1");
    let path = folder.join("login1.json");
    fs::write(&path, state.to_string()).expect("written");
    path.to_str().expect("a name").to_owned()
}

#[test]
fn a_machine_without_a_gpu_is_unknown_until_something_says_what_it_should_have() {
    let folder = tempfile::tempdir().unwrap();
    let login = login_node(folder.path());
    let unknown = node(&[&login]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    let first = "login1 cannot be judged: no NVIDIA GPU was seen, and nothing says how many there should be";
    let words = unknown.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.starts_with(first) && words.contains("`--gpus 0` for a login or CPU node"), "{words}");
    // It is not drained for that: Slurm's program drains at exit code 1.
    let health = node(&[&login, "--mode", "healthcheck"]);
    assert_eq!(health.code, Some(2));
    assert!(health.stdout.starts_with("plumb: unknown: login1 cannot be judged"), "{health:?}");
    assert!(health.stdout.len() < 200 && health.stdout.contains("--gpus N; 0 for none"), "{health:?}");
    assert_eq!(node(&[&login, "--exit-style", "nagios"]).code, Some(3));
    let told = node(&[&login, "--gpus", "0"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.stdout.starts_with("login1 is fit: no NVIDIA GPU"), "{}", told.stdout);
    assert_eq!(node(&[&login, "--gpus", "0", "--mode", "healthcheck"]).stdout, "");
    for expected in [["--gpus", "8"], ["--instance", "dgx-h100"]] {
        let missing = node(&[&[login.as_str()], &expected[..]].concat());
        assert_eq!(missing.code, Some(1), "{expected:?}");
        assert!(missing.stdout.contains("error[node-gpu-missing]"), "{}", missing.stdout);
    }
    let nagios = node(&[&login, "--exit-style", "nagios"]).stdout;
    assert!(nagios.starts_with("PLUMB UNKNOWN - login1"), "{nagios}");
    let again = node(&[&login, &login]);
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.stderr.contains("the same recording of login1 is given again"), "{}", again.stderr);
    assert!(!again.stdout.contains("2 nodes"), "{}", again.stdout);
    let other = folder.path().join("login2.json");
    let text = fs::read_to_string(&login).unwrap().replace("login1", "login2");
    fs::write(&other, text).unwrap();
    let several = node(&[&login, &other.to_string_lossy()]);
    assert_eq!(several.code, Some(2), "{several:?}");
    assert!(several.stdout.contains("could not be judged: login1"), "{}", several.stdout);
    // Beside nodes with GPUs it is the odd one.
    let beside = node(&[&login, &state("node01"), &state("node02")]);
    assert!(beside.code == Some(1) && beside.stdout.contains("GPUs: 0 on login1"), "{beside:?}");
}

/// Recorded by the static build on a machine with a GPU.
#[test]
fn gpus_that_only_the_kernel_shows() {
    let answer = node(&[&state("static-build")]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    let words = answer.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "gpu-vm cannot be judged: it has 1 x H200, but the state of its GPUs could not be read: the static build of plumb cannot load \
         libnvidia-ml.so.1.",
        "driver 580.159.04",
        "GPUs 1 x H200, as the kernel shows them",
    ] {
        assert!(words.contains(part), "{part}: {}", answer.stdout);
    }
    let verbose = node(&[&state("static-build"), "-v"]);
    assert!(verbose.stdout.contains("PCIe gen 5 x16"), "{}", verbose.stdout);
    assert_eq!(node(&[&state("static-build"), "--gpus", "8"]).code, Some(1));
}

#[test]
fn the_odd_ones_of_several() {
    let all = ["node01", "node02", "node03", "node04"].map(state);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let answer = node(&all);
    assert_eq!(answer.code, Some(1));
    for part in [
        "2 of 4 nodes are not fit to train: node03, node04.",
        "/dev/shm: 64 MiB on node03; 128 GiB on the other 3 nodes",
        "memlock: 64 KiB on node03; unlimited on the other 3 nodes",
        "MTU: 1500 on node04; 1400 on the other 3 nodes",
        "driver: 570.133.20 on node03; 580.159.04 on the other 3 nodes",
    ] {
        assert!(answer.stdout.contains(part), "{part}: {}", answer.stdout);
    }
    let json = node(&[&all[..], &["--format", "json"]].concat()).json();
    check_schema("nodes.schema.json", &json);
    assert_eq!(json["nodes"].as_array().map(Vec::len), Some(4));
    let alike = node(&all[..2]);
    assert_eq!(alike.code, Some(0));
    assert!(alike.stdout.starts_with("All 2 nodes are fit and alike."), "{}", alike.stdout);
}

/// The state of a DGX H100, changed, in a file.
fn dgx(folder: &Path, host: &str, change: impl FnOnce(&mut Value)) -> String {
    let text = fs::read_to_string(root().join(state("node01"))).expect("a state");
    let mut answer: Value = serde_json::from_str(&text).expect("JSON");
    let own = &mut answer["state"];
    (own["host"], own["machine"]["product"]) = (Value::from(host), Value::from("DGX H100"));
    let port = |number: usize| {
        serde_json::json!({
            "device": format!("mlx5_{number}"), "port": 1, "kind": "infiniband", "state": "ACTIVE", "gbps": 400.0
        })
    };
    own["rdma"] = (0..8).map(port).collect();
    let mut gpu = own["gpus"][0].clone();
    gpu["name"] = Value::from("H100 80GB HBM3");
    gpu["memory_bytes"] = Value::from(85_520_809_984_u64);
    let numbered = |index: u64| {
        let mut gpu = gpu.clone();
        (gpu["index"], gpu["bus"]) =
            (Value::from(index), Value::from(format!("0000:{:02x}:00.0", index + 16)));
        gpu
    };
    own["gpus"] = (0..8).map(numbered).collect();
    (own["pci"]["gpus"], own["driver"]["bound_gpus"]) = (Value::from(8), Value::from(8));
    change(own);
    let path = folder.join(format!("{host}.json"));
    fs::write(&path, answer.to_string()).expect("written");
    path.to_str().expect("a name").to_owned()
}

/// Eight of them, of which these are changed.
fn eight(folder: &Path, changed: &[usize], change: fn(&mut Value)) -> Answer {
    let one = |at: usize| {
        dgx(folder, &format!("gpu{at:02}"), |own| {
            if changed.contains(&at) {
                change(own);
            }
        })
    };
    let paths: Vec<String> = (0..8).map(one).collect();
    node(&paths.iter().map(String::as_str).collect::<Vec<_>>())
}

fn without_one_gpu(own: &mut Value) {
    drop(own["gpus"].as_array_mut().expect("GPUs").pop());
    (own["pci"]["gpus"], own["driver"]["bound_gpus"]) = (Value::from(7), Value::from(7));
}

#[test]
fn a_node_with_all_gpus_is_fit_beside_those_that_lost_one() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, short) = (dgx(folder.path(), "gpu00", |_| ()), dgx(folder.path(), "gpu01", without_one_gpu));
    let two = node(&[&whole, &short]);
    assert_eq!(two.code, Some(1));
    assert!(two.stdout.starts_with("1 of 2 nodes is not fit to train: gpu01."), "{}", two.stdout);
    assert!(two.stdout.contains("  gpu00       fit: "), "{}", two.stdout);
    let most = eight(folder.path(), &[1, 2, 4, 5, 7], without_one_gpu);
    let first = "5 of 8 nodes are not fit to train: gpu01, gpu02, gpu04, gpu05, gpu07.";
    assert!(most.stdout.starts_with(first), "{}", most.stdout);
    assert_eq!(most.code, Some(1));
}

/// A job needs one value, and nothing says which.
#[test]
fn two_nodes_that_differ_are_each_fit_and_not_together() {
    let folder = tempfile::tempdir().unwrap();
    let other = dgx(folder.path(), "gpu01", |own| {
        for interface in own["interfaces"].as_array_mut().expect("interfaces") {
            interface["mtu"] = Value::from(1234);
        }
    });
    let two = node(&[&dgx(folder.path(), "gpu00", |_| ()), &other]);
    assert_eq!(two.code, Some(1), "{}", two.stdout);
    let first = "These 2 nodes differ in what must be equal, and nothing says which of them is right.";
    assert!(two.stdout.starts_with(first), "{}", two.stdout);
    for part in ["1234 on gpu01; no value has a majority", "  gpu00       fit: ", "  gpu01       fit: "] {
        assert!(two.stdout.contains(part), "{part}: {}", two.stdout);
    }
}

#[test]
fn nodes_with_less_memory_or_a_port_down_are_not_alike() {
    let folder = tempfile::tempdir().unwrap();
    let small = eight(folder.path(), &[3], |own| {
        for gpu in own["gpus"].as_array_mut().expect("GPUs") {
            gpu["memory_bytes"] = Value::from(42_949_672_960_u64);
        }
    });
    assert!(small.stdout.starts_with("1 of 8 nodes is not fit to train: gpu03."), "{}", small.stdout);
    let words = "memory of GPUs: 40 GiB on gpu03; 79.6 GiB on the other 7 nodes";
    assert!(small.stdout.contains(words), "{}", small.stdout);
    let second = |folder: &Path, host: &str, state: &str| {
        dgx(folder, host, |own| {
            let mut port = own["interfaces"][0].clone();
            (port["name"], port["state"]) = (Value::from("eth1"), Value::from(state));
            own["interfaces"].as_array_mut().expect("interfaces").push(port);
        })
    };
    let states = ["up", "up", "down"].iter().zip(["a", "b", "c"]);
    let paths: Vec<String> = states.map(|it| second(folder.path(), it.1, it.0)).collect();
    let down = node(&paths.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(down.code, Some(0), "{down:?}");
    let words =
        "warning[nodes-differ-network]: physical interfaces down: 1 (eth1) on c; 0 on the other 2 nodes";
    assert!(down.stdout.contains(words), "{}", down.stdout);
}

#[test]
fn the_nodes_with_warnings_are_named_first() {
    fn throttled(own: &mut Value) {
        let gpu = &mut own["gpus"][5];
        gpu["throttle"] = serde_json::json!(["hw_thermal_slowdown"]);
        gpu["sm_mhz"] = Value::from(900);
    }
    let folder = tempfile::tempdir().unwrap();
    for (changed, first) in [
        (&[2][..], "All 8 nodes are fit, 1 with warnings: gpu02.\n"),
        (&[2, 6], "All 8 nodes are fit, 2 with warnings: gpu02, gpu06.\n"),
        (&[0, 1, 2, 3, 4, 5, 6], "and 1 more.\n"),
        (&[0, 1, 2, 3, 4, 5, 6, 7], "All 8 nodes are fit, with warnings.\n"),
    ] {
        let answer = eight(folder.path(), changed, throttled);
        assert_eq!(answer.code, Some(0), "{answer:?}");
        let line = answer.stdout.split_inclusive('\n').next().unwrap();
        assert!(line.ends_with(first), "{line}");
    }
}

#[test]
fn one_unreadable_state_does_not_hide_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.json");
    let whole = fs::read(root().join(state("node01"))).unwrap();
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let answer = node(&[&state("node01"), &state("node02"), &cut.to_string_lossy()]);
    assert_eq!(answer.code, Some(2), "{}", answer.stderr);
    assert!(answer.stderr.contains("cut.json") && answer.stdout.contains("node02"), "{}", answer.stdout);
    let answer = node(&[&state("node04"), &cut.to_string_lossy()]);
    assert_eq!(answer.code, Some(1), "what is wrong counts more: {}", answer.stderr);
}

#[test]
fn two_recordings_of_one_host_show_what_grew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("after.json");
    let mut later: Value =
        serde_json::from_str(&fs::read_to_string(root().join(state("node01"))).expect("a state"))
            .expect("JSON");
    later["state"]["gpus"][0]["ecc"]["volatile_uncorrected"] = Value::from(1);
    fs::write(&path, later.to_string()).unwrap();
    let answer = node(&[&state("node01"), path.to_str().unwrap()]);
    let words = answer.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let grew = "counters of errors grew on node01: GPU0 uncorrected memory errors from 0 to 1";
    assert!(words.contains(grew), "{}", answer.stdout);
}

#[test]
fn a_health_check_is_one_line_or_nothing() {
    let fit = node(&[&state("node01"), "--mode", "healthcheck"]);
    assert_eq!((fit.code, &*fit.stdout), (Some(0), ""));
    let broken = node(&[&state("node04"), "--mode", "healthcheck"]);
    assert_eq!(broken.code, Some(1));
    assert!(broken.stdout.starts_with("plumb: node-ecc-uncorrected: GPU0 "), "{}", broken.stdout);
    assert_eq!(broken.stdout.lines().count(), 1);
    // `plumb validate` does the same on this machine.
    let own = node(&["--mode", "healthcheck"]);
    let validate = plumb(["validate", "--mode", "healthcheck"]);
    assert_eq!((validate.code, validate.stdout), (own.code, own.stdout));
    let warned = node(&[&state("node03"), "--mode", "healthcheck"]);
    assert_eq!(warned.code, Some(0));
    assert!(warned.stdout.starts_with("plumb: warning: node-shm-small: "), "{}", warned.stdout);
}

#[test]
fn a_nagios_plugin() {
    for (name, word, code) in [("node01", "OK", 0), ("node03", "WARNING", 1), ("node04", "CRITICAL", 2)] {
        let answer = node(&[&state(name), "--exit-style", "nagios"]);
        assert_eq!(answer.code, Some(code), "{name}");
        let (text, data) = answer.stdout.split_once(" | ").unwrap();
        assert!(text.starts_with(&format!("PLUMB {word} - ")), "{text}");
        for it in data.split_whitespace() {
            let (label, value) = it.split_once('=').unwrap();
            assert!(!label.is_empty() && value.starts_with(|it: char| it.is_ascii_digit()), "{it}");
        }
    }
    assert_eq!(node(&["/no/such/state.json", "--exit-style", "nagios"]).code, Some(3));
}

#[test]
fn a_gpu_at_its_slowdown_temperature_is_a_warning_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let hot = |celsius: u64| {
        dgx(folder.path(), "gpu00", |own| {
            own["gpus"][3]["temperature_c"] = Value::from(celsius);
            // Another limit, far from the hot GPU.
            own["gpus"][4]["slowdown_c"] = Value::from(70);
        })
    };
    let path = hot(95);
    let words = "GPU3 (0000:13:00.0) (95 °C, slowdown at 89)";
    let text = node(&[&path]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.starts_with("gpu00 is fit with warnings: ") && text.contains(words), "{text}");
    let json = node(&[&path, "--format", "json"]).json();
    assert_eq!(
        (&json["verdict"], &json["findings"][0]["id"]),
        (&"warnings".into(), &"node-gpu-throttled".into())
    );
    let nagios = node(&[&path, "--exit-style", "nagios"]);
    assert_eq!(nagios.code, Some(1));
    assert!(nagios.stdout.starts_with("PLUMB WARNING - warning: node-gpu-throttled: "), "{}", nagios.stdout);
    assert!(nagios.stdout.contains(" gpu_temperature_max=95;89 "), "{}", nagios.stdout);
    let below = node(&[&hot(88), "--exit-style", "nagios"]);
    assert_eq!(below.code, Some(0), "{}", below.stdout);
    assert!(below.stdout.contains(" gpu_temperature_max=88;89 "), "{}", below.stdout);
}

#[test]
fn every_line_fits_the_terminal() {
    let mut command = common::command(["node", &state("node04")]);
    command.env("COLUMNS", "60");
    let text = common::finish(command).stdout;
    let long: Vec<&str> = text.lines().filter(|it| it.chars().count() > 60).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn metrics_follow_the_grammar_of_prometheus() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plumb.prom");
    let answer = node(&[&state("node04"), "--prometheus", "--output", path.to_str().unwrap()]);
    assert_eq!((answer.code, &*answer.stdout), (Some(0), ""));
    let text = fs::read_to_string(&path).unwrap();
    let mut current = String::new();
    let (mut seen, mut samples) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            current = rest.split(' ').next().unwrap().to_owned();
            assert!(seen.insert(current.clone()), "{current} twice");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(name == current && ["gauge", "counter"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        assert!(value == "+Inf" || value.parse::<f64>().is_ok(), "{line}");
        assert_eq!(sample.split('{').next().unwrap(), current, "{line}");
        assert!(samples.insert(sample.to_owned()), "{sample} twice");
    }
    assert!(text.contains("plumb_node_verdict{verdict=\"not_fit\"} 1\n"), "{text}");
    assert!(text.contains("plumb_node_xid_total{code=\"48\",gpu=\"0000:00:06\"} 1\n"), "{text}");
    assert!(text.contains("plumb_node_memlock_bytes +Inf\n"), "{text}");
}

#[test]
fn bad_input_has_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    for (text, reason) in [
        ("", "not JSON"),
        ("{}", "not an answer of `plumb node --format json`"),
        (r#"{"schema":"plumb.bench/1"}"#, "its schema is plumb.bench/1"),
        (r#"{"schema":"plumb.node/1","state":{"host":"a","gpus":3}}"#, "not the state of a node"),
    ] {
        fs::write(&path, text).unwrap();
        let answer = node(&[path.to_str().unwrap()]);
        assert_eq!(answer.code, Some(2), "{text}");
        assert!(
            answer.stderr.contains("state.json: ") && answer.stderr.contains(reason),
            "{}",
            answer.stderr
        );
    }
    assert_eq!(node(&[&state("node01"), &state("node02"), "--prometheus"]).code, Some(2));
    let own = node(&[&state("node01"), "--output", &state("node01")]);
    assert!(own.code == Some(2) && own.stderr.contains("both input and output"), "{own:?}");
}
