//! The links of one channel: rings inside the host, TCP to other hosts.

use std::io;

use crate::link::Links;
use crate::schedule::{self, Schedule};
use crate::shm::Rings;
use crate::tcp::Streams;

/// The path to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    Ring { local_rank: usize },
    Tcp,
}

#[derive(Debug)]
pub(super) struct ChannelLinks {
    paths: Vec<Path>,
    rings: Option<Rings>,
    streams: Option<Streams>,
}

impl ChannelLinks {
    pub(super) fn new(paths: Vec<Path>, rings: Option<Rings>, streams: Option<Streams>) -> Self {
        Self { paths, rings, streams }
    }

    pub(super) fn streams(&mut self) -> Option<&mut Streams> {
        self.streams.as_mut()
    }

    /// The peers of a schedule that still need a TCP connection.
    pub(super) fn missing(&self, schedule: &Schedule) -> Vec<usize> {
        let Some(streams) = &self.streams else { return Vec::new() };
        let mut missing: Vec<usize> = schedule
            .streams()
            .iter()
            .filter_map(|it| match it.direction {
                schedule::Direction::To(peer) | schedule::Direction::From(peer) => Some(peer),
                schedule::Direction::Local => None,
            })
            .filter(|it| self.paths.get(*it) == Some(&Path::Tcp) && !streams.is_connected(*it))
            .collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }
}

impl Links for ChannelLinks {
    #[inline]
    fn send(&mut self, peer: usize, bytes: &[u8]) -> io::Result<usize> {
        match (self.paths.get(peer), &mut self.rings, &mut self.streams) {
            (Some(Path::Ring { local_rank }), Some(rings), _) => rings.send(*local_rank, bytes),
            (Some(Path::Tcp), _, Some(streams)) => streams.send(peer, bytes),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    #[inline]
    fn receive(&mut self, peer: usize, into: &mut [u8]) -> io::Result<usize> {
        match (self.paths.get(peer), &mut self.rings, &mut self.streams) {
            (Some(Path::Ring { local_rank }), Some(rings), _) => rings.receive(*local_rank, into),
            (Some(Path::Tcp), _, Some(streams)) => streams.receive(peer, into),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}
