//! Answers of NCCL's RAS service: `ncclras -v`, or `verbose status` to its port.
//!
//! Source of the wordings: NCCL `src/ras/client_support.cc`, 2.24 to 2.30.

use std::collections::BTreeMap;

use super::tree::Value;
use crate::source::{Quote, Spot};

/// One answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RasStatus {
    /// When it was given; only the JSON says so.
    pub time: Option<Box<str>>,
    /// Communicators that something is reported of; in JSON, all of them.
    pub communicators: Vec<RasCommunicator>,
    /// Processes that RAS takes for dead.
    pub dead: Vec<RasRank>,
    /// Its first line.
    pub quote: Option<Quote>,
}

/// What is reported of one communicator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RasCommunicator {
    /// Its hash, without `0x`.
    pub hash: Box<str>,
    /// Ranks that do not answer.
    pub missing: Vec<RasRank>,
    /// Ranks that report an error of their own or of another.
    pub failed: Vec<RasRank>,
    /// Operations that ranks have launched a different number of times.
    pub counts: Vec<RasCounts>,
    /// The lines about missing ranks.
    pub quote: Option<Quote>,
}

/// A rank, or a process where the rank is not said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RasRank {
    /// Its rank in the communicator.
    pub rank: Option<u32>,
    /// Its process.
    pub pid: Option<u32>,
    /// Its host, as an address.
    pub host: Box<str>,
    /// RAS takes it for dead.
    pub dead: bool,
}

/// How often ranks have launched one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RasCounts {
    /// `AllReduce`
    pub operation: Box<str>,
    /// Ranks by count.
    pub groups: Vec<RasGroup>,
    /// The line that says so.
    pub quote: Quote,
}

/// Ranks that have launched an operation equally often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RasGroup {
    /// How often.
    pub count: u64,
    /// How many ranks.
    pub ranks: u64,
    /// Which; the text does not name most of them.
    pub named: Vec<RasRank>,
}

const LIMIT: usize = 100_000;

pub(super) fn from_json(value: Value<'_>, spot: Spot) -> RasStatus {
    let text = |it: Value<'_>, name: &str| -> Box<str> {
        it.get(name).and_then(Value::text).unwrap_or_default().into()
    };
    let small = |it: Value<'_>, name: &str| {
        it.get(name).and_then(Value::integer).and_then(|it| u32::try_from(it).ok())
    };
    let rank = |it: Value<'_>| RasRank {
        rank: small(it, "rank"),
        pid: small(it, "pid"),
        host: text(it, "host"),
        dead: it.get("status").and_then(|it| it.get("considered_dead")).and_then(Value::bool) == Some(true),
    };
    let quote = |words: String| Quote::new(spot, words.as_bytes());
    let mut status = RasStatus { time: Some(text(value, "timestamp")), ..RasStatus::default() };
    status.quote = Some(quote(format!("RAS status of {}", text(value, "timestamp"))));
    let communicators = value.get("communicators");
    for it in communicators.iter().flat_map(|it| it.items()).take(LIMIT) {
        let hash: Box<str> = text(it, "hash").trim_start_matches("0x").into();
        let all = it.get("ranks");
        let all: Vec<Value<'_>> = all.iter().flat_map(|it| it.items()).take(LIMIT).collect();
        let missing = it.get("missing_ranks");
        let missing: Vec<RasRank> = missing.iter().flat_map(|it| it.items()).take(LIMIT).map(rank).collect();
        let failed = all.iter().filter(|it| {
            let status = it.get("status");
            let code = |name| status.and_then(|it| it.get(name)).and_then(Value::integer).unwrap_or_default();
            code("async_error") != 0
        });
        let mut operations: BTreeMap<&str, BTreeMap<u64, Vec<RasRank>>> = BTreeMap::new();
        for member in &all {
            let counts = member.get("collective_counts");
            for (name, count) in counts.iter().flat_map(|it| it.pairs()) {
                let (Some(name), Some(count)) = (name.text(), count.integer()) else { continue };
                let count = u64::try_from(count).unwrap_or_default();
                operations.entry(name).or_default().entry(count).or_default().push(rank(*member));
            }
        }
        let counts = operations.into_iter().filter(|(_, by_count)| by_count.len() > 1);
        let counts = counts.map(|(operation, by_count)| RasCounts {
            operation: operation.into(),
            groups: by_count
                .into_iter()
                .map(|(count, named)| RasGroup { count, ranks: named.len() as u64, named })
                .collect(),
            quote: quote(format!("RAS: ranks of communicator {hash} have different counts of {operation}")),
        });
        let words = format!("RAS: {} ranks of communicator {hash} do not answer", missing.len());
        status.communicators.push(RasCommunicator {
            failed: failed.map(|it| rank(*it)).collect(),
            counts: counts.collect(),
            quote: (!missing.is_empty()).then(|| quote(words)),
            missing,
            hash,
        });
    }
    status
}

/// Which lines may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    None,
    Dead,
    Missing,
    Failed,
    Counts,
}

/// Text may hold several answers.
pub(super) fn from_text(bytes: &[u8], spot: Spot) -> Vec<RasStatus> {
    let mut all: Vec<RasStatus> = Vec::new();
    let mut section = Section::None;
    for (number, line) in (spot.line..).zip(bytes.split(|it| *it == b'\n')) {
        let quote = || Quote::new(Spot { region: spot.region, line: number }, line);
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        if text == "Job summary" && all.len() < LIMIT {
            all.push(RasStatus { quote: Some(quote()), ..RasStatus::default() });
            section = Section::None;
        }
        let Some(status) = all.last_mut() else { continue };
        if let Some(rest) = text.strip_prefix('#') {
            // `#0-0 (8da77d76f178c783) INCOMPLETE`
            let hash = rest.split(['(', ')']).nth(1).unwrap_or_default();
            if status.communicators.last().is_none_or(|it| &*it.hash != hash) {
                status.communicators.push(RasCommunicator { hash: hash.into(), ..Default::default() });
            }
            section = match rest.rsplit(' ').next() {
                Some("INCOMPLETE") => Section::Missing,
                Some("ERROR") => Section::Failed,
                _ => Section::None,
            };
            continue;
        }
        match text {
            "DEAD" => section = Section::Dead,
            "INCOMPLETE" | "TIMEOUT" => section = Section::None,
            _ => {}
        }
        let inner = text.trim_start();
        if section == Section::Dead && inner.starts_with("Process ") {
            let mut it = process(inner);
            it.dead = true;
            status.dead.push(it);
        }
        let dead = status.dead.clone();
        let Some(communicator) = status.communicators.last_mut() else { continue };
        if let Some(rest) = inner.strip_prefix("Communicator ranks have different ") {
            section = Section::None;
            if let Some(operation) = rest.strip_suffix(" operation counts") {
                section = Section::Counts;
                let operation = operation.into();
                communicator.counts.push(RasCounts { operation, groups: Vec::new(), quote: quote() });
            }
            continue;
        }
        let rank = inner.strip_prefix("Rank ").map(|_| {
            let mut it = process(inner);
            it.dead = dead.iter().any(|dead| dead.pid == it.pid && dead.host == it.host);
            it
        });
        match section {
            Section::Missing => {
                communicator.quote.get_or_insert_with(quote);
                communicator.missing.extend(rank);
            }
            Section::Failed => communicator.failed.extend(rank),
            Section::Counts => {
                let Some(counts) = communicator.counts.last_mut() else { continue };
                match (count(inner), rank) {
                    (Some(count), None) => {
                        let ranks = first_number(inner).unwrap_or_default();
                        counts.groups.push(RasGroup { count, ranks, named: Vec::new() });
                    }
                    (Some(count), Some(rank)) => {
                        match counts.groups.iter_mut().find(|it| it.count == count) {
                            Some(group) => {
                                group.ranks += 1;
                                group.named.push(rank);
                            }
                            None => counts.groups.push(RasGroup { count, ranks: 1, named: vec![rank] }),
                        }
                    }
                    (None, Some(rank)) => {
                        counts.groups.last_mut().into_iter().for_each(|it| it.named.push(rank.clone()));
                    }
                    (None, None) => {}
                }
            }
            Section::None | Section::Dead => {}
        }
    }
    all
}

/// `3 ranks have launched up to operation 6`, `Rank 1 has not launched any operations`
fn count(line: &str) -> Option<u64> {
    if line.contains("not launched any operations") {
        return Some(0);
    }
    first_number(line.split_once("launched up to operation ")?.1)
}

fn first_number(text: &str) -> Option<u64> {
    let digits: String =
        text.chars().skip_while(|it| !it.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// `Rank 2 -- GPU 0 managed by process 588 on node 10.77.0.13`, `Process 588 on node 10.77.0.13 managing GPU 0`
fn process(line: &str) -> RasRank {
    let after = |word: &str| line.split_once(word).map(|it| it.1);
    let small = |text: Option<&str>| text.and_then(first_number).and_then(|it| u32::try_from(it).ok());
    RasRank {
        rank: small(line.strip_prefix("Rank ")),
        pid: small(line.strip_prefix("Process ").or_else(|| after("managed by process "))),
        host: after("on node ").and_then(|it| it.split_whitespace().next()).unwrap_or_default().into(),
        dead: false,
    }
}

#[cfg(test)]
mod tests {
    use super::from_text;
    use crate::source::Spot;

    #[test]
    fn text_is_read() {
        let text = b"Job summary\n===========\n\nErrors\n======\n\nDEAD\n  1 job process is considered dead (unreachable via the RAS network)\n  Process 2509 on node 10.77.0.13 managing GPU 0\n\n\
            #0-0 (ecbd3a3fad1e368a) INCOMPLETE\n  Missing communicator data from 1 rank\n  Rank 2 -- GPU 0 managed by process 2509 on node 10.77.0.13\n\n\
            Warnings\n========\n\n#0-0 (ecbd3a3fad1e368a) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n  2 ranks have launched up to operation 6\n\
            \x20 Rank 3 has launched up to operation 5 -- GPU 0 managed by process 1030 on node 10.77.0.14\n";
        let all = from_text(text, Spot { region: 0, line: 0 });
        let communicator = &all[0].communicators[0];
        let missing = &communicator.missing[0];
        assert_eq!(
            (missing.rank, missing.pid, &*missing.host, missing.dead),
            (Some(2), Some(2509), "10.77.0.13", true)
        );
        let groups = &communicator.counts[0].groups;
        assert_eq!((groups[0].count, groups[0].ranks, groups[1].named[0].rank), (6, 2, Some(3)));
        assert_eq!(communicator.counts[0].quote.spot.line, 18);
    }
}
