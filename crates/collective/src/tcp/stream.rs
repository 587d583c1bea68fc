//! The TCP connections of one channel.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};

use super::hello::CHANNELS;
use crate::link::Links;
use crate::{Cause, Error};

/// The open connections of a channel, at most one per peer.
///
/// A channel belongs to one thread. Several channels have several connections and threads per peer.
#[derive(Debug)]
pub(crate) struct Streams {
    channel: u32,
    sockets: Vec<Option<OwnedFd>>,
}

impl Streams {
    /// Without connections. All ranks number their channels in the same way.
    pub(crate) fn new(channel: u32, size: usize) -> Result<Self, Error> {
        if channel >= CHANNELS {
            let detail = format!("there is no channel {channel}; the limit is {CHANNELS} channels");
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
        if let Some(slot) = self.sockets.get_mut(peer) {
            *slot = Some(socket);
        }
        Ok(())
    }

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

/// 0 if the call can be repeated later.
fn idle(error: Errno) -> io::Result<usize> {
    match error {
        // The socket is not ready, the kernel is out of memory for now, or a signal was received.
        Errno::AGAIN | Errno::NOBUFS | Errno::INTR => Ok(0),
        Errno::PIPE => Err(io::ErrorKind::UnexpectedEof.into()),
        other => Err(other.into()),
    }
}

fn tune(socket: &OwnedFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    if is_local(socket)? {
        // Inside one host there is no congestion, and congestion control with pacing (BBR, the default of many servers)
        // costs half of the bandwidth for its timers. Reno does not pace, and every kernel allows it; if one does not,
        // its default works too.
        let _ = sockopt::set_tcp_congestion(socket, "reno");
    }
    Ok(())
}

/// Whether both ends are on this host: their addresses are equal, or loopback.
fn is_local(socket: &OwnedFd) -> io::Result<bool> {
    let Ends { here, there } = ends(socket)?;
    Ok(here.ip() == there.ip() || there.ip().is_loopback())
}

/// The addresses of a connection.
pub(super) struct Ends {
    pub(super) here: SocketAddr,
    pub(super) there: SocketAddr,
}

pub(super) fn ends(socket: &OwnedFd) -> io::Result<Ends> {
    let here = SocketAddr::try_from(rustix::net::getsockname(socket)?)?;
    let there = rustix::net::getpeername(socket)?.ok_or(io::ErrorKind::NotConnected)?;
    Ok(Ends { here, there: SocketAddr::try_from(there)? })
}
