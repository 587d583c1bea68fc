//! Ranks that ended as a program should while others still waited for them.

use std::collections::BTreeSet;

use evidence::signals::collectives::WATCHDOG_TIMEOUT;
use evidence::signals::ended::{CLOSED, REMOTE_ERROR};
use evidence::{Case, Member, Quote};

/// Ranks that left early, and those that they left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftEarly<'a> {
    /// Who destroyed its communicators and ended.
    pub ranks: Vec<u32>,
    /// The line of the first of them that says so.
    pub quote: &'a Quote,
    /// Who timed out or lost a connection afterwards.
    pub waiting: Vec<u32>,
}

/// Whether a rank destroyed its communicator, as a program does at its end. After a failure it is aborted instead.
pub fn ended_well(member: &Member) -> bool {
    destroyed(member).is_some()
}

fn destroyed(member: &Member) -> Option<&Quote> {
    member.facts.end.as_ref().filter(|it| it.text.contains("Destroy COMPLETE"))
}

/// Ranks of the largest communicator that ended well, where others of it wait for ever.
pub fn left_early(case: &Case) -> Option<LeftEarly<'_>> {
    let world = case.world()?;
    let gone: Vec<(u32, &Quote)> =
        world.members.iter().filter_map(|(rank, it)| Some((*rank, destroyed(it)?))).collect();
    let waits = [&WATCHDOG_TIMEOUT, &CLOSED, &REMOTE_ERROR];
    let waiting: BTreeSet<u32> = case
        .sightings
        .iter()
        .filter(|it| waits.contains(&it.signal))
        .filter_map(|it| case.rank_of(it))
        .filter(|rank| world.members.get(rank).is_some_and(|it| it.facts.end.is_none()))
        .collect();
    let ranks: Vec<u32> = gone.iter().map(|it| it.0).collect();
    let quote = gone.first()?.1;
    (!waiting.is_empty()).then(|| LeftEarly { ranks, quote, waiting: waiting.into_iter().collect() })
}

#[cfg(test)]
mod tests {
    use super::left_early;
    use crate::testing::case;

    const SETUP: &str = "a:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init COMPLETE\n\
                         b:2:2 [0] NCCL INFO ncclCommInitRank comm 0x2 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init COMPLETE\n";
    const CLOSED: &str = "[2026-11-15 02:54:41] a:1:2 [0] misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer b<5>\n";

    fn end(word: &str) -> String {
        format!("b:2:2 [0] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 0 busId 1000 - {word} COMPLETE\n")
    }

    #[test]
    fn a_rank_that_ends_well_while_another_waits() {
        let case = case(&format!("{SETUP}{}{CLOSED}", end("Destroy")));
        let it = left_early(&case).unwrap();
        assert_eq!((it.ranks, it.waiting), (vec![1], vec![0]));
    }

    #[test]
    fn an_abort_and_a_job_that_nobody_waits_in_are_not_it() {
        assert_eq!(left_early(&case(&format!("{SETUP}{}{CLOSED}", end("Abort")))), None);
        assert_eq!(left_early(&case(&format!("{SETUP}{}", end("Destroy")))), None);
    }
}
