//! Variables, who set them, and which ranks have which value where they differ.

use std::collections::{BTreeMap, BTreeSet};

use super::lines::Lines;
use super::numbers;
use crate::html::parts::{self, Cell, Column};
use crate::html::{Html, Tone};
use crate::{Doctor, Environment, SetBy};

/// Variables that give a process or its log a name: other values are meant.
const OWN: [&str; 2] = ["NCCL_HOSTID", "NCCL_DEBUG_FILE"];

/// Variables by name, those that differ between ranks first.
pub(super) fn settings(doctor: &Doctor, lines: &Lines<'_>, html: &mut Html) {
    let all = &doctor.facts.environment;
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for it in all {
        values.entry(&it.name).or_default().insert(&it.value);
    }
    let differs = |it: &Environment| values.get(&*it.name).is_some_and(|it| it.len() > 1);
    let row = |it: &Environment| {
        let who = match it.set_by {
            SetBy::Job => "job",
            SetBy::Manifest => "manifest",
            SetBy::Plugin => "plugin",
        };
        let tone = |it: Cell, name: &str| if OWN.contains(&name) { it } else { it.toned(Tone::Warning) };
        vec![
            Cell::code(it.name.clone()),
            Cell::code(it.value.clone()),
            if differs(it) {
                tone(Cell::new(holders(doctor, it, &it.ranks)), &it.name)
            } else if it.set_by == SetBy::Job && !it.without.is_empty() {
                let noun = if let [_] = *it.without { "rank" } else { "ranks" };
                let verb = if let [_] = *it.without { "prints" } else { "print" };
                let others = format!("{noun} {} {verb} other variables, not this one", numbers(&it.without));
                tone(Cell::new(format!("{}; {others}", holders(doctor, it, &it.having))), &it.name)
            } else if it.set_by == SetBy::Manifest {
                Cell::new("the manifest")
            } else {
                let what = if it.set_by == SetBy::Job { "variables" } else { "it" };
                Cell::new(format!("every process that prints {what}"))
            },
            Cell::new(who),
            Cell::new(it.processes.to_string()),
            lines.cell(&it.evidence.file, it.evidence.line),
        ]
    };
    let mut sorted: Vec<&Environment> = all.iter().collect();
    sorted.sort_by_key(|it| (!differs(it), it.set_by != SetBy::Job || it.without.is_empty()));
    let rows: Vec<Vec<Cell>> = sorted.into_iter().map(row).collect();
    let columns = [
        Column::Text("variable"),
        Column::Text("value"),
        Column::Text("who has it"),
        Column::Text("set by"),
        Column::Number("processes"),
        Column::Text("first seen"),
    ];
    parts::table(html, "Variables that NCCL and its plugins read", &columns, &rows);
}

/// Which ranks, on which hosts, have a value: `rank 0 on node-0`, `1 process on node-1 (rank not known)`.
fn holders(doctor: &Doctor, it: &Environment, ranks: &[u32]) -> String {
    let of_rank = |rank: &u32| doctor.facts.ranks.iter().find(|it| it.rank == *rank).map(|it| &*it.host);
    let named: BTreeSet<&str> = ranks.iter().filter_map(of_rank).filter(|it| !it.is_empty()).collect();
    let mut who = Vec::new();
    if !ranks.is_empty() {
        let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
        let text = format!("{noun} {}", numbers(ranks));
        who.push(if named.is_empty() { text } else { format!("{text} on {}", some(&named)) });
    }
    let others: BTreeSet<&str> = it.hosts.iter().map(|it| &**it).filter(|it| !named.contains(it)).collect();
    if !others.is_empty() {
        let processes = it.processes.saturating_sub(ranks.len()).max(1);
        who.push(format!("{} on {} (rank not known)", count(processes), some(&others)));
    }
    match (who.is_empty(), it.set_by) {
        (false, _) => who.join("; "),
        (true, SetBy::Manifest) => "the manifest".to_owned(),
        (true, _) => count(it.processes),
    }
}

fn count(processes: usize) -> String {
    if processes == 1 { "1 process".to_owned() } else { format!("{processes} processes") }
}

/// Some names: all of a few, the first of many.
fn some(names: &BTreeSet<&str>) -> String {
    let shown: Vec<&str> = names.iter().take(4).copied().collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        n => format!("{} and {n} more", shown.join(", ")),
    }
}
