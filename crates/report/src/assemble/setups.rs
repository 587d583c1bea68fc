//! How long the ranks of a communicator waited for each other.

use std::collections::BTreeMap;

use evidence::{Case, Communicator};

use crate::Setup;

/// Seconds below which no rank's wait is worth a look: processes of one job never start at the same instant.
const SEEN: f64 = 1.0;

/// The setup of every rank that says how long it waited; none if no wait is worth a look.
pub(super) fn of(case: &Case, communicator: &Communicator) -> Vec<Setup> {
    let world = case.world();
    let is_world = world.is_some_and(|it| std::ptr::eq(it, communicator));
    // A process that drives several GPUs has several ranks.
    let mut ranks: BTreeMap<usize, Option<u32>> = BTreeMap::new();
    for (rank, member) in world.into_iter().flat_map(|it| &it.members) {
        ranks.entry(member.process).and_modify(|it| *it = None).or_insert(Some(*rank));
    }
    let setup = |(rank, member): (&u32, &evidence::Member)| {
        let (waited_seconds, quote) = member.facts.waited()?;
        let timings = member.facts.init_timings.as_ref().map(|it| it.value);
        let (file, line) = case.locate(quote);
        Some(Setup {
            rank: *rank,
            world_rank: if is_world { Some(*rank) } else { ranks.get(&member.process).copied().flatten() },
            host: case.processes.get(member.process).map(|it| it.host.to_string()).unwrap_or_default(),
            seconds: timings.map(|it| it.total),
            kernels_seconds: timings.map(|it| it.kernels),
            waited_seconds,
            file: file.to_owned(),
            line,
        })
    };
    let all: Vec<Setup> = communicator.members.iter().filter_map(setup).collect();
    if all.iter().any(|it| it.waited_seconds >= SEEN) { all } else { Vec::new() }
}
