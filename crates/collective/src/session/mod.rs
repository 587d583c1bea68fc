//! A rank's membership in its job: meeting the others, and learning when one of them ends.
//!
//! Every rank has one control connection to the coordinator, a thread of rank 0. To come in it
//! proves that it knows the job's token. The end of a connection without a goodbye is the death
//! of a rank, and everyone is told at once. Who waits too long complains; the coordinator then
//! asks everyone, and names the one who does not answer or is behind.

mod arrival;
mod coordinator;
mod crowd;
mod door;
mod flow;
mod monitor;
mod progress;
mod reception;
mod token;
mod verdict;
mod wire;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::watch::Alarm;
use crate::{Cause, Error};

use arrival::{Line, Lost};
use coordinator::Coordinator;
use flow::Socket;
use monitor::Post;
use verdict::seconds;
use wire::{Answer, Claim, LARGEST_CARD, LARGEST_FRAME, LARGEST_SHARE, Request};

pub(crate) use crowd::allow_files;
pub use door::{Door, Meeting};
pub(crate) use progress::{Kind, Progress};
pub use token::Token;

/// How long a verdict may take: the coordinator asks everyone for a second, and may have to wait for a core. Who gives up on it
/// too early takes it for the culprit, and is then taken for one itself.
const VERDICT: Duration = Duration::from_secs(3);
/// How much longer than itself a rank lets the coordinator wait for the others.
const GRACE: Duration = Duration::from_secs(2);

/// The longest timeout: times must stay within what clocks can count.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// One rank of a job, as the others know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub rank: usize,
    /// Its host, by the name it gave.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// What it says about itself.
    pub(crate) card: Vec<u8>,
}

/// What a rank needs to join.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) meeting: Meeting,
    pub(crate) token: Token,
    pub(crate) timeout: Duration,
    /// The name of this host, to show.
    pub(crate) host: String,
}

/// This rank's membership in the job.
#[derive(Debug)]
pub(crate) struct Session {
    rank: usize,
    members: Vec<Member>,
    key: [u8; 32],
    timeout: Duration,
    /// Counts the calls of `share`.
    serial: u64,
    alarm: Arc<Alarm>,
    progress: Arc<Progress>,
    /// The way to the others; none where there are none.
    post: Option<Arc<Post>>,
    monitor: Option<JoinHandle<()>>,
    coordinator: Option<JoinHandle<()>>,
    /// Whether the coordinator knows how this rank ends.
    told: AtomicBool,
}

impl Session {
    /// Meets the others: proves the token, exchanges cards and starts the threads.
    pub(crate) fn join(entry: Entry, card: Vec<u8>, alarm: Arc<Alarm>) -> Result<Self, Error> {
        let Entry { rank, size, meeting, token, timeout, host } = entry;
        let timeout = timeout.min(LONGEST);
        let usage = |detail: String| Err(Error::new(Cause::Usage, "rendezvous", detail));
        if rank >= size || u32::try_from(size).is_err() {
            return usage(format!("there is no rank {rank} of {size}"));
        }
        if card.len() > LARGEST_CARD {
            return usage(format!("a card of {} bytes is too large", card.len()));
        }
        let mut session = Self {
            rank,
            members: Vec::with_capacity(size.min(65536)),
            key: [0; 32],
            timeout,
            serial: 0,
            alarm,
            progress: Arc::default(),
            post: None,
            monitor: None,
            coordinator: None,
            told: AtomicBool::new(false),
        };
        let pid = std::process::id();
        if size == 1 {
            session.key = token::random()?;
            session.members.push(Member { rank, host, pid, card });
            return Ok(session);
        }
        let mut line = match meeting {
            Meeting::Open(door) if rank == 0 => {
                let me = Member { rank, host: host.clone(), pid, card };
                let (own, line) = coordinate(door, token, timeout, size, me)
                    .map_err(|error| Error::system("rendezvous", "cannot start the coordinator", error))?;
                session.coordinator = Some(own);
                line
            }
            Meeting::At(place) if rank > 0 => {
                let number = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
                let claim = Claim { rank: number(rank), size: number(size), pid, host: short_host(&host) };
                let mut line = arrival::arrive(&place, &claim, &token, timeout, &session.alarm)?;
                line.outflow.push(Request::Card(card).frame());
                line
            }
            Meeting::Open(_) => return usage(format!("rank {rank} cannot open the door, rank 0 does")),
            Meeting::At(_) => return usage("rank 0 opens the door, it cannot join elsewhere".to_owned()),
        };
        let met = session.meet(&mut line, size);
        if let Err(error) = met {
            // The coordinator learns why; of what it said itself it needs no word.
            line.outflow.push(Request::Fail(error.clone()).frame());
            let _ = line.outflow.flush(&line.socket);
            drop(line);
            return Err(error);
        }
        session.attach(line).map(|()| session)
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// Everyone, by rank.
    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Random bytes that only members know: their data connections show them.
    pub(crate) fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// Where calls are noted as they begin and end.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Gathers a small piece of every rank, in the order of ranks. All call it, with the same stage.
    pub(crate) fn share(&mut self, bytes: &[u8], stage: &str) -> Result<Vec<Vec<u8>>, Error> {
        if bytes.len() > LARGEST_SHARE {
            let detail = format!("{} bytes are too many to share: {LARGEST_SHARE} at most", bytes.len());
            return Err(self.fail(Error::new(Cause::Usage, stage, detail)));
        }
        let Some(post) = &self.post else { return Ok(vec![bytes.to_vec()]) };
        self.serial += 1;
        post.expect(self.serial, self.members.len(), stage);
        post.send(&Request::Share { serial: self.serial, stage: stage.to_owned(), bytes: bytes.to_vec() });
        let mut inbox = post.wait(Instant::now() + self.timeout, monitor::Inbox::is_complete);
        if inbox.is_complete() {
            return Ok(inbox.pieces());
        }
        drop(inbox);
        let detail = format!("the others did not come within {} s", seconds(self.timeout));
        Err(self.fail(Error::new(Cause::Silent, stage, detail)))
    }

    /// This rank cannot go on: tells everyone, and returns the verdict, which may know better.
    ///
    /// Without a rank in it the error is about this rank. Causes `Silent`, `Reset` and `Died`
    /// are taken as a complaint about another: the coordinator asks everyone first.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let stage = error.stage.clone();
        let verdict = self.verdict(error);
        self.alarm.raise(verdict.clone());
        let mut verdict = self.alarm.verdict().unwrap_or(verdict);
        if verdict.stage.is_empty() {
            verdict.stage = stage;
        }
        verdict
    }

    /// Says goodbye, and waits until all have.
    pub(crate) fn leave(self) -> Result<(), Error> {
        let Some(post) = &self.post else { return Ok(()) };
        post.inbox().set_stage("leave");
        if !post.inbox().ended {
            self.told.store(true, Ordering::Release);
            post.send(&Request::Goodbye);
        }
        let inbox = post.wait(Instant::now() + self.timeout, |it| it.farewell);
        if inbox.farewell {
            return Ok(());
        }
        drop(inbox);
        let detail = format!("the others did not leave within {} s", seconds(self.timeout));
        Err(self.fail(Error::new(Cause::Silent, "leave", detail)))
    }

    /// Waits for the list of members.
    fn meet(&mut self, line: &mut Line, size: usize) -> Result<(), Error> {
        let until = Instant::now() + self.timeout + GRACE;
        let about =
            |cause: Cause, detail: &str| Error { rank: Some(0), ..Error::new(cause, "rendezvous", detail) };
        loop {
            match line.answer(LARGEST_FRAME, until, &self.alarm) {
                Ok(Answer::Member { rank, pid, host, card })
                    if rank as usize == self.members.len() && self.members.len() < size =>
                {
                    self.members.push(Member { rank: rank as usize, host, pid, card });
                }
                Ok(Answer::Begin { key }) if self.members.len() == size => {
                    self.key = key;
                    return Ok(());
                }
                Ok(Answer::Ping { .. }) => {}
                Ok(Answer::Abort(error)) => return Err(error),
                Ok(_) | Err(Lost::Garbage) => return Err(about(Cause::System, "sent what cannot be read")),
                Err(Lost::Ended(_)) => return Err(about(Cause::Died, "its process ended")),
                Err(Lost::Late) => {
                    return Err(about(Cause::Silent, "does not answer: stopped, or its machine is gone"));
                }
                Err(Lost::Alarm(error)) => return Err(error),
            }
        }
    }

    /// Hands the connection to the monitor.
    fn attach(&mut self, line: Line) -> Result<(), Error> {
        let cannot = |error: std::io::Error| Error::system("rendezvous", "cannot start the monitor", error);
        let host = self.members.first().map(|it| it.host.clone()).unwrap_or_default();
        let (post, inflow) = Post::new(line, Arc::clone(&self.alarm), Arc::clone(&self.progress), host)
            .map_err(|error| cannot(error.into()))?;
        let post = Arc::new(post);
        self.post = Some(Arc::clone(&post));
        let thread = std::thread::Builder::new().name("plumb-monitor".to_owned());
        self.monitor = Some(thread.spawn(move || post.run(inflow)).map_err(cannot)?);
        Ok(())
    }

    fn verdict(&self, error: Error) -> Error {
        let error = self.alarm.verdict().unwrap_or(error);
        let Some(post) = &self.post else { return error };
        if !post.inbox().ended {
            self.told.store(true, Ordering::Release);
            post.send(&Request::Fail(error.clone()));
            let until = Instant::now() + VERDICT;
            // Not `wait`: the alarm may be raised by this rank itself, and the others must still learn it.
            if !post.wait_for_end(until) {
                let hearsay = matches!(error.cause, Cause::Silent | Cause::Reset | Cause::Died);
                let first = self.members.first().filter(|_| hearsay && self.rank != 0);
                return first.map_or(error.clone(), |it| {
                    Error::new(Cause::Silent, error.stage, "does not answer: stopped, or its machine is gone")
                        .of(0, it.host.as_str())
                });
            }
        }
        self.alarm.verdict().unwrap_or(error)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(post) = self.post.take() {
            if !self.told.load(Ordering::Acquire) && !post.inbox().ended {
                let why = if std::thread::panicking() { "panicked" } else { "gave up" };
                let gave_up = Error { rank: Some(self.rank), ..Error::new(Cause::Died, "", why) };
                post.send(&Request::Fail(self.alarm.verdict().unwrap_or(gave_up)));
            }
            post.quit();
            if let Some(monitor) = self.monitor.take() {
                // It does not panic; if it did the job is over all the same.
                let _ = monitor.join();
            }
        }
        if let Some(coordinator) = self.coordinator.take() {
            let _ = coordinator.join();
        }
    }
}

/// Starts the coordinator, and connects rank 0 to it.
fn coordinate(
    door: Door,
    token: Token,
    timeout: Duration,
    size: usize,
    first: Member,
) -> std::io::Result<(JoinHandle<()>, Line)> {
    let (here, there) = Socket::pair()?;
    let coordinator = Coordinator::new(door, token, timeout, size, first, there)?;
    let thread = std::thread::Builder::new().name("plumb-coordinator".to_owned());
    let handle = thread.spawn(move || coordinator.run())?;
    Ok((handle, Line::new(here)))
}

/// As long as fits a claim.
fn short_host(host: &str) -> String {
    wire::beginning(host, 255).to_owned()
}
