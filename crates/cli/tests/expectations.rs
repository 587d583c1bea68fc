//! What is true of the recordings, however it is worded.
//!
//! Each row is written by hand from the `README.md` of the recording, which says how it was made: not from
//! what `plumb` answers.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::collections::BTreeSet;

use common::{files, plumb, recordings};
use serde_json::Value;

/// What must be found in a recording.
#[derive(Debug, Clone, Copy)]
struct Truth {
    recording: &'static str,
    /// The finding that stands first, where order matters: the cause.
    first: Option<&'static str>,
    /// Findings that must be there.
    found: &'static [&'static str],
    /// Findings that would be false.
    never: &'static [&'static str],
    /// Nothing worse may be found.
    worst: Severity,
    /// The rank that is to blame, and that the answer must name.
    rank: Option<u64>,
    /// No rank is to blame, and the answer must not name one as the first.
    nobody: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    Nothing,
    Info,
    Warning,
    Error,
}

/// Nothing is wrong.
const fn healthy(recording: &'static str) -> Truth {
    Truth { recording, first: None, found: &[], never: &[], worst: Severity::Info, rank: None, nobody: false }
}

/// It failed, for this cause.
const fn failed(recording: &'static str, cause: &'static str) -> Truth {
    Truth {
        recording,
        first: Some(cause),
        found: &[],
        never: &[],
        worst: Severity::Error,
        rank: None,
        nobody: false,
    }
}

/// It works, and this is worth telling.
const fn works(recording: &'static str, worst: Severity, found: &'static [&'static str]) -> Truth {
    Truth { recording, first: None, found, never: &[], worst, rank: None, nobody: false }
}

impl Truth {
    const fn by(mut self, rank: u64) -> Self {
        self.rank = Some(rank);
        self
    }

    const fn by_nobody(mut self) -> Self {
        self.nobody = true;
        self
    }

    const fn also(mut self, found: &'static [&'static str]) -> Self {
        self.found = found;
        self
    }

    const fn never(mut self, ids: &'static [&'static str]) -> Self {
        self.never = ids;
        self
    }

    const fn nothing(mut self) -> Self {
        self.worst = Severity::Nothing;
        self
    }
}

static TRUTHS: &[Truth] = &[
    failed("address-space-limit", "thread-limit").by(1),
    failed("algo-misspelt", "nccl-algorithm-unavailable"),
    failed("algo-not-possible", "nccl-algorithm-unavailable"),
    failed("algo-not-possible-no-debug", "nccl-algorithm-unavailable"),
    failed("algo-not-possible-warn-only", "nccl-algorithm-unavailable"),
    failed("bad-root", "nccl-message"),
    healthy("bench-2-nodes").nothing(),
    healthy("bench-2-nodes-1-channel").nothing(),
    // Nothing in the logs says that the job hangs.
    healthy("blocking-wait"),
    failed("capture-broken", "collective-in-graph-capture").by(1),
    failed("comm-id-elsewhere", "comm-id-not-local").by(0),
    failed("connection-times-out", "firewall-blocks-ports").by(1),
    failed("cpu-tensor", "tensor-not-on-gpu").by(1),
    failed("cuda-after-fork", "cuda-after-fork").by(1),
    failed("destroyed-twice", "nccl-message"),
    failed("desync-debug", "timeout-undetermined").by(3),
    failed("device-assert", "cuda-error-in-program").by(2),
    failed("device-assert-no-debug", "cuda-error-in-program").by(2),
    failed("docker-bridge-interface", "docker-bridge-network").never(&["firewall-blocks-ports"]),
    failed("duplicate-gpu", "duplicate-gpu").never(&["hostname-collision"]),
    works("env-rich", Severity::Warning, &["variable-value-misread"]),
    healthy("every-collective").nothing(),
    works(
        "g6e-4x4-efa",
        Severity::Info,
        &[
            "gpudirect-unsupported",
            "shm-inside-node",
            "protocol-forced-simple",
            "nic-shared-by-gpus",
            "late-ranks",
            "gradient-accumulation-overridden",
            "cpu-threads-with-offload",
        ],
    )
    .never(&["gpudirect-off", "socket-fallback", "p2p-not-available-vm", "plugin-too-old"]),
    // Two runs: neither says enough to call one of them wrong.
    works("g6e-eni-vs-efa", Severity::Warning, &["several-jobs", "shm-inside-node"])
        .never(&["mixed-network-between-ranks"]),
    works("g6e-topo", Severity::Info, &["topology-limited"]),
    failed("gpu-memory-full", "gpu-oom-in-nccl").never(&["gpu-out-of-memory"]),
    healthy("graph-tuning").nothing(),
    healthy("h200-dump").nothing(),
    healthy("h200-topo").nothing(),
    healthy("healthy-1-rank").nothing(),
    healthy("healthy-2-nodes").never(&["loopback-interface-used"]),
    healthy("healthy-2.28.3").nothing(),
    healthy("healthy-4-nodes").nothing(),
    healthy("healthy-40-nodes").nothing(),
    healthy("healthy-8-nodes").nothing(),
    failed("hostname-collision", "hostname-collision"),
    failed("illegal-access", "cuda-error-in-program").by(2),
    failed("illegal-access-warn-only", "cuda-error-in-program").by(2),
    failed("interface-unreachable", "peer-unreachable").by(1),
    failed("killed-by-memory-limit", "host-oom-kill").by(1),
    works("late-rank", Severity::Info, &["late-ranks"]),
    failed("loader-small-shm", "shm-too-small").by(1),
    failed("loopback-between-nodes", "loopback-interface-used").never(&["firewall-blocks-ports"]),
    failed("master-name-unknown", "dns-master-addr"),
    failed("master-no-such-host", "peer-unreachable"),
    // Both ranks wrote to one file, and nothing says which line is whose.
    failed("master-port-in-use", "master-port-in-use"),
    failed("master-refuses", "peer-unreachable"),
    failed("mismatched-buffers", "config-mismatch-between-ranks").by(1),
    failed("mismatched-collectives", "collective-mismatch").by(1),
    failed("mismatched-collectives-detail", "collective-mismatch").by(1),
    // The others hang without a word: that rank 1 calls something else cannot be known for sure.
    failed("mismatched-collectives-early", "timeout-undetermined"),
    // The log shows which two disagree, not which of them is right.
    failed("mismatched-sizes", "collective-mismatch").by(2),
    failed("mismatched-sizes-detail", "collective-mismatch").by(1),
    // No tool can find this in such a log.
    healthy("mismatched-sizes-unnoticed").nothing(),
    failed("mismatched-versions", "nccl-version-mismatch"),
    failed("missing-interface", "socket-ifname-not-found").by(0),
    failed("missing-interface-one-rank", "socket-ifname-not-found").by(1),
    failed("module-missing", "fatal-python-error"),
    failed("monitored-barrier", "rank-never-joined").by(3),
    failed("more-ranks-than-gpus", "more-ranks-than-gpus").by(1),
    failed("mpirun-exit-3", "peer-process-died").by(1),
    // Who sent SIGKILL is not in the log; that memory ran out is the usual reason.
    failed("mpirun-killed", "host-oom-kill").by(3).also(&["peer-process-died"]),
    failed("mpirun-segfault", "fatal-python-error").by(2),
    failed("nan-check", "cuda-error-in-program").by(1),
    failed("net-ib-forced", "network-not-available"),
    failed("net-unknown", "network-not-available"),
    // That the processes ended is what came of it.
    failed("network-cut", "timeout-undetermined"),
    healthy("no-destroy"),
    failed("no-gpu-visible", "gpu-not-available"),
    failed("no-gpu-visible-one-rank", "gpu-not-available").by(1),
    failed("no-route-to-host", "peer-unreachable").by(1),
    failed("null-buffer", "tensor-not-on-gpu"),
    failed("open-files-run-out-later", "fd-limit").by(0),
    // The program finds a wrong sum; that a type differs is not in the log.
    failed("other-type", "fatal-python-error"),
    works("p4d-4-pods", Severity::Warning, &["gpudirect-missing-on-another-rank", "one-gpu-of-many"])
        .never(&["gpudirect-off", "gpudirect-unsupported", "nic-shared-by-gpus"]),
    works("p4d-pod-spec", Severity::Warning, &["unknown-variable"])
        .never(&["shm-too-small", "memlock-limit"]),
    healthy("p4d-topo").nothing(),
    healthy("p5-topo").nothing(),
    failed("plugin-missing", "ofi-plugin-not-loaded"),
    failed("plugin-missing-net-forced", "ofi-plugin-not-loaded"),
    works("plugin-without-symbols", Severity::Warning, &["net-plugin-unusable"]),
    failed("program-out-of-gpu-memory", "gpu-out-of-memory").by(1),
    failed("proto-misspelt", "nccl-algorithm-unavailable"),
    failed("rank-aborts-group", "fatal-python-error").by(1),
    failed("rank-calls-late", "timeout-undetermined").by(0),
    failed("rank-dies", "peer-process-died").by(2),
    failed("rank-exits", "peer-process-died").by(2),
    failed("rank-hangs-init", "rank-never-joined").by(3),
    failed("rank-killed-no-debug", "peer-process-died").by(2),
    failed("rank-never-calls", "timeout-undetermined").by(3),
    failed("rank-never-comes", "rank-never-joined").by(3),
    failed("rank-quits-silently", "peer-process-died").by(2),
    failed("rank-raises", "fatal-python-error").by(2),
    failed("rank-raises-no-debug", "fatal-python-error").by(2),
    failed("rank-segfaults", "peer-process-died").by(2),
    failed("rank-stopped", "timeout-undetermined").by(2),
    failed("rank-terminated", "peer-process-died").by(2),
    failed("ras-other-collective", "ras-counts-differ").by(1),
    failed("ras-rank-killed", "peer-process-died").by(2),
    failed("ras-rank-never-calls", "ras-counts-differ").by(3),
    failed("ras-rank-stopped", "ras-rank-missing").by(2),
    // Rank 2 was stopped for a while.
    works("ras-status", Severity::Warning, &["ras-rank-missing"]).by(2),
    works("ras-status-mismatch", Severity::Warning, &["ras-rank-missing"]).by(2),
    failed("recorder-group", "collective-not-entered").by(3),
    healthy("recorder-healthy"),
    failed("recorder-network-cut", "collective-stuck"),
    failed("recorder-order-swapped", "collective-mismatch"),
    failed("recorder-other-collective", "collective-mismatch").by(1),
    failed("recorder-other-size", "collective-mismatch").by(1),
    failed("recorder-other-type", "collective-mismatch").by(2),
    failed("recorder-rank-never-calls", "collective-not-entered").by(3),
    failed("recorder-rank-stopped", "collective-not-entered").by(2),
    healthy("recorder-running"),
    failed("recorder-send-alone", "collective-not-entered").by(0),
    failed("recorder-size-unnoticed", "collective-mismatch").by(1),
    failed("recorder-uneven-steps", "collective-not-entered").by(1),
    healthy("socket-family-mixed"),
    healthy("split-communicators").nothing(),
    failed("thread-limit", "thread-limit").by(1),
    healthy("timestamps-on").nothing(),
    failed("tiny-shm", "shm-too-small"),
    failed("too-many-open-files", "fd-limit"),
    failed("topo-file-malformed", "topo-file-malformed"),
    works("topo-file-missing", Severity::Warning, &["topo-file-missing"]).never(&["topo-file-malformed"]),
    failed("torchrun-exit-3", "peer-process-died").by(1),
    // Ended from outside.
    failed("torchrun-interrupted", "job-failed").by_nobody(),
    failed("torchrun-no-script", "fatal-python-error"),
    failed("torchrun-node-missing", "rank-never-joined"),
    failed("torchrun-restarts", "cuda-error-in-program").by(2).never(&["loopback-interface-used"]),
    failed("torchrun-segfault", "fatal-python-error").by(2),
    failed("torchrun-terminated", "job-failed").by_nobody(),
    healthy("trace-calls").nothing(),
    healthy("trainer-log").nothing(),
    healthy("training-1-rank").nothing(),
    healthy("training-2-nodes").nothing(),
    healthy("training-2-nodes-1-channel").nothing(),
    healthy("training-lightning").nothing(),
    healthy("training-state").nothing(),
    healthy("training-state-small-batch").nothing(),
    healthy("under-mpirun"),
    failed("under-mpirun-failure", "fatal-python-error").by(2),
    healthy("under-mpirun-timestamps"),
    healthy("under-mpirun4"),
    healthy("under-mpirun4-timestamps"),
    healthy("under-torchrun"),
    failed("under-torchrun-failure", "fatal-python-error").by(2),
    failed("under-torchrun-killed", "host-oom-kill").by(2).also(&["peer-process-died"]),
    failed("uneven-steps", "rank-finished-early").by(1).never(&["peer-process-died"]),
    failed("unused-parameters", "fatal-python-error"),
    healthy("validate-4-nodes").nothing(),
    healthy("version-only").nothing(),
    failed("warn-only", "socket-ifname-not-found"),
];

fn severity(name: &str) -> Severity {
    match name {
        "error" => Severity::Error,
        "warning" => Severity::Warning,
        "info" => Severity::Info,
        other => panic!("`{other}` is no severity"),
    }
}

fn doctor(paths: Vec<String>) -> (Option<i32>, Value) {
    let options = ["doctor", "--format", "json"].map(str::to_owned);
    let answer = plumb(options.into_iter().chain(paths));
    (answer.code, answer.json())
}

fn findings(json: &Value) -> &[Value] {
    json["findings"].as_array().map_or(&[], Vec::as_slice)
}

fn id(finding: &Value) -> &str {
    finding["id"].as_str().unwrap_or_default()
}

/// Whether the first finding, or what is said about who failed first, names this rank.
fn blames(json: &Value, rank: u64) -> bool {
    if let Some(first) = json["facts"]["first_failure"]["rank"].as_u64() {
        return first == rank;
    }
    let entities = json["findings"][0]["entities"].as_array().cloned().unwrap_or_default();
    let name = Value::from(rank.to_string());
    entities.iter().any(|it| it["kind"] == "rank" && it["name"] == name)
}

/// Everything that is wrong with an answer.
fn errors(truth: &Truth) -> Vec<String> {
    let (code, json) = doctor(files(truth.recording));
    let found: Vec<&str> = findings(&json).iter().map(id).collect();
    let mut errors = Vec::new();
    if let Some(first) = truth.first.filter(|it| found.first() != Some(it)) {
        errors.push(format!("{first} is the cause and should stand first"));
    }
    for id in truth.found.iter().filter(|it| !found.contains(*it)) {
        errors.push(format!("{id} should be found"));
    }
    for id in truth.never.iter().filter(|it| found.contains(*it)) {
        errors.push(format!("{id} is not true"));
    }
    for it in findings(&json) {
        if severity(it["severity"].as_str().unwrap_or_default()) > truth.worst {
            errors.push(format!("{} is worse than it is: {}", id(it), it["message"]));
        }
    }
    if let Some(rank) = truth.rank.filter(|rank| !blames(&json, *rank)) {
        errors.push(format!("rank {rank} is to blame, not {}", json["facts"]["first_failure"]["rank"]));
    }
    if truth.nobody && !json["facts"]["first_failure"]["rank"].is_null() {
        errors.push(format!("no rank is to blame: {}", json["facts"]["first_failure"]));
    }
    let failed = truth.worst == Severity::Error;
    if failed != (code == Some(1)) {
        errors.push(format!("exit code {code:?}"));
    }
    if !errors.is_empty() {
        errors.push(format!("found: {found:?}"));
    }
    errors
}

#[test]
fn every_recording_is_answered_as_it_was_made() {
    let mut wrong = String::new();
    for truth in TRUTHS {
        for error in errors(truth) {
            wrong += &format!("{}: {error}\n", truth.recording);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_recording_has_a_row() {
    let rows: Vec<&str> = TRUTHS.iter().map(|it| it.recording).collect();
    assert_eq!(rows, recordings(), "one row per recording, sorted by name");
}

#[test]
fn every_id_of_the_table_is_a_rule() {
    let json = plumb(["rules", "--format", "json"]).json();
    let rules: BTreeSet<&str> =
        json["rules"].as_array().unwrap().iter().filter_map(|it| it["id"].as_str()).collect();
    for truth in TRUTHS {
        for id in truth.first.iter().chain(truth.found).chain(truth.never) {
            assert!(rules.contains(id), "{}: {id} is not a rule", truth.recording);
        }
    }
}

/// The why of a finding.
fn why<'a>(json: &'a Value, wanted: &str) -> &'a str {
    let found = findings(json).iter().find(|it| id(it) == wanted);
    found.and_then(|it| it["why"].as_str()).unwrap_or_else(|| panic!("{wanted} is not found"))
}

/// A finding about a path states what it costs, or what is normal where nothing can be done.
#[test]
fn paths_are_priced() {
    let (_, json) = doctor(files("p4d-4-pods"));
    for rule in ["one-gpu-of-many", "gpudirect-missing-on-another-rank"] {
        assert!(why(&json, rule).contains("Expected loss: all_reduce of 1 GiB on 4 "), "{rule}");
    }
    let (_, json) = doctor(files("g6e-4x4-efa"));
    for rule in ["shm-inside-node", "gpudirect-unsupported"] {
        assert!(why(&json, rule).starts_with("Normal here: all_reduce of 1 GiB on 4 "), "{rule}");
    }
}

/// Four ranks, each alone on its node and all on the same GPU: these are four machines, not four pods of one.
#[test]
fn machines_of_their_own_lose_nothing() {
    let wanted = ["4x1.log.gz", "p4d.xml"];
    let given = files("oracle-p4d").into_iter().filter(|it| wanted.iter().any(|end| it.ends_with(end)));
    let (code, json) = doctor(given.collect());
    assert_eq!((code, findings(&json).len()), (Some(0), 0), "{json:#}");
}

/// From a version alone nothing can be decided, and that is no success.
#[test]
fn nearly_nothing_is_not_ok() {
    let (code, json) = doctor(files("version-only"));
    assert_eq!((code, &json["verdict"]["level"]), (Some(2), &Value::from("unknown")));
}

/// A page that describes a log, and quotes it, stands beside many logs. It may add settings and commands, but
/// findings that the log shows cite the log, and keep their order.
#[test]
fn a_page_beside_a_log_is_not_taken_for_the_log() {
    let mut wrong = String::new();
    for name in recordings() {
        let (_, alone) = doctor(files(&name));
        let (_, beside) = doctor(vec![format!("cases/{name}")]);
        let mut wanted: Vec<&str> = findings(&alone).iter().map(id).collect();
        let beside: Vec<&Value> = findings(&beside).iter().filter(|it| wanted.contains(&id(it))).collect();
        let by_log =
            |it: &&Value| it["evidence"][0]["file"].as_str().is_some_and(|it| !it.ends_with("README.md"));
        let by_log: BTreeSet<&str> = beside.iter().filter(|it| by_log(it)).map(|it| id(it)).collect();
        for it in beside.iter().filter(|it| !by_log.contains(id(it))) {
            wrong += &format!("{name}: {}: {} is shown by {}\n", id(it), it["message"], it["evidence"][0]);
        }
        // A page may add findings of a kind that the log shows as well.
        let mut order: Vec<&str> = beside.into_iter().map(id).collect();
        order.dedup();
        wanted.dedup();
        if order != wanted {
            wrong += &format!("{name}: {wanted:?} became {order:?}\n");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
