//! Starts the ranks of this host and supervises them until the last has ended.
//!
//! - The kernel kills a rank when the process that started it ends, for whatever reason (`PR_SET_PDEATHSIG`).
//! - A signal to this process is forwarded to every rank once: each rank has a process group of its own, so Ctrl-C
//!   reaches only this process.
//! - When a rank fails, the others have a grace period to end by themselves; then they get SIGTERM, then SIGKILL.
//!   Processes that a rank has left in its process group are killed with it.

mod children;
mod signals;
mod stderr;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use self::children::Children;
pub(crate) use self::signals::Signals;
use self::stderr::StderrForwarder;
use crate::rendezvous::random_token;
use crate::{Endpoint, Error, RankIdentity};

/// More ranks on one host are taken for a mistake.
const MAX_LOCAL_RANKS: usize = 4096;

/// Which ranks to start on this host.
#[derive(Debug, Clone)]
pub struct Start {
    /// The number of ranks.
    pub ranks: usize,
    /// The program and its arguments. `None`: this program with the arguments of this process.
    pub command: Option<Vec<OsString>>,
    /// How long the other ranks may run after one has failed, and how long after SIGTERM.
    pub grace: Duration,
    /// Set if the job has ranks on other hosts too.
    pub part: Option<Part>,
    /// The job's token. `None`: the one of the endpoint, otherwise a random one.
    pub token: Option<String>,
}

/// The ranks of one host in a job of several hosts.
#[derive(Debug, Clone)]
pub struct Part {
    /// The lowest rank of this host.
    pub first_rank: usize,
    /// The number of ranks of the job.
    pub size: usize,
    /// The rendezvous of the job.
    pub endpoint: Endpoint,
}

/// How a rank ended that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this exit code, which is not 0.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
}

/// The first rank that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Its rank in the job.
    pub rank: usize,
    /// How it ended.
    pub exit: Exit,
}

/// How the ranks of this host ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// `None`: all ranks succeeded.
    pub failure: Option<Failure>,
    /// The signal that this process received and that ends it.
    pub interrupted: Option<i32>,
}

impl Start {
    /// A job of this many ranks of this program, all on this host.
    pub fn new(ranks: usize) -> Self {
        Self { ranks, command: None, grace: Duration::from_secs(2), part: None, token: None }
    }

    /// The ranks that a launcher expects this process to start, if there are several and their rendezvous is fixed.
    pub fn here(identity: &RankIdentity) -> Option<Self> {
        let crate::Rendezvous::Fixed(endpoint) = &identity.rendezvous else { return None };
        let part = Part { first_rank: identity.rank, size: identity.size, endpoint: endpoint.clone() };
        (identity.ranks_to_start > 1).then(|| Self { part: Some(part), ..Self::new(identity.ranks_to_start) })
    }
}

impl Outcome {
    /// The exit code for this process: 0, the code of the first failure, or 128 plus the number of a signal, as in shells.
    pub fn code(&self) -> u8 {
        let code = match (self.interrupted, self.failure.map(|it| it.exit)) {
            (Some(signal), _) | (None, Some(Exit::Signal(signal))) => 128 + signal,
            (None, Some(Exit::Code(code))) => code,
            (None, None) => 0,
        };
        u8::try_from(code).unwrap_or(1)
    }
}

/// Starts ranks on this host and returns when all have ended.
///
/// Rank 0 inherits standard output; the other ranks have none. The standard error of all ranks is forwarded to the one of
/// this process, where a line that begins with `error:`, `hint:` or `warning:` is shown once even if several ranks write
/// it. Ranks get `PLUMB_TERMINAL=1` if the standard error of this process is a terminal. The calling thread must not end
/// before the ranks do.
pub fn start(plan: &Start) -> Result<Outcome, Error> {
    let size = plan.part.as_ref().map_or(plan.ranks, |it| it.size);
    if plan.ranks == 0 || plan.ranks > MAX_LOCAL_RANKS {
        return Err(Error::Start {
            detail: format!(
                "cannot start {} ranks on this host: expected 1 to {MAX_LOCAL_RANKS}",
                plan.ranks
            ),
        });
    }
    let first_rank = plan.part.as_ref().map_or(0, |it| it.first_rank);
    if first_rank.checked_add(plan.ranks).is_none_or(|it| it > size) {
        return Err(Error::Start {
            detail: format!(
                "cannot start {} ranks from rank {first_rank} in a job of {size} ranks",
                plan.ranks
            ),
        });
    }
    let token = match (&plan.token, &plan.part) {
        (Some(token), _) => token.clone(),
        (None, Some(part)) => part.endpoint.token.clone(),
        (None, None) => random_token()?,
    };
    let signals = Signals::block()?;
    let mut children = Children::start(plan, first_rank, size, &token)?;
    let mut stderr = StderrForwarder::new(children.take_stderr());
    let outcome = supervise(plan, &signals, &mut children, &mut stderr)?;
    stderr.finish();
    Ok(outcome)
}

/// What happens to the remaining ranks, and when.
enum Next {
    Nothing,
    Terminate(Instant),
    Kill(Instant),
}

fn supervise(
    plan: &Start,
    signals: &Signals,
    children: &mut Children,
    stderr: &mut StderrForwarder,
) -> Result<Outcome, Error> {
    let mut outcome = Outcome { failure: None, interrupted: None };
    let mut next = Next::Nothing;
    loop {
        if let Some(failure) = children.reap() {
            // A killed rank may be reaped after the ranks that failed because of it. Signals that we sent say nothing.
            let ours = matches!(next, Next::Kill(_)) || outcome.interrupted.is_some();
            let killed = matches!(failure.exit, Exit::Signal(_)) && !ours;
            match outcome.failure.map(|it| it.exit) {
                Some(Exit::Signal(_)) => {}
                Some(Exit::Code(_)) if !killed => {}
                _ => outcome.failure = Some(failure),
            }
            if matches!(next, Next::Nothing) {
                next = Next::Terminate(Instant::now() + plan.grace);
            }
        }
        if children.is_empty() {
            return Ok(outcome);
        }
        let now = Instant::now();
        let until = match next {
            Next::Nothing => None,
            Next::Terminate(at) if at <= now => {
                children.signal(Signal::TERM);
                // A stopped process handles SIGTERM only after it continues.
                children.signal(Signal::CONT);
                next = Next::Kill(now + plan.grace);
                continue;
            }
            Next::Kill(at) if at <= now => {
                children.signal(Signal::KILL);
                next = Next::Kill(now + plan.grace.max(Duration::from_millis(100)));
                continue;
            }
            Next::Terminate(at) | Next::Kill(at) => Some(at),
        };
        stderr.wait(signals, until)?;
        while let Some(signal) = signals.next() {
            match signal {
                Signal::INT | Signal::TERM | Signal::HUP => {
                    if outcome.interrupted.is_some() {
                        // The second signal: do not wait any longer.
                        next = Next::Kill(Instant::now());
                    } else {
                        outcome.interrupted = Some(signal.as_raw());
                        // The ranks do not all get it at once: one may report the end of another as an error.
                        stderr.mute();
                        children.signal(signal);
                        next = Next::Terminate(Instant::now() + plan.grace);
                    }
                }
                Signal::TSTP => {
                    children.signal(Signal::STOP);
                    signals::stop();
                    children.signal(Signal::CONT);
                }
                _ => {}
            }
        }
    }
}

fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_a_shell() {
        let outcome = |exit: Option<Exit>, interrupted| Outcome {
            failure: exit.map(|exit| Failure { rank: 1, exit }),
            interrupted,
        };
        assert_eq!(outcome(None, None).code(), 0);
        assert_eq!(outcome(Some(Exit::Code(3)), None).code(), 3);
        assert_eq!(outcome(Some(Exit::Signal(9)), None).code(), 137);
        assert_eq!(outcome(Some(Exit::Code(1)), Some(2)).code(), 130);
        assert_eq!(outcome(None, Some(15)).code(), 143);
        assert_eq!(outcome(Some(Exit::Code(-1)), None).code(), 1);
    }

    #[test]
    fn invalid_plans() {
        assert!(start(&Start::new(0)).is_err());
        assert!(start(&Start::new(MAX_LOCAL_RANKS + 1)).is_err());
        let endpoint = Endpoint { host: "h".to_owned(), port: 1, token: String::new() };
        let part = Part { first_rank: 3, size: 4, endpoint };
        assert!(start(&Start { part: Some(part), ..Start::new(2) }).is_err());
        let command = Some(vec![OsString::from("/no/such/program")]);
        let error = start(&Start { command, ..Start::new(2) }).expect_err("no such program");
        assert!(error.to_string().contains("/no/such/program"), "{error}");
    }
}
