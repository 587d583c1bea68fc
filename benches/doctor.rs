//! How fast `plumb doctor` is, beside ripgrep on the same file.
//!
//! `cargo bench --bench doctor` builds a log of about 1 GiB from the recordings in `cases/`, reads it with both,
//! and prints a table of ratios. ripgrep counts lines (`rg -c 'NCCL (INFO|WARN)'`); plumb diagnoses. The second
//! table is the time to answer on one small log.
//!
//! The log is that of a job of 1,024 ranks on 128 hosts, their lines interleaved as processes on one stdout would
//! write them. Every rank writes what a rank of the recordings wrote, under a host, a process id and communicator
//! addresses of its own: the setup of its communicators, then one line for each collective, as a run does in which
//! `NCCL_DEBUG_SUBSYS=COLL` was left on. That is how logs of this size come about.
//!
//! Further tables are of logs that are nothing but setups (`setups.rs`): these are the most work for plumb, which keeps
//! what every rank says about every communicator. `cargo bench --bench doctor -- setups` measures these alone.

#![expect(clippy::cast_precision_loss, reason = "sizes and times are printed with three digits")]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[path = "setups.rs"]
mod setups;

const SIZE: u64 = 1 << 30;
const RANKS: usize = 1024;
const RUNS: usize = 5;

/// Logs of setups alone, of about 1 GiB each.
const SETUPS: [setups::Log; 3] = [
    // Every rank with its topology, its search for rings and its tuning tables: 36 kB for each communicator.
    setups::Log {
        name: "4,096 ranks, GRAPH and TUNING",
        recording: "oracle-p5/4x8.log.gz",
        ranks: 4096,
        connect: true,
    },
    setups::Log {
        name: "16,384 ranks, GRAPH and TUNING",
        recording: "oracle-p5/4x8.log.gz",
        ranks: 16_384,
        connect: true,
    },
    // 7 kB for each communicator of each rank, so there are many of them.
    setups::Log { name: "4,096 ranks, short setups", recording: "graph-tuning", ranks: 4096, connect: false },
];

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let plumb = PathBuf::from(env!("CARGO_BIN_EXE_plumb"));
    let mut out = String::new();
    if !std::env::args().any(|it| it == "setups") {
        let large = root.join("target/bench/1GiB.log");
        if fs::metadata(&large).map_or(0, |it| it.len()) < SIZE {
            build(&root, &large)?;
        }
        compare(&mut out, &plumb, &format!("{RANKS} ranks"), &large)?;
    }
    for (number, log) in SETUPS.iter().enumerate() {
        let path = root.join(format!("target/bench/setups-{number}.log"));
        if fs::metadata(&path).is_err() {
            setups::write(&root, log, SIZE, &path)?;
        }
        out.push('\n');
        compare(&mut out, &plumb, log.name, &path)?;
    }
    let small = root.join("cases/healthy-2-nodes");
    let size: u64 = fs::read_dir(&small)?.filter_map(|it| it.ok()?.metadata().ok()).map(|it| it.len()).sum();
    if let Some((time, memory)) = measure(Command::new(&plumb).arg("doctor").arg(&small))? {
        let _ = writeln!(out, "\n| {:.0} kB log | time, best of {RUNS} | memory |", size as f64 / 1000.0);
        let _ = writeln!(out, "| --- | --- | --- |");
        let _ =
            writeln!(out, "| plumb doctor | {:.1} ms | {} MiB |", time.as_secs_f64() * 1000.0, memory / 1024);
    }
    std::io::stdout().write_all(out.as_bytes())
}

/// A table: plumb beside ripgrep on one log.
fn compare(out: &mut String, plumb: &Path, name: &str, log: &Path) -> std::io::Result<()> {
    let bytes = fs::metadata(log)?.len();
    let _ =
        writeln!(out, "| {:.2} GiB, {name} | time, best of {RUNS} | against ripgrep | memory |", gib(bytes));
    let _ = writeln!(out, "| --- | --- | --- | --- |");
    let ripgrep = measure(Command::new("rg").args(["-c", "NCCL (INFO|WARN)"]).arg(log))?;
    let text = measure(Command::new(plumb).arg("doctor").arg(log))?;
    let json = measure(Command::new(plumb).args(["doctor", "--format", "json"]).arg(log))?;
    let base = ripgrep.as_ref().map(|it| it.0);
    for (name, found) in [
        ("rg -c 'NCCL (INFO\\|WARN)'", ripgrep),
        ("plumb doctor", text),
        ("plumb doctor --format json", json),
    ] {
        match found {
            Some((time, memory)) => {
                let ratio =
                    base.map_or("-".to_owned(), |it| format!("{:.2}", time.as_secs_f64() / it.as_secs_f64()));
                let _ = writeln!(
                    out,
                    "| {name} | {:.2} s | {ratio} | {} MiB |",
                    time.as_secs_f64(),
                    memory / 1024
                );
            }
            None => {
                let _ = writeln!(out, "| {name} | not installed | - | - |");
            }
        }
    }
    Ok(())
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1_u64 << 30) as f64
}

/// The best time and the largest memory (KiB) of some runs; `None` where the program is not installed.
fn measure(command: &mut Command) -> std::io::Result<Option<(Duration, u64)>> {
    let mut best: Option<(Duration, u64)> = None;
    // One extra run warms the page cache.
    for run in 0..=RUNS {
        let start = Instant::now();
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(mut child) = child else { return Ok(None) };
        let memory = watch(&mut child)?;
        let time = start.elapsed();
        if run > 0 {
            let (least, most) = best.unwrap_or((time, memory));
            best = Some((least.min(time), most.max(memory)));
        }
    }
    Ok(best)
}

/// Waits for a process; its peak memory in KiB from the kernel (0 if it is not available).
fn watch(child: &mut std::process::Child) -> std::io::Result<u64> {
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|it| it.strip_prefix("VmHWM:"));
        let now = line.and_then(|it| it.trim().trim_end_matches(" kB").trim().parse().ok());
        peak = peak.max(now.unwrap_or(0));
        if child.try_wait()?.is_some() {
            return Ok(peak);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Lines of one rank of a recording: the text before and after `HOST:PID:`, and whether it is the main thread.
struct Model {
    setup: Vec<(Thread, Vec<u8>)>,
    collectives: Vec<(Thread, Vec<u8>)>,
}

enum Thread {
    Main,
    Other(Vec<u8>),
}

fn build(root: &Path, large: &Path) -> std::io::Result<()> {
    let mut models = Vec::new();
    for name in ["graph-tuning", "healthy-8-nodes", "split-communicators", "g6e-4x4-efa", "every-collective"]
    {
        models.extend(models_of(&root.join("cases").join(name))?);
    }
    let collectives: Vec<usize> =
        (0..models.len()).filter(|it| !models[*it].collectives.is_empty()).collect();
    fs::create_dir_all(large.parent().unwrap_or(root))?;
    let partial = large.with_extension("partial");
    let mut out = BufWriter::with_capacity(1 << 20, File::create(&partial)?);
    let mut written = 0_u64;
    let mut step = 0;
    // Ranks write three lines each in turn: first their setup, then collectives.
    while written < SIZE {
        for rank in 0..RANKS {
            let model = &models[rank % models.len()];
            let calls = &models[collectives[rank % collectives.len()]].collectives;
            for line in step * 3..step * 3 + 3 {
                let (thread, rest) = match model.setup.get(line) {
                    Some(it) => (&it.0, &it.1),
                    None => {
                        let it = &calls[(line - model.setup.len()) % calls.len()];
                        (&it.0, &it.1)
                    }
                };
                let mut text = format!("node-{}:{}:", rank / 8, 1000 + rank).into_bytes();
                match thread {
                    Thread::Main => text.extend_from_slice((1000 + rank).to_string().as_bytes()),
                    Thread::Other(tid) => text.extend_from_slice(tid),
                }
                text.extend_from_slice(&with_own_addresses(rest, rank));
                text.push(b'\n');
                out.write_all(&text)?;
                written += text.len() as u64;
            }
        }
        step += 1;
    }
    out.flush()?;
    fs::rename(partial, large)
}

/// The ranks of a recording.
fn models_of(folder: &Path) -> std::io::Result<Vec<Model>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)?.filter_map(|it| Some(it.ok()?.path())).collect();
    files.retain(|it| it.extension().is_some_and(|it| it == "log"));
    files.sort();
    let mut ranks: Vec<(Vec<u8>, Model)> = Vec::new();
    for file in files {
        for line in fs::read(file)?.split(|it| *it == b'\n') {
            let Some(split) = evidence::prefix::Anchor::default().split(line) else { continue };
            let Some(thread) = evidence::prefix::thread(split.thread) else { continue };
            let key = format!("{}:{}", thread.host, thread.pid).into_bytes();
            let place = ranks.iter().position(|it| it.0 == key).unwrap_or_else(|| {
                ranks.push((key, Model { setup: Vec::new(), collectives: Vec::new() }));
                ranks.len() - 1
            });
            let name = if thread.tid == thread.pid {
                Thread::Main
            } else {
                Thread::Other(thread.tid.to_string().into_bytes())
            };
            let rest = line[split.before.len() + split.thread.len()..].to_vec();
            let model = &mut ranks[place].1;
            if split.message.windows(9).any(|it| it == b" opCount ") {
                &mut model.collectives
            } else {
                &mut model.setup
            }
            .push((name, rest));
        }
    }
    Ok(ranks.into_iter().map(|it| it.1).filter(|it| it.setup.len() > 20).collect())
}

/// Addresses differ from process to process: `0x55b638c716f0` gets the rank into its low digits.
fn with_own_addresses(line: &[u8], rank: usize) -> Vec<u8> {
    let mut out = line.to_vec();
    let mut at = 0;
    while let Some(found) = out[at..].windows(2).position(|it| it == b"0x") {
        let start = at + found + 2;
        let end = start + out[start..].iter().take_while(|it| it.is_ascii_hexdigit()).count();
        // A communicator's hash is equal on all ranks, and is longer than an address.
        if (9..=14).contains(&(end - start)) {
            out[end - 4..end].copy_from_slice(format!("{:04x}", (rank * 16) & 0xffff).as_bytes());
        }
        at = end;
    }
    out
}
