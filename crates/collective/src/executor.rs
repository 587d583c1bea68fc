//! Runs a schedule over streams: one thread, no blocking, whatever can move moves.

#![allow(unsafe_code, reason = "buffers that may overlap, and kernels, are reached through raw pointers")]

use std::io;
use std::marker::PhantomData;

use crate::kernel::{self, Store};
use crate::link::Links;
use crate::schedule::{Action, Hand, Place, Schedule, Space, Step, Way};
use crate::watch::{Outcome, Watch};
use crate::{DataType, Operation};

/// Bytes received for a combination at a time: they stay in the cache until they are combined.
const BOUNCE: usize = 512 << 10;
/// Bytes given to a stream, taken from one, or copied at a time, so that all streams get their turns.
const PIECE: usize = 512 << 10;
/// Bytes of something that still arrives are sent on when there are so many of them: each sending has its price.
const GRAIN: usize = 16 << 10;

/// A call's two buffers. They may overlap as NCCL's calls in place have it, and in no other way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory<'a> {
    send: (*const u8, usize),
    receive: (*mut u8, usize),
    lent: PhantomData<&'a mut [u8]>,
}

impl Memory<'_> {
    /// Two buffers by their addresses and lengths.
    ///
    /// # Safety
    /// Both are valid for `'a`, and nobody else writes the first or touches the second meanwhile.
    pub(crate) unsafe fn raw(send: (*const u8, usize), receive: (*mut u8, usize)) -> Self {
        Self { send, receive, lent: PhantomData }
    }
}

#[cfg(test)]
impl<'a> Memory<'a> {
    /// Two buffers.
    fn apart(send: &'a [u8], receive: &'a mut [u8]) -> Self {
        Self {
            send: (send.as_ptr(), send.len()),
            receive: (receive.as_mut_ptr(), receive.len()),
            lent: PhantomData,
        }
    }

    /// Two parts of one buffer; nothing where they are not within it.
    fn within(
        data: &'a mut [u8],
        send: &std::ops::Range<usize>,
        receive: &std::ops::Range<usize>,
    ) -> Option<Self> {
        let (send_len, receive_len) = (data.get(send.clone())?.len(), data.get(receive.clone())?.len());
        let start = data.as_mut_ptr();
        // SAFETY: both ranges are within `data`, as was just seen.
        let (send, receive) = unsafe { (start.add(send.start), start.add(receive.start)) };
        Some(Self { send: (send, send_len), receive: (receive, receive_len), lent: PhantomData })
    }
}

/// Why a schedule ended early.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The alarm was raised; it has the verdict.
    Alarm,
    /// Nothing moved for the whole timeout; this peer is waited for.
    Late { peer: usize },
    /// A stream broke.
    Link { peer: usize, error: io::Error },
}

/// How a look at all streams ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Something moved.
    Moved,
    /// Nothing could move.
    Idle,
    /// All is done.
    Done,
}

/// Runs schedules, one after the other. It keeps its memory between them.
#[derive(Debug)]
pub(crate) struct Executor {
    /// Bytes of each step that are done.
    done: Vec<usize>,
    cursors: Vec<Cursor>,
    /// Streams that are not at their end.
    open: usize,
    bounce: Lines,
    scratch: Lines,
    grain: usize,
}

/// Where a stream is.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    /// Its next step, in the schedule's queue.
    next: usize,
    /// The first bytes of an element that was cut by the stream.
    cut: [u8; 8],
    cut_len: usize,
}

/// Addresses of the three spaces.
#[derive(Debug, Clone, Copy)]
struct Spaces([*mut u8; 3]);

impl Executor {
    /// One without memory yet.
    pub(crate) fn new() -> Self {
        Self {
            done: Vec::new(),
            cursors: Vec::new(),
            open: 0,
            bounce: Lines::default(),
            scratch: Lines::default(),
            grain: GRAIN,
        }
    }

    /// Runs a schedule to its end.
    #[inline]
    pub(crate) fn run<L: Links + ?Sized>(
        &mut self,
        schedule: &Schedule,
        memory: Memory<'_>,
        what: (DataType, Operation),
        links: &mut L,
        watch: &Watch,
    ) -> Result<(), Stopped> {
        self.begin(schedule);
        let mut pause = watch.pause();
        loop {
            match self.turn(schedule, memory, what, links)? {
                Turn::Done => return Ok(()),
                Turn::Moved => pause.reset(),
                Turn::Idle => match pause.once() {
                    None | Some(Outcome::Ready) => {}
                    Some(Outcome::Alarm) => return Err(Stopped::Alarm),
                    Some(Outcome::Late) => return Err(Stopped::Late { peer: self.waited_for(schedule) }),
                },
            }
        }
    }

    /// Gives back what the largest schedule so far has needed.
    pub(crate) fn shrink(&mut self) {
        self.scratch = Lines::default();
    }

    /// Begins a schedule.
    fn begin(&mut self, schedule: &Schedule) {
        self.done.clear();
        self.done.resize(schedule.steps().len(), 0);
        self.cursors.clear();
        self.cursors
            .extend(schedule.streams().iter().map(|it| Cursor { next: it.steps.start, ..Cursor::default() }));
        self.open = schedule.streams().len();
        self.scratch.reserve(schedule.needs(Space::Scratch));
        self.bounce.reserve(BOUNCE);
    }

    /// Lets every stream of the schedule that was begun move once.
    ///
    /// # Panics
    /// When the buffers, or the elements, are not those the schedule was made for.
    fn turn<L: Links + ?Sized>(
        &mut self,
        schedule: &Schedule,
        memory: Memory<'_>,
        what: (DataType, Operation),
        links: &mut L,
    ) -> Result<Turn, Stopped> {
        assert!(
            schedule.needs(Space::Send) <= memory.send.1
                && schedule.needs(Space::Receive) <= memory.receive.1
                && schedule.width() == what.0.size(),
            "a schedule for other buffers"
        );
        // In the order of `Space`. No schedule writes what is sent: see `Schedule::new`.
        let spaces = Spaces([memory.send.0.cast_mut(), memory.receive.0, self.scratch.start()]);
        let mut moved = false;
        for (number, stream) in schedule.streams().iter().enumerate() {
            let before = self.cursors[number].next;
            if before == stream.steps.end {
                continue;
            }
            let queue = &schedule.queue()[before..stream.steps.end];
            let went = match stream.way {
                Way::To(peer) => self
                    .give(schedule, spaces, queue, |bytes| links.send(peer, bytes))
                    .map_err(|error| Stopped::Link { peer, error })?,
                Way::From(peer) => self
                    .take(schedule, spaces, what, (number, queue), |into| links.receive(peer, into))
                    .map_err(|error| Stopped::Link { peer, error })?,
                Way::Here => self.compute(schedule, spaces, what, queue),
            };
            moved |= went.moved;
            self.cursors[number].next += went.steps;
            if self.cursors[number].next == stream.steps.end {
                self.open -= 1;
            }
        }
        Ok(match (self.open, moved) {
            (0, _) => Turn::Done,
            (_, true) => Turn::Moved,
            (_, false) => Turn::Idle,
        })
    }

    /// How far a step may go now.
    #[inline]
    fn limit(&self, step: &Step) -> usize {
        step.after.map_or(step.len, |it| self.done[it.step as usize].saturating_sub(it.ahead).min(step.len))
    }

    /// Sends what is ready, together with the steps behind it that lie behind it in memory too.
    fn give(
        &mut self,
        schedule: &Schedule,
        spaces: Spaces,
        queue: &[u32],
        send: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> io::Result<Went> {
        let step = |number: u32| &schedule.steps()[number as usize];
        let Action::Send { from, .. } = step(queue[0]).action else { return Ok(Went::NOWHERE) };
        let begun = self.done[queue[0] as usize];
        let mut len = 0;
        let mut end = from.offset + begun;
        for number in queue {
            let (done, step) = (self.done[*number as usize], step(*number));
            let Action::Send { from: part, .. } = step.action else { break };
            if len >= PIECE || part.space != from.space || part.offset + done != end {
                break;
            }
            let limit = self.limit(step);
            if limit < step.len && limit - done < self.grain {
                break;
            }
            len += limit - done;
            end += limit - done;
            if limit < step.len {
                break;
            }
        }
        if len == 0 {
            return Ok(Went::NOWHERE);
        }
        let start = spaces.read(from, begun);
        // SAFETY: the bytes are within the buffer, as `turn` saw, and nothing is written while they are lent.
        let bytes = unsafe { std::slice::from_raw_parts(start, len.min(PIECE)) };
        let mut taken = send(bytes)?.min(bytes.len());
        let mut went = Went { steps: 0, moved: taken > 0 };
        for number in queue {
            let done = &mut self.done[*number as usize];
            let part = (step(*number).len - *done).min(taken);
            *done += part;
            taken -= part;
            if *done < step(*number).len {
                break;
            }
            went.steps += 1;
            if taken == 0 {
                break;
            }
        }
        Ok(went)
    }

    /// Receives what has come for the next step, and combines it if it is to be combined.
    fn take(
        &mut self,
        schedule: &Schedule,
        spaces: Spaces,
        what: (DataType, Operation),
        (stream, queue): (usize, &[u32]),
        receive: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Went> {
        let number = queue[0] as usize;
        let step = &schedule.steps()[number];
        let (done, limit) = (self.done[number], self.limit(step));
        let got = match step.action {
            Action::Receive { into, .. } if done < limit => {
                // SAFETY: the bytes are within the buffer, as `turn` saw, and nothing else is lent meanwhile.
                let into = unsafe {
                    std::slice::from_raw_parts_mut(spaces.write(into, done), (limit - done).min(PIECE))
                };
                let got = receive(into)?.min(into.len());
                self.done[number] += got;
                got
            }
            Action::Combine { into, own, hand, last, .. } => {
                let cursor = &mut self.cursors[stream];
                let cut = cursor.cut_len;
                let room = (limit - done).min(BOUNCE);
                if room <= cut {
                    return Ok(Went::NOWHERE);
                }
                let target = spaces.write(into, done);
                let own = spaces.read(own, done);
                // Where the result goes elsewhere than what it is made from, it can come there right away: those lines
                // have to be brought into the cache anyway.
                let came = if own == target.cast_const() {
                    self.bounce.bytes()[..room].as_mut_ptr()
                } else {
                    target
                };
                // SAFETY: the bytes are within the buffer, as `turn` saw, or within the bounce; all are
                // initialised, and nothing else is lent meanwhile.
                let space = unsafe { std::slice::from_raw_parts_mut(came, room) };
                space[..cut].copy_from_slice(&cursor.cut[..cut]);
                let got = receive(&mut space[cut..])?.min(room - cut);
                let count = (cut + got) / schedule.width();
                let whole = count * schedule.width();
                let rest = &space[whole..cut + got];
                cursor.cut[..rest.len()].copy_from_slice(rest);
                cursor.cut_len = rest.len();
                if count > 0 {
                    let came = came.cast_const();
                    let from = match hand {
                        Hand::Left => [own, came],
                        Hand::Right => [came, own],
                    };
                    let finish = finish(what, last, schedule);
                    // SAFETY: the elements are within the buffers, as `turn` saw; `target` is `own` or `came`, and apart
                    // from the other, by the schedule and by the choice above.
                    unsafe { kernel::reduce_all(what, &[target], &from, count, finish, Store::Plain) };
                    self.done[number] += whole;
                }
                got
            }
            _ => 0,
        };
        Ok(Went { steps: usize::from(self.done[number] == step.len), moved: got > 0 })
    }

    /// Does a piece of what this rank does by itself.
    fn compute(
        &mut self,
        schedule: &Schedule,
        spaces: Spaces,
        what: (DataType, Operation),
        queue: &[u32],
    ) -> Went {
        let number = queue[0] as usize;
        let step = &schedule.steps()[number];
        let done = self.done[number];
        let mut piece = (self.limit(step) - done).min(PIECE);
        match step.action {
            Action::Copy { from, into } => {
                let (from, into) = (spaces.read(from, done), spaces.write(into, done));
                if from == into.cast_const() {
                    piece = self.limit(step) - done;
                } else {
                    // SAFETY: the bytes are within the buffers, as `turn` saw.
                    unsafe { into.copy_from(from, piece) };
                }
            }
            Action::Merge { from, into, last } => {
                let count = piece / schedule.width();
                piece = count * schedule.width();
                let (from, into) = (spaces.read(from, done), spaces.write(into, done));
                let finish = finish(what, last, schedule);
                // SAFETY: the elements are within the buffers, as `turn` saw, and apart by the schedule.
                unsafe {
                    kernel::reduce_all(
                        what,
                        &[into],
                        &[into.cast_const(), from],
                        count,
                        finish,
                        Store::Plain,
                    );
                }
            }
            Action::Send { .. } | Action::Receive { .. } | Action::Combine { .. } => piece = 0,
        }
        self.done[number] += piece;
        Went { steps: usize::from(self.done[number] == step.len), moved: piece > 0 }
    }

    /// The peer that the schedule waits for: one that owes bytes, or else one that takes none.
    #[cold]
    fn waited_for(&self, schedule: &Schedule) -> usize {
        let waiting = || {
            schedule.streams().iter().zip(&self.cursors).filter(|(stream, cursor)| {
                cursor.next < stream.steps.end && {
                    let number = schedule.queue()[cursor.next] as usize;
                    self.done[number] < self.limit(&schedule.steps()[number])
                }
            })
        };
        let owes = waiting().find_map(|(stream, _)| match stream.way {
            Way::From(peer) => Some(peer),
            _ => None,
        });
        let takes = || {
            waiting().find_map(|(stream, _)| match stream.way {
                Way::To(peer) => Some(peer),
                _ => None,
            })
        };
        owes.or_else(takes).unwrap_or(0)
    }
}

/// How far a stream went.
#[derive(Debug, Clone, Copy)]
struct Went {
    /// Steps that were completed.
    steps: usize,
    moved: bool,
}

impl Went {
    const NOWHERE: Self = Self { steps: 0, moved: false };
}

impl Spaces {
    #[inline]
    fn read(self, place: Place, further: usize) -> *const u8 {
        self.write(place, further).cast_const()
    }

    #[inline]
    fn write(self, place: Place, further: usize) -> *mut u8 {
        self.0[place.space as usize].wrapping_add(place.offset + further)
    }
}

/// By how many to divide: an average, when it is complete.
fn finish(what: (DataType, Operation), last: bool, schedule: &Schedule) -> Option<usize> {
    (last && what.1 == Operation::Avg).then(|| schedule.size())
}

/// Memory that begins at a cache line.
#[derive(Debug, Default)]
struct Lines {
    words: Vec<u64>,
    start: usize,
    len: usize,
}

impl Lines {
    /// Makes it at least this long. What was in it is lost.
    fn reserve(&mut self, bytes: usize) {
        const LINE: usize = 64;
        if bytes > self.len {
            // The old memory goes first. Zeros cost nothing until they are touched.
            self.words = Vec::new();
            self.words = vec![0; (bytes + LINE).div_ceil(size_of::<u64>())];
            self.start = self.words.as_ptr().addr().next_multiple_of(LINE) - self.words.as_ptr().addr();
            self.len = bytes;
        }
    }

    fn start(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast::<u8>().wrapping_add(self.start)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: there are a line more bytes than `len`, `start` skips less than one, and all are initialised.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

#[cfg(test)]
mod tests;
