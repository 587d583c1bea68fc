//! The time of `plumb lint` for a thousand manifests: `cargo bench --bench lint`.
#![expect(clippy::disallowed_methods, reason = "who measures watches it")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const FILES: usize = 1000;
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
    fs::create_dir_all(&folder).expect("a folder");
    for (number, source) in (0..FILES).zip(sources.iter().cycle()) {
        let name = source.file_name().expect("a name").to_string_lossy();
        fs::copy(source, folder.join(format!("{number:04}-{name}"))).expect("a copy");
    }
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let begin = Instant::now();
            let status = Command::new(env!("CARGO_BIN_EXE_plumb"))
                .args(["lint", "--fail-on", "never"])
                .arg(&folder)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .expect("plumb can be started");
            assert!(status.success());
            begin.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "| {FILES} manifests and scripts, one case | time, best of {RUNS} |");
    let _ = writeln!(out, "| --- | --- |");
    let _ = writeln!(out, "| plumb lint | {:.2} s |", times[0]);
}
