//! Ranks started on this machine, looked after until the last has ended.
//!
//! - A rank dies with its starter, however that ends: the kernel sees to it.
//! - A signal to the starter reaches every rank once: each has a process group of its own, so a terminal's Ctrl-C
//!   comes here first.
//! - When a rank fails, the others have a grace time to end by themselves; then they are asked to, then they are
//!   made to. What a rank has left in its process group ends with it.

mod family;
mod relay;
mod signals;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use self::family::Family;
use self::relay::Relay;
use self::signals::Signals;
use crate::meeting::random_token;
use crate::{Error, Place, Point};

/// More ranks than this on one machine are a mistake.
const MAX_HERE: usize = 4096;

/// What to start.
#[derive(Debug, Clone)]
pub struct Start {
    /// How many ranks here.
    pub ranks: usize,
    /// The program and its arguments; none: this program with its own arguments.
    pub command: Option<Vec<OsString>>,
    /// How long the others may go on after one has failed, and how long they may take to end when asked.
    pub grace: Duration,
    /// The job that these ranks are a part of; none: they are all of it.
    pub part: Option<Part>,
    /// The job's token; none: a random one.
    pub token: Option<String>,
}

/// A part of a larger job.
#[derive(Debug, Clone)]
pub struct Part {
    /// The first rank here.
    pub first: usize,
    /// The ranks of all parts.
    pub size: usize,
    /// Where they all meet.
    pub point: Point,
}

/// How a rank ended that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With this code, which is not 0.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The rank that failed first, and how.
    pub failure: Option<(usize, Ending)>,
    /// The signal that asked the starter to end.
    pub interrupted: Option<i32>,
}

impl Start {
    /// This many ranks of this program.
    pub fn new(ranks: usize) -> Self {
        Self { ranks, command: None, grace: Duration::from_secs(2), part: None, token: None }
    }

    /// The ranks that a place stands for, if these are more than one and it is known where they meet.
    pub fn here(place: &Place) -> Option<Self> {
        let crate::Meeting::Fixed(point) = &place.meeting else { return None };
        let part = Part { first: place.rank, size: place.size, point: point.clone() };
        (place.start_here > 1).then(|| Self { part: Some(part), ..Self::new(place.start_here) })
    }
}

impl Outcome {
    /// The code to exit with: 0, that of the first failure, or 128 and a signal's number as shells have it.
    pub fn code(&self) -> u8 {
        let code = match (self.interrupted, self.failure) {
            (Some(signal), _) | (None, Some((_, Ending::Signal(signal)))) => 128 + signal,
            (None, Some((_, Ending::Code(code)))) => code,
            (None, None) => 0,
        };
        u8::try_from(code).unwrap_or(1)
    }
}

/// Starts ranks here and returns when all have ended.
///
/// Rank 0's stdout is ours. All ranks' stderr goes to ours, where a line that begins with `error:`, `hint:` or
/// `warning:` is shown once even if several ranks say it. Children find `PLUMB_TERMINAL=1` if our stderr is a
/// terminal, as theirs is not. Call it from a thread that lives as long as the ranks.
pub fn start(plan: &Start) -> Result<Outcome, Error> {
    let size = plan.part.as_ref().map_or(plan.ranks, |it| it.size);
    if plan.ranks == 0 || plan.ranks > MAX_HERE {
        return Err(Error::Start {
            detail: format!("cannot start {} ranks here: 1 to {MAX_HERE}", plan.ranks),
        });
    }
    let first = plan.part.as_ref().map_or(0, |it| it.first);
    if first.checked_add(plan.ranks).is_none_or(|it| it > size) {
        return Err(Error::Start {
            detail: format!("{} ranks from {first} are more than {size}", plan.ranks),
        });
    }
    let token = match (&plan.token, &plan.part) {
        (Some(token), _) => token.clone(),
        (None, Some(part)) => part.point.token.clone(),
        (None, None) => random_token()?,
    };
    let signals = Signals::block()?;
    let mut family = Family::start(plan, first, size, &token)?;
    let mut relay = Relay::new(family.take_errors());
    let outcome = look_after(plan, &signals, &mut family, &mut relay)?;
    relay.finish();
    Ok(Outcome { failure: outcome.failure.map(|(index, it)| (first + index, it)), ..outcome })
}

/// What happens to those who are left, and when.
enum Next {
    Nothing,
    Ask(Instant),
    Kill(Instant),
}

fn look_after(
    plan: &Start,
    signals: &Signals,
    family: &mut Family,
    relay: &mut Relay,
) -> Result<Outcome, Error> {
    let mut outcome = Outcome { failure: None, interrupted: None };
    let mut next = Next::Nothing;
    loop {
        if let Some(failure) = family.reap() {
            // A rank that is killed may take longer to end than those who noticed. Once we send signals they say nothing.
            let ours = matches!(next, Next::Kill(_)) || outcome.interrupted.is_some();
            let killed = matches!(failure.1, Ending::Signal(_)) && !ours;
            match outcome.failure {
                Some((_, Ending::Signal(_))) => {}
                Some((_, Ending::Code(_))) if !killed => {}
                _ => outcome.failure = Some(failure),
            }
            if matches!(next, Next::Nothing) {
                next = Next::Ask(Instant::now() + plan.grace);
            }
        }
        if family.is_empty() {
            return Ok(outcome);
        }
        let now = Instant::now();
        let until = match next {
            Next::Nothing => None,
            Next::Ask(at) if at <= now => {
                family.signal(Signal::TERM);
                // Whoever is stopped cannot end.
                family.signal(Signal::CONT);
                next = Next::Kill(now + plan.grace);
                continue;
            }
            Next::Kill(at) if at <= now => {
                family.signal(Signal::KILL);
                next = Next::Kill(now + plan.grace.max(Duration::from_millis(100)));
                continue;
            }
            Next::Ask(at) | Next::Kill(at) => Some(at),
        };
        relay.wait(signals, until)?;
        while let Some(signal) = signals.next() {
            match signal {
                Signal::INT | Signal::TERM | Signal::HUP => {
                    if outcome.interrupted.is_some() {
                        // Asked twice: somebody is in a hurry.
                        next = Next::Kill(Instant::now());
                    } else {
                        outcome.interrupted = Some(signal.as_raw());
                        // The ranks do not get it in the same moment: one may complain of another's end.
                        relay.mute();
                        family.signal(signal);
                        next = Next::Ask(Instant::now() + plan.grace);
                    }
                }
                Signal::TSTP => {
                    family.signal(Signal::STOP);
                    signals::stop();
                    family.signal(Signal::CONT);
                }
                _ => {}
            }
        }
    }
}

/// Our stderr is a terminal.
fn on_terminal() -> bool {
    std::io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_a_shell() {
        let outcome = |failure, interrupted| Outcome { failure, interrupted };
        assert_eq!(outcome(None, None).code(), 0);
        assert_eq!(outcome(Some((1, Ending::Code(3))), None).code(), 3);
        assert_eq!(outcome(Some((1, Ending::Signal(9))), None).code(), 137);
        assert_eq!(outcome(Some((1, Ending::Code(1))), Some(2)).code(), 130);
        assert_eq!(outcome(None, Some(15)).code(), 143);
        assert_eq!(outcome(Some((1, Ending::Code(-1))), None).code(), 1);
    }

    #[test]
    fn what_cannot_be_started() {
        assert!(start(&Start::new(0)).is_err());
        assert!(start(&Start::new(MAX_HERE + 1)).is_err());
        let point = Point { host: "h".to_owned(), port: 1, token: String::new() };
        let part = Part { first: 3, size: 4, point };
        assert!(start(&Start { part: Some(part), ..Start::new(2) }).is_err());
        let command = Some(vec![OsString::from("/no/such/program")]);
        let error = start(&Start { command, ..Start::new(2) }).expect_err("no such program");
        assert!(error.to_string().contains("/no/such/program"), "{error}");
    }
}
