//! Data connections between ranks over TCP.
//!
//! Every rank has one [`Port`], on the interface that was chosen; the session carries its card to the others.
//! Connections are made when an algorithm first needs them: of two ranks the higher calls and the lower answers. A
//! call needs nothing of the other process but its open port, so that ranks may connect in any order, each to whom it
//! likes, and none waits for another's turn.

mod hello;
mod interface;
mod listen;
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
use self::listen::Lobby;
use crate::watch::Watch;
use crate::{Cause, Error};

pub use self::interface::Interface;
pub(crate) use self::listen::Port;
pub(crate) use self::stream::Streams;

const STAGE: &str = "connecting";
/// How often a wait looks at the alarm and the clock.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// This rank's way to the others.
#[derive(Debug)]
pub(crate) struct Network {
    job: Job,
    lobby: Lobby,
}

/// Who this rank is, and who the others are.
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

/// A call to a peer that has not answered yet.
#[derive(Debug)]
struct Call {
    peer: usize,
    socket: OwnedFd,
    hello: [u8; hello::LENGTH],
    said: usize,
}

impl Network {
    /// `peers`: the host and the card of every rank, this one too, in order. `key`: what only members know.
    pub(crate) fn new<'a>(
        port: Port,
        rank: usize,
        key: [u8; 32],
        peers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, Error> {
        let peers = peers
            .into_iter()
            .enumerate()
            .map(|(rank, (host, card))| {
                let address = port.find(card).map_err(|it| it.of(rank, host))?;
                Ok(Peer { host: host.to_owned(), address })
            })
            .collect::<Result<_, Error>>()?;
        Ok(Self { job: Job { rank, key, peers }, lobby: port.admit() })
    }

    /// Makes the connections of a channel to `peers` that are missing.
    ///
    /// Every rank names the ranks that name it; in which order and when does not matter.
    pub(crate) fn connect(
        &mut self,
        streams: &mut Streams,
        peers: &[usize],
        watch: &Watch,
    ) -> Result<(), Error> {
        let mut calls = Vec::new();
        let mut awaited = Vec::new();
        for &peer in peers {
            if peer == self.job.rank || streams.is_connected(peer) {
                continue;
            }
            let Some(&Peer { address, .. }) = self.job.peers.get(peer) else {
                let detail = format!("there is no rank {peer} of {}", self.job.peers.len());
                return Err(Error::new(Cause::Usage, STAGE, detail));
            };
            if peer < self.job.rank {
                calls.push(self.job.call(peer, address, streams.channel())?);
            } else {
                awaited.push(peer);
            }
        }
        let mut since = Instant::now();
        loop {
            let missing = calls.len() + awaited.len();
            for peer in std::mem::take(&mut awaited) {
                match self.lobby.take(peer, streams.channel()) {
                    Some(socket) => streams.add(peer, socket).map_err(|it| self.job.failed(peer, &it))?,
                    None => awaited.push(peer),
                }
            }
            for mut call in std::mem::take(&mut calls) {
                if call.advance().map_err(|it| self.job.failed(call.peer, &it))? {
                    streams.add(call.peer, call.socket).map_err(|it| self.job.failed(call.peer, &it))?;
                } else {
                    calls.push(call);
                }
            }
            let Some(&waiting) = calls.first().map(|it| &it.peer).or(awaited.first()) else { return Ok(()) };
            if calls.len() + awaited.len() < missing {
                since = Instant::now();
            }
            if watch.alarm.is_raised() {
                let over = || Error::new(Cause::Interrupted, STAGE, "the job is over");
                return Err(watch.alarm.verdict().unwrap_or_else(over));
            }
            if since.elapsed() >= watch.timeout {
                return Err(self.job.late(waiting, self.lobby.dropped));
            }
            self.wait(&calls)?;
        }
    }

    /// Waits a moment for callers and for answers.
    fn wait(&mut self, calls: &[Call]) -> Result<(), Error> {
        let failed = |it: io::Error| Error::system(STAGE, "cannot wait for connections", it);
        let mut sources: Vec<PollFd<'_>> =
            calls.iter().map(|it| PollFd::new(&it.socket, PollFlags::OUT)).collect();
        let callers: Vec<_> = self.lobby.sources().collect();
        sources.extend(callers.iter().map(|it| PollFd::from_borrowed_fd(it.as_fd(), PollFlags::IN)));
        match poll(&mut sources, Some(&LOOK)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error.into())),
        }
        self.lobby.receive(&self.job).map_err(failed)
    }
}

impl Job {
    /// Begins a call.
    fn call(&self, peer: usize, address: SocketAddr, channel: u32) -> Result<Call, Error> {
        let begin = || {
            let socket = listen::socket(address)?;
            match rustix::net::connect(&socket, &address) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                Err(error) => Err(error),
            }
        };
        let socket = begin().map_err(|it| self.failed(peer, &it.into()))?;
        let hello = Hello { from: self.rank, to: peer, channel }.write(&self.key);
        Ok(Call { peer, socket, hello, said: 0 })
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

    fn late(&self, peer: usize, dropped: usize) -> Error {
        self.about(peer, Cause::Silent, |address| {
            let what = if peer < self.rank {
                format!("{address} did not answer; is it reachable over this network?")
            } else {
                format!("it did not connect from {address}; is this rank reachable over that network?")
            };
            match dropped {
                0 => what,
                some => format!("{what} Callers sent away because they do not belong to the job: {some}"),
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

impl Call {
    /// Goes on as far as it can; whether the hello is out.
    fn advance(&mut self) -> io::Result<bool> {
        if let Err(error) = sockopt::socket_error(&self.socket)? {
            return Err(error.into());
        }
        let [here, there] = match stream::ends(&self.socket) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            other => other?,
        };
        // Calling a port of this machine that has been closed can reach the caller itself.
        if here == there {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&self.socket, &self.hello[self.said..], flags) {
            Ok(taken) => self.said += taken,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.said == hello::LENGTH)
    }
}

#[cfg(test)]
mod tests;
