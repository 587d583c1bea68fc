//! Where peers call: a listener on the chosen interface, and the callers that have not been let in yet.
//!
//! Anyone can reach the port. A caller has to show at once that it belongs to the job; whoever says something else,
//! or nothing for a while, is dropped, and nobody waits for it.

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

/// Callers that may be waiting to be accepted: the kernel takes less where it is set to.
const BACKLOG: i32 = 4096;
/// How long a caller may take to say hello.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many may take that long. Beyond, nobody is let in until [`HURRY`] has passed for the first of them.
const CROWD: usize = 256;
const HURRY: Duration = Duration::from_millis(500);
/// Callers accepted in one go, so that a flood does not keep a rank from its own work.
const TURN: usize = 256;

/// This rank's listener for data connections.
#[derive(Debug)]
pub(crate) struct Port {
    pub(super) interface: Interface,
    listener: OwnedFd,
    address: SocketAddr,
}

/// The port once the job is known: callers that are being heard, and peers that have arrived before they were needed.
#[derive(Debug)]
pub(super) struct Lobby {
    listener: OwnedFd,
    strangers: Vec<Stranger>,
    arrived: BTreeMap<(usize, u32), OwnedFd>,
    /// Callers that were sent away.
    pub(super) dropped: usize,
}

#[derive(Debug)]
struct Stranger {
    socket: OwnedFd,
    since: Instant,
    said: [u8; hello::LENGTH],
    length: usize,
}

/// What a caller has said so far.
#[derive(Debug)]
enum Said {
    /// Nothing whole.
    Nothing,
    /// Who it is.
    Hello(Hello),
    /// That it does not belong here.
    Nonsense,
}

impl Port {
    /// Listens on an address of this machine, on a port that the kernel chooses.
    pub(crate) fn open(interface: Interface) -> Result<Self, Error> {
        let wanted = interface.socket(0);
        let failed = |it: Errno| {
            let what = format!("cannot listen on {} ({})", interface.address, interface.name);
            Error::system("opening the data port", what, io::Error::from(it))
        };
        let listener = socket(wanted).map_err(failed)?;
        rustix::net::bind(&listener, &wanted).map_err(failed)?;
        rustix::net::listen(&listener, BACKLOG).map_err(failed)?;
        let address = rustix::net::getsockname(&listener)
            .and_then(|it| SocketAddr::try_from(it).map_err(|_| Errno::AFNOSUPPORT))
            .map_err(failed)?;
        Ok(Self { interface, listener, address })
    }

    /// Where peers find it, in bytes for the others: the address and the port.
    pub(crate) fn card(&self) -> Vec<u8> {
        let mut card = match self.address.ip() {
            IpAddr::V4(it) => it.octets().to_vec(),
            IpAddr::V6(it) => it.octets().to_vec(),
        };
        card.extend(self.address.port().to_be_bytes());
        card
    }

    /// Where the port of a peer is, by its card.
    pub(super) fn find(&self, card: &[u8]) -> Result<SocketAddr, Error> {
        let wrong = |what: &str| Error::new(Cause::Mismatch, "reading the data ports", what);
        let (address, port) = card.split_last_chunk::<2>().ok_or_else(|| wrong("its card has no port"))?;
        let address: IpAddr = match address.len() {
            4 => address.first_chunk().copied().map(|it: [u8; 4]| Ipv4Addr::from(it).into()),
            16 => address.first_chunk().copied().map(|it: [u8; 16]| Ipv6Addr::from(it).into()),
            _ => None,
        }
        .ok_or_else(|| wrong("its card has no address"))?;
        let port = u16::from_be_bytes(*port);
        if port == 0 || address.is_unspecified() || address.is_multicast() {
            return Err(wrong("nobody can listen where its card says"));
        }
        Ok(self.interface.reach(address, port))
    }

    pub(super) fn admit(self) -> Lobby {
        Lobby { listener: self.listener, strangers: Vec::new(), arrived: BTreeMap::new(), dropped: 0 }
    }
}

impl Lobby {
    /// The connection of a peer that has arrived.
    pub(super) fn take(&mut self, peer: usize, channel: u32) -> Option<OwnedFd> {
        self.arrived.remove(&(peer, channel))
    }

    /// What to watch for callers.
    pub(super) fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // In a crowd new callers wait outside.
        let door = (self.strangers.len() < CROWD).then(|| self.listener.as_fd());
        door.into_iter().chain(self.strangers.iter().map(|it| it.socket.as_fd()))
    }

    /// Lets callers in and hears what they say, without waiting for any of them.
    pub(super) fn receive(&mut self, job: &Job) -> io::Result<()> {
        for _ in 0..TURN {
            if self.strangers.len() >= CROWD {
                break;
            }
            match rustix::net::accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.strangers.push(Stranger {
                    socket,
                    since: Instant::now(),
                    said: [0; hello::LENGTH],
                    length: 0,
                }),
                Err(Errno::AGAIN) => break,
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::BADF)) => {
                    return Err(error.into());
                }
                // The caller has gone again, or its network has: accept(2) reports it here.
                Err(_) => {}
            }
        }
        let patience = if self.strangers.len() < CROWD { PATIENCE } else { HURRY };
        for mut stranger in std::mem::take(&mut self.strangers) {
            match stranger.listen(job) {
                Said::Hello(hello) if !self.arrived.contains_key(&(hello.from, hello.channel)) => {
                    self.arrived.insert((hello.from, hello.channel), stranger.socket);
                }
                Said::Nothing if stranger.since.elapsed() < patience => self.strangers.push(stranger),
                _ => self.dropped += 1,
            }
        }
        Ok(())
    }
}

impl Stranger {
    /// Hears what there is to hear.
    fn listen(&mut self, job: &Job) -> Said {
        while let Some(rest) = self.said.get_mut(self.length..).filter(|it| !it.is_empty()) {
            match rustix::net::recv(&self.socket, rest, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Said::Nonsense,
                Ok((_, more)) => self.length += more,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => return Said::Nonsense,
            }
        }
        if !hello::plausible(&self.said[..self.length]) {
            return Said::Nonsense;
        }
        if self.length < hello::LENGTH {
            return Said::Nothing;
        }
        // Only higher ranks call, and only ranks that exist.
        Hello::read(&self.said, &job.key)
            .filter(|it| it.to == job.rank && it.from > job.rank && it.from < job.peers.len())
            .map_or(Said::Nonsense, Said::Hello)
    }
}

/// A socket that never blocks.
pub(super) fn socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_read_back() {
        for choice in ["127.0.0.1", "::1"] {
            let port = Port::open(Interface::choose(Some(choice), true).expect("loopback")).expect("a port");
            assert_eq!(port.find(&port.card()).expect("its own card"), port.address);
            assert_eq!(port.address.ip().to_string(), choice);
        }
    }

    #[test]
    fn cards_that_lead_nowhere_are_refused() {
        let port = Port::open(Interface::choose(Some("127.0.0.1"), true).expect("loopback")).expect("a port");
        for card in
            [&b""[..], &[1], &[10, 0, 0, 1, 0, 0], &[0, 0, 0, 0, 1, 1], &[224, 0, 0, 1, 1, 1], &[1; 19]]
        {
            assert!(port.find(card).is_err(), "{card:?}");
        }
    }
}
