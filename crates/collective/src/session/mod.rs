//! A rank's membership in its job: rendezvous, control messages, and failure detection.
//!
//! Every rank has one control connection to the coordinator, a thread of rank 0. To join, it proves that it knows the
//! job's token. A connection that closes before the rank has left means that the rank has died; the coordinator reports
//! it to all ranks at once. A rank that times out reports that too; the coordinator then pings all ranks, and names the
//! one that does not answer or is behind.

mod connections;
mod coordinator;
mod handshake_client;
mod handshake_server;
mod listener;
mod monitor;
mod progress;
mod protocol;
mod socket;
mod token;
mod verdict;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::wait::AbortFlag;
use crate::{Cause, Error};

use coordinator::Coordinator;
use handshake_client::{ConnectionLost, ControlConnection};
use monitor::ControlChannel;
use protocol::{Answer, Claim, LARGEST_FRAME, LARGEST_PEER_INFO, LARGEST_SHARE, Request};
use socket::Socket;
use verdict::{NO_ANSWER, seconds};

pub(crate) use connections::raise_file_limit;
pub use listener::{Rendezvous, RendezvousListener};
pub(crate) use progress::{CallKind, Progress};
pub use token::Token;

/// How long to wait for the verdict of the coordinator, which pings all ranks for a second and may have to wait for a
/// core. A rank that stops waiting earlier blames rank 0, and is blamed itself.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(3);
/// How much longer than the coordinator a rank waits for the other ranks to join.
const JOIN_GRACE: Duration = Duration::from_secs(2);

/// The longest timeout: deadlines must stay within the range of `Instant`.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);

/// A rank of the job, as the other ranks know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// From 0.
    pub rank: usize,
    /// The host name that the rank gave.
    pub host: String,
    /// The process id.
    pub pid: u32,
    /// What the rank published about itself: settings and host.
    pub(crate) peer_info: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct JoinOptions {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) rendezvous: Rendezvous,
    pub(crate) token: Token,
    pub(crate) timeout: Duration,
    /// The name of this host, for messages.
    pub(crate) host: String,
}

/// This rank's membership in the job.
#[derive(Debug)]
pub(crate) struct Session {
    rank: usize,
    members: Vec<Member>,
    key: [u8; 32],
    timeout: Duration,
    /// The number of calls of `share` so far.
    serial: u64,
    abort_flag: Arc<AbortFlag>,
    progress: Arc<Progress>,
    /// `None` in a job of one rank.
    channel: Option<Arc<ControlChannel>>,
    monitor: Option<JoinHandle<()>>,
    coordinator: Option<JoinHandle<()>>,
    /// Whether this rank has reported to the coordinator that it leaves or fails.
    end_reported: AtomicBool,
}

impl Session {
    /// Joins the job: proves the token, gets the peer info of all ranks, and starts the threads.
    pub(crate) fn join(
        options: JoinOptions,
        peer_info: Vec<u8>,
        abort_flag: Arc<AbortFlag>,
    ) -> Result<Self, Error> {
        let JoinOptions { rank, size, rendezvous, token, timeout, host } = options;
        let timeout = timeout.min(MAX_TIMEOUT);
        let usage = |detail: String| Err(Error::new(Cause::Usage, "rendezvous", detail));
        if rank >= size || u32::try_from(size).is_err() {
            return usage(format!("there is no rank {rank} of {size}"));
        }
        if peer_info.len() > LARGEST_PEER_INFO {
            return usage(format!(
                "the peer info has {} bytes; the limit is {LARGEST_PEER_INFO}",
                peer_info.len()
            ));
        }
        let mut session = Self {
            rank,
            members: Vec::with_capacity(size.min(65536)),
            key: [0; 32],
            timeout,
            serial: 0,
            abort_flag,
            progress: Arc::default(),
            channel: None,
            monitor: None,
            coordinator: None,
            end_reported: AtomicBool::new(false),
        };
        let pid = std::process::id();
        if size == 1 {
            session.key = token::random()?;
            session.members.push(Member { rank, host, pid, peer_info });
            return Ok(session);
        }
        let mut connection = match rendezvous {
            Rendezvous::Listen(listener) if rank == 0 => {
                let rank_0 = Member { rank, host: host.clone(), pid, peer_info };
                let started = start_coordinator(listener, token, timeout, size, rank_0)
                    .map_err(|error| Error::system("rendezvous", "cannot start the coordinator", error))?;
                session.coordinator = Some(started.thread);
                started.connection
            }
            Rendezvous::Connect { host: rank_0, port } if rank > 0 => {
                let number = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
                let claim = Claim { rank: number(rank), size: number(size), pid, host: short_host(&host) };
                let mut connection =
                    handshake_client::connect(&rank_0, port, &claim, &token, timeout, &session.abort_flag)?;
                connection.queued.push(Request::PeerInfo(peer_info).frame());
                connection
            }
            Rendezvous::Listen(_) => {
                return usage(format!("rank {rank} cannot listen at the rendezvous: only rank 0 does"));
            }
            Rendezvous::Connect { .. } => {
                return usage("rank 0 cannot connect to a rendezvous: it listens".to_owned());
            }
        };
        let joined = session.receive_members(&mut connection, size);
        if let Err(error) = joined {
            connection.queued.push(Request::Fail(error.clone()).frame());
            let _ = connection.queued.flush(&connection.socket);
            drop(connection);
            return Err(error);
        }
        session.start_monitor(connection).map(|()| session)
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// All ranks, in order.
    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Random bytes that only the members know. Data connections prove that they know them.
    pub(crate) fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// The calls of this rank, for the ping rounds of the coordinator.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// All-gather of a small piece per rank. All ranks call it, with the same stage.
    pub(crate) fn share(&mut self, bytes: &[u8], stage: &str) -> Result<Vec<Vec<u8>>, Error> {
        if bytes.len() > LARGEST_SHARE {
            let detail = format!("cannot share {} bytes; the limit is {LARGEST_SHARE}", bytes.len());
            return Err(self.fail(Error::new(Cause::Usage, stage, detail)));
        }
        let Some(channel) = &self.channel else { return Ok(vec![bytes.to_vec()]) };
        self.serial += 1;
        channel.expect(self.serial, self.members.len(), stage);
        channel.send(&Request::Share { serial: self.serial, stage: stage.to_owned(), bytes: bytes.to_vec() });
        let mut inbox = channel.wait(Instant::now() + self.timeout, monitor::Inbox::is_complete);
        if inbox.is_complete() {
            return Ok(inbox.pieces());
        }
        drop(inbox);
        let detail = format!("the other ranks did not call it within {} s", seconds(self.timeout));
        Err(self.fail(Error::new(Cause::Silent, stage, detail)))
    }

    /// Reports an error that ends the job, and returns the verdict of the coordinator, which may blame another rank.
    ///
    /// Without a rank in it the error is about this rank. With the causes `Silent`, `Reset` and `Died` the coordinator pings
    /// all ranks first.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let stage = error.stage.clone();
        let verdict = self.verdict(error);
        self.abort_flag.raise(verdict.clone());
        let mut verdict = self.abort_flag.verdict().unwrap_or(verdict);
        if verdict.stage.is_empty() {
            verdict.stage = stage;
        }
        verdict
    }

    /// Leaves the job, and waits until all ranks have.
    pub(crate) fn leave(self) -> Result<(), Error> {
        let Some(channel) = &self.channel else { return Ok(()) };
        channel.inbox().set_stage("leave");
        if !channel.inbox().ended {
            self.end_reported.store(true, Ordering::Release);
            channel.send(&Request::Leave);
        }
        let inbox = channel.wait(Instant::now() + self.timeout, |it| it.all_left);
        if inbox.all_left {
            return Ok(());
        }
        drop(inbox);
        let detail = format!("the other ranks did not leave the job within {} s", seconds(self.timeout));
        Err(self.fail(Error::new(Cause::Silent, "leave", detail)))
    }

    /// Waits for the peer info of all ranks.
    fn receive_members(&mut self, connection: &mut ControlConnection, size: usize) -> Result<(), Error> {
        let until = Instant::now() + self.timeout + JOIN_GRACE;
        let about =
            |cause: Cause, detail: &str| Error { rank: Some(0), ..Error::new(cause, "rendezvous", detail) };
        loop {
            match connection.answer(LARGEST_FRAME, until, &self.abort_flag) {
                Ok(Answer::Member { rank, pid, host, peer_info })
                    if rank as usize == self.members.len() && self.members.len() < size =>
                {
                    self.members.push(Member { rank: rank as usize, host, pid, peer_info });
                }
                Ok(Answer::Begin { key }) if self.members.len() == size => {
                    self.key = key;
                    return Ok(());
                }
                Ok(Answer::Ping { .. }) => {}
                Ok(Answer::Abort(error)) => return Err(error),
                Ok(_) | Err(ConnectionLost::Malformed) => {
                    return Err(about(Cause::System, "sent a malformed message"));
                }
                Err(ConnectionLost::Closed(_)) => return Err(about(Cause::Died, "its process ended")),
                Err(ConnectionLost::TimedOut) => {
                    return Err(about(Cause::Silent, NO_ANSWER));
                }
                Err(ConnectionLost::Aborted(error)) => return Err(error),
            }
        }
    }

    fn start_monitor(&mut self, connection: ControlConnection) -> Result<(), Error> {
        let cannot = |error: std::io::Error| Error::system("rendezvous", "cannot start the monitor", error);
        let host = self.members.first().map(|it| it.host.clone()).unwrap_or_default();
        let (channel, received) =
            ControlChannel::new(connection, Arc::clone(&self.abort_flag), Arc::clone(&self.progress), host)
                .map_err(|error| cannot(error.into()))?;
        let channel = Arc::new(channel);
        self.channel = Some(Arc::clone(&channel));
        let thread = std::thread::Builder::new().name("plumb-monitor".to_owned());
        self.monitor = Some(thread.spawn(move || channel.run(received)).map_err(cannot)?);
        Ok(())
    }

    fn verdict(&self, error: Error) -> Error {
        let error = self.abort_flag.verdict().unwrap_or(error);
        let Some(channel) = &self.channel else { return error };
        if !channel.inbox().ended {
            self.end_reported.store(true, Ordering::Release);
            channel.send(&Request::Fail(error.clone()));
            let until = Instant::now() + VERDICT_TIMEOUT;
            // Not `wait`, which returns if the abort flag is set: this rank may have set it itself.
            if !channel.wait_for_end(until) {
                let suspicion = matches!(error.cause, Cause::Silent | Cause::Reset | Cause::Died);
                let first = self.members.first().filter(|_| suspicion && self.rank != 0);
                return first.map_or(error.clone(), |it| {
                    Error::new(Cause::Silent, error.stage, NO_ANSWER).of(0, it.host.as_str())
                });
            }
        }
        self.abort_flag.verdict().unwrap_or(error)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.take() {
            if !self.end_reported.load(Ordering::Acquire) && !channel.inbox().ended {
                let why =
                    if std::thread::panicking() { "panicked" } else { "left the job before it was finished" };
                let left = Error { rank: Some(self.rank), ..Error::new(Cause::Died, "", why) };
                channel.send(&Request::Fail(self.abort_flag.verdict().unwrap_or(left)));
            }
            channel.quit();
            if let Some(monitor) = self.monitor.take() {
                let _ = monitor.join();
            }
        }
        if let Some(coordinator) = self.coordinator.take() {
            let _ = coordinator.join();
        }
    }
}

/// A running coordinator, and the connection of rank 0 to it.
struct StartedCoordinator {
    thread: JoinHandle<()>,
    connection: ControlConnection,
}

fn start_coordinator(
    listener: RendezvousListener,
    token: Token,
    timeout: Duration,
    size: usize,
    rank_0: Member,
) -> std::io::Result<StartedCoordinator> {
    let (here, there) = Socket::pair()?;
    let coordinator = Coordinator::new(listener, token, timeout, size, rank_0, there)?;
    let thread = std::thread::Builder::new().name("plumb-coordinator".to_owned());
    let thread = thread.spawn(move || coordinator.run())?;
    Ok(StartedCoordinator { thread, connection: ControlConnection::new(here) })
}

/// At most as many bytes as a claim can hold.
fn short_host(host: &str) -> String {
    protocol::truncated(host, 255).to_owned()
}
