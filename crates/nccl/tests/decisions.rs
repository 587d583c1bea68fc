//! Every line real NCCL printed about its channels, compared with what is decided here.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::jobs::{Job, jobs};
use fabric::Version;
use nccl::{Communicator, Layout, Prediction, Settings};

/// The kinds of lines that are compared.
const KINDS: [&str; 8] =
    ["Pattern", "channel", "Channel", "Ring", "Tree", "Trees", "NVLS Head", "coll channels"];

/// The kind of a line, `None` for any other.
fn kind(message: &str) -> Option<&'static str> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if message.starts_with("Pattern ") {
        return Some("Pattern");
    }
    if message.starts_with("Trees [") {
        return Some("Trees");
    }
    if message.contains(" coll channels, ") {
        return Some("coll channels");
    }
    if message.starts_with("NVLS Head ") {
        return Some("NVLS Head");
    }
    let (head, rest) = message.split_once(" :")?;
    if digits(head.trim_start()) && (rest.starts_with(" NET/") || rest.starts_with(" GPU/")) {
        return Some("channel");
    }
    let (word, number) = head.split_once(' ')?;
    match word {
        "Channel" if rest.trim_start().bytes().all(|it| it.is_ascii_digit() || b" .".contains(&it)) => {
            Some("Channel")
        }
        "Ring" if digits(number) => Some("Ring"),
        "Tree" if digits(number) => Some("Tree"),
        _ => None,
    }
}

/// Of each rank its lines of each kind, in their order.
type Lines = BTreeMap<usize, HashMap<&'static str, Vec<String>>>;

fn told(text: &str) -> Lines {
    let mut rank_of = HashMap::new();
    let mut lines = Lines::new();
    for line in text.lines() {
        let Some((process, message)) = line.split_once(" NCCL INFO ") else { continue };
        let thread = process.split(' ').next().unwrap_or("").to_owned();
        if message.contains("Init START") {
            let rank = message.split(" rank ").nth(1).and_then(|it| it.split(' ').next()).expect("a rank");
            rank_of.insert(thread.clone(), rank.parse::<usize>().expect("a number"));
        }
        if let (Some(kind), Some(rank)) = (kind(message), rank_of.get(&thread)) {
            lines.entry(*rank).or_default().entry(kind).or_default().push(message.to_owned());
        }
    }
    lines
}

fn decided(communicator: &Communicator, rank: usize) -> HashMap<&'static str, Vec<String>> {
    let mut lines: HashMap<&'static str, Vec<String>> = HashMap::new();
    let mut all = communicator.graph_lines(rank);
    if rank == 0 {
        all.extend(communicator.ring_lists());
    }
    all.extend(communicator.ring_lines(rank));
    all.extend(communicator.tree_lines(rank));
    all.push(communicator.trees_line(rank));
    if communicator.node_of_rank[rank] == 0 {
        all.extend(communicator.nvls_head_lines());
    }
    for line in all {
        lines.entry(kind(&line).expect("a known kind")).or_default().push(line);
    }
    lines
}

/// Whether a line of the log is this one. NCCL cuts a line at 1,023 bytes, with what stands before the message.
fn same(told: &str, decided: &str) -> bool {
    told.trim_end() == decided.trim_end() || (told.len() > 900 && decided.starts_with(told))
}

type Counts = BTreeMap<&'static str, (usize, usize)>;

/// The line with the numbers of channels of a rank, where it is compared.
type Numbers<'a> = &'a dyn Fn(usize) -> Option<String>;

fn compare(communicator: &Communicator, numbers: Numbers<'_>, text: &str) -> (Counts, Vec<String>) {
    let (mut counts, mut wrong) = (Counts::new(), Vec::new());
    for (rank, told) in told(text) {
        let mut decided = decided(communicator, rank);
        let line = numbers(rank);
        let compared = KINDS.into_iter().filter(|it| *it != "coll channels" || line.is_some());
        decided.extend(line.clone().map(|it| ("coll channels", vec![it])));
        for kind in compared {
            let none = Vec::new();
            let (told, decided) = (told.get(kind).unwrap_or(&none), decided.get(kind).unwrap_or(&none));
            let count = counts.entry(kind).or_insert((0, 0));
            for row in 0..told.len().max(decided.len()) {
                count.1 += 1;
                match (told.get(row), decided.get(row)) {
                    (Some(told), Some(decided)) if same(told, decided) => count.0 += 1,
                    (told, decided) => {
                        wrong.push(format!("rank {rank}: NCCL {told:?}\n        here {decided:?}"));
                    }
                }
            }
        }
    }
    (counts, wrong)
}

/// Adds to what is counted, and keeps the first lines that differ.
fn count(all: &mut (Counts, Vec<String>), name: &str, (counts, wrong): (Counts, Vec<String>)) {
    for (kind, (equal, compared)) in &counts {
        let sum = all.0.entry(kind).or_insert((0, 0));
        *sum = (sum.0 + equal, sum.1 + compared);
    }
    if !wrong.is_empty() {
        all.1.push(format!("{name}: {counts:?}"));
        all.1.extend(wrong.into_iter().take(4).map(|it| format!("    {it}")));
    }
}

/// Compares one job.
fn compare_job(job: &Job) -> (Counts, Vec<String>) {
    let prediction = job.predict();
    let counts = |rank: usize| prediction.channels_line(rank as u64);
    compare(&prediction.communicator, &counts, &job.text())
}

#[test]
fn every_line_of_every_release_is_as_nccl_printed_it() {
    let jobs = jobs();
    let next = AtomicUsize::new(0);
    let all = Mutex::new((Counts::new(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let compared = compare_job(job);
                    count(&mut all.lock().expect("no panic"), &job.name, compared);
                }
            });
        }
    });
    let all = all.into_inner().expect("no panic");
    println!("{} jobs: {:?}", jobs.len(), all.0);
    assert!(all.1.is_empty(), "{}", all.1.join("\n"));
    let part = std::env::var_os("PLUMB_ONLY").is_some();
    assert!(part || all.0.values().map(|it| it.0).sum::<usize>() > 100_000);
}

/// Ranks that share one GPU, each a node of its own: nothing is a stand-in there.
#[test]
fn every_line_of_real_jobs_is_as_nccl_printed_it() {
    let xml = common::case("oracle-one-gpu-nodes/one-gpu-nodes.xml");
    let machine = evidence::topology::read(xml.as_bytes()).expect("a topology").machine;
    let settings = Settings::new(Version::new(2, 28, 9)).with("NCCL_NET", "Socket");
    let mut all = (Counts::new(), Vec::new());
    for nodes in [2, 3, 4, 5, 8, 16] {
        let layout = Layout::new(1, 1).on(nodes);
        let mut job = nccl::Job::new(&machine, &layout, &settings);
        job.settings_are_complete = true;
        let prediction = Prediction::new(&job).expect("a job that fits");
        let counts = |rank: usize| prediction.channels_line(rank as u64);
        let text = common::case(&format!("oracle-one-gpu-nodes/{nodes}-nodes.gz"));
        count(&mut all, &format!("{nodes} nodes"), compare(&prediction.communicator, &counts, &text));
    }
    println!("{:?}", all.0);
    assert!(all.1.is_empty(), "{}", all.1.join("\n"));
    assert_eq!(all.0["coll channels"], (38, 38));
}
