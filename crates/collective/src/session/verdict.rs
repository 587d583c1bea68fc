//! Who is to blame: decided from what is known, without any socket.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::{Cause, Error};

use super::progress::Place;

/// Kinds of refusals that are kept apart; more are only counted.
const KEPT: usize = 16;

/// Connections that did not get in, by address and reason.
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
        } else if self.known.len() < KEPT {
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

/// Not all came to the rendezvous.
pub(super) fn never_arrived(missing: &[usize], size: usize, within: Duration, refusals: &Refusals) -> Error {
    let came = format!(
        "never arrived within {} s; {} of {size} ranks came{}",
        seconds(within),
        size - missing.len(),
        refusals.text()
    );
    match missing {
        [rank] => Error { rank: Some(*rank), ..Error::new(Cause::NeverArrived, "rendezvous", came) },
        _ => Error::new(Cause::NeverArrived, "rendezvous", format!("ranks {} {came}", list(missing))),
    }
}

/// A time for people: `60`, `0.5`.
pub(super) fn seconds(time: Duration) -> String {
    let text = format!("{:.1}", time.as_secs_f64());
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Ranks in few words: `1, 3-7 and 12 more`.
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

/// What the coordinator knows of a rank once it has asked everyone.
#[derive(Debug, Clone)]
pub(super) struct Witness {
    pub(super) host: String,
    /// Its answer, if one came.
    pub(super) answer: Option<Place>,
    /// Whether it waits in the same `share` or goodbye as the one who complained.
    pub(super) present: bool,
}

/// Decides after `reporter` waited in vain and everyone was asked.
///
/// `meeting` names the `share` or goodbye that the reporter waits in, if it does.
pub(super) fn decide(reporter: usize, error: &Error, witnesses: &[Witness], meeting: Option<&str>) -> Error {
    let blame = |ranks: &[usize], cause: Cause, detail: String| {
        let rank = ranks.first().copied()?;
        let host = witnesses.get(rank)?.host.as_str();
        let more = if ranks.len() > 1 { format!("; ranks {} alike", list(ranks)) } else { String::new() };
        Some(Error::new(cause, error.stage.clone(), detail + &more).of(rank, host))
    };
    let mute: Vec<usize> = ranks_where(witnesses, |it| it.answer.is_none());
    if let Some(verdict) =
        blame(&mute, Cause::Silent, "does not answer: stopped, or its machine is gone".into())
    {
        return verdict;
    }
    if error.cause == Cause::Silent {
        let behind = match meeting {
            Some(meeting) => absent(witnesses, meeting),
            None => behind(reporter, witnesses),
        };
        if let Some(verdict) = behind.and_then(|(ranks, cause, detail)| blame(&ranks, cause, detail)) {
            return verdict;
        }
    }
    let mut error = error.clone();
    let about = *error.rank.get_or_insert(reporter);
    if error.host.is_none() {
        error.host = witnesses.get(about).map(|it| it.host.clone());
    }
    error
}

type Blame = (Vec<usize>, Cause, String);

/// Who has not come where the reporter waits.
fn absent(witnesses: &[Witness], meeting: &str) -> Option<Blame> {
    let ranks = ranks_where(witnesses, |it| !it.present);
    let place = witnesses.get(*ranks.first()?)?.answer?;
    let doing = if place.inside() { "it is in" } else { "its last call" };
    Some((ranks, Cause::Silent, format!("did not come to `{meeting}`; {doing}: {}", place.call())))
}

/// Who is behind the reporter, or in another call than it.
fn behind(reporter: usize, witnesses: &[Witness]) -> Option<Blame> {
    let mine = witnesses.get(reporter)?.answer?;
    let least = witnesses.iter().filter_map(|it| it.answer).min_by_key(|it| it.step)?;
    if least.step < mine.step {
        let ranks = ranks_where(witnesses, |it| it.answer.is_some_and(|it| it.step == least.step));
        let detail = if least.inside() {
            format!(
                "is still in call {}, {}, while others are in call {}",
                least.serial(),
                least.call(),
                mine.serial()
            )
        } else {
            format!("is not in the call the others wait in; its last call: {}", least.call())
        };
        return Some((ranks, Cause::Silent, detail));
    }
    // The same call by number: is it the same by name?
    let other = |it: &Witness| {
        it.answer.is_some_and(|it| it.step == mine.step && (it.kind, it.bytes) != (mine.kind, mine.bytes))
    };
    let others = ranks_where(witnesses, other);
    let alike = ranks_where(witnesses, |it| {
        it.answer.is_some_and(|it| (it.step, it.kind, it.bytes) == (mine.step, mine.kind, mine.bytes))
    });
    let (few, many) = if others.len() <= alike.len() { (others, alike) } else { (alike, others) };
    let (theirs, usual) = (witnesses.get(*few.first()?)?.answer?, witnesses.get(*many.first()?)?.answer?);
    let rank = many.first()?;
    Some((
        few,
        Cause::Mismatch,
        format!("called {} while rank {rank} called {}", theirs.call(), usual.call()),
    ))
}

fn ranks_where(witnesses: &[Witness], test: impl Fn(&Witness) -> bool) -> Vec<usize> {
    witnesses.iter().enumerate().filter(|(_, it)| test(it)).map(|(rank, _)| rank).collect()
}

#[cfg(test)]
mod tests {
    use super::super::progress::Kind;
    use super::*;

    fn at(place: u64, kind: Kind) -> Witness {
        Witness { host: "node7".into(), answer: Some(Place::of(place, kind as u8, 64)), present: false }
    }

    fn mute() -> Witness {
        Witness { host: "node9".into(), answer: None, present: false }
    }

    fn late() -> Error {
        Error::new(Cause::Silent, "all_reduce of 64 bytes", "sent nothing for 60 s").of(2, "node8")
    }

    #[test]
    fn names_who_never_arrived_and_who_was_refused() {
        let mut refusals = Refusals::default();
        let minute = Duration::from_secs(60);
        refusals.note("10.0.0.7", "wrong token");
        let error = never_arrived(&[3], 4, minute, &refusals);
        assert_eq!(
            error.to_string(),
            "rank 3: never arrived within 60 s; 3 of 4 ranks came; 1 connection from 10.0.0.7 was refused: wrong token \
             (rendezvous)"
        );
        for it in 0..40 {
            refusals.note(&format!("10.0.1.{it}"), "not a rank of plumb");
        }
        assert!(refusals.text().ends_with("; 25 more were refused"));
        let error = never_arrived(&[1, 3, 4, 5, 9], 10, Duration::from_millis(500), &Refusals::default());
        assert_eq!(
            error.to_string(),
            "ranks 1, 3-5, 9 never arrived within 0.5 s; 5 of 10 ranks came (rendezvous)"
        );
    }

    #[test]
    fn many_ranks_are_told_in_few_words() {
        let odd: Vec<usize> = (0..100).map(|it| 2 * it).collect();
        assert_eq!(list(&odd), "0, 2, 4, 6, 8, 10, 12, 14 and 92 more");
    }

    #[test]
    fn the_mute_are_to_blame_first() {
        let error = decide(0, &late(), &[at(3, Kind::AllReduce), at(2, Kind::AllReduce), mute()], None);
        assert_eq!(
            error.to_string(),
            "rank 2 on node9: does not answer: stopped, or its machine is gone (all_reduce of 64 bytes)"
        );
    }

    #[test]
    fn then_who_is_behind() {
        let error =
            decide(0, &late(), &[at(3, Kind::AllReduce), at(2, Kind::Barrier), at(3, Kind::AllReduce)], None);
        assert_eq!(
            error.to_string(),
            "rank 1 on node7: is not in the call the others wait in; its last call: barrier (all_reduce of 64 bytes)"
        );
        let error =
            decide(0, &late(), &[at(5, Kind::AllReduce), at(3, Kind::Reduce), at(3, Kind::Reduce)], None);
        assert_eq!((error.cause, error.rank), (Cause::Silent, Some(1)));
        assert_eq!(
            error.detail,
            "is still in call 2, reduce of 64 bytes, while others are in call 3; ranks 1-2 alike"
        );
    }

    #[test]
    fn then_who_called_something_else() {
        let error =
            decide(0, &late(), &[at(3, Kind::AllReduce), at(3, Kind::Gather), at(3, Kind::AllReduce)], None);
        assert_eq!((error.cause, error.rank), (Cause::Mismatch, Some(1)));
        assert_eq!(error.detail, "called gather of 64 bytes while rank 0 called all_reduce of 64 bytes");
    }

    #[test]
    fn else_the_complaint_stands() {
        // The one ahead has left the call: nobody is behind the reporter.
        let all = [at(3, Kind::AllReduce), at(4, Kind::AllReduce), at(3, Kind::AllReduce)];
        assert_eq!(decide(0, &late(), &all, None), late());
        let reset = Error { cause: Cause::Reset, rank: None, host: None, ..late() };
        assert_eq!(decide(1, &reset, &all, None).rank, Some(1));
    }

    #[test]
    fn a_share_knows_who_is_absent() {
        let mut all = [at(0, Kind::AllReduce), at(1, Kind::Barrier)];
        all[0].present = true;
        let error = decide(0, &late(), &all, Some("setup"));
        assert_eq!(
            (error.rank, error.detail.as_str()),
            (Some(1), "did not come to `setup`; it is in: barrier")
        );
    }
}
