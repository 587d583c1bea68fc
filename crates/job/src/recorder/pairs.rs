//! Sends and receives that have no partner.
//!
//! PyTorch records `send 0->1` and `recv 1<-0`, with ranks of the process group (`ProcessGroupNCCL::send` and `recv`). Between two
//! ranks of a group the nth send belongs to the nth receive. Their numbers cannot be compared: each rank counts those with all its
//! peers.

use std::collections::BTreeMap;

use evidence::recorder::{Call, FlightDump};

/// A send or receive that waits for a rank which does not do its part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpaired<'a> {
    /// Who waits.
    pub rank: u32,
    /// In which call.
    pub call: &'a Call,
    /// For whom.
    pub peer: u32,
    /// The call of the peer that should fit and does not: another number or type of elements.
    pub unlike: Option<&'a Call>,
    /// What the peer waits in instead.
    pub elsewhere: Option<&'a Call>,
}

/// One end of a send or receive, with ranks of the whole job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Direction {
    from: u32,
    to: u32,
}

/// The sends or the receives of one rank with one peer, oldest first.
struct Side<'a> {
    calls: Vec<&'a Call>,
    /// The first that waits.
    waits: Option<usize>,
    /// Nothing before the first was dropped from the buffer.
    whole: bool,
}

/// The first call that a rank waits in, of any kind.
pub(super) fn waits_in(dump: &FlightDump) -> Option<&Call> {
    (0..dump.calls.len()).find(|at| is_waiting(dump, *at)).and_then(|at| dump.calls.get(at))
}

/// Whether a rank waits in a send or a receive.
pub(super) fn waits_for_peer(dump: &FlightDump) -> bool {
    waits_in(dump).is_some_and(|it| it.point_to_point)
}

/// Calls of a batch have no state of their own: the `coalesced` call after them has.
fn is_waiting(dump: &FlightDump, at: usize) -> bool {
    let Some(call) = dump.calls.get(at).filter(|it| it.waiting) else { return false };
    let done = |it: &Call| &*it.operation == "coalesced" && it.group == call.group && !it.waiting;
    !call.point_to_point || !dump.calls.iter().skip(at).any(done)
}

/// The sends, or the receives, of a rank by direction.
fn sides(rank: u32, dump: &FlightDump, sends: bool) -> BTreeMap<(&str, Direction), Side<'_>> {
    let mut all: BTreeMap<(&str, Direction), Side<'_>> = BTreeMap::new();
    for (at, call) in dump.calls.iter().enumerate().filter(|it| it.1.point_to_point) {
        let Some(peer) = peer(dump, call, sends) else { continue };
        let direction =
            if sends { Direction { from: rank, to: peer } } else { Direction { from: peer, to: rank } };
        let oldest =
            dump.calls.iter().filter(|it| it.point_to_point && it.group == call.group).map(|it| it.sequence);
        let side = all.entry((&*call.group, direction)).or_insert_with(|| Side {
            calls: Vec::new(),
            waits: None,
            whole: oldest.min().is_some_and(|it| it <= 1),
        });
        if side.waits.is_none() && is_waiting(dump, at) {
            side.waits = Some(side.calls.len());
        }
        side.calls.push(call);
    }
    all
}

/// The rank at the other end, as a rank of the whole job.
fn peer(dump: &FlightDump, call: &Call, sends: bool) -> Option<u32> {
    let (word, arrow) = if sends { ("send ", "->") } else { ("recv ", "<-") };
    let other: usize = call.operation.strip_prefix(word)?.split_once(arrow)?.1.trim().parse().ok()?;
    let group = dump.groups.iter().find(|it| it.name == call.group)?;
    group.ranks.get(other).copied()
}

/// Sends and receives without a partner: those whose peer waits nowhere first.
pub(super) fn unpaired<'a>(dumps: &BTreeMap<u32, &'a FlightDump>) -> Vec<Unpaired<'a>> {
    let mut found = Vec::new();
    for (rank, dump) in dumps {
        for sends in [true, false] {
            for ((group, direction), side) in sides(*rank, dump, sends) {
                let Some(call) = side.waits.and_then(|at| side.calls.get(at).copied()) else { continue };
                let peer = if sends { direction.to } else { direction.from };
                let Some(other) = dumps.get(&peer) else { continue };
                let theirs = sides(peer, other, !sends).remove(&(group, direction));
                let unlike = match &theirs {
                    None => None,
                    Some(theirs) => {
                        let at = if side.whole && theirs.whole { side.waits } else { theirs.waits };
                        match at.and_then(|at| theirs.calls.get(at).copied()) {
                            None => None,
                            Some(partner) if fits(call, partner, sends) => continue,
                            Some(partner) => Some(partner),
                        }
                    }
                };
                let elsewhere = waits_in(other);
                found.push(Unpaired { rank: *rank, call, peer, unlike, elsewhere });
            }
        }
    }
    found.sort_by_key(|it| (it.elsewhere.is_some(), it.rank));
    found
}

/// Whether a send and a receive have the same number and type of elements, as far as both say so.
fn fits(call: &Call, partner: &Call, sends: bool) -> bool {
    let (send, receive) = if sends { (call, partner) } else { (partner, call) };
    let sizes = (send.input_elements, receive.output_elements.or(receive.input_elements));
    let types = send.types == receive.types || send.types.is_empty() || receive.types.is_empty();
    types && !matches!(sizes, (Some(a), Some(b)) if a != b)
}

#[cfg(test)]
mod tests {
    use evidence::{Case, read_texts};

    use super::super::{Recorded, compare};

    /// A dump of a group of ranks 4 and 6: operation, number, elements, state.
    fn dump(calls: &[(&str, u32, u32, &str)]) -> String {
        let entry = |(operation, number, n, state): &(&str, u32, u32, &str)| {
            let p2p = !operation.starts_with("all_");
            format!(
                "{{\"process_group\": [\"1\", \"pipe\"], \"collective_seq_id\": {number}, \"p2p_seq_id\": {number}, \"is_p2p\": {p2p}, \
                 \"profiling_name\": \"nccl:{operation}\", \"input_sizes\": [[{n}]], \"output_sizes\": [[{n}]], \"input_dtypes\": [\"Float\"], \
                 \"state\": \"{state}\"}}"
            )
        };
        let entries: Vec<String> = calls.iter().map(entry).collect();
        format!(
            "{{\"pg_config\": {{\"1\": {{\"desc\": \"pipe\", \"ranks\": \"[4, 6]\"}}}}, \"entries\": [{}]}}",
            entries.join(", ")
        )
    }

    fn case(four: &[(&str, u32, u32, &str)], six: &[(&str, u32, u32, &str)]) -> Case {
        let (four, six) = (dump(four), dump(six));
        read_texts([("nccl_trace_rank_4", four.as_bytes()), ("nccl_trace_rank_6", six.as_bytes())])
    }

    #[test]
    fn a_send_that_nobody_receives() {
        let case = case(
            &[("send 0->1", 1, 8, "completed"), ("send 0->1", 2, 8, "scheduled")],
            &[("recv 1<-0", 1, 8, "completed")],
        );
        let Some(Recorded::Unpaired(it)) = compare(&case) else { panic!("{:?}", compare(&case)) };
        assert_eq!((it.rank, it.peer, it.unlike, it.elsewhere), (4, 6, None, None));
    }

    #[test]
    fn both_send_and_nobody_receives() {
        let case = case(&[("send 0->1", 1, 8, "scheduled")], &[("send 1->0", 1, 8, "scheduled")]);
        let Some(Recorded::Unpaired(it)) = compare(&case) else { panic!() };
        assert_eq!((it.rank, it.peer, it.elsewhere.map(|it| &*it.operation)), (4, 6, Some("send 1->0")));
    }

    #[test]
    fn a_receive_of_another_size() {
        let case = case(&[("send 0->1", 1, 8, "scheduled")], &[("recv 1<-0", 1, 16, "scheduled")]);
        let Some(Recorded::Unpaired(it)) = compare(&case) else { panic!() };
        assert_eq!(it.unlike.and_then(|it| it.output_elements), Some(16));
    }

    #[test]
    fn a_rank_that_sends_instead_of_the_collective() {
        let case = case(&[("send 0->1", 1, 8, "scheduled")], &[("all_reduce", 1, 8, "scheduled")]);
        let Some(Recorded::Unpaired(it)) = compare(&case) else { panic!("{:?}", compare(&case)) };
        assert_eq!((it.rank, it.peer, it.elsewhere.map(|it| &*it.operation)), (4, 6, Some("all_reduce")));
    }

    #[test]
    fn pairs_and_finished_batches_are_right() {
        let pair = case(&[("send 0->1", 1, 8, "scheduled")], &[("recv 1<-0", 1, 8, "scheduled")]);
        assert_eq!(compare(&pair), None);
        let batch = |word: &'static str| [(word, 1, 8, "scheduled"), ("coalesced", 1, 8, "completed")];
        assert_eq!(compare(&case(&batch("send 0->1"), &[])), None);
        assert_eq!(compare(&case(&batch("send 0->1"), &batch("recv 1<-0"))), None);
    }
}
