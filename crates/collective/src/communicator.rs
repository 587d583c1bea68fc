use std::fmt;

use crate::buffer::Buffer;
use crate::call::Call;
use crate::engine::Engine;
use crate::host::Oversubscription;
use crate::schedule::Kind;
use crate::session::Member;
use crate::{Cause, DataType, Element, Error, Operation, Options};

/// A rank of a job. Its methods are the collectives.
///
/// All ranks make the same calls in the same order, with the same number of elements, type, operation and root. An
/// invalid call (`Cause::Usage`) is refused before it begins. Any other error ends the job on all ranks: it names the rank,
/// host and stage it is about, and every later call returns it again.
///
/// Slices of a [`Buffer`] are registered: collectives on them need no copies inside a host. Other slices work too.
pub struct Communicator {
    engine: Engine,
}

impl Communicator {
    /// Joins the job. Returns when all ranks have joined and the paths between them are open.
    pub fn join(options: Options) -> Result<Self, Error> {
        Ok(Self { engine: Engine::join(options)? })
    }

    /// The number of this rank, from 0.
    pub fn rank(&self) -> usize {
        self.engine.rank()
    }

    /// The number of ranks of the job.
    pub fn size(&self) -> usize {
        self.engine.size()
    }

    /// All ranks, in order.
    pub fn members(&self) -> &[Member] {
        self.engine.members()
    }

    /// The first host with more ranks than cores. Times measured there include waiting for a core.
    pub fn oversubscription(&self) -> Option<&Oversubscription> {
        self.engine.oversubscription()
    }

    /// Binds the calling thread to a core, if it is not bound yet and all ranks of its machine get an equal share of cores.
    ///
    /// Without binding, two ranks may share a core for milliseconds while another is idle. With several channels nothing is
    /// bound: their threads would all run on that core.
    pub fn bind(&self) {
        self.engine.bind();
    }

    /// A description of the paths between the ranks: `shared memory`, `TCP over eth0`.
    pub fn paths(&self) -> String {
        self.engine.paths()
    }

    /// Allocates a registered buffer of zeros. All ranks call it; the lengths may differ.
    pub fn buffer<T: Element>(&mut self, len: usize) -> Result<Buffer<T>, Error> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or_else(|| usage(format!("a buffer of {len} elements is larger than memory")))?;
        Ok(Buffer::new(self.engine.register(bytes)?, len))
    }

    /// Every rank gets the reduction of all send buffers.
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

    /// In place.
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

    /// Every rank gets the parts of all ranks, in order.
    pub fn all_gather<T: Element>(&mut self, send: &[T], receive: &mut [T]) -> Result<(), Error> {
        same(parts(send.len(), self.size()), receive.len(), "all_gather")?;
        self.engine.run(&Call {
            send: send.as_ptr().cast(),
            receive: receive.as_mut_ptr().cast(),
            ..bare::<T>(Kind::AllGather, send.len())
        })
    }

    /// In place: the part of a rank is at its offset in `data`.
    pub fn all_gather_in_place<T: Element>(&mut self, data: &mut [T]) -> Result<(), Error> {
        let count = self.part(data.len(), "all_gather")?;
        let receive = data.as_mut_ptr().cast::<u8>();
        let send = receive.wrapping_add(self.rank() * count * size_of::<T>()).cast_const();
        self.engine.run(&Call { send, receive, ..bare::<T>(Kind::AllGather, count) })
    }

    /// Every rank gets its part of the reduction of all send buffers.
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

    /// In place: the result is at the offset of the rank in `data`; the rest is undefined.
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

    /// Every rank gets the data of the root.
    pub fn broadcast<T: Element>(&mut self, data: &mut [T], root: usize) -> Result<(), Error> {
        self.within(root, "root")?;
        let receive = data.as_mut_ptr().cast::<u8>();
        let send = if root == self.rank() { receive.cast_const() } else { std::ptr::null() };
        self.engine.run(&Call { root, send, receive, ..bare::<T>(Kind::Broadcast, data.len()) })
    }

    /// From another slice, which is used only on the root.
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

    /// The root gets the reduction of all send buffers; `receive` is used only there.
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

    /// In place.
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

    /// Every rank sends a part to every rank.
    pub fn all_to_all<T: Element>(&mut self, send: &[T], receive: &mut [T]) -> Result<(), Error> {
        same(send.len(), receive.len(), "alltoall")?;
        let count = self.part(send.len(), "alltoall")?;
        self.engine.run(&Call {
            send: send.as_ptr().cast(),
            receive: receive.as_mut_ptr().cast(),
            ..bare::<T>(Kind::AllToAll, count)
        })
    }

    /// The root gets the parts of all ranks; `receive` is used only there.
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

    /// In place: the part of a rank is at its offset in `data`.
    pub fn gather_in_place<T: Element>(&mut self, data: &mut [T], root: usize) -> Result<(), Error> {
        self.within(root, "root")?;
        let count = self.part(data.len(), "gather")?;
        let start = data.as_mut_ptr().cast::<u8>();
        let send = start.wrapping_add(self.rank() * count * size_of::<T>()).cast_const();
        let receive = if root == self.rank() { start } else { std::ptr::null_mut() };
        self.engine.run(&Call { root, send, receive, ..bare::<T>(Kind::Gather, count) })
    }

    /// Every rank gets its part of the send buffer of the root; `send` is used only there.
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

    /// In place: the result is at the offset of the rank in `data`.
    pub fn scatter_in_place<T: Element>(&mut self, data: &mut [T], root: usize) -> Result<(), Error> {
        self.within(root, "root")?;
        let count = self.part(data.len(), "scatter")?;
        let start = data.as_mut_ptr().cast::<u8>();
        let receive = start.wrapping_add(self.rank() * count * size_of::<T>());
        let send = if root == self.rank() { start.cast_const() } else { std::ptr::null() };
        self.engine.run(&Call { root, send, receive, ..bare::<T>(Kind::Scatter, count) })
    }

    /// Sends to one rank and receives from one. Every rank calls it, and every rank is the receiver of exactly one.
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

    /// All-gather of a few bytes per rank over the control connections; lengths may differ. Slow: for settings and results.
    pub fn share(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.engine.share(bytes)
    }

    /// Ends the job on all ranks, with a reason that is reported on each.
    pub fn abort(&mut self, reason: &str) -> Error {
        self.engine.abort(reason)
    }

    /// Ends the job because a wait outside of a call timed out. All ranks are pinged, and one that does not answer is named.
    pub fn late(&mut self, stage: &str) -> Error {
        self.engine.late(stage)
    }

    /// The error that has ended the job, if any.
    pub fn failure(&self) -> Option<Error> {
        self.engine.failure()
    }

    /// Leaves the job. Returns when all ranks have.
    pub fn leave(self) -> Result<(), Error> {
        self.engine.leave()
    }

    fn within(&self, rank: usize, what: &str) -> Result<(), Error> {
        if rank < self.size() {
            return Ok(());
        }
        Err(usage(format!("{what} {rank} does not exist: the job has {} ranks", self.size())))
    }

    fn part(&self, len: usize, name: &str) -> Result<usize, Error> {
        if len.is_multiple_of(self.size()) {
            return Ok(len / self.size());
        }
        Err(usage(format!("{name}: {len} elements cannot be divided into {} equal parts", self.size())))
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator").field("rank", &self.rank()).field("size", &self.size()).finish()
    }
}

/// A call without buffers.
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
