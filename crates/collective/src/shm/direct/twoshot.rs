//! Two shot: every rank reduces its share of the data in the memory of all ranks.

use super::cross::{FINE_PIECE, PIECE};
use super::{Direct, DirectError, Manner, Reach, share};
use crate::Operation;
use crate::call::Call;
use crate::kernel::{self, Store};
use crate::schedule::Kind;

/// Bytes that are copied between two checks of the abort flag.
const STEP: usize = 16 << 20;

/// One of a rank's two buffers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Send,
    Receive,
}

impl Direct {
    /// Runs a call whose buffers are accessible according to [`Direct::exchange_buffers`].
    ///
    /// It returns only after all ranks have finished, as they access the buffers of this rank.
    pub(crate) fn two_shot(&mut self, call: &Call, reach: Reach, manner: Manner) -> Result<(), DirectError> {
        let result = self.work(call, Access { reach, manner });
        self.complete(result)
    }

    fn work(&mut self, call: &Call, access: Access) -> Result<(), DirectError> {
        let (local_rank, size, part) = (self.local_rank, self.size(), call.bytes());
        match call.kind {
            Kind::AllReduce => {
                let range = share(call.count, call.data.size(), local_rank, size);
                self.reduce(call, access, range, 0, &Target::All)?;
            }
            Kind::Reduce => {
                let range = share(call.count, call.data.size(), local_rank, size);
                self.reduce(call, access, range, 0, &Target::One(call.root))?;
            }
            Kind::ReduceScatter => {
                self.reduce(call, access, 0..call.count, local_rank * part, &Target::One(local_rank))?;
            }
            Kind::AllGather => {
                // Each rank starts with its neighbour, so that not all write to the same rank.
                for step in 0..size {
                    self.push(call, access, (local_rank + step) % size, local_rank * part, part)?;
                }
            }
            Kind::Gather => self.push(call, access, call.root, local_rank * part, part)?,
            Kind::Broadcast => self.pull(call, access, call.root, 0, 0, part)?,
            Kind::Scatter => self.pull(call, access, call.root, local_rank * part, 0, part)?,
            Kind::AllToAll => {
                for step in 0..size {
                    let peer = (local_rank + step) % size;
                    self.pull(call, access, peer, local_rank * part, peer * part, part)?;
                }
            }
            Kind::SendReceive { from, .. } => self.pull(call, access, from, 0, 0, part)?,
            Kind::Barrier => {}
        }
        Ok(())
    }

    /// The address of a registered buffer of a rank in this process.
    fn mapped(&self, rank: usize, side: Side) -> *mut u8 {
        let buffers = &self.posted[rank];
        let (number, address) = match side {
            Side::Send => (buffers.send_segment, buffers.send),
            Side::Receive => (buffers.receive_segment, buffers.receive),
        };
        match self.registered[rank].get(&number) {
            // `exchange_buffers` has checked that the segment contains the buffer.
            Some(it) => {
                it.here.start().wrapping_add(usize::try_from(address.wrapping_sub(it.there)).unwrap_or(0))
            }
            None => std::ptr::null_mut(),
        }
    }

    /// Reduces a range of elements of all send buffers, `skip` bytes from their start, into one or all receive buffers.
    fn reduce(
        &mut self,
        call: &Call,
        access: Access,
        range: std::ops::Range<usize>,
        skip: usize,
        target: &Target,
    ) -> Result<(), DirectError> {
        let (local_rank, size, element) = (self.local_rank, self.size(), call.data.size());
        let what = call.reduce_op();
        let Access { reach, manner: Manner { store, fine } } = access;
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
                        let into =
                            self.mapped((local_rank + step) % size, Side::Receive).wrapping_add(offset);
                        self.into.push(into);
                    }
                }
                Target::One(rank) => {
                    let into = self.mapped(rank, Side::Receive).wrapping_add(offset);
                    self.into.push(into);
                }
            }
            // SAFETY: all are inside registered segments of `count` elements from here on; this rank alone works on
            // this range, in every buffer, until all have finished.
            unsafe { kernel::reduce_all(what, &self.into, &self.from, count, finish, store) };
            return Ok(());
        }
        let Some(mut cross) = self.cross.take() else {
            return Err(DirectError::Unreachable { rank: local_rank, errno: libc::EPERM });
        };
        let mut result = Ok(());
        let apart = matches!(*target, Target::All) && call.send != call.receive.cast_const();
        let piece = if fine { FINE_PIECE } else { PIECE } / element;
        let first = if apart { usize::from(local_rank == 0) } else { usize::MAX };
        let mut done = range.start;
        while done < range.end && result.is_ok() {
            if self.waiter.abort_flag.is_raised() {
                result = Err(DirectError::Aborted);
                break;
            }
            let count = (range.end - done).min(piece);
            let (offset, bytes) = (done * element, count * element);
            result = (|| {
                self.from.clear();
                for rank in 0..size {
                    if rank == local_rank {
                        self.from.push(call.send.wrapping_add(skip + offset));
                    } else {
                        // The first piece is copied to where the result goes: fewer cache lines to fetch.
                        let buffer = if rank == first {
                            call.receive.wrapping_add(offset)
                        } else {
                            cross.buffer(rank)
                        };
                        let there = self.posted[rank].send.wrapping_add((skip + offset) as u64);
                        cross.read(rank, there, buffer, bytes)?;
                        self.from.push(buffer.cast_const());
                    }
                }
                // A result for another rank only is computed in the buffer of this rank.
                let into = match *target {
                    Target::One(rank) if rank != local_rank => cross.buffer(local_rank),
                    _ => call.receive.wrapping_add(offset),
                };
                // SAFETY: sources are this rank's own buffer and pieces copied here, the destination is its own;
                // each has `count` elements.
                unsafe { kernel::reduce_all(what, &[into], &self.from, count, finish, Store::Plain) };
                for step in 1..size {
                    let rank = (local_rank + step) % size;
                    if matches!(*target, Target::One(only) if only != rank) {
                        continue;
                    }
                    cross.write(rank, self.posted[rank].receive.wrapping_add(offset as u64), into, bytes)?;
                }
                Ok(())
            })();
            done += count;
        }
        self.cross = Some(cross);
        result
    }

    /// Copies in steps, and checks the abort flag between them.
    fn in_steps(
        &self,
        bytes: usize,
        mut step: impl FnMut(usize, usize) -> Result<(), DirectError>,
    ) -> Result<(), DirectError> {
        let mut done = 0;
        while done < bytes {
            if self.waiter.abort_flag.is_raised() {
                return Err(DirectError::Aborted);
            }
            let count = STEP.min(bytes - done);
            step(done, count)?;
            done += count;
        }
        Ok(())
    }

    /// Writes the send buffer of this rank to an offset in the receive buffer of another.
    fn push(
        &self,
        call: &Call,
        access: Access,
        rank: usize,
        offset: usize,
        bytes: usize,
    ) -> Result<(), DirectError> {
        if rank == self.local_rank {
            keep(call.send, call.receive.wrapping_add(offset), bytes);
            return Ok(());
        }
        match (access.reach, &self.cross) {
            (Reach::Registered, _) => {
                let into = self.mapped(rank, Side::Receive).wrapping_add(offset);
                // SAFETY: the receive buffer of a rank has `bytes` for each rank, and these are for this rank.
                unsafe { kernel::copy(into, call.send, bytes, access.manner.store) };
                Ok(())
            }
            (_, Some(cross)) => self.in_steps(bytes, |done, count| {
                let there = self.posted[rank].receive.wrapping_add((offset + done) as u64);
                cross.write(rank, there, call.send.wrapping_add(done), count)
            }),
            _ => Err(DirectError::Unreachable { rank, errno: libc::EPERM }),
        }
    }

    /// Reads from an offset in the send buffer of another rank into the receive buffer of this one.
    fn pull(
        &self,
        call: &Call,
        access: Access,
        rank: usize,
        offset: usize,
        into: usize,
        bytes: usize,
    ) -> Result<(), DirectError> {
        let into = call.receive.wrapping_add(into);
        if rank == self.local_rank {
            keep(call.send.wrapping_add(offset), into, bytes);
            return Ok(());
        }
        match (access.reach, &self.cross) {
            (Reach::Registered, _) => {
                let from = self.mapped(rank, Side::Send).wrapping_add(offset);
                // SAFETY: the send buffer of a rank has `bytes` there, and nobody writes to it during the call.
                unsafe { kernel::copy(into, from, bytes, access.manner.store) };
                Ok(())
            }
            (_, Some(cross)) => self.in_steps(bytes, |done, count| {
                let there = self.posted[rank].send.wrapping_add((offset + done) as u64);
                cross.read(rank, there, into.wrapping_add(done), count)
            }),
            _ => Err(DirectError::Unreachable { rank, errno: libc::EPERM }),
        }
    }
}

/// How the buffers of a call are reached, and how the data is moved.
#[derive(Clone, Copy)]
struct Access {
    reach: Reach,
    manner: Manner,
}

/// The ranks that get a result.
enum Target {
    All,
    One(usize),
}

/// Copies a rank's own part, unless the call is in place.
fn keep(from: *const u8, into: *mut u8, bytes: usize) {
    if from != into.cast_const() {
        // SAFETY: the caller's own buffers; in place they are equal here, else they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, into, bytes) };
    }
}
