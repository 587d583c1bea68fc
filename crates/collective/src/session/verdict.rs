//! Decides which rank is to blame for a failure. No I/O.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::{Cause, Error};

use super::progress::ProgressSnapshot;

/// The detail of an error about a rank that does not answer.
pub(super) const NO_ANSWER: &str = "does not answer: its process is stopped, or its host is down";

/// Refusals that are listed; more are only counted.
const MAX_LISTED: usize = 16;

/// Connections that were refused, with address and reason.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    known: BTreeMap<(String, String), usize>,
    others: usize,
}

impl Refusals {
    pub(super) fn note(&mut self, address: &str, reason: &str) {
        let key = (address.to_owned(), reason.to_owned());
        if let Some(count) = self.known.get_mut(&key) {
            *count += 1;
        } else if self.known.len() < MAX_LISTED {
            self.known.insert(key, 1);
        } else {
            self.others += 1;
        }
    }

    /// `; 1 connection from 10.0.0.7 was refused: wrong token`, or nothing.
    fn text(&self) -> String {
        let mut text = String::new();
        for ((address, reason), count) in &self.known {
            let (s, were) = if *count == 1 { ("", "was") } else { ("s", "were") };
            let _ = write!(text, "; {count} connection{s} from {address} {were} refused: {reason}");
        }
        if self.others > 0 {
            let _ = write!(text, "; {} more were refused", self.others);
        }
        text
    }
}

/// Some ranks did not join in time.
pub(super) fn did_not_join(missing: &[usize], size: usize, within: Duration, refusals: &Refusals) -> Error {
    let detail = format!(
        "did not join within {} s; {} of {size} ranks joined{}",
        seconds(within),
        size - missing.len(),
        refusals.text()
    );
    match missing {
        [rank] => Error { rank: Some(*rank), ..Error::new(Cause::DidNotJoin, "rendezvous", detail) },
        _ => Error::new(Cause::DidNotJoin, "rendezvous", format!("ranks {} {detail}", list(missing))),
    }
}

/// `60`, `0.5`.
pub(super) fn seconds(time: Duration) -> String {
    let text = format!("{:.1}", time.as_secs_f64());
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// `1, 3-7 and 12 more`.
fn list(ranks: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let shown = 8;
    let names: Vec<String> = runs
        .iter()
        .take(shown)
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    let hidden: usize = runs.iter().skip(shown).map(|(first, last)| last - first + 1).sum();
    let more = if hidden > 0 { format!(" and {hidden} more") } else { String::new() };
    names.join(", ") + &more
}

/// What the coordinator knows about a rank after a ping round.
#[derive(Debug, Clone)]
pub(super) struct RankReport {
    pub(super) host: String,
    /// `None` if it has not answered.
    pub(super) answer: Option<ProgressSnapshot>,
    /// Whether it waits in the same `share` or `leave` as the reporter.
    pub(super) present: bool,
}

/// Decides after `reporter` has timed out and all ranks were pinged.
///
/// `waiting_in` names the `share` or `leave` that the reporter waits in, if it does.
pub(super) fn decide(
    reporter: usize,
    error: &Error,
    reports: &[RankReport],
    waiting_in: Option<&str>,
) -> Error {
    let blame = |ranks: &[usize], cause: Cause, detail: String| {
        let rank = ranks.first().copied()?;
        let host = reports.get(rank)?.host.as_str();
        let more = if ranks.len() > 1 {
            format!("; the same holds for ranks {}", list(ranks))
        } else {
            String::new()
        };
        Some(Error::new(cause, error.stage.clone(), detail + &more).of(rank, host))
    };
    let silent: Vec<usize> = ranks_where(reports, |it| it.answer.is_none());
    if let Some(verdict) = blame(&silent, Cause::Silent, NO_ANSWER.into()) {
        return verdict;
    }
    if error.cause == Cause::Silent {
        let behind = match waiting_in {
            Some(stage) => absent(reports, stage),
            None => behind(reporter, reports),
        };
        if let Some(verdict) = behind.and_then(|it| blame(&it.ranks, it.cause, it.detail)) {
            return verdict;
        }
    }
    let mut error = error.clone();
    let about = *error.rank.get_or_insert(reporter);
    if error.host.is_none() {
        error.host = reports.get(about).map(|it| it.host.clone());
    }
    error
}

struct Blame {
    ranks: Vec<usize>,
    cause: Cause,
    detail: String,
}

/// The ranks that are not in the `share` or `leave` that the reporter waits in.
fn absent(reports: &[RankReport], stage: &str) -> Option<Blame> {
    let ranks = ranks_where(reports, |it| !it.present);
    let progress = reports.get(*ranks.first()?)?.answer?;
    let doing = if progress.inside() { "it is in" } else { "its last call" };
    let detail = format!("did not call `{stage}`; {doing}: {}", progress.call());
    Some(Blame { ranks, cause: Cause::Silent, detail })
}

/// The ranks that are behind the reporter, or in another call.
fn behind(reporter: usize, reports: &[RankReport]) -> Option<Blame> {
    let mine = reports.get(reporter)?.answer?;
    let least = reports.iter().filter_map(|it| it.answer).min_by_key(|it| it.step)?;
    if least.step < mine.step {
        let ranks = ranks_where(reports, |it| it.answer.is_some_and(|it| it.step == least.step));
        let detail = if least.inside() {
            format!(
                "is still in call {}, {}, while other ranks are in call {}",
                least.serial(),
                least.call(),
                mine.serial()
            )
        } else {
            format!("is not in the call that the other ranks wait in; its last call: {}", least.call())
        };
        return Some(Blame { ranks, cause: Cause::Silent, detail });
    }
    // All are in the call with the same number: does its kind or size differ?
    let other = |it: &RankReport| {
        it.answer.is_some_and(|it| it.step == mine.step && (it.kind, it.bytes) != (mine.kind, mine.bytes))
    };
    let others = ranks_where(reports, other);
    let alike = ranks_where(reports, |it| {
        it.answer.is_some_and(|it| (it.step, it.kind, it.bytes) == (mine.step, mine.kind, mine.bytes))
    });
    let (few, many) = if others.len() <= alike.len() { (others, alike) } else { (alike, others) };
    let (theirs, usual) = (reports.get(*few.first()?)?.answer?, reports.get(*many.first()?)?.answer?);
    let rank = many.first()?;
    let detail = format!("called {} while rank {rank} called {}", theirs.call(), usual.call());
    Some(Blame { ranks: few, cause: Cause::Mismatch, detail })
}

fn ranks_where(reports: &[RankReport], test: impl Fn(&RankReport) -> bool) -> Vec<usize> {
    reports.iter().enumerate().filter(|(_, it)| test(it)).map(|(rank, _)| rank).collect()
}

#[cfg(test)]
mod tests {
    use super::super::progress::CallKind;
    use super::*;

    fn at(step: u64, kind: CallKind) -> RankReport {
        RankReport {
            host: "node7".into(),
            answer: Some(ProgressSnapshot::of(step, kind as u8, 64)),
            present: false,
        }
    }

    fn silent() -> RankReport {
        RankReport { host: "node9".into(), answer: None, present: false }
    }

    fn late() -> Error {
        Error::new(Cause::Silent, "all_reduce of 64 bytes", "sent nothing for 60 s").of(2, "node8")
    }

    #[test]
    fn missing_ranks_and_refused_connections_are_named() {
        let mut refusals = Refusals::default();
        let minute = Duration::from_secs(60);
        refusals.note("10.0.0.7", "wrong token");
        let error = did_not_join(&[3], 4, minute, &refusals);
        assert_eq!(
            error.to_string(),
            "rank 3: did not join within 60 s; 3 of 4 ranks joined; 1 connection from 10.0.0.7 was refused: wrong token \
             (rendezvous)"
        );
        for it in 0..40 {
            refusals.note(&format!("10.0.1.{it}"), "not a rank of plumb");
        }
        assert!(refusals.text().ends_with("; 25 more were refused"));
        let error = did_not_join(&[1, 3, 4, 5, 9], 10, Duration::from_millis(500), &Refusals::default());
        assert_eq!(
            error.to_string(),
            "ranks 1, 3-5, 9 did not join within 0.5 s; 5 of 10 ranks joined (rendezvous)"
        );
    }

    #[test]
    fn long_lists_are_cut() {
        let odd: Vec<usize> = (0..100).map(|it| 2 * it).collect();
        assert_eq!(list(&odd), "0, 2, 4, 6, 8, 10, 12, 14 and 92 more");
    }

    #[test]
    fn a_silent_rank_is_blamed_first() {
        let error =
            decide(0, &late(), &[at(3, CallKind::AllReduce), at(2, CallKind::AllReduce), silent()], None);
        assert_eq!(
            error.to_string(),
            "rank 2 on node9: does not answer: its process is stopped, or its host is down (all_reduce of 64 bytes)"
        );
    }

    #[test]
    fn then_a_rank_that_is_behind() {
        let error = decide(
            0,
            &late(),
            &[at(3, CallKind::AllReduce), at(2, CallKind::Barrier), at(3, CallKind::AllReduce)],
            None,
        );
        assert_eq!(
            error.to_string(),
            "rank 1 on node7: is not in the call that the other ranks wait in; its last call: barrier (all_reduce of 64 bytes)"
        );
        let error = decide(
            0,
            &late(),
            &[at(5, CallKind::AllReduce), at(3, CallKind::Reduce), at(3, CallKind::Reduce)],
            None,
        );
        assert_eq!((error.cause, error.rank), (Cause::Silent, Some(1)));
        assert_eq!(
            error.detail,
            "is still in call 2, reduce of 64 bytes, while other ranks are in call 3; the same holds for ranks 1-2"
        );
    }

    #[test]
    fn then_a_rank_in_another_call() {
        let error = decide(
            0,
            &late(),
            &[at(3, CallKind::AllReduce), at(3, CallKind::Gather), at(3, CallKind::AllReduce)],
            None,
        );
        assert_eq!((error.cause, error.rank), (Cause::Mismatch, Some(1)));
        assert_eq!(error.detail, "called gather of 64 bytes while rank 0 called all_reduce of 64 bytes");
    }

    #[test]
    fn otherwise_the_error_is_unchanged() {
        // Rank 1 has finished the call: no rank is behind the reporter.
        let all = [at(3, CallKind::AllReduce), at(4, CallKind::AllReduce), at(3, CallKind::AllReduce)];
        assert_eq!(decide(0, &late(), &all, None), late());
        let reset = Error { cause: Cause::Reset, rank: None, host: None, ..late() };
        assert_eq!(decide(1, &reset, &all, None).rank, Some(1));
    }

    #[test]
    fn a_rank_that_is_not_in_the_share_is_blamed() {
        let mut all = [at(0, CallKind::AllReduce), at(1, CallKind::Barrier)];
        all[0].present = true;
        let error = decide(0, &late(), &all, Some("setup"));
        assert_eq!((error.rank, error.detail.as_str()), (Some(1), "did not call `setup`; it is in: barrier"));
    }
}
