//! What a folder of runs was to measure, and did not.

use std::collections::{BTreeMap, BTreeSet};

use super::reached::{self, Reached};
use super::{Incomplete, Lacks, Read, Replay, Run};

/// Machines whose runs of one program are incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The machines of each run.
    pub hosts: Vec<String>,
    /// The files.
    pub files: Vec<String>,
    /// Whether these are all machines of the run: output that ends before the table may end among them.
    pub all_named: bool,
}

/// A run with rows that have a size and no bandwidth: it is zero, negative, infinite or not a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    /// The file, with the line where it has several runs.
    pub name: String,
    /// The largest of these sizes.
    pub bytes: u64,
}

impl Unusable {
    pub(super) fn of(read: &Read<'_>) -> Option<Self> {
        let rows = read.test.rows.iter().filter(|it| reached::row(it) == Reached::Unusable);
        Some(Self { bytes: rows.map(|it| it.size).max()?, name: read.name.clone() })
    }
}

/// Machines that incomplete runs name and no other.
pub(super) fn hosts(incomplete: &[Incomplete], measured: &BTreeSet<&str>) -> Vec<String> {
    let named = incomplete.iter().flat_map(|it| &it.hosts).filter(|it| !measured.contains(it.as_str()));
    let distinct: BTreeSet<&String> = named.collect();
    distinct.into_iter().cloned().collect()
}

impl Replay {
    /// Machines with an incomplete run and no complete one of the same kind. A run of all machines that stops before its table counts in
    /// any case: the next one may stop as well.
    pub fn gaps(&self) -> Vec<Gap> {
        let mut gaps: BTreeMap<(&str, &[String]), Gap> = BTreeMap::new();
        for it in &self.incomplete {
            let hangs = it.lacks == Lacks::Table && it.hosts.len() > 1 && it.hosts.len() == self.machines();
            if !hangs && self.is_complete_elsewhere(it) {
                continue;
            }
            let gap = gaps.entry((&it.program, &it.hosts)).or_insert_with(|| Gap {
                hosts: it.hosts.clone(),
                files: Vec::new(),
                all_named: true,
            });
            gap.files.push(it.name.clone());
            gap.all_named &= matches!(it.lacks, Lacks::Size(_));
        }
        gaps.into_values().collect()
    }

    fn is_complete_elsewhere(&self, incomplete: &Incomplete) -> bool {
        let same = |run: &&Run| {
            let names = run.hosts.iter().map(|it| self.fleet.name(*it));
            run.rate.is_some() && names.eq(incomplete.hosts.iter().map(String::as_str))
        };
        let kind = self.sets.iter().filter(|it| {
            it.program == incomplete.program && incomplete.gpus.is_none_or(|gpus| gpus == it.gpus)
        });
        kind.flat_map(|it| &it.runs).any(|it| same(&it))
    }
}
