//! The listener for data connections, and connections whose hello has not been received yet.
//!
//! Any process can connect to the port. A connection has to prove at once that it belongs to the job. One that sends
//! something else, or nothing for a while, is closed, and nothing waits for it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use super::Job;
use super::hello::{self, Hello};
use super::interface::Interface;
use crate::{Cause, Error};

/// Connections that the kernel queues; its own limit may be lower.
const BACKLOG: i32 = 4096;
/// For the hello of a connection.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections without a hello. At this number no more are accepted, and [`HELLO_TIMEOUT_WHEN_FULL`] holds.
const MAX_PENDING: usize = 256;
const HELLO_TIMEOUT_WHEN_FULL: Duration = Duration::from_millis(500);
/// Connections accepted at a time, so that a flood of them does not keep a rank from its work.
const ACCEPT_BATCH: usize = 256;

#[derive(Debug)]
pub(crate) struct DataListener {
    pub(super) interface: Interface,
    listener: OwnedFd,
    address: SocketAddr,
}

/// Accepted connections: those without a hello, and those of peers that are not needed yet.
#[derive(Debug)]
pub(super) struct PendingConnections {
    listener: OwnedFd,
    waiting: Vec<Waiting>,
    /// By peer and channel.
    accepted: BTreeMap<(usize, u32), OwnedFd>,
    /// The number of connections that were rejected.
    pub(super) rejected: usize,
}

#[derive(Debug)]
struct Waiting {
    socket: OwnedFd,
    since: Instant,
    /// The first `length` bytes have been received.
    received: [u8; hello::LENGTH],
    length: usize,
}

/// How much of a hello has been received.
#[derive(Debug)]
enum HelloState {
    Incomplete,
    Hello(Hello),
    /// Not a hello of this job.
    Invalid,
}

impl DataListener {
    /// Listens on an address of this host, on a port that the kernel chooses.
    pub(crate) fn open(interface: Interface) -> Result<Self, Error> {
        let wanted = interface.socket(0);
        let failed = |it: Errno| {
            let what = format!("cannot listen on {} ({})", interface.address, interface.name);
            Error::system("opening the data listener", what, io::Error::from(it))
        };
        let listener = socket(wanted).map_err(failed)?;
        rustix::net::bind(&listener, &wanted).map_err(failed)?;
        rustix::net::listen(&listener, BACKLOG).map_err(failed)?;
        let address = rustix::net::getsockname(&listener)
            .and_then(|it| SocketAddr::try_from(it).map_err(|_| Errno::AFNOSUPPORT))
            .map_err(failed)?;
        Ok(Self { interface, listener, address })
    }

    /// The address and the port, for the other ranks.
    pub(crate) fn address_bytes(&self) -> Vec<u8> {
        let mut bytes = match self.address.ip() {
            IpAddr::V4(it) => it.octets().to_vec(),
            IpAddr::V6(it) => it.octets().to_vec(),
        };
        bytes.extend(self.address.port().to_be_bytes());
        bytes
    }

    /// The address of a peer from its bytes.
    pub(super) fn peer_address(&self, bytes: &[u8]) -> Result<SocketAddr, Error> {
        let malformed = |what: &str| Error::new(Cause::Mismatch, "reading the data addresses", what);
        let (address, port) =
            bytes.split_last_chunk::<2>().ok_or_else(|| malformed("its data address has no port"))?;
        let address: IpAddr = match address.len() {
            4 => address.first_chunk().copied().map(|it: [u8; 4]| Ipv4Addr::from(it).into()),
            16 => address.first_chunk().copied().map(|it: [u8; 16]| Ipv6Addr::from(it).into()),
            _ => None,
        }
        .ok_or_else(|| malformed("its data address is not an IP address"))?;
        let port = u16::from_be_bytes(*port);
        if port == 0 || address.is_unspecified() || address.is_multicast() {
            return Err(malformed("its data address is not one to listen on"));
        }
        Ok(self.interface.reach(address, port))
    }

    pub(super) fn into_pending(self) -> PendingConnections {
        PendingConnections {
            listener: self.listener,
            waiting: Vec::new(),
            accepted: BTreeMap::new(),
            rejected: 0,
        }
    }
}

impl PendingConnections {
    /// Takes the connection of a peer, if it has been accepted.
    pub(super) fn take(&mut self, peer: usize, channel: u32) -> Option<OwnedFd> {
        self.accepted.remove(&(peer, channel))
    }

    /// The descriptors to poll.
    pub(super) fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // When there are too many, new connections wait in the queue of the kernel.
        let listener = (self.waiting.len() < MAX_PENDING).then(|| self.listener.as_fd());
        listener.into_iter().chain(self.waiting.iter().map(|it| it.socket.as_fd()))
    }

    /// Accepts connections and reads their hellos, without blocking.
    pub(super) fn accept(&mut self, job: &Job) -> io::Result<()> {
        for _ in 0..ACCEPT_BATCH {
            if self.waiting.len() >= MAX_PENDING {
                break;
            }
            match rustix::net::accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.waiting.push(Waiting {
                    socket,
                    since: Instant::now(),
                    received: [0; hello::LENGTH],
                    length: 0,
                }),
                Err(Errno::AGAIN) => break,
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::BADF)) => {
                    return Err(error.into());
                }
                // The connection has been closed, or its network is down: accept(2) reports that here.
                Err(_) => {}
            }
        }
        let timeout = if self.waiting.len() < MAX_PENDING { HELLO_TIMEOUT } else { HELLO_TIMEOUT_WHEN_FULL };
        for mut connection in std::mem::take(&mut self.waiting) {
            match connection.receive(job) {
                HelloState::Hello(hello) if !self.accepted.contains_key(&(hello.from, hello.channel)) => {
                    self.accepted.insert((hello.from, hello.channel), connection.socket);
                }
                HelloState::Incomplete if connection.since.elapsed() < timeout => {
                    self.waiting.push(connection);
                }
                _ => self.rejected += 1,
            }
        }
        Ok(())
    }
}

impl Waiting {
    /// Reads what has been received.
    fn receive(&mut self, job: &Job) -> HelloState {
        while let Some(rest) = self.received.get_mut(self.length..).filter(|it| !it.is_empty()) {
            match rustix::net::recv(&self.socket, rest, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return HelloState::Invalid,
                Ok((_, more)) => self.length += more,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => return HelloState::Invalid,
            }
        }
        if !hello::plausible(&self.received[..self.length]) {
            return HelloState::Invalid;
        }
        if self.length < hello::LENGTH {
            return HelloState::Incomplete;
        }
        // Only higher ranks connect.
        Hello::read(&self.received, &job.key)
            .filter(|it| it.to == job.rank && it.from > job.rank && it.from < job.peers.len())
            .map_or(HelloState::Invalid, HelloState::Hello)
    }
}

/// A non-blocking socket.
pub(super) fn socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_written() {
        for choice in ["127.0.0.1", "::1"] {
            let listener = DataListener::open(Interface::choose(Some(choice), true).expect("loopback"))
                .expect("a listener");
            assert_eq!(
                listener.peer_address(&listener.address_bytes()).expect("its own address"),
                listener.address
            );
            assert_eq!(listener.address.ip().to_string(), choice);
        }
    }

    #[test]
    fn invalid_addresses_are_refused() {
        let listener = DataListener::open(Interface::choose(Some("127.0.0.1"), true).expect("loopback"))
            .expect("a listener");
        for bytes in
            [&b""[..], &[1], &[10, 0, 0, 1, 0, 0], &[0, 0, 0, 0, 1, 1], &[224, 0, 0, 1, 1, 1], &[1; 19]]
        {
            assert!(listener.peer_address(bytes).is_err(), "{bytes:?}");
        }
    }
}
