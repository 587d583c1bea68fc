//! Streams in memory with tiny buffers.

use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;

use crate::link::Links;

/// Streams between all ranks. A random part of what is possible is transferred at a time, at least one byte.
pub(super) struct MemoryLinks {
    size: usize,
    capacity: usize,
    pub(super) streams: Vec<VecDeque<u8>>,
    pub(super) random: Random,
}

/// Numbers that look random and are the same in every run.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).expect("64 bits") % end
    }
}

impl MemoryLinks {
    pub(super) fn new(size: usize, capacity: usize, seed: u64) -> Self {
        let streams = vec![VecDeque::new(); size * size];
        Self { size, capacity, streams, random: Random(seed | 1) }
    }
}

/// The links of one rank.
pub(super) struct Ends<'a> {
    pub(super) rank: usize,
    pub(super) links: &'a mut MemoryLinks,
}

impl Links for Ends<'_> {
    fn send(&mut self, peer: usize, bytes: &[u8]) -> io::Result<usize> {
        let stream = &mut self.links.streams[self.rank * self.links.size + peer];
        let room = (self.links.capacity - stream.len()).min(bytes.len());
        let taken = if room == 0 { 0 } else { 1 + self.links.random.below(room) };
        stream.extend(&bytes[..taken]);
        Ok(taken)
    }

    fn receive(&mut self, peer: usize, into: &mut [u8]) -> io::Result<usize> {
        let stream = &mut self.links.streams[peer * self.links.size + self.rank];
        let there = stream.len().min(into.len());
        let got = if there == 0 { 0 } else { 1 + self.links.random.below(there) };
        for (to, from) in into.iter_mut().zip(stream.drain(..got)) {
            *to = from;
        }
        Ok(got)
    }
}

/// The links of one rank, for ranks that are threads.
pub(super) struct Shared<'a> {
    pub(super) rank: usize,
    pub(super) links: &'a Mutex<MemoryLinks>,
}

impl Links for Shared<'_> {
    fn send(&mut self, peer: usize, bytes: &[u8]) -> io::Result<usize> {
        Ends { rank: self.rank, links: &mut self.links.lock().expect("no panic") }.send(peer, bytes)
    }

    fn receive(&mut self, peer: usize, into: &mut [u8]) -> io::Result<usize> {
        Ends { rank: self.rank, links: &mut self.links.lock().expect("no panic") }.receive(peer, into)
    }
}
