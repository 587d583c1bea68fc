//! Runs a schedule over links, in one thread and without blocking.

#![allow(unsafe_code, reason = "buffers that may overlap, and kernels, are reached through raw pointers")]

use std::io;
use std::marker::PhantomData;

use crate::Operation;
use crate::data::ReduceOp;
use crate::kernel::{self, Store};
use crate::link::Links;
use crate::schedule::{Action, Direction, Hand, Lengths, Location, Schedule, Space, Step};
use crate::wait::{Outcome, Waiter};

/// The most bytes that are sent, received or copied at a time, so that all streams make progress. What is received for a reduction
/// stays in the core's own cache until it is reduced: where that is small, they are fewer.
const PIECE: usize = 512 << 10;
/// The fewest bytes of an incomplete message that are forwarded: every send has a cost.
const GRAIN: usize = 16 << 10;

/// The buffers of a call. They may overlap only as in NCCL's calls in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory<'a> {
    send: *const u8,
    send_len: usize,
    receive: *mut u8,
    receive_len: usize,
    lent: PhantomData<&'a mut [u8]>,
}

impl Memory<'_> {
    /// # Safety
    /// Both are valid for `'a`, and nobody else writes the first or touches the second meanwhile.
    pub(crate) unsafe fn raw(send: *const u8, receive: *mut u8, lengths: Lengths) -> Self {
        Self { send, send_len: lengths.send, receive, receive_len: lengths.receive, lent: PhantomData }
    }
}

#[cfg(test)]
impl<'a> Memory<'a> {
    fn apart(send: &'a [u8], receive: &'a mut [u8]) -> Self {
        Self {
            send: send.as_ptr(),
            send_len: send.len(),
            receive: receive.as_mut_ptr(),
            receive_len: receive.len(),
            lent: PhantomData,
        }
    }

    /// Two parts of one buffer; `None` if they are not within it.
    fn within(
        data: &'a mut [u8],
        send: &std::ops::Range<usize>,
        receive: &std::ops::Range<usize>,
    ) -> Option<Self> {
        let (send_len, receive_len) = (data.get(send.clone())?.len(), data.get(receive.clone())?.len());
        let start = data.as_mut_ptr();
        // SAFETY: both ranges are within `data`, as was just seen.
        let (send, receive) = unsafe { (start.add(send.start), start.add(receive.start)) };
        Some(Self { send, send_len, receive, receive_len, lent: PhantomData })
    }
}

/// Why a schedule ended early.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The abort flag is set; it has the error.
    Aborted,
    /// Nothing was transferred for the whole timeout, waiting for this peer.
    TimedOut {
        peer: usize,
    },
    Link {
        peer: usize,
        error: io::Error,
    },
}

/// The result of one pass over all streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Progress,
    Idle,
    Done,
}

/// Runs schedules, one after another, and keeps its memory between them.
#[derive(Debug)]
pub(crate) struct Executor {
    /// The finished bytes of each step.
    done: Vec<usize>,
    cursors: Vec<Cursor>,
    /// The number of unfinished streams.
    open: usize,
    bounce: Lines,
    scratch: Lines,
    grain: usize,
    piece: usize,
}

/// The progress of a stream.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    /// Its next step, as an index of the queue of the schedule.
    next: usize,
    /// The received bytes of an incomplete element.
    cut: [u8; 8],
    cut_len: usize,
}

/// The addresses of the three memories, by [`Space`].
#[derive(Debug, Clone, Copy)]
struct Spaces([*mut u8; 3]);

impl Executor {
    pub(crate) fn new(cache: usize) -> Self {
        Self {
            done: Vec::new(),
            cursors: Vec::new(),
            open: 0,
            bounce: Lines::default(),
            scratch: Lines::default(),
            grain: GRAIN,
            piece: (cache / 4).clamp(PIECE / 8, PIECE).next_multiple_of(4096),
        }
    }

    #[inline]
    pub(crate) fn run<L: Links + ?Sized>(
        &mut self,
        schedule: &Schedule,
        memory: Memory<'_>,
        what: ReduceOp,
        links: &mut L,
        waiter: &Waiter,
    ) -> Result<(), Stopped> {
        self.begin(schedule);
        let mut pause = waiter.pause();
        loop {
            match self.turn(schedule, memory, what, links)? {
                Turn::Done => return Ok(()),
                Turn::Progress => pause.reset(),
                Turn::Idle => match pause.once() {
                    None | Some(Outcome::Ready) => {}
                    Some(Outcome::Aborted) => return Err(Stopped::Aborted),
                    Some(Outcome::TimedOut) => {
                        return Err(Stopped::TimedOut { peer: self.waited_for(schedule) });
                    }
                },
            }
        }
    }

    /// Frees the scratch of the largest schedule so far.
    pub(crate) fn shrink(&mut self) {
        self.scratch = Lines::default();
    }

    fn begin(&mut self, schedule: &Schedule) {
        self.done.clear();
        self.done.resize(schedule.steps().len(), 0);
        self.cursors.clear();
        self.cursors
            .extend(schedule.streams().iter().map(|it| Cursor { next: it.steps.start, ..Cursor::default() }));
        self.open = schedule.streams().len();
        self.scratch.reserve(schedule.needs(Space::Scratch));
        self.bounce.reserve(self.piece);
    }

    /// One pass over all streams of the current schedule.
    ///
    /// # Panics
    /// If the schedule was made for other buffers or another element type.
    fn turn<L: Links + ?Sized>(
        &mut self,
        schedule: &Schedule,
        memory: Memory<'_>,
        what: ReduceOp,
        links: &mut L,
    ) -> Result<Turn, Stopped> {
        assert!(
            schedule.needs(Space::Send) <= memory.send_len
                && schedule.needs(Space::Receive) <= memory.receive_len
                && schedule.width() == what.data.size(),
            "a schedule for other buffers"
        );
        // In the order of `Space`. No schedule writes the send buffer: see `Schedule::new`.
        let spaces = Spaces([memory.send.cast_mut(), memory.receive, self.scratch.start()]);
        let mut progress = false;
        for (number, stream) in schedule.streams().iter().enumerate() {
            let before = self.cursors[number].next;
            if before == stream.steps.end {
                continue;
            }
            let queue = &schedule.queue()[before..stream.steps.end];
            let advanced = match stream.direction {
                Direction::To(peer) => self
                    .send(schedule, spaces, queue, |bytes| links.send(peer, bytes))
                    .map_err(|error| Stopped::Link { peer, error })?,
                Direction::From(peer) => self
                    .receive(schedule, spaces, what, (number, queue), |into| links.receive(peer, into))
                    .map_err(|error| Stopped::Link { peer, error })?,
                Direction::Local => self.compute(schedule, spaces, what, queue),
            };
            progress |= advanced.progress;
            self.cursors[number].next += advanced.steps;
            if self.cursors[number].next == stream.steps.end {
                self.open -= 1;
            }
        }
        Ok(match (self.open, progress) {
            (0, _) => Turn::Done,
            (_, true) => Turn::Progress,
            (_, false) => Turn::Idle,
        })
    }

    /// How far a step may go now.
    #[inline]
    fn limit(&self, step: &Step) -> usize {
        step.after.map_or(step.len, |it| self.done[it.step as usize].saturating_sub(it.ahead).min(step.len))
    }

    /// Sends what is ready, together with following steps that are contiguous in memory.
    fn send(
        &mut self,
        schedule: &Schedule,
        spaces: Spaces,
        queue: &[u32],
        send: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> io::Result<Advanced> {
        let step = |number: u32| &schedule.steps()[number as usize];
        let Action::Send { from, .. } = step(queue[0]).action else { return Ok(Advanced::NONE) };
        let begun = self.done[queue[0] as usize];
        let mut len = 0;
        let mut end = from.offset + begun;
        for number in queue {
            let (done, step) = (self.done[*number as usize], step(*number));
            let Action::Send { from: part, .. } = step.action else { break };
            if len >= self.piece || part.space != from.space || part.offset + done != end {
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
            return Ok(Advanced::NONE);
        }
        let start = spaces.read(from, begun);
        // SAFETY: the bytes are within the buffer, as `turn` checked, and nothing is written while they are lent.
        let bytes = unsafe { std::slice::from_raw_parts(start, len.min(self.piece)) };
        let mut taken = send(bytes)?.min(bytes.len());
        let mut advanced = Advanced { steps: 0, progress: taken > 0 };
        for number in queue {
            let done = &mut self.done[*number as usize];
            let part = (step(*number).len - *done).min(taken);
            *done += part;
            taken -= part;
            if *done < step(*number).len {
                break;
            }
            advanced.steps += 1;
            if taken == 0 {
                break;
            }
        }
        Ok(advanced)
    }

    /// Receives bytes for the next step, and reduces them if the step does.
    fn receive(
        &mut self,
        schedule: &Schedule,
        spaces: Spaces,
        what: ReduceOp,
        (stream, queue): (usize, &[u32]),
        receive: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Advanced> {
        let number = queue[0] as usize;
        let step = &schedule.steps()[number];
        let (done, limit) = (self.done[number], self.limit(step));
        let got = match step.action {
            Action::Receive { into, .. } if done < limit => {
                // SAFETY: the bytes are within the buffer, as `turn` checked, and nothing else is lent meanwhile.
                let into = unsafe {
                    std::slice::from_raw_parts_mut(spaces.write(into, done), (limit - done).min(self.piece))
                };
                let got = receive(into)?.min(into.len());
                self.done[number] += got;
                got
            }
            Action::Combine { into, own, hand, last, .. } => {
                let cursor = &mut self.cursors[stream];
                let cut = cursor.cut_len;
                let room = (limit - done).min(self.piece);
                if room <= cut {
                    return Ok(Advanced::NONE);
                }
                let target = spaces.write(into, done);
                let own = spaces.read(own, done);
                // If the result goes elsewhere than the own operand, receive directly into it: its cache lines are needed
                // anyway.
                let came = if own == target.cast_const() {
                    self.bounce.bytes()[..room].as_mut_ptr()
                } else {
                    target
                };
                // SAFETY: the bytes are within the buffer, as `turn` checked, or within the bounce; all are
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
                    // SAFETY: the elements are within the buffers, as `turn` checked; `target` is `own` or `came`, and apart
                    // from the other, by the schedule and by the choice above.
                    unsafe { kernel::reduce_all(what, &[target], &from, count, finish, Store::Plain) };
                    self.done[number] += whole;
                }
                got
            }
            _ => 0,
        };
        Ok(Advanced { steps: usize::from(self.done[number] == step.len), progress: got > 0 })
    }

    /// Runs a piece of a local step.
    fn compute(&mut self, schedule: &Schedule, spaces: Spaces, what: ReduceOp, queue: &[u32]) -> Advanced {
        let number = queue[0] as usize;
        let step = &schedule.steps()[number];
        let done = self.done[number];
        let mut piece = (self.limit(step) - done).min(self.piece);
        match step.action {
            Action::Copy { from, into } => {
                let (from, into) = (spaces.read(from, done), spaces.write(into, done));
                if from == into.cast_const() {
                    piece = self.limit(step) - done;
                } else {
                    // SAFETY: the bytes are within the buffers, as `turn` checked.
                    unsafe { into.copy_from(from, piece) };
                }
            }
            Action::Merge { from, into, last } => {
                let count = piece / schedule.width();
                piece = count * schedule.width();
                let (from, into) = (spaces.read(from, done), spaces.write(into, done));
                let finish = finish(what, last, schedule);
                // SAFETY: the elements are within the buffers, as `turn` checked, and apart by the schedule.
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
        Advanced { steps: usize::from(self.done[number] == step.len), progress: piece > 0 }
    }

    /// The peer that the schedule waits for: one to receive from, otherwise one to send to.
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
        let sender = waiting().find_map(|(stream, _)| match stream.direction {
            Direction::From(peer) => Some(peer),
            _ => None,
        });
        let receiver = || {
            waiting().find_map(|(stream, _)| match stream.direction {
                Direction::To(peer) => Some(peer),
                _ => None,
            })
        };
        sender.or_else(receiver).unwrap_or(0)
    }
}

/// The progress of a stream in one pass.
#[derive(Debug, Clone, Copy)]
struct Advanced {
    /// The number of completed steps.
    steps: usize,
    /// Whether any byte was transferred.
    progress: bool,
}

impl Advanced {
    const NONE: Self = Self { steps: 0, progress: false };
}

impl Spaces {
    #[inline]
    fn read(self, location: Location, offset: usize) -> *const u8 {
        self.write(location, offset).cast_const()
    }

    #[inline]
    fn write(self, location: Location, offset: usize) -> *mut u8 {
        self.0[location.space as usize].wrapping_add(location.offset + offset)
    }
}

/// The divisor of a complete average.
fn finish(what: ReduceOp, last: bool, schedule: &Schedule) -> Option<usize> {
    (last && what.operation == Operation::Avg).then(|| schedule.size())
}

/// Memory that starts at a cache line.
#[derive(Debug, Default)]
struct Lines {
    words: Vec<u64>,
    start: usize,
    len: usize,
}

impl Lines {
    /// Makes it at least this long. The content is lost.
    fn reserve(&mut self, bytes: usize) {
        const LINE: usize = 64;
        if bytes > self.len {
            // The old memory is freed first. Zeroed pages cost nothing until they are accessed.
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
