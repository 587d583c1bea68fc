//! `plumb lint` as a user runs it: correct manifests, known faults, fixes, suppressions, bad input.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::{Answer, command, finish, folder, plumb};
use serde_json::Value;

fn manifests(kind: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests").join(kind);
    let mut all: Vec<PathBuf> =
        fs::read_dir(folder).expect("the manifests").map(|it| it.expect("an entry").path()).collect();
    all.sort();
    all
}

fn lint(arguments: &[&str]) -> Answer {
    plumb(["lint"].into_iter().chain(arguments.iter().copied()))
}

fn json(path: &Path) -> Value {
    plumb([Path::new("lint"), Path::new("--format"), Path::new("json"), path]).json()
}

/// Ids with their severity and line.
fn found(json: &Value) -> Vec<(String, String, u64)> {
    let findings = json["findings"].as_array().expect("a list");
    let text = |it: &Value| it.as_str().expect("a text").to_owned();
    findings
        .iter()
        .map(|it| {
            (text(&it["id"]), text(&it["severity"]), it["places"][0]["line"].as_u64().expect("a number"))
        })
        .collect()
}

#[test]
fn right_manifests_are_left_alone() {
    let all = manifests("good");
    assert!(all.len() >= 9);
    for path in all {
        let json = json(&path);
        let alarms: Vec<_> = found(&json).into_iter().filter(|it| it.1 != "info").collect();
        assert!(alarms.is_empty(), "{}: {alarms:#?}", path.display());
    }
}

#[test]
fn the_faults_of_the_field_notes_are_found() {
    for (name, wanted) in [
        ("one-pod-a-gpu.yaml", &["resource-misspelt", "one-gpu-pods"][..]),
        (
            "pod-p4d.yaml",
            &[
                "variable-unknown",
                "host-ipc-not-needed",
                "share-process-namespace-not-needed",
                "efa-count-wasteful",
            ],
        ),
        ("nccl-tests.sh", &["nccl-tests-too-many-gpus", "nccl-tests-idle-factor"]),
        (
            "settings.env",
            &[
                "variable-unknown",
                "value-other-meaning",
                "topology-dropped",
                "pointless-with-efa",
                "loopback-interface",
                "gpudirect-turned-off",
                "forced-choice",
            ],
        ),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests/bad").join(name);
        let ids: BTreeSet<String> = found(&json(&path)).into_iter().map(|it| it.0).collect();
        for id in wanted {
            assert!(ids.contains(*id), "{name}: {id} is not in {ids:?}");
        }
    }
}

#[test]
fn bad_manifests_as_text() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots/lint");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for path in manifests("bad") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let answer = lint(&[&format!("crates/cli/tests/manifests/bad/{name}")]);
            insta::assert_snapshot!(
                name,
                format!("{}{}-- exit code {:?} --\n", answer.stdout, answer.stderr, answer.code)
            );
        }
    });
}

/// `--fix` changes what it can, keeps the rest byte for byte, and has nothing to do the second time.
#[test]
fn changes_are_made_once() {
    let folder = folder("lint-fix");
    for path in manifests("bad").into_iter().chain(manifests("good")) {
        let copy = folder.join(path.file_name().unwrap());
        let before = fs::read_to_string(&path).unwrap();
        fs::write(&copy, &before).unwrap();
        let diff = plumb([Path::new("lint"), Path::new("--diff"), &copy]);
        assert_eq!(fs::read_to_string(&copy).unwrap(), before, "--diff changes nothing");
        plumb([Path::new("lint"), Path::new("--fix"), &copy]);
        let once = fs::read_to_string(&copy).unwrap();
        assert_eq!(once == before, diff.stdout.is_empty(), "{}: {}", path.display(), diff.stdout);
        // Comments and all lines that are not part of a change are kept.
        let kept: BTreeSet<&str> = once.lines().collect();
        let removed = before.lines().filter(|it| !kept.contains(it)).count();
        assert_eq!(
            removed,
            diff.stdout.lines().filter(|it| it.starts_with('-') && !it.starts_with("---")).count()
        );
        plumb([Path::new("lint"), Path::new("--fix"), &copy]);
        assert_eq!(fs::read_to_string(&copy).unwrap(), once, "{}", path.display());
        let left = json(&copy);
        let fixable = left["findings"].as_array().unwrap().iter().filter(|it| it["fixable"] == true).count();
        assert_eq!(fixable, 0, "{}: {left:#}", path.display());
    }
}

#[test]
fn suppressions_work_and_unused_ones_are_reported() {
    let folder = folder("lint-suppression");
    let write = |text: &str| {
        let path = folder.join("a.env");
        fs::write(&path, text).unwrap();
        found(&json(&path)).into_iter().map(|it| (it.0, it.2)).collect::<Vec<_>>()
    };
    assert_eq!(write("NCCL_P2P_LEVEL=5\n"), [("value-other-meaning".to_owned(), 1)]);
    assert_eq!(write("# plumb: allow value-other-meaning (we mean SYS)\nNCCL_P2P_LEVEL=5\n"), []);
    let left = write("# plumb: allow value-other-meaning, no-such-rule (old)\nNCCL_DEBUG=INFO\n");
    assert_eq!(left.iter().filter(|it| it.0 == "unused-allow").count(), 2, "{left:?}");
}

#[test]
fn an_annotation_suppresses_findings_of_its_object() {
    let pod = "kind: Pod\nmetadata:\n  name: a\n  annotations:\n    plumb/allow: host-ipc-not-needed\nspec:\n  hostIPC: true\n  containers:\n\
               \x20 - name: a\n    image: x:1\n    resources: {limits: {nvidia.com/gpu: 8}}\n    volumeMounts: [{name: s, mountPath: /dev/shm}]\n\
               \x20 volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 32Gi}}]\n";
    let folder = folder("lint-annotation");
    let path = folder.join("pod.yaml");
    fs::write(&path, pod).unwrap();
    let ids: Vec<String> = found(&json(&path)).into_iter().map(|it| it.0).collect();
    assert!(!ids.iter().any(|it| it == "host-ipc-not-needed" || it == "unused-allow"), "{ids:?}");
    fs::write(&path, pod.replace("    plumb/allow: host-ipc-not-needed\n", "    a: b\n")).unwrap();
    assert!(found(&json(&path)).iter().any(|it| it.0 == "host-ipc-not-needed"));
}

#[test]
fn formats_are_whole() {
    let path = "crates/cli/tests/manifests/bad/one-pod-a-gpu.yaml";
    let sarif = lint(&["--format", "sarif", path]).json();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    assert!(results.len() >= 3);
    for it in results {
        assert!(it["locations"][0]["physicalLocation"]["region"]["startLine"].as_u64().unwrap() > 0);
        let rule = it["ruleIndex"].as_u64().unwrap();
        assert_eq!(
            sarif["runs"][0]["tool"]["driver"]["rules"][usize::try_from(rule).unwrap()]["id"],
            it["ruleId"]
        );
    }
    let junit = lint(&["--format", "junit", path]).stdout;
    assert!(
        junit.contains("name=\"resource-misspelt\">\n      <failure type=\"error\"")
            && junit.ends_with("</testsuites>\n"),
        "{junit}"
    );
    let schema: Value = serde_json::from_str(include_str!("../../../docs/lint.schema.json")).unwrap();
    let json = lint(&["--format", "json", path]).json();
    for key in json.as_object().unwrap().keys() {
        assert!(schema["properties"].get(key).is_some(), "{key}");
    }
    for key in json["findings"][0].as_object().unwrap().keys() {
        assert!(schema["$defs"]["finding"]["properties"].get(key).is_some(), "{key}");
    }
}

#[test]
fn standard_input_is_read_and_changed() {
    let mut child = command(["lint", "--fix", "--fail-on", "never", "-"]);
    let text = "kind: Pod\nspec:\n  containers:\n  - name: a\n    image: a:1\n    resources:\n      limits:\n        nvidia.com/gpus: 1 # one\n";
    let folder = folder("lint-stdin");
    let path = folder.join("in.yaml");
    fs::write(&path, text).unwrap();
    child.stdin(fs::File::open(&path).unwrap());
    let answer = finish(child);
    assert!(answer.stdout.starts_with(&text.replace("nvidia.com/gpus", "nvidia.com/gpu")), "{answer:?}");
}

/// Files nobody should submit: each gets its line, none a panic, none a wrong "ok".
#[test]
fn hostile_files_are_refused_with_their_place() {
    let folder = folder("lint-hostile");
    let bomb = |n: usize| {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for it in 1..n {
            text.push_str(&format!("a{it}: &a{it} [{}]\n", vec![format!("*a{}", it - 1); 9].join(", ")));
        }
        text.into_bytes()
    };
    for (name, bytes, wanted) in [
        ("empty.yaml", Vec::new(), "1:1: is empty"),
        ("tabs.yaml", b"kind: Pod\nspec:\n\tcontainers: []\n".to_vec(), "tabs.yaml:3"),
        ("utf8.yaml", b"kind: Pod\nname: \xff\xfe\n".to_vec(), "utf8.yaml:2:1: is not UTF-8"),
        ("deep.yaml", "- ".repeat(5000).into_bytes(), "deep.yaml:1"),
        ("flow.yaml", "[".repeat(200_000).into_bytes(), "flow.yaml:1"),
        ("open.yaml", b"kind: Pod\nspec: {containers: [\n".to_vec(), "open.yaml:"),
        ("large.yaml", vec![b'#'; 70 << 20], "more than 64 MiB"),
        ("cycle.yaml", b"a: &a\n  b: *a\n".to_vec(), "cycle.yaml:2"),
    ] {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        let answer = plumb([Path::new("lint"), &path]);
        assert_eq!(answer.code, Some(2), "{name}: {answer:?}");
        assert!(answer.stderr.contains(wanted), "{name}: {}", answer.stderr);
    }
    // What is odd and can be read.
    let crlf = b"\xef\xbb\xbfkind: Pod\r\nspec:\r\n  containers:\r\n  - name: a\r\n    image: a:1\r\n    resources:\r\n      limits:\r\n        nvidia.com/gpus: 1\r\n";
    let path = folder.join("crlf.yaml");
    fs::write(&path, crlf).unwrap();
    assert!(found(&json(&path)).iter().any(|it| it.0 == "resource-misspelt" && it.2 == 8));
    plumb([Path::new("lint"), Path::new("--fix"), &path]);
    let after = fs::read(&path).unwrap();
    assert_eq!(
        after,
        String::from_utf8(crlf.to_vec()).unwrap().replace("nvidia.com/gpus", "nvidia.com/gpu").into_bytes()
    );
    let path = folder.join("bomb.yaml");
    fs::write(&path, bomb(60)).unwrap();
    assert_eq!(plumb([Path::new("lint"), &path]).code, Some(2), "nothing in it is known");
    let path = folder.join("twice.yaml");
    fs::write(
        &path,
        "kind: Pod\nspec:\n  containers:\n  - name: a\n    image: a:1\nspec:\n  containers: []\n",
    )
    .unwrap();
    assert!(found(&json(&path)).iter().any(|it| it.0 == "duplicate-key" && it.2 == 6));
    let missing = plumb([Path::new("lint"), &folder.join("nowhere.yaml")]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("nowhere.yaml"), "{}", missing.stderr);
}

#[test]
fn env_and_manifest() {
    let answer = plumb(["env", "--instance", "g6e.12xlarge", "--nccl", "2.27.3", "--plugin", "1.16.2"]);
    assert!(answer.stdout.contains("nothing to set"), "{answer:?}");
    for format in ["sh", "yaml", "json", "dockerfile"] {
        let answer = plumb([
            "env",
            "--instance",
            "p5.48xlarge",
            "--format",
            format,
            "--job",
            "crates/cli/tests/manifests/bad/settings.env",
        ]);
        assert_eq!(answer.code, Some(0), "{answer:?}");
        assert!(answer.stdout.contains("NCCL_P2P_DIRECT_READ"), "{format}: {}", answer.stdout);
    }
    let dgx = plumb(["env", "--instance", "DGX H100"]);
    assert!(dgx.stdout.starts_with("dgx-h100: nothing to set"), "{dgx:?}");
    let folder = folder("lint-manifest");
    for kind in ["trainjob", "pytorchjob", "mpijob", "jobset", "job", "sbatch"] {
        let answer = plumb([
            "manifest",
            "--kind",
            kind,
            "--instance",
            "p5.48xlarge",
            "--nodes",
            "4",
            "--image",
            "registry.example/a:1",
            "--",
            "train.py",
        ]);
        assert_eq!(answer.code, Some(0), "{kind}: {answer:?}");
        let path =
            folder.join(if kind == "sbatch" { "job.sbatch".to_owned() } else { format!("{kind}.yaml") });
        fs::write(&path, &answer.stdout).unwrap();
        assert!(found(&json(&path)).is_empty(), "{kind}: {:#}", json(&path));
    }
    let refused = plumb(["manifest", "--kind", "cronjob", "--instance", "p5.48xlarge"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("trainjob"), "{}", refused.stderr);
}

#[test]
fn an_unknown_machine_is_an_error_in_every_command() {
    for arguments in [
        "lint --instance p5.84xlarge crates/cli/tests/manifests/bad/settings.env",
        "env --instance p5.84xlarge",
        "manifest --kind job --instance p5.84xlarge -- train.py",
        "topo --instance p5.84xlarge",
        "expect all_reduce --instance p5.84xlarge",
        "bench all_reduce --instance p5.84xlarge",
    ] {
        let answer = plumb(arguments.split(' '));
        assert_eq!(answer.code, Some(2), "{arguments}: {answer:?}");
        assert!(answer.stdout.is_empty(), "{arguments}: {answer:?}");
        let sentence = "plumb knows no machine `p5.84xlarge`; did you mean p5.4xlarge or p5.48xlarge";
        assert!(answer.stderr.contains(sentence), "{arguments}: {}", answer.stderr);
    }
}

#[test]
fn machines_are_listed() {
    let text = plumb(["machines"]);
    assert_eq!(text.code, Some(0), "{text:?}");
    let json = plumb(["machines", "--format", "json"]).json();
    let machines = json["machines"].as_array().unwrap();
    assert_eq!(json["schema"], "plumb.machines/1");
    assert_eq!(text.stdout.lines().count(), machines.len() + 1);
    for machine in machines {
        let name = machine["name"].as_str().unwrap();
        assert!(fabric::catalogue::find(name).is_some(), "{name}");
        assert!(text.stdout.lines().any(|it| it.starts_with(&format!("{name} "))), "{name}");
    }
}

/// The command of the manifest describes model and run, its selector the machine: the loss has a price without a job file.
#[test]
fn a_manifest_prices_its_own_findings() {
    let folder = testbed::Folder::new("lint-price");
    let path = folder.path().join("job.yaml");
    let options = "pretrain_gpt.py, --num-layers, \"32\", --hidden-size, \"4096\", --num-attention-heads, \"32\", --seq-length, \"4096\", \
                   --micro-batch-size, \"1\", --global-batch-size, \"256\", --bf16";
    let manifest = |options: &str| {
        format!(
            "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {{name: llama}}\nspec:\n  runtimeRef: {{name: torch-distributed}}\n\
             \x20 trainer:\n    numNodes: 4\n    numProcPerNode: 8\n    image: train:1\n    resourcesPerNode:\n      limits: {{nvidia.com/gpu: 8}}\n\
             \x20   command: [torchrun, --nproc-per-node=8, {options}]\n  podTemplateOverrides:\n  - targetJobs: [{{name: node}}]\n    spec:\n\
             \x20     nodeSelector: {{node.kubernetes.io/instance-type: p5.48xlarge}}\n"
        )
    };
    let name = path.to_str().unwrap();
    std::fs::write(&path, manifest(options)).unwrap();
    let answer = lint(&[name, "--price-per-hour", "60"]);
    assert!(answer.stdout.contains("error[efa-resource-missing]"), "{}", answer.stdout);
    assert!(answer.stdout.contains("= time: "), "{}", answer.stdout);
    assert!(answer.stdout.contains("of the price of an hour"), "{}", answer.stdout);
    // A command that does not say what is trained.
    std::fs::write(&path, manifest("train.py")).unwrap();
    let answer = lint(&[name]);
    assert!(answer.stdout.contains("error[efa-resource-missing]"), "{}", answer.stdout);
    assert!(!answer.stdout.contains("= time: "), "{}", answer.stdout);
}
