//! How many layouts `plumb plan` searches in a second, beside Calculon in the same run: `cargo bench -p forecast --bench plan`.
//!
//! Calculon is cloned to `target/peers/calculon` with its packages in `target/peers/calculon-venv`; `-- --calculon FOLDER` names a
//! checkout and `-- --python PROGRAM` a Python that has numpy, pandas and psutil. `-- --alone` measures plumb only.
#![expect(clippy::disallowed_methods, reason = "who measures watches it")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use forecast::plan::{Fixed, Found, Search, Space};
use forecast::training::{Calibration, Job};

/// What Calculon's search of 175B on 512 GPUs evaluates (`llm-optimal-execution`, commit caa4b11).
const CALCULON_SPACE: u64 = 6_582_816;
/// How often a short search is repeated.
const REPEATED: u32 = 50;
/// How long Calculon is measured.
const SECONDS: &str = "30";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|it| it == name)?;
        arguments.get(at + 1).cloned()
    };
    let mut out = std::io::stdout().lock();
    let _ =
        writeln!(out, "| search | layouts | threads | time | CPU time | layouts per second of CPU time |");
    let _ = writeln!(out, "| --- | --- | --- | --- | --- | --- |");
    let mut row = |name: &str, threads: usize, layouts: u64, spent: Spent| {
        let Spent { wall, cpu } = spent;
        #[allow(clippy::cast_precision_loss, reason = "a rate")]
        let rate = layouts as f64 / cpu;
        let _ = writeln!(out, "| {name} | {layouts} | {threads} | {wall:.2} s | {cpu:.2} s | {rate:.0} |");
    };
    let gpt = job("gpt-3-175b", 64, 1536);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for threads in [1, cores] {
        // Often enough for a clock of hundredths of a second.
        let begin = Begin::now();
        let searched = (0..REPEATED).map(|_| search(&gpt, threads).searched).sum();
        let name = format!("plumb, 175B on 512 A100: its whole space, {REPEATED} times");
        row(&name, threads, searched, begin.spent());
    }
    // As many layouts as Calculon's space has: the same job with one batch after the other.
    let begin = Begin::now();
    let (mut searched, mut batches) = (0, 0);
    for batch in (1..).map(|it| it * 96) {
        if searched >= CALCULON_SPACE {
            break;
        }
        searched += search(&job("gpt-3-175b", 64, batch), cores).searched;
        batches += 1;
    }
    let name = format!("plumb, the same with {batches} batch sizes");
    row(&name, cores, searched, begin.spent());
    let large = job("llama-3.1-405b", 12_500, 100_000);
    let begin = Begin::now();
    let searched = (0..REPEATED).map(|_| search(&large, cores).searched).sum();
    let name = format!("plumb, 405B on 100,000 A100: its whole space, {REPEATED} times");
    row(&name, cores, searched, begin.spent());
    if arguments.iter().any(|it| it == "--alone") {
        return;
    }
    let peers = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("peers");
    let folder = option("--calculon").map_or_else(|| clone(&peers), PathBuf::from);
    let python = option("--python").unwrap_or_else(|| environment(&peers));
    let it = calculon(&python, &folder);
    row("Calculon, a sample of its space of 175B on 512 A100", 1, it.evaluated, it.spent);
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    let hours = it.space as f64 / (it.evaluated as f64 / it.spent.cpu) / 3600.0;
    let _ = writeln!(
        out,
        "\nCalculon's whole space is {} layouts: {hours:.1} h on one core at this rate; {} of those evaluated could run.",
        it.space, it.good
    );
}

fn job(model: &str, nodes: u32, batch: u32) -> Job {
    let text = format!(
        "[model]\nname = '{model}'\n[cluster]\ngpu = 'A100-80GB'\ngpus_per_node = 8\nnodes = {nodes}\nintra = 'nvlink3'\n\
         inter = {{ kind = 'infiniband', nics = 8, gbps = 200 }}\n[run]\nglobal_batch = {batch}\n"
    );
    Job::read(&text).expect("a job")
}

/// The search of `plumb plan`, once, with this many threads.
fn search(job: &Job, threads: usize) -> Found {
    let Ok(space) = Space::new(job, &Fixed::default(), None) else { return Found::default() };
    let calibration = Calibration::published();
    let search = Search::new(&calibration, &space, 0.05);
    let part = |first: usize| {
        let cells = space.cells().iter().skip(first).step_by(threads);
        cells.map(|it| search.cell(it)).fold(Found::default(), Found::merge)
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|it| scope.spawn(move || part(it))).collect();
        others.into_iter().fold(part(0), |found, it| found.merge(it.join().expect("a thread ends")))
    })
}

fn ran(command: &mut Command) -> String {
    let shown = format!("{command:?}");
    let output = command.output().unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert!(output.status.success(), "{shown}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A checkout of Calculon.
fn clone(peers: &Path) -> PathBuf {
    let folder = peers.join("calculon");
    if !folder.exists() {
        ran(Command::new("git")
            .args(["clone", "--quiet", "https://github.com/calculon-ai/calculon"])
            .arg(&folder));
    }
    folder
}

/// A Python with the packages that Calculon imports.
fn environment(peers: &Path) -> String {
    let folder = peers.join("calculon-venv");
    let python = folder.join("bin/python");
    if !folder.join("installed").exists() {
        ran(Command::new("python3").args(["-m", "venv"]).arg(&folder));
        ran(Command::new(&python).args(["-m", "pip", "install", "--quiet", "numpy", "pandas", "psutil"]));
        std::fs::write(folder.join("installed"), "").expect("a file");
    }
    python.to_string_lossy().into_owned()
}

/// Time that passed, and time that this process computed.
#[derive(Clone, Copy)]
struct Spent {
    wall: f64,
    cpu: f64,
}

struct Begin {
    wall: Instant,
    cpu: f64,
}

impl Begin {
    fn now() -> Self {
        Self { wall: Instant::now(), cpu: cpu() }
    }

    fn spent(&self) -> Spent {
        Spent { wall: self.wall.elapsed().as_secs_f64(), cpu: cpu() - self.cpu }
    }
}

/// Seconds that all threads of this process computed: the fields utime and stime of `/proc/self/stat`, in hundredths.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").expect("the times of this process");
    let fields: Vec<f64> = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|it| it.parse().ok())
        .collect();
    fields.iter().sum::<f64>() / 100.0
}

struct Calculon {
    space: u64,
    evaluated: u64,
    good: u64,
    spent: Spent,
}

fn calculon(python: &str, folder: &Path) -> Calculon {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/peers/calculon.py");
    let text = ran(Command::new(python).arg(script).arg(folder).args([
        "models/gpt3-175B.json",
        "systems/a100_80g.json",
        "512",
        "1536",
        SECONDS,
    ]));
    let answer: serde_json::Value = serde_json::from_str(text.trim()).expect("one JSON object");
    let count = |name: &str| answer[name].as_u64().expect("a count");
    Calculon {
        space: count("space"),
        evaluated: count("evaluated"),
        good: count("good"),
        spent: Spent {
            wall: answer["seconds"].as_f64().expect("seconds"),
            cpu: answer["cpu_seconds"].as_f64().expect("seconds"),
        },
    }
}
