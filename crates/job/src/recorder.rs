//! What the dumps of PyTorch's Flight Recorder show when they are compared: the first call that differs between ranks, and
//! who waits for whom.

mod pairs;

use std::collections::{BTreeMap, BTreeSet};

use evidence::Case;
use evidence::recorder::{Call, FlightDump};

use crate::culprit::{FailureKind, FirstFailure};

pub use pairs::Unpaired;

/// What the dumps show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded<'a> {
    /// Ranks made different calls under the same number.
    Differs(Differs<'a>),
    /// Ranks wait for each other, in different process groups.
    Circle(Vec<Wait<'a>>),
    /// Ranks wait in a call that others did not make.
    NotEntered {
        /// The call, and who waits in it.
        wait: Wait<'a>,
        /// Who did not make it: those that wait nowhere, or that have no dump.
        absent: Vec<u32>,
        /// What each of them called last; nothing for a rank without a dump.
        last: BTreeMap<u32, &'a Call>,
        /// Other calls that ranks wait in.
        others: Vec<Wait<'a>>,
    },
    /// A rank waits in a send or a receive, and its peer does not do the other part.
    Unpaired(Unpaired<'a>),
    /// All ranks wait in the same call.
    AllEntered(Wait<'a>),
}

/// A call that differs between ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differs<'a> {
    /// What differs.
    pub what: What,
    /// The call of each rank.
    pub calls: BTreeMap<u32, &'a Call>,
    /// The ranks that differ from most; all where no call has a majority.
    pub odd: Vec<u32>,
}

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The operation.
    Operation,
    /// The number of elements.
    Size,
    /// The type of the elements.
    Type,
}

/// Ranks that wait in one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait<'a> {
    /// The call of the first of them.
    pub call: &'a Call,
    /// Who waits.
    pub waiting: Vec<u32>,
    /// Who did not make the call.
    pub lacks: Vec<u32>,
}

/// The fullest dump of each rank.
pub fn dumps(case: &Case) -> BTreeMap<u32, &FlightDump> {
    let fullness = |it: &FlightDump| {
        let last = it.calls.iter().map(|it| it.sequence).max();
        (last, it.calls.iter().any(|it| it.frame.is_some()), it.calls.len())
    };
    let mut all: BTreeMap<u32, &FlightDump> = BTreeMap::new();
    for dump in &case.dumps {
        let Some(rank) = dump.rank else { continue };
        let known = all.entry(rank).or_insert(dump);
        if fullness(dump) > fullness(known) {
            *known = dump;
        }
    }
    all
}

/// How a process group is called: by its description where it has one.
pub fn group_name(case: &Case, name: &str) -> String {
    let found = case.dumps.iter().flat_map(|it| &it.groups).find(|it| &*it.name == name);
    match found.map(|it| &*it.description) {
        Some("") | None => format!("process group {name}"),
        Some(description) => format!("process group {name} ({description})"),
    }
}

/// Compares the dumps.
pub fn compare(case: &Case) -> Option<Recorded<'_>> {
    let dumps = dumps(case);
    let names: BTreeSet<&str> = dumps.values().flat_map(|it| it.calls.iter().map(|it| &*it.group)).collect();
    let groups: Vec<Group<'_>> = names.into_iter().map(|it| Group::new(it, &dumps)).collect();
    if let Some(differs) = groups.iter().find_map(Group::differs) {
        return Some(Recorded::Differs(differs));
    }
    // The call that fewest ranks lack leads to them most directly.
    let mut waits: Vec<Wait<'_>> = groups.iter().flat_map(Group::waits).collect();
    waits.sort_by_key(|it| it.lacks.len());
    let with_peer = dumps.iter().filter(|it| pairs::waits_for_peer(it.1)).map(|it| *it.0);
    let busy: BTreeSet<u32> =
        waits.iter().flat_map(|it| it.waiting.iter().copied()).chain(with_peer).collect();
    // A rank that waits nowhere is the one that others wait for. After it, one without a dump.
    for has_dump in [true, false] {
        for wait in &waits {
            let absent: Vec<u32> = wait
                .lacks
                .iter()
                .copied()
                .filter(|it| !busy.contains(it) && dumps.contains_key(it) == has_dump)
                .collect();
            if !absent.is_empty() {
                let last = |rank: &u32| Some((*rank, dumps.get(rank)?.calls.last()?));
                let last = absent.iter().filter_map(last).collect();
                let others = waits.iter().filter(|it| *it != wait).cloned().collect();
                return Some(Recorded::NotEntered { wait: wait.clone(), absent, last, others });
            }
        }
    }
    if let Some(first) = pairs::unpaired(&dumps).into_iter().next() {
        return Some(Recorded::Unpaired(first));
    }
    if waits.iter().any(|it| !it.lacks.is_empty()) {
        let circle: Vec<Wait<'_>> = waits.into_iter().filter(|it| !it.lacks.is_empty()).collect();
        return (circle.len() > 1).then_some(Recorded::Circle(circle));
    }
    waits.into_iter().find(|it| it.waiting.len() > 1).map(Recorded::AllEntered)
}

/// The rank that called something else than the others.
pub(crate) fn odd_call(case: &Case) -> Option<FirstFailure> {
    let Some(Recorded::Differs(it)) = compare(case) else { return None };
    let [rank] = it.odd.as_slice() else { return None };
    let what = format!("called {}, unlike the other ranks", it.calls.get(rank)?.describe());
    failure(case, *rank, None, what, FailureKind::Own)
}

/// The rank that the others waited for.
pub(crate) fn absent_rank(case: &Case) -> Option<FirstFailure> {
    // Ranks are an operation apart while a job works: dumps count where something failed, or where there is nothing else.
    let failed = case.endings.iter().any(|it| it.kind.is_death()) || case.processes.is_empty();
    let (wait, absent, last) = match compare(case).filter(|_| failed)? {
        Recorded::NotEntered { wait, absent, last, .. } => (wait, absent, last),
        Recorded::Unpaired(it) if it.elsewhere.is_none() && it.unlike.is_none() => {
            let what =
                format!("does not do its part of {}, in which rank {} waits", it.call.operation, it.rank);
            return failure(case, it.peer, Some(it.rank), what, FailureKind::Absent);
        }
        _ => return None,
    };
    let [rank] = absent.as_slice() else { return None };
    let place = format!("{} number {}", wait.call.operation, wait.call.sequence);
    let (what, kind) = if last.is_empty() {
        (format!("left no flight recorder dump; the others waited for it in {place}"), FailureKind::Absent)
    } else {
        (format!("did not call {place}, in which the others waited"), FailureKind::Behind)
    };
    failure(case, *rank, wait.waiting.first().copied(), what, kind)
}

/// A failure with the dump of the rank or, where it has none, of one that waits.
fn failure(
    case: &Case,
    rank: u32,
    waits: Option<u32>,
    what: String,
    kind: FailureKind,
) -> Option<FirstFailure> {
    let dumps = dumps(case);
    let dump = dumps.get(&rank).or_else(|| dumps.get(&waits?))?;
    let process = case.processes.iter().find(|it| it.rank == Some(rank) && !it.host.is_empty());
    Some(FirstFailure {
        rank: Some(rank),
        host: process.map(|it| it.host.to_string()),
        time: None,
        what,
        quote: dump.quote.clone(),
        certain: dumps.contains_key(&rank),
        kind,
    })
}

/// One process group on all ranks that have a dump.
struct Group<'a> {
    /// The ranks it has, where a dump says so.
    members: BTreeSet<u32>,
    /// Its collectives, by rank and number. A number that comes twice counts as the last call of that number.
    calls: BTreeMap<u32, BTreeMap<u64, &'a Call>>,
}

impl<'a> Group<'a> {
    fn new(name: &str, dumps: &BTreeMap<u32, &'a FlightDump>) -> Self {
        let mut members = BTreeSet::new();
        let mut calls = BTreeMap::new();
        for (rank, dump) in dumps {
            let named = dump.groups.iter().filter(|it| &*it.name == name);
            members.extend(named.flat_map(|it| it.ranks.iter().copied()));
            let own: BTreeMap<u64, &Call> = dump
                .calls
                .iter()
                .filter(|it| &*it.group == name && !it.point_to_point)
                .map(|it| (it.sequence, it))
                .collect();
            if !own.is_empty() {
                members.insert(*rank);
                calls.insert(*rank, own);
            }
        }
        Self { members, calls }
    }

    /// The first call that is not the same on all ranks. Older calls than the buffer of a rank holds cannot be compared.
    fn differs(&self) -> Option<Differs<'a>> {
        let oldest = self.calls.values().filter_map(|it| it.keys().next()).max()?;
        let newest = self.calls.values().filter_map(|it| it.keys().next_back()).max()?;
        let numbers: BTreeSet<u64> =
            self.calls.values().flat_map(|it| it.range(oldest..=newest).map(|it| *it.0)).collect();
        for number in numbers {
            let calls: BTreeMap<u32, &Call> =
                self.calls.iter().filter_map(|(rank, it)| Some((*rank, *it.get(&number)?))).collect();
            let by = |what: What, key: &dyn Fn(&Call) -> String| {
                let mut kinds: BTreeMap<String, Vec<u32>> = BTreeMap::new();
                for (rank, call) in &calls {
                    kinds.entry(key(call)).or_default().push(*rank);
                }
                let most = kinds.values().map(Vec::len).max()?;
                let unique = kinds.values().filter(|it| it.len() == most).count() == 1;
                let odd = kinds.values().filter(|it| !unique || it.len() < most).flatten().copied();
                let mut odd: Vec<u32> = odd.collect();
                odd.sort_unstable();
                (kinds.len() > 1).then(|| Differs { what, calls: calls.clone(), odd })
            };
            let found = by(What::Operation, &|it| it.operation.to_string())
                .or_else(|| by(What::Size, &|it| format!("{:?}", size(it))))
                .or_else(|| by(What::Type, &|it| it.types.to_string()));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The oldest call that some ranks wait in, and who did not make it.
    fn waits(&self) -> Vec<Wait<'a>> {
        let mut first: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (rank, calls) in &self.calls {
            if let Some(call) = calls.values().find(|it| it.waiting) {
                first.entry(call.sequence).or_default().push(*rank);
            }
        }
        let wait = |(number, waiting): (u64, Vec<u32>)| {
            let call = waiting.iter().find_map(|rank| self.calls.get(rank)?.get(&number))?;
            let made = |rank: &u32| {
                self.calls
                    .get(rank)
                    .is_some_and(|it| it.keys().next_back().is_some_and(|last| *last >= number))
            };
            let lacks = self.members.iter().copied().filter(|it| !made(it)).collect();
            Some(Wait { call, waiting, lacks })
        };
        first.into_iter().filter_map(wait).collect()
    }
}

/// The number of elements that must be the same on all ranks; `None` where ranks may differ.
fn size(call: &Call) -> Option<u64> {
    match &*call.operation {
        "all_reduce" | "broadcast" | "reduce" | "_reduce_scatter_base" | "reduce_scatter" | "gather" => {
            call.input_elements
        }
        "_all_gather_base" | "all_gather" | "scatter" => call.output_elements,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use evidence::{Case, read_texts};

    use super::{Recorded, What, compare};

    /// A dump with calls of the whole group: number, operation, elements, type, state.
    fn dump(calls: &[(u32, &str, u32, &str, &str)]) -> String {
        let entries: Vec<String> = calls
            .iter()
            .map(|(number, operation, n, kind, state)| {
                format!(
                    "{{\"pg_id\": 0, \"process_group\": [\"0\", \"default_pg\"], \"collective_seq_id\": {number}, \"profiling_name\": \"nccl:{operation}\", \
                     \"input_sizes\": [[{n}]], \"output_sizes\": [[{n}]], \"input_dtypes\": [\"{kind}\"], \"state\": \"{state}\"}}"
                )
            })
            .collect();
        format!(
            "{{\"pg_config\": {{\"0\": {{\"desc\": \"default_pg\", \"ranks\": \"[0, 1, 2]\"}}}}, \"entries\": [{}]}}",
            entries.join(", ")
        )
    }

    fn case(dumps: &[String]) -> Case {
        let names: Vec<String> = (0..dumps.len()).map(|it| format!("nccl_trace_rank_{it}")).collect();
        read_texts(names.iter().map(String::as_str).zip(dumps.iter().map(String::as_bytes)))
    }

    const DONE: (u32, &str, u32, &str, &str) = (1, "all_reduce", 8, "Float", "completed");
    const WAITS: (u32, &str, u32, &str, &str) = (2, "all_reduce", 8, "Float", "scheduled");

    #[test]
    fn the_rank_that_did_not_call_is_found() {
        let case = case(&[dump(&[DONE, WAITS]), dump(&[DONE]), dump(&[DONE, WAITS])]);
        let Some(Recorded::NotEntered { wait, absent, last, .. }) = compare(&case) else { panic!() };
        assert_eq!((wait.waiting, absent, last[&1].sequence), (vec![0, 2], vec![1], 1));
    }

    #[test]
    fn a_rank_without_a_dump_is_the_one_others_wait_for() {
        let case = case(&[dump(&[DONE, WAITS]), dump(&[DONE, WAITS])]);
        let Some(Recorded::NotEntered { absent, .. }) = compare(&case) else { panic!() };
        assert_eq!(absent, [2]);
    }

    #[test]
    fn calls_that_differ_are_found() {
        for (call, what) in [
            ((2, "all_gather", 8, "Float", "scheduled"), What::Operation),
            ((2, "all_reduce", 16, "Float", "completed"), What::Size),
            ((2, "all_reduce", 8, "Double", "completed"), What::Type),
        ] {
            let case = case(&[dump(&[DONE, WAITS]), dump(&[DONE, call]), dump(&[DONE, WAITS])]);
            let Some(Recorded::Differs(it)) = compare(&case) else { panic!("{call:?}") };
            assert_eq!((it.what, it.odd), (what, vec![1]), "{call:?}");
        }
    }

    #[test]
    fn uneven_exchanges_and_finished_calls_are_right() {
        let done = |n| dump(&[DONE, (2, "all_to_all", n, "Float", "completed")]);
        assert_eq!(compare(&case(&[done(8), done(16), done(4)])), None);
    }

    #[test]
    fn all_wait_in_the_same_call() {
        let it = dump(&[DONE, WAITS]);
        let case = case(&[it.clone(), it.clone(), it]);
        assert!(matches!(compare(&case), Some(Recorded::AllEntered(wait)) if wait.waiting == [0, 1, 2]));
    }
}
