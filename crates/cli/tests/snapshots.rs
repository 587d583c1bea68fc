//! Every command on every recording, as it is printed. A new recording under `cases/` adds its row by itself.
//!
//! To accept what changed: `INSTA_UPDATE=always cargo test -p plumb --test snapshots`, then read `git diff`.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use common::{Answer, command, files, finish, plumb, recordings};
use serde_json::Value;

/// The snapshots of one folder under `tests/snapshots`.
struct Snapshots {
    folder: PathBuf,
    seen: BTreeSet<String>,
    changed: Vec<String>,
}

impl Snapshots {
    fn new(folder: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(folder);
        Self { folder, seen: BTreeSet::new(), changed: Vec::new() }
    }

    /// Compares, and goes on where something differs, so that one run shows all differences.
    fn check(&mut self, name: &str, text: &str) {
        assert!(self.seen.insert(format!("{name}.snap")), "{name} is compared twice");
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(&self.folder);
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        let same = settings.bind(|| catch_unwind(AssertUnwindSafe(|| insta::assert_snapshot!(name, text))));
        if same.is_err() {
            self.changed.push(name.to_owned());
        }
    }

    /// Fails if anything differed, or if a snapshot is left over from something that is no more.
    #[track_caller]
    fn finish(self) {
        let folder = self.folder.display();
        let how = "To accept it: INSTA_UPDATE=always cargo test -p plumb --test snapshots";
        assert!(self.changed.is_empty(), "these differ from {folder}: {:?}\n{how}", self.changed);
        let entries = fs::read_dir(&self.folder).expect("the snapshots can be listed");
        let names = entries.filter_map(|it| it.ok()?.file_name().into_string().ok());
        let stale: Vec<String> = names
            .filter(|it| Path::new(it).extension().is_some_and(|it| it == "snap") && !self.seen.contains(it))
            .collect();
        if std::env::var_os("INSTA_UPDATE").is_some_and(|it| it == "always") {
            for name in &stale {
                fs::remove_file(self.folder.join(name)).expect("a snapshot can be removed");
            }
        } else {
            assert!(stale.is_empty(), "nothing is compared with these of {folder}: {stale:?}\n{how}");
        }
    }
}

/// What a person sees: the answer, then what was said beside it.
fn shown(answer: &Answer) -> String {
    let mut text = answer.stdout.clone();
    if !answer.stderr.is_empty() {
        let _ = write!(text, "-- stderr --\n{}", answer.stderr);
    }
    let _ = writeln!(text, "-- exit code {} --", answer.code.map_or("none".to_owned(), |it| it.to_string()));
    text
}

/// An answer of doctor without the rules that were not checked: a new rule must not change every snapshot. They stand whole in
/// `options/not-checked` and in `sarif/healthy-2-nodes`.
fn without_unchecked(answer: &Answer) -> String {
    let text = shown(answer);
    let counts = |it: &str| it.contains(" not checked") && it.starts_with(|it: char| it.is_ascii_digit());
    let mut lines = text.lines();
    let mut kept: Vec<&str> = lines.by_ref().take_while(|it| !counts(it)).collect();
    kept.push("[rules that were not checked]");
    kept.extend(lines.skip_while(|it| !it.starts_with("-- ")));
    assert!(
        kept.last().is_some_and(|it| it.starts_with("-- exit code")),
        "nothing says what was not checked:\n{text}"
    );
    kept.join("\n") + "\n"
}

fn doctor(recording: &str, options: &[&str]) -> Answer {
    let options = options.iter().map(|it| (*it).to_owned());
    plumb(["doctor".to_owned()].into_iter().chain(options).chain(files(recording)))
}

#[test]
fn doctor_as_text() {
    let mut snapshots = Snapshots::new("text");
    for name in recordings() {
        let answer = doctor(&name, &[]);
        let rows = answer.stdout.lines().count();
        assert!(rows <= 23, "{name}: {rows} rows are more than a screen:\n{}", answer.stdout);
        snapshots.check(&name, &shown(&answer));
    }
    snapshots.finish();
}

#[test]
fn doctor_as_json() {
    let mut snapshots = Snapshots::new("json");
    for name in recordings() {
        let answer = doctor(&name, &["--format", "json"]);
        snapshots.check(&name, &summary(&answer.json()));
    }
    snapshots.finish();
}

/// What programs decide by. Texts that only people read are left to the other snapshots.
fn summary(json: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let list = |name: &str| json[name].as_array().cloned().unwrap_or_default();
    let mut out = String::new();
    let _ = writeln!(out, "schema {}", text(&json["schema"]));
    let _ = writeln!(out, "verdict {}: {}", text(&json["verdict"]["level"]), text(&json["verdict"]["text"]));
    for it in list("findings") {
        let (id, severity) = (text(&it["id"]), text(&it["severity"]));
        let _ = writeln!(out, "{severity} {id} ({}): {}", text(&it["confidence"]), text(&it["message"]));
    }
    for it in list("checks") {
        let _ = writeln!(out, "check {}: {}", text(&it["id"]), text(&it["state"]));
    }
    for it in list("inputs") {
        let [file, kind, lines, understood, blank, problem] =
            ["file", "kind", "lines", "understood", "blank", "problem"].map(|key| text(&it[key]));
        let _ = writeln!(
            out,
            "input {file}: {kind}, {lines} lines, {understood} understood, {blank} blank, problem {problem}"
        );
    }
    out
}

const OTHER_FORMATS: [&str; 3] = ["duplicate-gpu", "g6e-4x4-efa", "healthy-2-nodes"];

#[test]
fn doctor_as_sarif() {
    let mut snapshots = Snapshots::new("sarif");
    for name in OTHER_FORMATS {
        let mut json = doctor(name, &["--format", "sarif"]).json();
        assert_eq!(json["version"], "2.1.0");
        let notes = json
            .pointer_mut("/runs/0/invocations/0/toolExecutionNotifications")
            .expect("what was not checked");
        let notes = notes.as_array_mut().expect("a list");
        let is_unchecked = |it: &Value| it["descriptor"]["id"] == "not-checked";
        assert!(notes.iter().any(is_unchecked), "{name}: something was not checked");
        if name != "healthy-2-nodes" {
            notes.retain(|it| !is_unchecked(it));
        }
        json["runs"][0]["tool"]["driver"]["version"] = "VERSION".into();
        snapshots.check(name, &format!("{json:#}\n"));
    }
    snapshots.finish();
}

#[test]
fn doctor_as_junit() {
    let mut snapshots = Snapshots::new("junit");
    for name in OTHER_FORMATS {
        let answer = doctor(name, &["--format", "junit"]);
        assert!(answer.stdout.starts_with("<?xml"), "{answer:?}");
        snapshots.check(name, &answer.stdout);
    }
    snapshots.finish();
}

#[test]
fn doctor_redacted() {
    let mut snapshots = Snapshots::new("redacted");
    for (name, secrets) in [
        ("g6e-4x4-efa", &["llama-3-8b-node-0-0", "10.0."][..]),
        ("rank-dies", &["node-0", "node-2", "10.77.0."]),
    ] {
        let answer = doctor(name, &["--redact", "--verbose"]);
        for secret in secrets {
            assert!(!answer.stdout.contains(secret), "{name} shows {secret}:\n{}", answer.stdout);
        }
        snapshots.check(name, &without_unchecked(&answer));
    }
    snapshots.finish();
}

#[test]
fn doctor_with_options() {
    let mut snapshots = Snapshots::new("options");
    snapshots.check("matrix", &shown(&doctor("healthy-4-nodes", &["--matrix"])));
    let verbose = doctor("g6e-topo", &["--verbose"]);
    snapshots.check("verbose", &without_unchecked(&verbose));
    snapshots.check("not-checked", &shown(&doctor("healthy-2-nodes", &["--verbose"])));
    snapshots.check("colour", &shown(&doctor("topo-file-missing", &["--color", "always"])));
    for name in ["rank-dies", "g6e-4x4-efa", "p4d-4-pods"] {
        snapshots.check(&format!("verbose-{name}"), &without_unchecked(&doctor(name, &["--verbose"])));
    }
    snapshots.finish();
    let kernel = verbose.stdout.lines().position(|it| it.starts_with("  - ") && it.contains("dmesg"));
    let named =
        kernel.and_then(|it| verbose.stdout.lines().skip(it).take(2).find(|it| it.contains("xid-reported")));
    assert!(named.is_some(), "--verbose names the rules that were not checked:\n{}", verbose.stdout);
}

/// Every kind of input, with what each leaves open.
#[test]
fn topo_of_a_file() {
    let mut snapshots = Snapshots::new("topo-file");
    for (name, arguments) in [
        ("matrix-g6e", "cases/g6e-topo/topo.txt"),
        ("matrix-g6e-with-instance", "cases/g6e-topo/topo.txt --instance g6e.12xlarge --nodes 4"),
        ("matrix-p4d", "cases/p4d-topo/topo.txt"),
        ("matrix-p5", "cases/p5-topo/topo.txt"),
        ("matrix-p5-with-gpu", "cases/p5-topo/topo.txt --gpu H100"),
        ("matrix-one-gpu", "cases/h200-topo/topo.txt"),
        ("xml-one-gpu", "cases/h200-dump/topo.xml"),
        ("graph-one-gpu", "cases/h200-dump/graph.xml"),
        ("xml-p4d", "cases/oracle-p4d/p4d.xml"),
        ("xml-p5", "cases/oracle-p5/p5.xml --nodes 2"),
        ("xml-pcie8", "cases/oracle-pcie8/pcie8.xml"),
        ("xml-g6e12", "cases/oracle-g6e12/g6e12.xml --nodes 4 --nccl 2.27.3"),
        ("log-p5", "cases/oracle-p5/2x8.log.gz"),
        ("log-dgxh100", "cases/oracle-dgxh100/1x8.log.gz"),
        ("log-ring", "cases/g6e-4x4-efa --channel 0"),
        ("log-tree", "cases/g6e-4x4-efa --channel 1 --tree"),
        ("no-topology", "cases/healthy-2-nodes"),
    ] {
        let arguments = arguments.replace("cases/g6e-4x4-efa", &files("g6e-4x4-efa")[0]);
        let arguments = arguments.replace("cases/healthy-2-nodes", &files("healthy-2-nodes")[0]);
        snapshots.check(name, &shown(&plumb(["topo"].into_iter().chain(arguments.split(' ')))));
    }
    snapshots.finish();
}

#[test]
fn topo_of_the_catalogue() {
    let mut snapshots = Snapshots::new("topo-catalogue");
    for (name, arguments) in [
        ("g5.48xlarge", "--instance g5.48xlarge"),
        ("g6e.12xlarge", "--instance g6e.12xlarge --nodes 4"),
        ("g6e.12xlarge-p2p", "--instance g6e.12xlarge --nccl 2.27.3 --env NCCL_P2P_LEVEL=SYS"),
        ("p3dn.24xlarge", "--instance p3dn.24xlarge"),
        ("p4d.24xlarge", "--instance p4d.24xlarge --nodes 2"),
        ("p4d.24xlarge-pods", "--instance p4d.24xlarge --pods 8x1 --nics-per-pod 0"),
        ("p4d.24xlarge-one-host", "--instance p4d.24xlarge --pods 4x2 --same-host --shared-shm"),
        ("p5.48xlarge", "--instance p5.48xlarge --nodes 2 --collective all_reduce"),
        ("p5en.48xlarge", "--instance p5en.48xlarge"),
        ("p6-b200.48xlarge", "--instance p6-b200.48xlarge --nodes 4"),
        ("dgx-a100", "--instance dgx-a100"),
        ("dgx-h100", "--instance dgx-h100"),
        ("gb200-nvl72", "--instance gb200-nvl72"),
        ("too-many-gpus", "--instance p4d.24xlarge --pods 3x4"),
        ("no-such-machine", "--instance p4d.42xlarge"),
    ] {
        snapshots.check(name, &shown(&plumb(["topo"].into_iter().chain(arguments.split(' ')))));
    }
    snapshots.finish();
}

#[test]
fn topo_decides() {
    let mut snapshots = Snapshots::new("topo-decide");
    for (name, arguments) in [
        ("p5.48xlarge", "--instance p5.48xlarge --nodes 4 --decide"),
        (
            "p4d.24xlarge-verbose",
            "--instance p4d.24xlarge --nodes 2 --decide -v --nccl 2.27.3 --plugin 1.16.2",
        ),
        ("g6e.12xlarge", "--instance g6e.12xlarge --nodes 2 --decide"),
        (
            "dgx-h100-variables",
            "--instance dgx-h100 --nodes 2 --decide --env NCCL_GRAPH_FILE=rings.xml --env NCCL_MIN_NCHANNELS=32",
        ),
        ("what-if", "--instance p4d.24xlarge --nodes 2 --what-if NCCL_P2P_DISABLE=1"),
        ("check-same", "--check cases/graph-tuning/job.log"),
        ("check-not-enough", "--check cases/healthy-4-nodes/rank.node-0.3473.log"),
    ] {
        snapshots.check(name, &shown(&plumb(["topo"].into_iter().chain(arguments.split(' ')))));
    }
    snapshots.finish();
}

#[test]
fn topo_as_json() {
    let mut snapshots = Snapshots::new("topo-json");
    let answer = plumb(["topo", "--instance", "p4d.24xlarge", "--nodes", "2", "--format", "json"]);
    assert_eq!(answer.json()["schema"], "plumb.topo/1");
    snapshots.check("p4d.24xlarge", &answer.stdout);
    snapshots.finish();
}

/// One number for what is expected, and the release it is for: that of `plumb topo` is the newest.
#[test]
fn expected_bandwidths_agree() {
    let text = |arguments: &[&str]| plumb(arguments.iter().copied()).stdout;
    let machines = ["--instance", "p5.48xlarge", "--nodes", "2"];
    let any = text(&[&["expect", "all_reduce", "-m", "200"], &machines[..]].concat());
    assert!(any.contains(", 360 expected (") && any.contains("of the 360 GB/s expected"), "{any}");
    assert!(any.contains("  NCCL     any of 2.18.5 to 2."), "{any}");
    let topo = text(&[&["topo"], &machines[..]].concat());
    let (_, rest) = topo.split_once("normal all_reduce with NCCL ").unwrap();
    let release = rest.split(':').next().unwrap();
    let row: Vec<&str> = rest.lines().find(|it| it.contains(" 1 GiB ")).unwrap().split_whitespace().collect();
    let one = text(&[&["expect", "all_reduce", "--nccl", release], &machines[..]].concat());
    let want = format!("{} GB/s is normal, {} to {}\n", row[3], row[2], row[4]);
    assert!(one.starts_with(&want) && one.contains(&format!("  NCCL     {release}\n")), "{want}: {one}");
}

#[test]
fn expect() {
    let mut snapshots = Snapshots::new("expect");
    for (name, arguments) in [
        ("p5-two-nodes", "all_reduce --instance p5.48xlarge --nodes 2 --size 1G --measured 437"),
        ("above-nvlink", "all_reduce --instance p5.48xlarge --nodes 2 --size 1G --measured 800"),
        ("nvls-off", "all_reduce --instance p5.48xlarge --size 8G --measured 365"),
        ("far-too-low", "all_reduce --instance p5.48xlarge --nodes 4 --size 1G --measured 40"),
        ("small", "all_reduce --instance p4d.24xlarge --nodes 2 --size 8"),
        ("no-gpudirect", "all_gather --instance g6e.12xlarge --nodes 4 --size 1G"),
        ("p2p-off", "all_reduce --instance p4d.24xlarge --env NCCL_P2P_DISABLE=1"),
        ("one-gpu-pods", "all_reduce --instance p4d.24xlarge --pods 8x1"),
        ("json", "all_reduce --instance p5.48xlarge --nodes 2 --size 1G --measured 437 --format json"),
        ("one-rank", "all_reduce --instance p5.48xlarge --pods 1x1"),
        ("nothing-named", "all_reduce"),
        ("no-collective", "all_redude --instance p5.48xlarge"),
    ] {
        snapshots.check(name, &shown(&plumb(["expect"].into_iter().chain(arguments.split(' ')))));
    }
    snapshots.finish();
}

#[test]
fn predict_of_a_log() {
    let mut snapshots = Snapshots::new("predict");
    for (name, arguments) in [
        ("zero3", "--from cases/g6e-4x4-efa/rank0.log --set seq=512 --what-if gpudirect=true"),
        ("one-gpu-pods", "--from cases/p4d-4-pods --set seq=512 --price-per-hour 32.77"),
        ("lacks", "--from cases/healthy-2-nodes"),
        ("misspelt", "--from cases/healthy-2-nodes --set sqe=512"),
    ] {
        snapshots.check(name, &shown(&plumb(["predict"].into_iter().chain(arguments.split(' ')))));
    }
    snapshots.finish();
}

/// Every rule, in the order of the JSON: the rules of doctor, then those of lint and of node, each sorted by id.
#[test]
fn rules() {
    let json = plumb(["rules", "--format", "json"]).json();
    let all = json["rules"].as_array().unwrap();
    let mut expected = String::new();
    for (title, command, least) in
        [("plumb doctor", "doctor", 50), ("\nplumb lint", "lint", 50), ("\nplumb node", "node", 20)]
    {
        let rules: Vec<&Value> = all.iter().filter(|it| it["command"] == command).collect();
        assert!(rules.len() > least && rules.is_sorted_by_key(|it| it["id"].as_str()), "{rules:?}");
        let _ = writeln!(expected, "{title}");
        for it in rules {
            let [severity, id, title] = ["severity", "id", "title"].map(|key| it[key].as_str().unwrap());
            let _ = writeln!(expected, "  {severity:<8} {id:<36} {title}");
        }
    }
    let answer = plumb(["rules"]);
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&answer.stdout), words(&expected));
    assert!(answer.stdout.lines().all(|it| it.len() <= 100), "{}", answer.stdout);
    // A pipe gets one line for each rule.
    let mut piped = command(["rules"]);
    piped.env_remove("COLUMNS");
    assert_eq!(finish(piped).stdout, expected);
}

/// Suppressions and scripts name rules by these ids. A release adds its new ones; a rule that is removed needs a line in CHANGELOG.md.
#[test]
fn no_rule_is_lost() {
    let json = plumb(["rules", "--format", "json"]).json();
    let text = |it: &Value| it.as_str().unwrap().to_owned();
    let present: BTreeSet<String> = json["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| format!("{} {}", text(&it["command"]), text(&it["id"])))
        .collect();
    let lost: Vec<&str> =
        include_str!("data/rules.txt").lines().filter(|it| !present.contains(*it)).collect();
    assert!(lost.is_empty(), "these rules are gone: {lost:?}");
}

#[test]
fn explain() {
    let mut snapshots = Snapshots::new("explain");
    for (name, what) in [
        ("rule-socket-fallback", "socket-fallback"),
        ("rule-gpudirect-off", "gpudirect-off"),
        ("variable-nccl-socket-ifname", "NCCL_SOCKET_IFNAME"),
        ("variable-nccl-p2p-level", "NCCL_P2P_LEVEL"),
        ("variable-fi-provider", "FI_PROVIDER"),
        ("word-gpudirect-rdma", "GPUDirect RDMA"),
        ("word-channel", "channel"),
        ("word-pxn", "PXN"),
        ("instance-p5.48xlarge", "p5.48xlarge"),
        ("instance-g6e.12xlarge", "g6e.12xlarge"),
        ("machine-dgx-h100", "dgx-h100"),
        ("gpu-v100", "V100"),
        (
            "line-channel",
            "node-0:1:2 [0] NCCL INFO Channel 00/0 : 3[3] -> 4[0] [send] via NET/Socket/0/GDRDMA",
        ),
        ("line-duplicate-gpu", "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60"),
        ("nothing-known", "socket-fallbakc"),
    ] {
        snapshots.check(name, &shown(&plumb(["explain", what])));
    }
    snapshots.finish();
}

/// The names of the subcommands, as `--help` lists them.
fn subcommands() -> Vec<String> {
    let help = plumb(["--help"]).stdout;
    let lines = help.lines().skip_while(|it| *it != "Commands:").skip(1).take_while(|it| !it.is_empty());
    let names: Vec<String> = lines
        // A line that is further in continues the one above.
        .filter(|it| !it.starts_with("   "))
        .filter_map(|it| it.split_whitespace().next())
        .filter(|it| *it != "help")
        .map(str::to_owned)
        .collect();
    assert!(names.iter().any(|it| it == "doctor"), "{help}");
    names
}

#[test]
fn help() {
    let mut snapshots = Snapshots::new("help");
    snapshots.check("plumb", &shown(&plumb(["--help"])));
    snapshots.check("nothing-given", &shown(&plumb::<&str>([])));
    for name in subcommands() {
        snapshots.check(&format!("plumb-{name}"), &shown(&plumb([&name, "--help"])));
    }
    snapshots.finish();
}

#[test]
fn version() {
    let answer = plumb(["--version"]);
    assert_eq!(answer.stdout, format!("plumb {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions() {
    for (shell, beginning) in
        [("bash", "_plumb() {"), ("zsh", "#compdef plumb"), ("fish", "# Print an optspec")]
    {
        let answer = plumb(["completions", shell]);
        assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{shell}");
        assert!(answer.stdout.starts_with(beginning), "{shell}: {:.80}", answer.stdout);
        for name in subcommands() {
            assert!(answer.stdout.contains(&name), "{shell} does not complete {name}");
        }
    }
    assert_eq!(plumb(["completions", "tcsh"]).code, Some(2));
}

#[test]
fn manual_pages() {
    let page = plumb(["man"]);
    assert_eq!(page.code, Some(0));
    assert!(page.stdout.contains(".TH plumb 1"), "{}", page.stdout);
    for name in subcommands() {
        assert!(page.stdout.contains(&name.replace('-', "\\-")), "plumb(1) does not mention {name}");
        let own = plumb(["man", &name]);
        assert_eq!(own.code, Some(0), "{name}: {own:?}");
        assert!(own.stdout.contains(".TH ") && own.stdout.contains(".SH SYNOPSIS"), "{name}: {}", own.stdout);
    }
    let none = plumb(["man", "nothing"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.stderr.contains("nothing"), "{none:?}");
}
