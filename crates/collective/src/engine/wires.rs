//! The streams of one channel: rings inside the host, TCP to other hosts.

use std::io;

use crate::link::Links;
use crate::schedule::{self, Schedule};
use crate::shm::Rings;
use crate::tcp::Streams;

/// The way to a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// A ring, with the rank's place on this host.
    Ring(usize),
    Tcp,
}

/// Both kinds of streams.
#[derive(Debug)]
pub(super) struct Wires {
    ways: Vec<Way>,
    rings: Option<Rings>,
    streams: Option<Streams>,
}

impl Wires {
    pub(super) fn new(ways: Vec<Way>, rings: Option<Rings>, streams: Option<Streams>) -> Self {
        Self { ways, rings, streams }
    }

    pub(super) fn streams(&mut self) -> Option<&mut Streams> {
        self.streams.as_mut()
    }

    /// Ranks that a schedule talks to by TCP without a connection yet.
    pub(super) fn missing(&self, schedule: &Schedule) -> Vec<usize> {
        let Some(streams) = &self.streams else { return Vec::new() };
        let mut missing: Vec<usize> = schedule
            .streams()
            .iter()
            .filter_map(|it| match it.way {
                schedule::Way::To(peer) | schedule::Way::From(peer) => Some(peer),
                schedule::Way::Here => None,
            })
            .filter(|it| self.ways.get(*it) == Some(&Way::Tcp) && !streams.is_connected(*it))
            .collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }
}

impl Links for Wires {
    #[inline]
    fn send(&mut self, peer: usize, bytes: &[u8]) -> io::Result<usize> {
        match (self.ways.get(peer), &mut self.rings, &mut self.streams) {
            (Some(Way::Ring(place)), Some(rings), _) => rings.send(*place, bytes),
            (Some(Way::Tcp), _, Some(streams)) => streams.send(peer, bytes),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    #[inline]
    fn receive(&mut self, peer: usize, into: &mut [u8]) -> io::Result<usize> {
        match (self.ways.get(peer), &mut self.rings, &mut self.streams) {
            (Some(Way::Ring(place)), Some(rings), _) => rings.receive(*place, into),
            (Some(Way::Tcp), _, Some(streams)) => streams.receive(peer, into),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}
