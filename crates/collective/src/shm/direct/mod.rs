//! Collectives without messages: ranks of one host read and write each other's memory.
//!
//! - *One shot*: every rank copies its data into its mailbox and reads what it needs from the mailboxes of the others.
//! - *Two shot*: ranks exchange the addresses of their buffers; each reduces its share of the data, reads it from all
//!   ranks and writes the result to all. Registered buffers are mapped by all ranks; private ones are accessed by
//!   cross-memory attach.
//! - *Staged*: the same through the staging space of the mailboxes, for private buffers where that is forbidden.

mod cross;
mod oneshot;
mod staged;
mod twoshot;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::mailbox::{Mailbox, PostedBuffers, SLOTS};
use super::{SMALL, Segment};
use crate::call::Call;
use crate::kernel::Store;
use crate::wait::{Outcome, Waiter};
use cross::Cross;

pub(crate) use cross::FINE_PIECE;
pub(crate) use staged::FINE_STAGE;

/// How long a rank whose call failed waits for ranks that may still write to its buffers.
const LINGER: Duration = Duration::from_secs(1);

/// Why a direct collective could not be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectError {
    Aborted,
    /// Waiting for this rank.
    TimedOut(usize),
    /// This rank made another call.
    Mismatch(usize),
    /// The memory of this rank cannot be accessed.
    Unreachable {
        rank: usize,
        errno: i32,
    },
}

/// How the buffers of a call can be accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All are registered.
    Registered,
    /// By cross-memory attach.
    Cross,
    No,
}

/// A registered segment of a rank.
#[derive(Debug)]
pub(crate) struct RegisteredSegment {
    /// Its address in the owner's memory.
    pub(crate) there: u64,
    /// The mapping in this process.
    pub(crate) here: Segment,
}

impl RegisteredSegment {
    /// Whether it contains `bytes` at an address in the memory of its owner.
    fn contains(&self, address: u64, bytes: usize) -> bool {
        let end = address.wrapping_sub(self.there).checked_add(bytes as u64);
        end.is_some_and(|it| it <= self.here.len() as u64)
    }
}

/// A call that has begun: the flag that marks its data, and its slot.
struct Begun {
    flag: u64,
    slot: usize,
}

/// How two shot and staged move the data. What is fastest depends on the caches of the processor and is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manner {
    /// How results are written.
    pub(crate) store: Store,
    /// Whether private buffers are moved in small pieces, which stay in a small cache and let ranks work at the same time, or in large
    /// ones, for which ranks wait less often.
    pub(crate) fine: bool,
}

impl Manner {
    /// Into the caches, in large pieces.
    pub(crate) const PLAIN: Self = Self { store: Store::Plain, fine: false };
    /// Into the caches, in small pieces.
    pub(crate) const FINE: Self = Self { store: Store::Plain, fine: true };
    /// Past the caches, in large pieces.
    pub(crate) const PAST: Self = Self { store: Store::Streaming, fine: false };
}

/// Bytes of the caches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caches {
    /// What a rank has for itself.
    pub(crate) own: usize,
    /// The last-level cache.
    pub(crate) last: usize,
}

/// Access to the memory of all ranks of the host, which are all ranks of the job.
#[derive(Debug)]
pub(crate) struct Direct {
    local_rank: usize,
    mailboxes: Vec<Mailbox>,
    waiter: Waiter,
    /// The number of calls, equal on all ranks.
    serial: u64,
    /// The number of staged blocks.
    blocks: u64,
    /// Set if all ranks can use cross-memory attach.
    cross: Option<Cross>,
    /// By rank and number of the segment.
    registered: Vec<BTreeMap<u32, RegisteredSegment>>,
    /// The buffers of the current call, by rank.
    posted: Vec<PostedBuffers>,
    from: Vec<*const u8>,
    into: Vec<*mut u8>,
    caches: Caches,
}

// SAFETY: the raw pointers are filled in and used within one call only; between calls they are never followed.
unsafe impl Send for Direct {}

impl Direct {
    pub(crate) fn new(local_rank: usize, mailboxes: Vec<Mailbox>, waiter: Waiter, caches: Caches) -> Self {
        let size = mailboxes.len();
        Self {
            local_rank,
            mailboxes,
            waiter,
            serial: 0,
            blocks: 0,
            cross: None,
            registered: (0..size).map(|_| BTreeMap::new()).collect(),
            posted: vec![PostedBuffers::default(); size],
            from: Vec::with_capacity(size),
            into: Vec::with_capacity(size),
            caches,
        }
    }

    fn size(&self) -> usize {
        self.mailboxes.len()
    }

    /// Finds out whether ranks can access each other's private memory. All ranks call it.
    pub(crate) fn probe(&mut self, pids: &[u32], allowed: bool) -> Result<(), DirectError> {
        self.cross = Cross::probe(self.local_rank, pids, &self.mailboxes, &self.waiter, allowed)?;
        Ok(())
    }

    /// Whether a core's own cache holds what a call of this many bytes touches: its part of the buffers of all ranks. Then results are
    /// never written past it.
    pub(crate) fn is_cached(&self, bytes: usize) -> bool {
        2 * bytes <= self.caches.own
    }

    /// Whether the last-level cache may hold the buffers of all ranks. Half of it: others use it too. Otherwise results are always written
    /// past it.
    pub(crate) fn may_be_cached(&self, bytes: usize) -> bool {
        2 * bytes * self.size() <= self.caches.last / 2
    }

    /// The manner of a call that was not measured: past the caches what a core's own cache does not hold.
    pub(crate) fn unmeasured(&self, bytes: usize) -> Manner {
        if self.is_cached(bytes) { Manner::PLAIN } else { Manner::PAST }
    }

    pub(crate) fn has_cross_memory(&self) -> bool {
        self.cross.is_some()
    }

    /// Adds the segments of all ranks with this number.
    pub(crate) fn register(&mut self, number: u32, segments: Vec<RegisteredSegment>) {
        for (table, segment) in self.registered.iter_mut().zip(segments) {
            table.insert(number, segment);
        }
    }

    /// Removes a segment of a rank.
    pub(crate) fn retire(&mut self, rank: usize, number: u32) {
        if let Some(table) = self.registered.get_mut(rank) {
            table.remove(&number);
        }
    }

    #[inline]
    fn begin(&mut self, call: &Call) -> Begun {
        self.serial += 1;
        Begun { flag: self.serial << 16 | u64::from(call.signature()), slot: slot(self.serial) }
    }

    /// Waits until the word of every other rank has the flag.
    #[inline]
    fn await_flags<'a>(
        &'a self,
        flag: u64,
        word: impl Fn(&'a Mailbox) -> &'a AtomicU64,
    ) -> Result<(), DirectError> {
        for (peer, mailbox) in self.mailboxes.iter().enumerate() {
            if peer == self.local_rank {
                continue;
            }
            let word = word(mailbox);
            // A load that is too early takes the cache line from the other rank while it writes, and costs more than it
            // gains.
            std::hint::spin_loop();
            let mut seen = word.load(Ordering::Acquire);
            if seen >> 16 != flag >> 16 {
                let outcome = self.waiter.until(|| {
                    seen = word.load(Ordering::Acquire);
                    seen >> 16 == flag >> 16
                });
                check(outcome, peer)?;
            }
            if seen != flag {
                return Err(DirectError::Mismatch(peer));
            }
        }
        Ok(())
    }

    /// Waits until the counter of every other rank has reached `count`.
    #[inline]
    fn await_count<'a>(
        &'a self,
        count: u64,
        word: impl Fn(&'a Mailbox) -> &'a AtomicU64,
    ) -> Result<(), DirectError> {
        for (peer, mailbox) in self.mailboxes.iter().enumerate() {
            if peer != self.local_rank {
                let word = word(mailbox);
                let outcome = self.waiter.until(|| word.load(Ordering::Acquire) >= count);
                check(outcome, peer)?;
            }
        }
        Ok(())
    }

    /// Exchanges the addresses of the buffers of a call with all ranks; returns how they can be accessed.
    pub(crate) fn exchange_buffers(
        &mut self,
        call: &Call,
        send: u32,
        receive: u32,
    ) -> Result<Reach, DirectError> {
        let Begun { flag, slot } = self.begin(call);
        let buffers = PostedBuffers {
            send: call.send as u64,
            receive: call.receive as u64,
            send_segment: send,
            receive_segment: receive,
        };
        let mailbox = &self.mailboxes[self.local_rank];
        mailbox.post_buffers(slot, flag, buffers);
        mailbox.reclaim_posted(next(slot));
        self.await_flags(flag, |it| it.buffers_flag(slot))?;
        for (buffers, mailbox) in self.posted.iter_mut().zip(&self.mailboxes) {
            *buffers = mailbox.posted_buffers(slot);
        }
        let size = self.size();
        let mut registered = true;
        for (rank, (buffers, table)) in self.posted.iter().zip(&self.registered).enumerate() {
            let checks = [
                (buffers.send_segment, buffers.send, call.send_bytes(rank, size)),
                (buffers.receive_segment, buffers.receive, call.receive_bytes(rank, size)),
            ];
            for (number, address, bytes) in checks {
                match table.get(&number) {
                    _ if address == 0 => {}
                    None => registered = false,
                    Some(it) if it.contains(address, bytes) => {}
                    // A call of another size that happens to have the same flag.
                    Some(_) => return Err(DirectError::Mismatch(rank)),
                }
            }
        }
        Ok(match (registered, &self.cross) {
            (true, _) => Reach::Registered,
            (false, Some(_)) => Reach::Cross,
            (false, None) => Reach::No,
        })
    }

    /// Waits until all ranks have finished the call: until then they may access the buffers of this rank.
    ///
    /// After a failure too, for a while: other ranks see the abort flag and finish. A rank that is stopped in the middle of
    /// a copy may continue it later; that cannot be prevented.
    fn complete(&self, result: Result<(), DirectError>) -> Result<(), DirectError> {
        let slot = slot(self.serial);
        self.mailboxes[self.local_rank].done(slot).store(self.serial, Ordering::Release);
        let result = result.and_then(|()| self.await_count(self.serial, |it| it.done(slot)));
        if result.is_err() {
            let until = Instant::now() + LINGER;
            let finished =
                || self.mailboxes.iter().all(|it| it.done(slot).load(Ordering::Acquire) >= self.serial);
            while !finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        result
    }

    /// Whether a message is small enough for one shot.
    pub(crate) fn fits(call: &Call, size: usize) -> bool {
        call.largest(size) <= SMALL
    }
}

/// The slot of a call.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "less than the number of slots")]
fn slot(serial: u64) -> usize {
    (serial % SLOTS as u64) as usize
}

#[inline]
fn next(slot: usize) -> usize {
    (slot + 1) % SLOTS
}

#[inline]
fn check(outcome: Outcome, peer: usize) -> Result<(), DirectError> {
    match outcome {
        Outcome::Ready => Ok(()),
        Outcome::Aborted => Err(DirectError::Aborted),
        Outcome::TimedOut => Err(DirectError::TimedOut(peer)),
    }
}

/// The share of `count` elements that a rank reduces, in whole cache lines, so that no line has two writers.
fn share(count: usize, element: usize, local_rank: usize, size: usize) -> Range<usize> {
    let line = (64 / element).max(1);
    let each = count.div_ceil(size).next_multiple_of(line);
    (local_rank * each).min(count)..((local_rank + 1) * each).min(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once() {
        for count in [0, 1, 15, 16, 17, 1000, 4099] {
            for size in 1..10 {
                let mut next = 0;
                for local_rank in 0..size {
                    let Range { start, end } = share(count, 4, local_rank, size);
                    assert!(start == next || (start == count && end == count), "{count} over {size}");
                    assert!(start % 16 == 0 || start == count, "cut at lines");
                    next = end.max(next);
                }
                assert_eq!(next, count, "{count} over {size}");
            }
        }
    }
}
