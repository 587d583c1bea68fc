//! Sentences about calls, and the findings of `collective-mismatch` that dumps show.

use std::collections::BTreeMap;

use evidence::Quote;
use evidence::recorder::Call;
use evidence::signals::collectives::{TIMEOUT_STATUS, WATCHDOG_TIMEOUT};
use job::State;
use job::recorder::{Differs, Recorded, Unpaired, Wait, What, compare, dumps, group_name};

use crate::sentence::list_of_ranks;
use crate::{Confidence, Finding, Log, Severity};

/// Calls that differ between ranks.
pub(crate) fn mismatch(log: &Log) -> Option<Finding> {
    match compare(&log.case)? {
        Recorded::Differs(it) => Some(differs(log, &it)),
        Recorded::Circle(waits) => Some(circle(log, &waits)),
        Recorded::Unpaired(it) => Some(unlike(log, &it, it.unlike?)),
        Recorded::NotEntered { .. } | Recorded::AllEntered(_) => None,
    }
}

fn differs(log: &Log, it: &Differs<'_>) -> Finding {
    let say = |call: &Call| match it.what {
        What::Operation => format!("called {}", call.operation),
        What::Size => format!("gave {} elements", call.input_elements.unwrap_or_default()),
        What::Type => format!("gave elements of type {}", call.types),
    };
    let mut kinds: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (rank, call) in &it.calls {
        kinds.entry(say(call)).or_default().push(*rank);
    }
    let mut kinds: Vec<(String, Vec<u32>)> = kinds.into_iter().collect();
    // The odd ones first.
    kinds.sort_by_key(|(_, ranks)| (ranks.len(), ranks.first().copied()));
    let parts: Vec<String> =
        kinds.iter().take(3).map(|(what, ranks)| format!("{} {what}", list_of_ranks(ranks))).collect();
    let first = it.odd.first().and_then(|rank| it.calls.get(rank));
    let name = first.map_or_else(String::new, |call| group_name(&log.case, &call.group));
    let number = first.map_or(0, |call| call.sequence);
    let operation = match (it.what, first) {
        (What::Operation, _) | (_, None) => "collective".to_owned(),
        (_, Some(call)) => call.operation.to_string(),
    };
    let place = first.map_or_else(String::new, |call| at(call));
    let message = format!("{operation} number {number} of {name} differs: {}{place}", parts.join(", "));
    about(log, Finding::new(Confidence::Certain, message), &it.odd, it.calls.keys().copied())
        .fix("Make all ranks of the process group call the same collective with the same number and type of elements here: a branch that depends on the rank or on the data, a last batch of another size, or a tensor that only one rank converts.")
}

fn circle(log: &Log, waits: &[Wait<'_>]) -> Finding {
    let parts: Vec<String> = waits
        .iter()
        .take(3)
        .map(|it| {
            format!(
                "{} in {} number {} of {} for {}",
                list_of_ranks(&it.waiting),
                it.call.operation,
                it.call.sequence,
                group_name(&log.case, &it.call.group),
                list_of_ranks(&it.lacks)
            )
        })
        .collect();
    let message = format!("ranks use process groups in different orders: {}", parts.join("; "));
    let mut ranks: Vec<u32> =
        waits.iter().flat_map(|it| it.waiting.iter().chain(&it.lacks).copied()).collect();
    ranks.retain(|it| waits.iter().any(|wait| wait.lacks.contains(it)));
    ranks.sort_unstable();
    ranks.dedup();
    about(
        log,
        Finding::new(Confidence::Certain, format!("{message} (each waits for the other)")),
        &ranks,
        ranks.iter().copied(),
    )
    .fix("Call the collectives of different process groups in the same order on all ranks.")
}

/// A send and a receive that do not fit each other.
fn unlike(log: &Log, it: &Unpaired<'_>, other: &Call) -> Finding {
    let say = |call: &Call| format!("{}{}", call.describe(), at(call));
    let message =
        format!("rank {} calls {} and rank {} calls {}", it.rank, say(it.call), it.peer, say(other));
    let ranks = [it.rank, it.peer];
    about(log, Finding::new(Confidence::Certain, message), &ranks, ranks.iter().copied()).fix(
        "Send and receive the same number and type of elements: the shape that a stage of the pipeline sends must be the one that the next \
         stage expects.",
    )
}

/// ` (train.py:124)`, where the dump has the line of the program.
pub(super) fn at(call: &Call) -> String {
    call.frame.as_ref().map_or_else(String::new, |it| format!(" ({}:{}, {})", it.file, it.line, it.function))
}

/// Adds the ranks, their hosts, their dumps and what their logs say of the timeout.
pub(super) fn about(log: &Log, finding: Finding, ranks: &[u32], shown: impl Iterator<Item = u32>) -> Finding {
    let mut finding = ranks.iter().take(16).fold(finding, |it, rank| it.about_rank(*rank));
    for process in log.case.processes.iter().filter(|it| it.rank.is_some_and(|it| ranks.contains(&it))) {
        finding = finding.about_host(&process.host);
    }
    let dumps = dumps(&log.case);
    let mut order: Vec<u32> = ranks.iter().copied().chain(shown).collect();
    order.truncate(64);
    let quotes: Vec<&Quote> = order.iter().filter_map(|it| Some(&dumps.get(it)?.quote)).collect();
    finding = finding.seen_all(quotes.into_iter().take(3));
    let timeouts =
        log.case.sightings.iter().filter(|it| [&WATCHDOG_TIMEOUT, &TIMEOUT_STATUS].contains(&it.signal));
    finding.seen_all(timeouts.take(2).map(|it| &it.quote))
}

/// A rank that is an operation ahead is normal while a job runs. Where logs show that the job went on, dumps that were
/// written in between prove nothing.
pub(super) fn weighed(log: &Log, finding: Finding) -> Vec<Finding> {
    let sure = finding.confidence.min(Confidence::Likely);
    match log.job.outcome.state {
        State::Failed | State::Hung => vec![finding],
        State::Finished => Vec::new(),
        State::Running | State::Unknown if ended_well(log) => Vec::new(),
        State::Running => vec![finding.confidence(Confidence::Possible).severity(Severity::Info)],
        // The watchdog writes of every timeout. Logs without such a line show a job that works, or that hangs now.
        State::Unknown if !log.case.processes.is_empty() => {
            vec![finding.confidence(Confidence::Possible).severity(Severity::Warning)]
        }
        State::Unknown => vec![finding.confidence(sure)],
    }
}

/// Whether every process destroyed its communicators, as a program does at its end.
fn ended_well(log: &Log) -> bool {
    let (mut begun, mut ended) = (0, 0);
    for member in log.case.communicators.iter().flat_map(|it| it.members.values()) {
        begun += usize::from(member.facts.complete.is_some());
        ended += usize::from(job::finished::ended_well(member));
    }
    begun > 0 && ended >= begun
}
