//! Communicators, put together from the lines of their ranks.

use std::collections::BTreeMap;

use crate::absent::Absent;
use crate::facts::{CommFacts, Link};
use crate::nccl::{CommLine, Direction, Phase};
use crate::segment::{Segment, ThreadFacts};
use crate::source::{Quote, Spot};

/// A communicator.
#[derive(Debug, Clone, PartialEq)]
pub struct Communicator {
    /// A name for people: its hash, or what it was split from.
    pub name: Box<str>,
    /// How many ranks it has, if a line says so.
    pub n_ranks: Option<u32>,
    /// The ranks whose lines were read.
    pub members: BTreeMap<u32, Member>,
    /// The communicator it was split from, by its index in [`crate::Case::communicators`].
    pub parent: Option<usize>,
    /// The colour of the split.
    pub color: Option<i64>,
}

/// One rank of a communicator.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// The process, by its index in [`crate::Case::processes`].
    pub process: usize,
    /// What its lines say.
    pub facts: Box<CommFacts>,
    /// Some of its connections could belong to another communicator of the same process:
    /// they carry no name, and count for the newest in which the process has this rank.
    pub guessed: bool,
    /// Other processes whose lines name the same rank of the same communicator: the first few.
    pub claims: Vec<Claim>,
}

/// A process that names a rank which another process has.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The process, by its index in [`crate::Case::processes`].
    pub process: usize,
    /// The line that names the rank.
    pub quote: Quote,
}

impl Member {
    /// How many claims are kept.
    const CLAIMS: usize = 8;

    /// The first line that names rank and communicator.
    pub fn named_by(&self) -> Option<&Quote> {
        let facts = &self.facts;
        facts
            .start
            .as_ref()
            .or(facts.complete.as_ref())
            .or(facts.end.as_ref())
            .or(facts.layout.as_ref().map(|it| &it.quote))
    }

    /// Takes the lines of another segment of the rank.
    fn join(&mut self, later: Self) {
        // One process has one address for the communicator, also where its lines carry different prefixes.
        let address = |it: &Self| it.line().map(|it| it.comm);
        let other = self.process != later.process && address(self) != address(&later);
        if let Some(quote) = later.named_by().filter(|_| other && self.claims.len() < Self::CLAIMS) {
            self.claims.push(Claim { process: later.process, quote: quote.clone() });
        }
        self.facts.merge(*later.facts);
    }

    /// The line that names rank, GPU and communicator.
    pub fn line(&self) -> Option<&CommLine> {
        self.facts.line.as_ref()
    }

    /// Whether the rank finished the setup.
    pub fn is_complete(&self) -> bool {
        self.facts.complete.is_some() || self.facts.end.is_some()
    }
}

impl Communicator {
    /// How NCCL counts nodes, by any rank that says so.
    pub fn n_nodes(&self) -> Option<u32> {
        self.members.values().find_map(|it| it.facts.layout.as_ref()).map(|it| it.value.n_nodes)
    }

    /// Ranks on one node, by any rank that says so.
    pub fn local_ranks(&self) -> Option<u32> {
        self.members.values().filter_map(|it| it.facts.layout.as_ref()).map(|it| it.value.local_ranks).max()
    }

    /// All connections, with the rank that printed each.
    pub fn links(&self) -> impl Iterator<Item = (u32, &Link)> {
        self.members.iter().flat_map(|(rank, it)| it.facts.links.iter().map(move |link| (*rank, link)))
    }

    /// Ranks that were expected and whose lines are missing.
    pub fn absent(&self) -> Absent {
        Absent::new(self.n_ranks.unwrap_or(0), self.members.keys().copied())
    }
}

/// A communicator of one process, before the processes are joined.
#[derive(Debug)]
struct Local {
    process: usize,
    comm: u64,
    first: Spot,
    facts: Box<CommFacts>,
    guessed: bool,
}

impl Local {
    fn rank(&self) -> Option<u32> {
        self.facts
            .line
            .as_ref()
            .map(|it| it.rank)
            .or_else(|| self.facts.layout.as_ref().map(|it| it.value.rank))
    }
}

/// Joins the segments of all processes.
pub(crate) fn join(processes: Vec<(usize, Vec<ThreadFacts>)>) -> Vec<Communicator> {
    let mut locals = Vec::new();
    for (process, threads) in processes {
        locals.extend(of_process(process, threads));
    }
    locals.sort_by_key(|it| it.first);
    group(locals)
}

fn of_process(process: usize, threads: Vec<ThreadFacts>) -> Vec<Local> {
    let mut threads = threads;
    // One thread's segments are in order already.
    let mut segments = match threads.as_mut_slice() {
        [only] => std::mem::take(&mut only.segments),
        _ => threads.into_iter().flat_map(|it| it.segments).collect(),
    };
    segments.sort_by_key(|it| it.first);
    let mut locals: Vec<Local> = Vec::new();
    let mut newest = BTreeMap::new();
    let mut orphans = Vec::new();
    for segment in segments {
        let Some(comm) = segment.comm else {
            orphans.push(segment);
            continue;
        };
        // An address is used again when a communicator is destroyed; the hash distinguishes them.
        let id = |facts: &CommFacts| facts.line.as_ref().map(|it| (it.comm_id, it.parent));
        let first = segment.first;
        let facts = segment.into_facts();
        let last = newest.get(&comm).and_then(|at: &usize| locals.get_mut(*at));
        // The line of its end does not repeat the hash.
        let ends = |facts: &CommFacts| {
            facts.start.is_none()
                && facts.complete.is_none()
                && facts.line.as_ref().is_some_and(|it| it.phase == Phase::End)
        };
        match last.filter(|it| {
            ends(&facts) || id(&it.facts).is_none() || id(&facts).is_none() || id(&it.facts) == id(&facts)
        }) {
            Some(local) => local.facts.merge(*facts),
            None => {
                newest.insert(comm, locals.len());
                locals.push(Local { process, comm, first, facts, guessed: false });
            }
        }
    }
    for orphan in orphans {
        adopt(process, &mut locals, orphan);
    }
    locals
}

/// Finds the communicator of lines that do not name one.
///
/// Connections are made by a fresh thread, at the first collective that needs
/// them. They belong to a communicator whose setup came before and in which
/// this process has the rank that the lines show; of several, to the newest
/// that has no such connections yet.
fn adopt(process: usize, locals: &mut Vec<Local>, orphan: Segment) {
    let first = orphan.first;
    let facts = orphan.into_facts();
    if *facts == CommFacts::default() {
        return;
    }
    let fits =
        |local: &Local| local.first < first && local.rank().is_none_or(|rank| links_of(rank, &facts.links));
    let takes_rings =
        |local: &Local| facts.rings_connected.is_none() || local.facts.rings_connected.is_none();
    // Setups are in the order of the input: search from the newest backwards, up to a limit.
    let mut newest = None;
    let mut fresh = None;
    let mut candidates = 0;
    for (at, local) in locals.iter().enumerate().rev().filter(|it| fits(it.1)).take(64) {
        candidates += 1;
        newest = newest.or(Some(at));
        if fresh.is_none() && takes_rings(local) {
            fresh = Some(at);
        }
        if fresh.is_some() && candidates > 1 {
            break;
        }
    }
    match fresh.or(newest).and_then(|it| locals.get_mut(it)) {
        Some(local) => {
            local.guessed |= candidates > 1;
            local.facts.merge(*facts);
        }
        // A log that begins after the setup.
        None => locals.push(Local { process, comm: 0, first, facts, guessed: true }),
    }
}

/// Whether the rank that printed these links can be `rank`.
fn links_of(rank: u32, links: &[Link]) -> bool {
    links.iter().all(|link| match link.direction {
        Direction::Local | Direction::Send => link.from == rank,
        Direction::Receive => link.to == rank,
    })
}

/// The rank that printed these links, if they agree.
fn rank_of(links: &[Link]) -> Option<u32> {
    let first = links.first()?;
    let rank = if first.direction == Direction::Receive { first.to } else { first.from };
    links_of(rank, links).then_some(rank)
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
enum Key {
    /// A hash that is equal on all ranks.
    Id(u64, u32),
    /// The nth split of this colour from this parent.
    Split(usize, i64, u32, u32),
    /// The nth communicator of this size in its process: old releases print no hash.
    Nth(u32, u32),
    /// Never named.
    Unnamed,
}

fn group(locals: Vec<Local>) -> Vec<Communicator> {
    let mut communicators: Vec<Communicator> = Vec::new();
    let mut indices: BTreeMap<Key, usize> = BTreeMap::new();
    // Where each process's communicator addresses went, and how many of each form it has had.
    let mut addresses: BTreeMap<(usize, u64), usize> = BTreeMap::new();
    let mut ordinals: BTreeMap<(usize, Key), u32> = BTreeMap::new();
    for local in locals {
        let line = local.facts.line.clone();
        let mut ordinal = |key: Key| {
            let n = ordinals.entry((local.process, key)).or_default();
            *n += 1;
            *n - 1
        };
        let parent = line
            .as_ref()
            .and_then(|it| it.parent)
            .and_then(|it| addresses.get(&(local.process, it)).copied());
        let key = match &line {
            Some(line) => match (line.comm_id, parent, line.color) {
                (Some(id), _, _) => Key::Id(id, line.n_ranks),
                (None, Some(parent), color) => {
                    let color = color.unwrap_or(0);
                    Key::Split(
                        parent,
                        color,
                        line.n_ranks,
                        ordinal(Key::Split(parent, color, line.n_ranks, 0)),
                    )
                }
                (None, None, _) => Key::Nth(line.n_ranks, ordinal(Key::Nth(line.n_ranks, 0))),
            },
            None => match &local.facts.layout {
                Some(layout) => Key::Nth(layout.value.n_ranks, ordinal(Key::Nth(layout.value.n_ranks, 0))),
                None => Key::Unnamed,
            },
        };
        let index = *indices.entry(key).or_insert_with(|| {
            let name = match key {
                Key::Id(id, _) => format!("{id:#x}"),
                Key::Split(parent, color, _, _) => {
                    format!(
                        "split of {} by color {color}",
                        communicators.get(parent).map_or("?", |it| &it.name)
                    )
                }
                Key::Nth(n_ranks, nth) => format!("number {} of {n_ranks} ranks", nth + 1),
                Key::Unnamed => "unnamed".to_owned(),
            };
            let n_ranks = match key {
                Key::Id(_, n) | Key::Split(_, _, n, _) | Key::Nth(n, _) => Some(n),
                Key::Unnamed => None,
            };
            communicators.push(Communicator {
                name: name.into(),
                n_ranks,
                members: BTreeMap::new(),
                parent,
                color: line.as_ref().and_then(|it| it.color),
            });
            communicators.len() - 1
        });
        addresses.insert((local.process, local.comm), index);
        let rank = local.rank().or_else(|| rank_of(&local.facts.links));
        let Some(communicator) = communicators.get_mut(index) else { continue };
        // Lines that do not even show a rank get a separate number.
        let rank = rank.unwrap_or_else(|| communicator.members.keys().last().map_or(0, |it| it + 1));
        let member =
            Member { process: local.process, facts: local.facts, guessed: local.guessed, claims: Vec::new() };
        match communicator.members.get_mut(&rank) {
            Some(known) => known.join(member),
            None => {
                communicator.members.insert(rank, member);
            }
        }
    }
    communicators
}
