//! A rank's membership in a job: collectives on slices of numbers.

use std::fmt;

use crate::buffer::Buffer;
use crate::call::Call;
use crate::engine::Engine;
use crate::host::Crowd;
use crate::schedule::Kind;
use crate::session::Member;
use crate::{Cause, DataType, Element, Error, Operation, Options};

/// One rank's membership in a job.
///
/// All ranks make the same calls in the same order, with the same number of elements, type, operation and root. A call that
/// cannot be (`Cause::Usage`) is refused before it begins. Any other error ends the job for all ranks: each learns which
/// rank, host and stage it was about, and every later call returns it again.
///
/// Slices of a [`Buffer`] are registered: collectives on them need no copies inside a host. Any other slice works too.
pub struct Communicator {
    engine: Engine,
}

impl Communicator {
    /// Meets the other ranks. Returns when all are there and know their paths.
    pub fn join(options: Options) -> Result<Self, Error> {
        Ok(Self { engine: Engine::join(options)? })
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.engine.rank()
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.engine.size()
    }

    /// All ranks, in order.
    pub fn members(&self) -> &[Member] {
        self.engine.members()
    }

    /// The first host on which ranks outnumber cores: times then include waiting for a core.
    pub fn crowd(&self) -> Option<&Crowd> {
        self.engine.crowd()
    }

    /// Binds the calling thread to a core, where nobody has and all ranks of its machine get the same share: one of its own, or
    /// one with as many others as all have.
    ///
    /// Ranks that wait on one core while another is idle find out only after milliseconds. With several channels nothing is
    /// bound: their threads would all be on that core.
    pub fn bind(&self) {
        self.engine.bind();
    }

    /// What ranks use between them, for people: `shared memory`, `TCP over eth0`.
    pub fn paths(&self) -> String {
        self.engine.paths()
    }

    /// Makes a registered buffer of zeros. All ranks call it; their lengths may differ.
    pub fn buffer<T: Element>(&mut self, len: usize) -> Result<Buffer<T>, Error> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| usage("a buffer larger than memory"))?;
        Ok(Buffer::new(self.engine.register(bytes)?, len))
    }

    /// Everyone gets the combination of what all send.
    #[inline]
    pub fn all_reduce<T: Element>(
        &mut self,
        send: &[T],
        receive: &mut [T],
        operation: Operation,
    ) -> Result<(), Error> {
        same(send.len(), receive.len(), "all_reduce")?;
        self.engine.run(&Call {
            kind: Kind::AllReduce,
            data: T::TYPE,
            operation,
            root: 0,
            count: send.len(),
            send: send.as_ptr().cast(),
            receive: receive.as_mut_ptr().cast(),
        })
    }

    /// The same, in place.
    #[inline]
    pub fn all_reduce_in_place<T: Element>(
        &mut self,
        data: &mut [T],
        operation: Operation,
    ) -> Result<(), Error> {
        let receive = data.as_mut_ptr().cast::<u8>();
        self.engine.run(&Call {
            kind: Kind::AllReduce,
            data: T::TYPE,
            operation,
            root: 0,
            count: data.len(),
            send: receive.cast_const(),
            receive,
        })
    }

    /// Everyone gets the parts of all, in the order of ranks.
    pub fn all_gather<T: Element>(&mut self, send: &[T], receive: &mut [T]) -> Result<(), Error> {
        same(parts(send.len(), self.size()), receive.len(), "all_gather")?;
        self.engine.run(&Call {
            send: send.as_ptr().cast(),
            receive: receive.as_mut_ptr().cast(),
            ..bare::<T>(Kind::AllGather, send.len())
        })
    }

    /// The same, in place: a rank's own part is where it belongs in `data`.
    pub fn all_gather_in_place<T: Element>(&mut self, data: &mut [T]) -> Result<(), Error> {
        let count = self.part(data.len(), "all_gather")?;
        let receive = data.as_mut_ptr().cast::<u8>();
        let send = receive.wrapping_add(self.rank() * count * size_of::<T>()).cast_const();
        self.engine.run(&Call { send, receive, ..bare::<T>(Kind::AllGather, count) })
    }

    /// Each rank gets its part of the combination of what all send.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        send: &[T],
        receive: &mut [T],
        operation: Operation,
    ) -> Result<(), Error> {
        same(parts(receive.len(), self.size()), send.len(), "reduce_scatter")?;
        self.engine.run(&Call {
            operation,
            send: send.as_ptr().cast(),
            receive: receive.as_mut_ptr().cast(),
            ..bare::<T>(Kind::ReduceScatter, receive.len())
        })
    }

    /// The same, in place: the result is in the rank's own part of `data`, and the rest is undefined.
    pub fn reduce_scatter_in_place<T: Element>(
        &mut self,
        data: &mut [T],
        operation: Operation,
    ) -> Result<(), Error> {
        let count = self.part(data.len(), "reduce_scatter")?;
        let start = data.as_mut_ptr().cast::<u8>();
        let receive = start.wrapping_add(self.rank() * count * size_of::<T>());
        self.engine.run(&Call {
            operation,
            send: start.cast_const(),
            receive,
            ..bare::<T>(Kind::ReduceScatter, count)
        })
    }

    /// Everyone gets what the root has.
    pub fn broadcast<T: Element>(&mut self, data: &mut [T], root: usize) -> Result<(), Error> {
        self.within(root, "root")?;
        let receive = data.as_mut_ptr().cast::<u8>();
        let send = if root == self.rank() { receive.cast_const() } else { std::ptr::null() };
        self.engine.run(&Call { root, send, receive, ..bare::<T>(Kind::Broadcast, data.len()) })
    }

    /// The same from another slice, which counts on the root alone.
    pub fn broadcast_from<T: Element>(
        &mut self,
        send: &[T],
        receive: &mut [T],
        root: usize,
    ) -> Result<(), Error> {
        self.within(root, "root")?;
        let at_root = root == self.rank();
        if at_root {
            same(send.len(), receive.len(), "broadcast")?;
        }
        let send = if at_root { send.as_ptr().cast() } else { std::ptr::null() };
        let count = receive.len();
        let receive = receive.as_mut_ptr().cast();
        self.engine.run(&Call { root, send, receive, ..bare::<T>(Kind::Broadcast, count) })
    }

    /// The root gets the combination of what all send; `receive` counts there alone.
    pub fn reduce<T: Element>(
        &mut self,
        send: &[T],
        receive: &mut [T],
        operation: Operation,
        root: usize,
    ) -> Result<(), Error> {
        self.within(root, "root")?;
        let at_root = root == self.rank();
        if at_root {
            same(send.len(), receive.len(), "reduce")?;
        }
        let receive = if at_root { receive.as_mut_ptr().cast() } else { std::ptr::null_mut() };
        let count = send.len();
        self.engine.run(&Call {
            operation,
            root,
            send: send.as_ptr().cast(),
            receive,
            ..bare::<T>(Kind::Reduce, count)
        })
    }

    /// The same, in place.
    pub fn reduce_in_place<T: Element>(
        &mut self,
        data: &mut [T],
        operation: Operation,
        root: usize,
    ) -> Result<(), Error> {
        self.within(root, "root")?;
        let start = data.as_mut_ptr().cast::<u8>();
        let receive = if root == self.rank() { start } else { std::ptr::null_mut() };
        let count = data.len();
        self.engine.run(&Call {
            operation,
            root,
            send: start.cast_const(),
            receive,
            ..bare::<T>(Kind::Reduce, count)
        })
    }

    /// Everyone sends a part to everyone.
    pub fn all_to_all<T: Element>(&mut self, send: &[T], receive: &mut [T]) -> Result<(), Error> {
        same(send.len(), receive.len(), "alltoall")?;
        let count = self.part(send.len(), "alltoall")?;
        self.engine.run(&Call {
            send: send.as_ptr().cast(),
            receive: receive.as_mut_ptr().cast(),
            ..bare::<T>(Kind::AllToAll, count)
        })
    }

    /// The root gets the parts of all; `receive` counts there alone.
    pub fn gather<T: Element>(&mut self, send: &[T], receive: &mut [T], root: usize) -> Result<(), Error> {
        self.within(root, "root")?;
        let at_root = root == self.rank();
        if at_root {
            same(parts(send.len(), self.size()), receive.len(), "gather")?;
        }
        let receive = if at_root { receive.as_mut_ptr().cast() } else { std::ptr::null_mut() };
        self.engine.run(&Call {
            root,
            send: send.as_ptr().cast(),
            receive,
            ..bare::<T>(Kind::Gather, send.len())
        })
    }

    /// The same, in place: every rank's own part is where it belongs in `data`.
    pub fn gather_in_place<T: Element>(&mut self, data: &mut [T], root: usize) -> Result<(), Error> {
        self.within(root, "root")?;
        let count = self.part(data.len(), "gather")?;
        let start = data.as_mut_ptr().cast::<u8>();
        let send = start.wrapping_add(self.rank() * count * size_of::<T>()).cast_const();
        let receive = if root == self.rank() { start } else { std::ptr::null_mut() };
        self.engine.run(&Call { root, send, receive, ..bare::<T>(Kind::Gather, count) })
    }

    /// Each rank gets its part of what the root sends; `send` counts there alone.
    pub fn scatter<T: Element>(&mut self, send: &[T], receive: &mut [T], root: usize) -> Result<(), Error> {
        self.within(root, "root")?;
        let at_root = root == self.rank();
        if at_root {
            same(parts(receive.len(), self.size()), send.len(), "scatter")?;
        }
        let send = if at_root { send.as_ptr().cast() } else { std::ptr::null() };
        let count = receive.len();
        let receive = receive.as_mut_ptr().cast();
        self.engine.run(&Call { root, send, receive, ..bare::<T>(Kind::Scatter, count) })
    }

    /// The same, in place: the result is in the rank's own part of `data`.
    pub fn scatter_in_place<T: Element>(&mut self, data: &mut [T], root: usize) -> Result<(), Error> {
        self.within(root, "root")?;
        let count = self.part(data.len(), "scatter")?;
        let start = data.as_mut_ptr().cast::<u8>();
        let receive = start.wrapping_add(self.rank() * count * size_of::<T>());
        let send = if root == self.rank() { start.cast_const() } else { std::ptr::null() };
        self.engine.run(&Call { root, send, receive, ..bare::<T>(Kind::Scatter, count) })
    }

    /// Sends to one rank while receiving from one. Every rank takes part, and every rank is sent to once.
    pub fn send_receive<T: Element>(
        &mut self,
        send: &[T],
        to: usize,
        receive: &mut [T],
        from: usize,
    ) -> Result<(), Error> {
        self.within(to, "receiver")?;
        self.within(from, "sender")?;
        same(send.len(), receive.len(), "sendrecv")?;
        self.engine.run(&Call {
            send: send.as_ptr().cast(),
            receive: receive.as_mut_ptr().cast(),
            ..bare::<T>(Kind::SendReceive { to, from }, send.len())
        })
    }

    /// Returns when all ranks have called it.
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.engine.run(&bare::<u8>(Kind::Barrier, 0))
    }

    /// Everyone gets a few bytes of each rank, which may differ in length. Slow: for settings and results.
    pub fn share(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.engine.share(bytes)
    }

    /// Ends the job for all ranks, with a reason that everyone gets to know.
    pub fn abort(&mut self, reason: &str) -> Error {
        self.engine.abort(reason)
    }

    /// Ends the job because others are waited for outside of a call here; they are asked, and who does not answer is named.
    pub fn late(&mut self, stage: &str) -> Error {
        self.engine.late(stage)
    }

    /// Whether the job has ended because of a failure.
    pub fn failure(&self) -> Option<Error> {
        self.engine.failure()
    }

    /// Says goodbye. Returns when all ranks have.
    pub fn leave(self) -> Result<(), Error> {
        self.engine.leave()
    }

    fn within(&self, rank: usize, what: &str) -> Result<(), Error> {
        if rank < self.size() {
            return Ok(());
        }
        Err(usage(format!("{what} {rank} of {} ranks", self.size())))
    }

    fn part(&self, len: usize, name: &str) -> Result<usize, Error> {
        if len.is_multiple_of(self.size()) {
            return Ok(len / self.size());
        }
        Err(usage(format!("{name}: {len} elements are no {} equal parts", self.size())))
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator").field("rank", &self.rank()).field("size", &self.size()).finish()
    }
}

/// A call without data.
fn bare<T: Element>(kind: Kind, count: usize) -> Call {
    let data: DataType = T::TYPE;
    Call {
        kind,
        data,
        operation: Operation::Sum,
        root: 0,
        count,
        send: std::ptr::null(),
        receive: std::ptr::null_mut(),
    }
}

fn parts(len: usize, size: usize) -> usize {
    len.saturating_mul(size)
}

#[inline]
fn same(one: usize, other: usize, name: &str) -> Result<(), Error> {
    if one == other { Ok(()) } else { Err(unequal(one, other, name)) }
}

#[cold]
fn unequal(one: usize, other: usize, name: &str) -> Error {
    usage(format!("{name}: {one} elements on one side and {other} on the other"))
}

fn usage(detail: impl Into<String>) -> Error {
    Error::new(Cause::Usage, "", detail)
}
