//! Ranks that have launched a different number of operations, by NCCL's RAS service.

use evidence::Source;
use evidence::recorder::{RasCounts, RasRank, RasStatus};

use crate::sentence::list_of_ranks;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "ras-counts-differ",
    title: "ranks have launched a different number of operations",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::Ras],
    why: "RAS counts the operations that each rank has launched. While a job works, ranks are an operation apart for a moment; if the \
          difference stays, the ranks behind did not call, or call something else, and the others wait for them.",
    fix: "Ask RAS twice, some seconds apart: `ncclras -v`, or `ncclras -f json -v`. Counts that stand still show the hang, and the ranks \
          behind are the ones to look at (`py-spy dump --pid PID` on their host).",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html",
        "NCCL src/ras/client_support.cc",
    ],
    checks: &[Check::Log(check)],
};

/// It was asked twice already.
const STANDS: &str = "Look at the ranks with the odd count: `py-spy dump --pid PID` on their host shows the call they are in; the ranks behind did \
     not make this call, or make another. Usual causes: a branch that depends on the rank, fewer batches than the others, saving or \
     loading on one rank only.";

fn check(log: &Log) -> Checked {
    let mut all: Vec<&RasStatus> = log.ras()?.iter().collect();
    let mut found = Vec::new();
    // The last answer is the state that matters; the first that has the same counts shows since when it stands still.
    // Only answers in JSON have a time.
    all.sort_by_key(|it| it.time.as_deref());
    let Some((last, rest)) = all.split_last() else { return Ok(found) };
    for communicator in &last.communicators {
        for counts in &communicator.counts {
            let mut same = rest.iter().filter(|status| {
                let other = status.communicators.iter().find(|it| it.hash == communicator.hash);
                other.is_some_and(|it| it.counts.iter().any(|it| is_same(it, counts)))
            });
            let since = same.find_map(|it| it.time.as_deref());
            let stands = since.zip(last.time.as_deref()).filter(|(from, to)| from != to);
            found.push(finding(counts, &communicator.hash, stands));
        }
    }
    Ok(found)
}

fn is_same(a: &RasCounts, b: &RasCounts) -> bool {
    let key = |it: &RasCounts| {
        let mut all: Vec<(u64, u64)> = it.groups.iter().map(|it| (it.count, it.ranks)).collect();
        all.sort_unstable();
        all
    };
    a.operation == b.operation && key(a) == key(b)
}

fn finding(counts: &RasCounts, hash: &str, stands: Option<(&str, &str)>) -> Finding {
    let mut groups = counts.groups.clone();
    groups.sort_by_key(|it| (it.ranks, it.count));
    let parts: Vec<String> = groups
        .iter()
        .take(4)
        .map(|it| {
            let ranks: Vec<u32> = it.named.iter().filter_map(|it| it.rank).collect();
            let who = match it.ranks {
                n if ranks.len() as u64 == n => list_of_ranks(&ranks),
                n => format!("{n} ranks"),
            };
            format!("{who} launched {}", it.count)
        })
        .collect();
    let still = stands.map_or_else(String::new, |(from, to)| format!("; the same at {from} and at {to}"));
    let operation = &counts.operation;
    let message = format!("{operation} operations of communicator {hash}: {}{still}", parts.join(", "));
    let few = groups.len().saturating_sub(1);
    let odd: Vec<&RasRank> = groups.iter().take(few).flat_map(|it| &it.named).collect();
    let (confidence, severity) = match stands {
        Some(_) => (Confidence::Likely, Severity::Error),
        None => (Confidence::Possible, Severity::Info),
    };
    let finding = Finding::new(confidence, message).severity(severity).seen(&counts.quote);
    let finding = finding.about_communicator(hash);
    let finding = if stands.is_some() { finding.fix(STANDS) } else { finding };
    odd.into_iter().take(16).fold(finding, |finding, it| match it.rank {
        Some(rank) => finding.about_rank(rank).about_host(&it.host),
        None => finding,
    })
}

#[cfg(test)]
mod tests {
    use evidence::read_texts;

    use super::RULE;
    use crate::testing::{check, findings};
    use crate::{Log, Severity};

    fn json(time: &str) -> String {
        let rank = |rank: u32, n: u32| {
            format!(
                "{{\"rank\": {rank}, \"host\": \"h{rank}\", \"pid\": 1, \"collective_counts\": {{\"AllReduce\": {n}}}}}"
            )
        };
        format!(
            "{{\"timestamp\": \"{time}\", \"communicators_count\": 1, \"communicators\": [{{\"hash\": \"0xab\", \"ranks\": [{}, {}, {}]}}]}}",
            rank(0, 6),
            rank(1, 6),
            rank(2, 5)
        )
    }

    #[test]
    fn one_answer_is_a_note_and_two_that_are_the_same_an_error() {
        let once = &findings(&RULE, &json("10:00:00"))[0];
        assert_eq!(
            once.message,
            "AllReduce operations of communicator ab: rank 2 launched 5, ranks 0, 1 launched 6"
        );
        assert_eq!(once.severity, Some(Severity::Info));
        let (a, b) = (json("10:00:00"), json("10:00:09"));
        let log = Log::new(read_texts([("a", a.as_bytes()), ("b", b.as_bytes())]));
        assert_eq!(check(&RULE, &log).unwrap()[0].severity, Some(Severity::Error));
    }
}
