//! The time of `plumb lint` for a thousand files, and for single files of 840 KB: `cargo bench --bench lint`.
//!
//! The single files have one thing many times, so that work that grows with the square of the input shows.
#![expect(clippy::disallowed_methods, reason = "who measures watches it")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const FILES: usize = 1000;
const BYTES: usize = 840_000;
const RUNS: usize = 5;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources: Vec<PathBuf> = ["good", "bad"]
        .iter()
        .flat_map(|it| fs::read_dir(root.join("tests/manifests").join(it)).expect("the manifests"))
        .map(|it| it.expect("an entry").path())
        .collect();
    sources.sort();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-lint");
    let _ = fs::remove_dir_all(&folder);
    let many = folder.join("many");
    fs::create_dir_all(&many).expect("a folder");
    for (number, source) in (0..FILES).zip(sources.iter().cycle()) {
        let name = source.file_name().expect("a name").to_string_lossy();
        fs::copy(source, many.join(format!("{number:04}-{name}"))).expect("a copy");
    }
    let mut inputs = vec![(format!("{FILES} manifests and scripts"), many)];
    for (name, text) in large() {
        let path = folder.join(format!("{}.yaml", name.replace(' ', "-")));
        fs::write(&path, text).expect("a file");
        inputs.push((format!("one file of 840 KB: {name}"), path));
    }
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "| plumb lint | time, best of {RUNS} |");
    let _ = writeln!(out, "| --- | --- |");
    for (name, path) in inputs {
        let best = (0..RUNS).map(|_| measure(&path)).fold(f64::INFINITY, f64::min);
        let _ = writeln!(out, "| {name} | {best:.2} s |");
    }
}

fn measure(path: &Path) -> f64 {
    let begin = Instant::now();
    let status = Command::new(env!("CARGO_BIN_EXE_plumb"))
        .args(["lint", "--fail-on", "never"])
        .arg(path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("plumb can be started");
    assert!(status.success());
    begin.elapsed().as_secs_f64()
}

fn large() -> [(&'static str, String); 4] {
    let container = "  - {name: c, image: 'x:1', resources: {limits: {nvidia.com/gpu: 1}}}\n";
    let variable = |number: usize| format!("    - {{name: NCCL_X{number}, value: '1'}}\n");
    let job = |number: usize| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j{number}}}\nspec:\n  completions: 4\n  parallelism: 4\n  \
             template:\n    spec:\n      containers:\n      - name: c\n        image: x:1\n        env:\n        - \
             {{name: MASTER_ADDR, value: j{number}-0.svc}}\n        resources: {{limits: {{nvidia.com/gpus: 8}}}}\n---\n"
        )
    };
    let pod = |number: usize| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{number}}}\nspec:\n  nodeSelector: \
             {{node.kubernetes.io/instance-type: p5.48xlarge}}\n  containers:\n  - name: c\n    image: x:1\n    env:\n    - \
             {{name: NCCL_PROTO, value: simple}}\n    command: [torchrun, --nnodes=2, --nproc-per-node=8, train.py]\n    \
             resources: {{limits: {{nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 32}}}}\n---\n"
        )
    };
    let head = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n";
    let own = "  - name: c\n    image: x:1\n    resources: {limits: {nvidia.com/gpu: 8}}\n    env:\n";
    [
        ("jobs", repeated("", job)),
        ("pods", repeated("", pod)),
        ("containers of one pod", repeated(head, |_| container.to_owned())),
        ("unknown variables of one container", repeated(&format!("{head}{own}"), variable)),
    ]
}

fn repeated(head: &str, part: impl Fn(usize) -> String) -> String {
    let mut text = head.to_owned();
    for number in 0.. {
        if text.len() >= BYTES {
            break;
        }
        text.push_str(&part(number));
    }
    text
}
