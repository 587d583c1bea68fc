//! Runs whose results are wrong, and the machines that explain them.

use std::collections::{BTreeMap, BTreeSet};

use super::Run;
use crate::fleet::Host;

/// Machines whose results are wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// One machine where the runs tell it from its partners, otherwise all machines of a run.
    pub hosts: Vec<Host>,
    /// Runs of all of them with wrong results,
    pub runs: usize,
    /// of how many.
    pub of: usize,
    /// Runs of some of them without the others whose results are right.
    pub right_apart: usize,
    /// The files of the wrong runs.
    pub files: Vec<String>,
}

impl Wrong {
    fn new(hosts: Vec<Host>, all: &[&Run]) -> Self {
        let of = |it: &&&Run| hosts.iter().all(|host| it.hosts.contains(host));
        let some = |it: &&&Run| hosts.iter().any(|host| it.hosts.contains(host));
        let together: Vec<&&Run> = all.iter().filter(of).collect();
        let wrong: Vec<&&&Run> = together.iter().filter(|it| it.wrong).collect();
        let right_apart = all.iter().filter(|it| some(it) && !of(it) && !it.wrong).count();
        let files = wrong.iter().map(|it| it.name.clone()).collect();
        Self { runs: wrong.len(), of: together.len(), right_apart, files, hosts }
    }

    fn explains(&self, run: &Run) -> bool {
        self.hosts.iter().all(|it| run.hosts.contains(it))
    }
}

/// The fewest machines that explain every wrong run.
pub(super) fn judge(all: &[&Run]) -> Vec<Wrong> {
    let mut open: Vec<&Run> = all.iter().copied().filter(|it| it.wrong).collect();
    open.sort_by_key(|it| it.hosts.len());
    let mut found: Vec<Wrong> = Vec::new();
    while let Some(smallest) = open.first().copied() {
        let hosts = match smallest.hosts.len() {
            1 => smallest.hosts.clone(),
            2 => wrong_with_several(&open).map_or_else(|| not_cleared(smallest, all), |it| vec![it]),
            _ => smallest.hosts.clone(),
        };
        let next = Wrong::new(hosts, all);
        open.retain(|it| !next.explains(it));
        found.push(next);
    }
    found
}

/// The machine that is wrong with most partners, at least two.
fn wrong_with_several(open: &[&Run]) -> Option<Host> {
    let mut partners: BTreeMap<Host, BTreeSet<Host>> = BTreeMap::new();
    for run in open {
        if let [one, other] = run.hosts[..] {
            partners.entry(one).or_default().insert(other);
            partners.entry(other).or_default().insert(one);
        }
    }
    let most = partners.iter().map(|it| it.1.len()).max().filter(|it| *it > 1)?;
    let mut worst = partners.iter().filter(|it| it.1.len() == most);
    // Of two that are wrong equally often, neither is told from the other.
    worst.next().filter(|_| worst.next().is_none()).map(|it| *it.0)
}

/// The machines of a wrong pair, without one that is right with others while the other was not measured with anybody else.
fn not_cleared(pair: &Run, all: &[&Run]) -> Vec<Host> {
    let right_with_others = |host: &Host| {
        let without =
            |it: &&&Run| it.hosts.contains(host) && !pair.hosts.iter().all(|host| it.hosts.contains(host));
        all.iter().filter(without).any(|it| !it.wrong && it.rate.is_some())
    };
    let doubted: Vec<Host> = pair.hosts.iter().copied().filter(|it| !right_with_others(it)).collect();
    if doubted.is_empty() { pair.hosts.clone() } else { doubted }
}
