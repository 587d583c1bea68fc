//! Every line real NCCL printed about its channels, compared with what is decided here.

mod common;

use std::collections::{BTreeMap, HashMap};

use common::{Recording, oracle_machine, recordings, releases};
use nccl::{Abilities, Communicator};

/// The kinds of lines that are compared.
const KINDS: [&str; 6] = ["Pattern", "channel", "Channel", "Ring", "Tree", "Trees"];

/// The kind of a line, `None` for any other.
fn kind(message: &str) -> Option<&'static str> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if message.starts_with("Pattern ") {
        return Some("Pattern");
    }
    if message.starts_with("Trees [") {
        return Some("Trees");
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
    for line in all {
        lines.entry(kind(&line).expect("a known kind")).or_default().push(line);
    }
    lines
}

/// Whether a line of the log is this one. NCCL cuts a line at 1,023 bytes, with what stands before the message.
fn same(told: &str, decided: &str) -> bool {
    told.trim_end() == decided.trim_end() || (told.len() > 900 && decided.starts_with(told))
}

fn compare(recording: &Recording) -> (BTreeMap<&'static str, (usize, usize)>, Vec<String>) {
    let machine = oracle_machine(recording.machine);
    let abilities = Abilities { multicast: Some(false), collnet: false };
    let communicator = Communicator::new(&recording.job(), &machine, abilities).expect("a job that fits");
    let (mut counts, mut wrong) = (BTreeMap::new(), Vec::new());
    for (rank, told) in told(&recording.text) {
        let decided = decided(&communicator, rank);
        for kind in KINDS {
            let none = Vec::new();
            let (told, decided) = (told.get(kind).unwrap_or(&none), decided.get(kind).unwrap_or(&none));
            let count = counts.entry(kind).or_insert((0, 0));
            for row in 0..told.len().max(decided.len()) {
                count.1 += 1;
                match (told.get(row), decided.get(row)) {
                    (Some(told), Some(decided)) if same(told, decided) => count.0 += 1,
                    (told, decided) => {
                        wrong.push(format!("rank {rank}: NCCL {told:?}\n        here {decided:?}"))
                    }
                }
            }
        }
    }
    (counts, wrong)
}

#[test]
fn every_line_is_as_nccl_printed_it() {
    let mut all = Vec::new();
    for recording in recordings().into_iter().chain(releases()) {
        let (counts, wrong) = compare(&recording);
        let shown: Vec<String> =
            counts.iter().map(|(kind, it)| format!("{kind} {}/{}", it.0, it.1)).collect();
        println!("{} {} {}: {}", recording.version, recording.machine, recording.name, shown.join(", "));
        for it in wrong.iter().take(6) {
            println!("    {it}");
        }
        all.extend(wrong);
    }
    assert!(all.is_empty(), "{} lines differ", all.len());
}
