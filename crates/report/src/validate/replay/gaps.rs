//! What runs did not measure: output that ends early, rows without a bandwidth, machines that are in no whole run.

use std::collections::BTreeMap;

use ::validate::replay::{Gap, Incomplete, Lacks, Replay, Unusable};

use crate::text::{bytes, counted};
use crate::validate::list;

/// Runs that were cut, those that lack the same in one line.
pub(super) fn incomplete(all: &[Incomplete]) -> Vec<String> {
    let mut by_reason: BTreeMap<Lacks, Vec<String>> = BTreeMap::new();
    for it in all {
        by_reason.entry(it.lacks).or_default().push(it.name.clone());
    }
    let lines = by_reason.into_iter().map(|(lacks, names)| {
        let why = match lacks {
            Lacks::Table => {
                "incomplete: the output ends before the table of sizes, and no line reports an error"
                    .to_owned()
            }
            Lacks::Devices => "incomplete: not the same number of GPUs on each machine".to_owned(),
            Lacks::Size(0) => "incomplete: no row of results, and no line reports an error".to_owned(),
            Lacks::Size(size) => format!("no row of {}, the size that is compared", bytes(size)),
        };
        format!("{}: {why}", list(&names, 3))
    });
    lines.collect()
}

/// Rows without a bandwidth, those of one size in one line.
pub(super) fn unusable(all: &[Unusable]) -> Vec<String> {
    let mut by_size: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for it in all {
        by_size.entry(it.bytes).or_default().push(it.name.clone());
    }
    let line = |(size, names): (u64, Vec<String>)| {
        format!(
            "{} failed at {}: the bandwidth is zero, negative, infinite or not a number ({})",
            counted(names.len(), "run"),
            bytes(size),
            list(&names, 8)
        )
    };
    by_size.into_iter().rev().map(line).collect()
}

/// What was not measured because its runs are incomplete, in a sentence each, what weighs most first.
pub(super) fn gaps(replay: &Replay) -> Vec<String> {
    let mut said = Vec::new();
    let hosts = &replay.unmeasured;
    if !hosts.is_empty() {
        let (was, its) = if hosts.len() == 1 { ("was", "its") } else { ("were", "their") };
        said.push(format!("{} {was} not measured: {its} runs are incomplete", list(hosts, 8)));
    }
    let measured = |it: &&Gap| !it.hosts.iter().any(|it| hosts.contains(it));
    let all = replay.gaps();
    let (pairs, others): (Vec<&Gap>, Vec<&Gap>) =
        all.iter().filter(measured).partition(|it| it.hosts.len() == 2);
    said.extend(others.into_iter().map(|it| {
        let who = match &it.hosts[..] {
            [one] if it.all_named => format!("{one} by itself"),
            [one] => format!("{one} by itself or with others"),
            many if many.len() == replay.machines() => format!("all {} machines", many.len()),
            many if it.all_named => format!("{} machines", many.len()),
            many => format!("{} machines or more", many.len()),
        };
        did_not_end(&who, &it.files)
    }));
    said.extend(pair_gaps(pairs));
    said
}

/// The same in one line: the files are named by what they lack, too.
pub(super) fn gaps_in_a_line(gaps: &[String]) -> Option<String> {
    let more = gaps.len().saturating_sub(MOST_GAPS);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    let known: Vec<&str> = gaps.iter().take(MOST_GAPS).map(String::as_str).collect();
    (!known.is_empty()).then(|| format!("{}{more}", known.join("; ")))
}

/// Of machines and pairs without a complete run, so many are named.
pub(super) const MOST_GAPS: usize = 8;

/// Pairs with incomplete runs alone; those that have a machine in common are one sentence.
pub(super) fn pair_gaps(mut pairs: Vec<&Gap>) -> Vec<String> {
    let mut said = Vec::new();
    while let Some(host) = most_common(&pairs) {
        let (own, rest): (Vec<&Gap>, Vec<&Gap>) = pairs.iter().partition(|it| it.hosts.contains(&host));
        if own.len() < 2 {
            break;
        }
        let files: Vec<String> = own.iter().flat_map(|it| it.files.clone()).collect();
        said.push(did_not_end(&format!("{host} with {} others", own.len()), &files));
        pairs = rest;
    }
    said.extend(pairs.into_iter().map(|it| did_not_end(&it.hosts.join(" - "), &it.files)));
    said
}

/// The machine that most of these have.
pub(super) fn most_common(gaps: &[&Gap]) -> Option<String> {
    let mut often: BTreeMap<&String, usize> = BTreeMap::new();
    for host in gaps.iter().flat_map(|it| &it.hosts) {
        *often.entry(host).or_default() += 1;
    }
    often.into_iter().max_by_key(|it| it.1).map(|it| it.0.clone())
}

pub(super) fn did_not_end(who: &str, files: &[String]) -> String {
    let (runs, are) =
        if files.len() == 1 { ("the run".to_owned(), "is") } else { (counted(files.len(), "run"), "are") };
    format!("{runs} of {who} {are} incomplete ({})", list(files, 2))
}
