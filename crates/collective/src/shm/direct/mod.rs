//! Collectives without messages: ranks of one host read and write each other's memory.
//!
//! - *One shot*: every rank lays its data on its desk and reads what it needs from the desks of the others.
//! - *Two shot*: ranks tell each other where their buffers are; each works on its share of the data, reads it from all
//!   and writes the result to all. Registered buffers are mapped by everybody; private ones are reached by
//!   cross-memory attach.
//! - *Staged*: the same through staging space on the desks, for private buffers where that is forbidden.

mod cross;
mod oneshot;
mod staged;
mod twoshot;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::desk::{Desk, Post, TURNS};
use super::{SMALL, Segment};
use crate::call::Call;
use crate::watch::{Outcome, Watch};
use cross::Cross;

/// How long a rank whose call failed waits for those who may still write to its buffers.
const LINGER: Duration = Duration::from_secs(1);

/// Why a direct collective could not be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The job was ended.
    Alarm,
    /// This rank did not come.
    Late(usize),
    /// This rank called something else.
    Mismatch(usize),
    /// This rank's memory could not be reached, with the error's number.
    Unreachable(usize, i32),
}

/// How the buffers of a call can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All are registered.
    Registered,
    /// By cross-memory attach.
    Cross,
    /// Not at all.
    No,
}

/// A registered segment of a rank: where it is there, and where it is mapped here.
#[derive(Debug)]
struct Registered {
    /// Its address in the owner's memory.
    there: u64,
    here: Segment,
}

impl Registered {
    /// Whether so many bytes at an address of the owner's are within it.
    fn holds(&self, address: u64, bytes: usize) -> bool {
        let end = address.wrapping_sub(self.there).checked_add(bytes as u64);
        end.is_some_and(|it| it <= self.here.len() as u64)
    }
}

/// One rank's view of the memory of all ranks.
#[derive(Debug)]
pub(crate) struct Direct {
    place: usize,
    desks: Vec<Desk>,
    watch: Watch,
    /// Counts the calls; all ranks make the same ones.
    serial: u64,
    /// Counts staged blocks.
    blocks: u64,
    /// Cross-memory attach, if every rank may.
    cross: Option<Cross>,
    /// Each rank's registered segments by number.
    registered: Vec<BTreeMap<u32, Registered>>,
    /// What each rank said about the call that runs.
    posts: Vec<Post>,
    from: Vec<*const u8>,
    into: Vec<*mut u8>,
    /// Bytes from which a rank's share is written past the caches.
    streaming: usize,
}

// SAFETY: the raw pointers are filled in and used within one call only; between calls they are never followed.
unsafe impl Send for Direct {}

impl Direct {
    pub(crate) fn new(place: usize, desks: Vec<Desk>, watch: Watch, streaming: usize) -> Self {
        let size = desks.len();
        Self {
            place,
            desks,
            watch,
            serial: 0,
            blocks: 0,
            cross: None,
            registered: (0..size).map(|_| BTreeMap::new()).collect(),
            posts: vec![Post::default(); size],
            from: Vec::with_capacity(size),
            into: Vec::with_capacity(size),
            streaming,
        }
    }

    fn size(&self) -> usize {
        self.desks.len()
    }

    /// Finds out whether ranks can reach each other's private memory; all ranks call it.
    pub(crate) fn probe(&mut self, pids: &[u32], allowed: bool) -> Result<(), Trouble> {
        self.cross = Cross::probe(self.place, pids, &self.desks, &self.watch, allowed)?;
        Ok(())
    }

    /// Whether private memory can be reached.
    pub(crate) fn crosses(&self) -> bool {
        self.cross.is_some()
    }

    /// Enters the segments that all ranks have just registered under a number.
    pub(crate) fn register(&mut self, number: u32, segments: Vec<(u64, Segment)>) {
        for (table, (there, here)) in self.registered.iter_mut().zip(segments) {
            table.insert(number, Registered { there, here });
        }
    }

    /// Forgets a segment of a rank.
    pub(crate) fn retire(&mut self, rank: usize, number: u32) {
        if let Some(table) = self.registered.get_mut(rank) {
            table.remove(&number);
        }
    }

    /// Begins a call.
    #[inline]
    fn begin(&mut self, call: &Call) -> (u64, usize) {
        self.serial += 1;
        (self.serial << 16 | u64::from(call.signature()), turn(self.serial))
    }

    /// Waits until each other rank's word has the mark.
    #[inline]
    fn await_marks<'a>(&'a self, mark: u64, word: impl Fn(&'a Desk) -> &'a AtomicU64) -> Result<(), Trouble> {
        for (peer, desk) in self.desks.iter().enumerate() {
            if peer == self.place {
                continue;
            }
            let word = word(desk);
            // A look that comes too early takes the line from the other rank just as it writes, and costs more than it
            // could win.
            std::hint::spin_loop();
            let mut seen = word.load(Ordering::Acquire);
            if seen >> 16 != mark >> 16 {
                let outcome = self.watch.until(|| {
                    seen = word.load(Ordering::Acquire);
                    seen >> 16 == mark >> 16
                });
                ended(outcome, peer)?;
            }
            if seen != mark {
                return Err(Trouble::Mismatch(peer));
            }
        }
        Ok(())
    }

    /// Waits until each other rank has counted so far.
    #[inline]
    fn await_count<'a>(
        &'a self,
        count: u64,
        word: impl Fn(&'a Desk) -> &'a AtomicU64,
    ) -> Result<(), Trouble> {
        for (peer, desk) in self.desks.iter().enumerate() {
            if peer != self.place {
                let word = word(desk);
                let outcome = self.watch.until(|| word.load(Ordering::Acquire) >= count);
                ended(outcome, peer)?;
            }
        }
        Ok(())
    }

    /// Tells all ranks where the buffers of a call are, learns theirs, and how they can be reached.
    pub(crate) fn meet(&mut self, call: &Call, send: u32, receive: u32) -> Result<Reach, Trouble> {
        let (mark, turn) = self.begin(call);
        let post = Post {
            send: call.send as u64,
            receive: call.receive as u64,
            send_segment: send,
            receive_segment: receive,
        };
        let desk = &self.desks[self.place];
        desk.write_post(turn, mark, post);
        desk.reclaim_post(next(turn));
        self.await_marks(mark, |it| it.post_mark(turn))?;
        for (post, desk) in self.posts.iter_mut().zip(&self.desks) {
            *post = desk.read_post(turn);
        }
        let size = self.size();
        let mut registered = true;
        for (rank, (post, table)) in self.posts.iter().zip(&self.registered).enumerate() {
            let buffers = [
                (post.send_segment, post.send, call.gives(rank, size)),
                (post.receive_segment, post.receive, call.takes(rank, size)),
            ];
            for (number, address, bytes) in buffers {
                match table.get(&number) {
                    _ if address == 0 => {}
                    None => registered = false,
                    Some(it) if it.holds(address, bytes) => {}
                    // A call of another size, by chance with the same mark.
                    Some(_) => return Err(Trouble::Mismatch(rank)),
                }
            }
        }
        Ok(match (registered, &self.cross) {
            (true, _) => Reach::Registered,
            (false, Some(_)) => Reach::Cross,
            (false, None) => Reach::No,
        })
    }

    /// Waits until all ranks are through with the call: until then others may work on this rank's buffers.
    ///
    /// After a failure too, for a while: those who live notice the end of the job and say that they are through. One that
    /// is stopped in the middle of its work may go on later; nothing can be done about that.
    fn part(&self, result: Result<(), Trouble>) -> Result<(), Trouble> {
        let turn = turn(self.serial);
        self.desks[self.place].done(turn).store(self.serial, Ordering::Release);
        let result = result.and_then(|()| self.await_count(self.serial, |it| it.done(turn)));
        if result.is_err() {
            let until = Instant::now() + LINGER;
            let through = || self.desks.iter().all(|it| it.done(turn).load(Ordering::Acquire) >= self.serial);
            while !through() && Instant::now() < until {
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

/// The turn of a call.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "less than the number of turns")]
fn turn(serial: u64) -> usize {
    (serial % TURNS as u64) as usize
}

/// The turn after it.
#[inline]
fn next(turn: usize) -> usize {
    (turn + 1) % TURNS
}

#[inline]
fn ended(outcome: Outcome, peer: usize) -> Result<(), Trouble> {
    match outcome {
        Outcome::Ready => Ok(()),
        Outcome::Alarm => Err(Trouble::Alarm),
        Outcome::Late => Err(Trouble::Late(peer)),
    }
}

/// The share of `count` elements that a rank works on: cut at cache lines, so that no line has two writers.
fn share(count: usize, element: usize, place: usize, size: usize) -> (usize, usize) {
    let line = (64 / element).max(1);
    let each = count.div_ceil(size).next_multiple_of(line);
    ((place * each).min(count), ((place + 1) * each).min(count))
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_cover_everything_once() {
        for count in [0, 1, 15, 16, 17, 1000, 4099] {
            for size in 1..10 {
                let mut next = 0;
                for place in 0..size {
                    let (start, end) = share(count, 4, place, size);
                    assert!(start == next || (start == count && end == count), "{count} over {size}");
                    assert!(start % 16 == 0 || start == count, "cut at lines");
                    next = end.max(next);
                }
                assert_eq!(next, count, "{count} over {size}");
            }
        }
    }
}
