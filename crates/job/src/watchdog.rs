//! What PyTorch's watchdog reports about collectives that did not end.

use std::collections::BTreeMap;

use evidence::signals::collectives::{TIMEOUT_STATUS, WATCHDOG_TIMEOUT, WORK_STATUS};
use evidence::{Case, Sighting};

/// A collective that timed out on a rank.
///
/// `SeqNum=4, OpType=ALLREDUCE, NumelIn=65536, NumelOut=65536, Timeout(ms)=15000`
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    /// The rank that reported it.
    pub rank: Option<u32>,
    /// `SeqNum`: the same number is the same collective on every rank.
    pub sequence: Option<u64>,
    /// `ALLREDUCE`
    pub operation: &'a str,
    /// `NumelIn`
    pub elements: Option<u64>,
    /// The time limit in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The line.
    pub sighting: &'a Sighting,
}

/// The collectives that timed out, in the order of the input.
pub fn timeouts(case: &Case) -> Vec<Work<'_>> {
    let read = |sighting| {
        let text = Sighting::get(sighting, "work");
        let field = |name: &str| {
            let (_, rest) = text.split_once(name)?;
            Some(rest.split([',', ')']).next().unwrap_or(rest).trim())
        };
        Work {
            rank: case.rank_of(sighting),
            sequence: field("SeqNum=").and_then(|it| it.parse().ok()),
            operation: field("OpType=").unwrap_or_default(),
            elements: field("NumelIn=").and_then(|it| it.parse().ok()),
            timeout_ms: field("Timeout(ms)=").and_then(|it| it.parse().ok()),
            sighting,
        }
    };
    case.sightings_of(&WATCHDOG_TIMEOUT).map(read).collect()
}

/// The last collective of a rank.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The number of the last collective it had enqueued.
    pub enqueued: i64,
    /// The line.
    pub sighting: &'a Sighting,
}

/// The last collective of each rank at its first report, in the process group that most ranks report about.
pub fn progress(case: &Case) -> BTreeMap<u32, Progress<'_>> {
    let mut groups: BTreeMap<&str, BTreeMap<u32, Progress<'_>>> = BTreeMap::new();
    for sighting in
        case.sightings.iter().filter(|it| *it.signal == WORK_STATUS || *it.signal == TIMEOUT_STATUS)
    {
        let (Some(rank), Ok(enqueued)) = (rank(case, sighting), sighting.get("enqueued").parse()) else {
            continue;
        };
        groups
            .entry(group(&sighting.quote.text))
            .or_default()
            .entry(rank)
            .or_insert(Progress { enqueued, sighting });
    }
    groups.into_values().max_by_key(BTreeMap::len).unwrap_or_default()
}

/// `[rank3]:`, or the rank of the process group where that is all there is.
fn rank(case: &Case, sighting: &Sighting) -> Option<u32> {
    case.rank_of(sighting).or_else(|| {
        let (_, rest) = sighting.quote.text.split_once("[PG ")?;
        rest.split(']').next()?.rsplit("Rank ").next()?.trim().parse().ok()
    })
}

/// `ID 0 PG GUID 0(default_pg)` of `[PG ID 0 PG GUID 0(default_pg) Rank 3]`
fn group(text: &str) -> &str {
    text.split_once("[PG ").and_then(|it| it.1.split_once(" Rank ")).map_or("", |it| it.0)
}

#[cfg(test)]
mod tests {
    use super::{progress, timeouts};
    use crate::testing::case;

    #[test]
    fn reads_timeouts_of_every_age() {
        for (line, sequence, rank) in [
            (
                "[E ProcessGroupNCCL.cpp:485] [Rank 6] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802246 milliseconds before timing out.",
                None,
                6,
            ),
            (
                "[rank3]:[E1115 02:53:14.4 ProcessGroupNCCL.cpp:689] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=65536, NumelOut=65536, Timeout(ms)=15000) ran for 15082 milliseconds before timing out.",
                Some(4),
                3,
            ),
        ] {
            let case = case(line);
            let all = timeouts(&case);
            assert_eq!(
                (all[0].sequence, all[0].operation, all[0].rank),
                (sequence, "ALLREDUCE", Some(rank)),
                "{line}"
            );
        }
    }

    #[test]
    fn reads_how_far_ranks_came() {
        let case = case(
            "[rank7]:[E1129 11:56:57.6 ProcessGroupNCCL.cpp:1834] [PG ID 0 PG GUID 0(default_pg) Rank 7] Timeout at NCCL work: 6, last enqueued NCCL work: 6, last completed NCCL work: 5.\n\
             [rank3]:[E1115 02:53:17.3 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 3] Received a dump signal due to a collective timeout from  rank 1 and we will try our best to dump the debug info. Last enqueued NCCL work: 3, last completed NCCL work: 3.This is most likely\n",
        );
        let all = progress(&case);
        assert_eq!((all[&7].enqueued, all[&3].enqueued), (6, 3));
    }
}
