//! The sockets of one channel.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};

use super::hello::CHANNELS;
use crate::link::Links;
use crate::{Cause, Error};

/// A channel's connection to every peer that it has met so far.
///
/// A channel belongs to one thread. Several channels give several sockets and several threads to a peer.
#[derive(Debug)]
pub(crate) struct Streams {
    channel: u32,
    sockets: Vec<Option<OwnedFd>>,
}

impl Streams {
    /// A channel between `size` ranks, without connections yet. Every rank numbers its channels alike.
    pub(crate) fn new(channel: u32, size: usize) -> Result<Self, Error> {
        if channel >= CHANNELS {
            let detail = format!("channel {channel} of at most {CHANNELS}");
            return Err(Error::new(Cause::Usage, "opening channels", detail));
        }
        Ok(Self { channel, sockets: std::iter::repeat_with(|| None).take(size).collect() })
    }

    pub(crate) fn channel(&self) -> u32 {
        self.channel
    }

    pub(crate) fn is_connected(&self, peer: usize) -> bool {
        self.socket(peer).is_ok()
    }

    pub(super) fn add(&mut self, peer: usize, socket: OwnedFd) -> io::Result<()> {
        tune(&socket)?;
        if let Some(place) = self.sockets.get_mut(peer) {
            *place = Some(socket);
        }
        Ok(())
    }

    /// Hands the socket of a peer out.
    #[cfg(test)]
    pub(super) fn release(&mut self, peer: usize) -> OwnedFd {
        self.sockets[peer].take().expect("a connection")
    }

    #[inline]
    fn socket(&self, peer: usize) -> io::Result<&OwnedFd> {
        self.sockets.get(peer).and_then(Option::as_ref).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Links for Streams {
    #[inline]
    fn send(&mut self, peer: usize, bytes: &[u8]) -> io::Result<usize> {
        match rustix::net::send(self.socket(peer)?, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(taken) => Ok(taken),
            Err(error) => idle(error),
        }
    }

    #[inline]
    fn receive(&mut self, peer: usize, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        match rustix::net::recv(self.socket(peer)?, into, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, came)) => Ok(came),
            Err(error) => idle(error),
        }
    }
}

/// Nothing moved: for now, or for good.
fn idle(error: Errno) -> io::Result<usize> {
    match error {
        // The kernel is out of memory for a moment, or a signal came.
        Errno::AGAIN | Errno::NOBUFS | Errno::INTR => Ok(0),
        Errno::PIPE => Err(io::ErrorKind::UnexpectedEof.into()),
        other => Err(other.into()),
    }
}

fn tune(socket: &OwnedFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    if is_local(socket)? {
        // Inside one machine there is no congestion, and a control that paces what it sends (BBR, the default of many
        // servers) costs half of the bandwidth for its timers. Reno paces nothing and every kernel lets anyone have
        // it; where one does not, its default works too.
        let _ = sockopt::set_tcp_congestion(socket, "reno");
    }
    Ok(())
}

/// Whether both ends are on this machine: then its addresses are the same, or loopback.
fn is_local(socket: &OwnedFd) -> io::Result<bool> {
    let [here, there] = ends(socket)?;
    Ok(here.ip() == there.ip() || there.ip().is_loopback())
}

/// The addresses of both ends of a connection.
pub(super) fn ends(socket: &OwnedFd) -> io::Result<[SocketAddr; 2]> {
    let here = SocketAddr::try_from(rustix::net::getsockname(socket)?)?;
    let there = rustix::net::getpeername(socket)?.ok_or(io::ErrorKind::NotConnected)?;
    Ok([here, SocketAddr::try_from(there)?])
}
