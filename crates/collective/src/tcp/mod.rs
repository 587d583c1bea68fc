//! Data connections between ranks over TCP.
//!
//! Every rank has one [`DataListener`], on the chosen interface; the session carries its address to the other ranks.
//! Connections are opened when an algorithm first needs them: of two ranks the higher one connects and the lower one
//! accepts. Connecting needs only the listening socket of the other process, not its cooperation, so ranks may connect in
//! any order.

mod hello;
mod interface;
mod listener;
mod segments;
mod stream;
mod system;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};

use self::hello::Hello;
use self::listener::PendingConnections;
use crate::wait::Waiter;
use crate::{Cause, Error};

pub use self::interface::Interface;
pub(crate) use self::listener::DataListener;
pub use self::segments::Segments;
pub(crate) use self::stream::Streams;

const STAGE: &str = "connecting";
/// How often a wait checks the abort flag and the clock.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// The data connections of this rank.
#[derive(Debug)]
pub(crate) struct Network {
    job: Job,
    pending: PendingConnections,
}

#[derive(Debug)]
struct Job {
    rank: usize,
    key: [u8; 32],
    peers: Vec<Peer>,
}

#[derive(Debug)]
struct Peer {
    host: String,
    address: SocketAddr,
}

/// A connection whose hello has not been sent yet.
#[derive(Debug)]
struct Connecting {
    peer: usize,
    socket: OwnedFd,
    hello: [u8; hello::LENGTH],
    sent: usize,
}

impl Network {
    /// `peers`: the host and the address bytes of all ranks, in order. `key`: the secret of the members.
    pub(crate) fn new<'a>(
        listener: DataListener,
        rank: usize,
        key: [u8; 32],
        peers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, Error> {
        let peers = peers
            .into_iter()
            .enumerate()
            .map(|(rank, (host, bytes))| {
                let address = listener.peer_address(bytes).map_err(|it| it.of(rank, host))?;
                Ok(Peer { host: host.to_owned(), address })
            })
            .collect::<Result<_, Error>>()?;
        Ok(Self { job: Job { rank, key, peers }, pending: listener.into_pending() })
    }

    /// Opens the missing connections of a channel to `peers`.
    ///
    /// If a rank names a peer, that peer has to name the rank; the order does not matter.
    pub(crate) fn connect(
        &mut self,
        streams: &mut Streams,
        peers: &[usize],
        waiter: &Waiter,
    ) -> Result<(), Error> {
        let mut outgoing = Vec::new();
        let mut incoming = Vec::new();
        for &peer in peers {
            if peer == self.job.rank || streams.is_connected(peer) {
                continue;
            }
            let Some(&Peer { address, .. }) = self.job.peers.get(peer) else {
                let detail = format!("there is no rank {peer} of {}", self.job.peers.len());
                return Err(Error::new(Cause::Usage, STAGE, detail));
            };
            if peer < self.job.rank {
                outgoing.push(self.job.start_connecting(peer, address, streams.channel())?);
            } else {
                incoming.push(peer);
            }
        }
        let mut since = Instant::now();
        loop {
            let missing = outgoing.len() + incoming.len();
            for peer in std::mem::take(&mut incoming) {
                match self.pending.take(peer, streams.channel()) {
                    Some(socket) => streams.add(peer, socket).map_err(|it| self.job.failed(peer, &it))?,
                    None => incoming.push(peer),
                }
            }
            for mut connection in std::mem::take(&mut outgoing) {
                if connection.advance().map_err(|it| self.job.failed(connection.peer, &it))? {
                    streams
                        .add(connection.peer, connection.socket)
                        .map_err(|it| self.job.failed(connection.peer, &it))?;
                } else {
                    outgoing.push(connection);
                }
            }
            let Some(&waiting) = outgoing.first().map(|it| &it.peer).or(incoming.first()) else {
                return Ok(());
            };
            if outgoing.len() + incoming.len() < missing {
                since = Instant::now();
            }
            if waiter.abort_flag.is_raised() {
                let over = || Error::new(Cause::Interrupted, STAGE, "the job has ended");
                return Err(waiter.abort_flag.verdict().unwrap_or_else(over));
            }
            if since.elapsed() >= waiter.timeout {
                return Err(self.job.timed_out(waiting, self.pending.rejected));
            }
            self.wait(&outgoing)?;
        }
    }

    /// Waits up to [`POLL_INTERVAL`] for connections in both directions.
    fn wait(&mut self, outgoing: &[Connecting]) -> Result<(), Error> {
        let failed = |it: io::Error| Error::system(STAGE, "cannot wait for connections", it);
        let mut sources: Vec<PollFd<'_>> =
            outgoing.iter().map(|it| PollFd::new(&it.socket, PollFlags::OUT)).collect();
        let accepting: Vec<_> = self.pending.sources().collect();
        sources.extend(accepting.iter().map(|it| PollFd::from_borrowed_fd(it.as_fd(), PollFlags::IN)));
        match poll(&mut sources, Some(&POLL_INTERVAL)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error.into())),
        }
        self.pending.accept(&self.job).map_err(failed)
    }
}

impl Job {
    fn start_connecting(&self, peer: usize, address: SocketAddr, channel: u32) -> Result<Connecting, Error> {
        let begin = || {
            let socket = listener::socket(address)?;
            match rustix::net::connect(&socket, &address) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                Err(error) => Err(error),
            }
        };
        let socket = begin().map_err(|it| self.failed(peer, &it.into()))?;
        let hello = Hello { from: self.rank, to: peer, channel }.write(&self.key);
        Ok(Connecting { peer, socket, hello, sent: 0 })
    }

    fn failed(&self, peer: usize, error: &io::Error) -> Error {
        let cause = match error.kind() {
            io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
            | io::ErrorKind::UnexpectedEof => Cause::Reset,
            io::ErrorKind::TimedOut => Cause::Silent,
            _ => Cause::System,
        };
        self.about(peer, cause, |address| format!("no data connection with {address}: {error}"))
    }

    fn timed_out(&self, peer: usize, rejected: usize) -> Error {
        self.about(peer, Cause::Silent, |address| {
            let what = if peer < self.rank {
                format!("{address} did not answer; is it reachable over this network?")
            } else {
                format!("it did not connect from {address}; is this rank reachable over that network?")
            };
            match rejected {
                0 => what,
                count => {
                    format!("{what} Connections rejected because they do not belong to the job: {count}")
                }
            }
        })
    }

    fn about(&self, peer: usize, cause: Cause, detail: impl FnOnce(&str) -> String) -> Error {
        match self.peers.get(peer) {
            Some(it) => {
                let address =
                    if peer < self.rank { it.address.to_string() } else { it.address.ip().to_string() };
                Error::new(cause, STAGE, detail(&address)).of(peer, it.host.as_str())
            }
            None => Error::new(cause, STAGE, detail("an unknown address")),
        }
    }
}

impl Connecting {
    /// Sends the hello as far as possible; true once it is sent.
    fn advance(&mut self) -> io::Result<bool> {
        if let Err(error) = sockopt::socket_error(&self.socket)? {
            return Err(error.into());
        }
        let stream::Ends { here, there } = match stream::ends(&self.socket) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            other => other?,
        };
        // Connecting to a closed port of this host can connect the socket to itself.
        if here == there {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&self.socket, &self.hello[self.sent..], flags) {
            Ok(taken) => self.sent += taken,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.sent == hello::LENGTH)
    }
}

#[cfg(test)]
mod tests;
