//! Two shot: every rank works on its share of the data, in the memory of all.

use super::cross::PIECE;
use super::{Direct, Reach, Trouble, share};
use crate::Operation;
use crate::call::Call;
use crate::kernel::{self, Store};
use crate::schedule::Kind;

/// Bytes that are moved without a look at the alarm.
const STEP: usize = 16 << 20;

/// One of a rank's two buffers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Send,
    Receive,
}

impl Direct {
    /// Runs a call whose buffers [`Direct::meet`] found reachable.
    ///
    /// Others work on this rank's buffers until they say that they are through, so it stays until then, whatever happens.
    pub(crate) fn two_shot(&mut self, call: &Call, reach: Reach) -> Result<(), Trouble> {
        let result = self.work(call, reach);
        self.part(result)
    }

    /// This rank's share of the work.
    fn work(&mut self, call: &Call, reach: Reach) -> Result<(), Trouble> {
        let (place, size, part) = (self.place, self.size(), call.bytes());
        match call.kind {
            Kind::AllReduce => {
                let (start, end) = share(call.count, call.data.size(), place, size);
                self.combine(call, reach, start..end, 0, &Target::All)?;
            }
            Kind::Reduce => {
                let (start, end) = share(call.count, call.data.size(), place, size);
                self.combine(call, reach, start..end, 0, &Target::One(call.root))?;
            }
            Kind::ReduceScatter => {
                self.combine(call, reach, 0..call.count, place * part, &Target::One(place))?;
            }
            Kind::AllGather => {
                // Each begins with its neighbour, so that not all write to the same rank.
                for step in 0..size {
                    self.push(call, reach, (place + step) % size, place * part, part)?;
                }
            }
            Kind::Gather => self.push(call, reach, call.root, place * part, part)?,
            Kind::Broadcast => self.pull(call, reach, call.root, 0, 0, part)?,
            Kind::Scatter => self.pull(call, reach, call.root, place * part, 0, part)?,
            Kind::AllToAll => {
                for step in 0..size {
                    let peer = (place + step) % size;
                    self.pull(call, reach, peer, place * part, peer * part, part)?;
                }
            }
            Kind::SendReceive { from, .. } => self.pull(call, reach, from, 0, 0, part)?,
            Kind::Barrier => {}
        }
        Ok(())
    }

    /// Whether so many bytes, written by each rank, are more than its caches keep.
    fn store(&self, bytes: usize) -> Store {
        if bytes > self.streaming { Store::Streaming } else { Store::Plain }
    }

    /// Where a rank's buffer is mapped here. Only for registered ones.
    fn mapped(&self, rank: usize, side: Side) -> *mut u8 {
        let post = &self.posts[rank];
        let (number, address) = match side {
            Side::Send => (post.send_segment, post.send),
            Side::Receive => (post.receive_segment, post.receive),
        };
        match self.registered[rank].get(&number) {
            // `meet` has seen that the buffer lies within the segment.
            Some(it) => {
                it.here.start().wrapping_add(usize::try_from(address.wrapping_sub(it.there)).unwrap_or(0))
            }
            None => std::ptr::null_mut(),
        }
    }

    /// Combines a range of elements of all send buffers, `skip` bytes into them, into one receive buffer or all.
    fn combine(
        &mut self,
        call: &Call,
        reach: Reach,
        range: std::ops::Range<usize>,
        skip: usize,
        target: &Target,
    ) -> Result<(), Trouble> {
        let (place, size, element) = (self.place, self.size(), call.data.size());
        let what = (call.data, call.operation);
        let finish = (call.operation == Operation::Avg).then_some(size);
        if range.is_empty() {
            return Ok(());
        }
        if reach == Reach::Registered {
            let offset = range.start * element;
            let count = range.len();
            self.from.clear();
            self.into.clear();
            for rank in 0..size {
                let from = self.mapped(rank, Side::Send).wrapping_add(skip + offset);
                self.from.push(from.cast_const());
            }
            match *target {
                Target::All => {
                    for step in 0..size {
                        let into = self.mapped((place + step) % size, Side::Receive).wrapping_add(offset);
                        self.into.push(into);
                    }
                }
                Target::One(rank) => {
                    let into = self.mapped(rank, Side::Receive).wrapping_add(offset);
                    self.into.push(into);
                }
            }
            // What a core touches in one call: its range of every source and every destination.
            let touched = count * element * (self.from.len() + self.into.len());
            let store = self.store(touched);
            // SAFETY: all are inside registered segments of `count` elements from here on; this rank alone works on
            // this range, in every buffer, until all have parted.
            unsafe { kernel::reduce_all(what, &self.into, &self.from, count, finish, store) };
            return Ok(());
        }
        let Some(mut cross) = self.cross.take() else { return Err(Trouble::Unreachable(place, libc::EPERM)) };
        let mut result = Ok(());
        let apart = matches!(*target, Target::All) && call.send != call.receive.cast_const();
        let first = if apart { usize::from(place == 0) } else { usize::MAX };
        let mut done = range.start;
        while done < range.end && result.is_ok() {
            if self.watch.alarm.is_raised() {
                result = Err(Trouble::Alarm);
                break;
            }
            let count = (range.end - done).min(PIECE / element);
            let (offset, bytes) = (done * element, count * element);
            result = (|| {
                self.from.clear();
                for rank in 0..size {
                    if rank == place {
                        self.from.push(call.send.wrapping_add(skip + offset));
                    } else {
                        // The first is brought where the result will be: one line less for the cache to fetch.
                        let room =
                            if rank == first { call.receive.wrapping_add(offset) } else { cross.room(rank) };
                        let there = self.posts[rank].send.wrapping_add((skip + offset) as u64);
                        cross.read(rank, there, room, bytes)?;
                        self.from.push(room.cast_const());
                    }
                }
                // A result for others alone is put together in this rank's own room.
                let into = match *target {
                    Target::One(rank) if rank != place => cross.room(place),
                    _ => call.receive.wrapping_add(offset),
                };
                // SAFETY: sources are this rank's own buffer and pieces brought here, the destination is its own;
                // each has `count` elements.
                unsafe { kernel::reduce_all(what, &[into], &self.from, count, finish, Store::Plain) };
                for step in 1..size {
                    let rank = (place + step) % size;
                    if matches!(*target, Target::One(only) if only != rank) {
                        continue;
                    }
                    cross.write(rank, self.posts[rank].receive.wrapping_add(offset as u64), into, bytes)?;
                }
                Ok(())
            })();
            done += count;
        }
        self.cross = Some(cross);
        result
    }

    /// Moves many bytes in steps between which the end of the job is noticed.
    fn in_steps(
        &self,
        bytes: usize,
        mut step: impl FnMut(usize, usize) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        let mut done = 0;
        while done < bytes {
            if self.watch.alarm.is_raised() {
                return Err(Trouble::Alarm);
            }
            let count = STEP.min(bytes - done);
            step(done, count)?;
            done += count;
        }
        Ok(())
    }

    /// Writes this rank's data to a place in another's receive buffer.
    fn push(
        &self,
        call: &Call,
        reach: Reach,
        rank: usize,
        offset: usize,
        bytes: usize,
    ) -> Result<(), Trouble> {
        if rank == self.place {
            keep(call.send, call.receive.wrapping_add(offset), bytes);
            return Ok(());
        }
        match (reach, &self.cross) {
            (Reach::Registered, _) => {
                let into = self.mapped(rank, Side::Receive).wrapping_add(offset);
                let store = self.store(2 * bytes * self.size());
                // SAFETY: the receive buffer of a rank has a place of `bytes` for each rank, and this one is ours.
                unsafe { kernel::copy(into, call.send, bytes, store) };
                Ok(())
            }
            (_, Some(cross)) => self.in_steps(bytes, |done, count| {
                let there = self.posts[rank].receive.wrapping_add((offset + done) as u64);
                cross.write(rank, there, call.send.wrapping_add(done), count)
            }),
            _ => Err(Trouble::Unreachable(rank, libc::EPERM)),
        }
    }

    /// Reads a place in another's send buffer into this rank's receive buffer.
    fn pull(
        &self,
        call: &Call,
        reach: Reach,
        rank: usize,
        offset: usize,
        into: usize,
        bytes: usize,
    ) -> Result<(), Trouble> {
        let into = call.receive.wrapping_add(into);
        if rank == self.place {
            keep(call.send.wrapping_add(offset), into, bytes);
            return Ok(());
        }
        match (reach, &self.cross) {
            (Reach::Registered, _) => {
                let from = self.mapped(rank, Side::Send).wrapping_add(offset);
                let store = self.store(2 * bytes);
                // SAFETY: the send buffer of a rank has `bytes` there, and nobody writes to it during the call.
                unsafe { kernel::copy(into, from, bytes, store) };
                Ok(())
            }
            (_, Some(cross)) => self.in_steps(bytes, |done, count| {
                let there = self.posts[rank].send.wrapping_add((offset + done) as u64);
                cross.read(rank, there, into.wrapping_add(done), count)
            }),
            _ => Err(Trouble::Unreachable(rank, libc::EPERM)),
        }
    }
}

/// Who gets a result.
enum Target {
    All,
    One(usize),
}

/// A rank's own part, which in place is there already.
fn keep(from: *const u8, into: *mut u8, bytes: usize) {
    if from != into.cast_const() {
        // SAFETY: the caller's own buffers; in place they are equal here, else they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, into, bytes) };
    }
}
