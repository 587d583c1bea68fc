//! One shot: everything goes over the desks at once.

use std::sync::atomic::Ordering;

use super::{Direct, Trouble, next};
use crate::Operation;
use crate::call::Call;
use crate::kernel::{self, Store};
use crate::schedule::Kind;

impl Direct {
    /// Runs a call whose data fits on a desk.
    ///
    /// A desk has several places for messages, used in turn. A rank writes to one again two calls later or more, and by
    /// then every other rank has given a sign of a call between, which it does only after it has read this one.
    #[inline]
    pub(crate) fn one_shot(&mut self, call: &Call) -> Result<(), Trouble> {
        let (mark, turn) = self.begin(call);
        let (place, size) = (self.place, self.size());
        let gives = call.gives(place, size);
        let desk = &self.desks[place];
        // SAFETY: the caller lends `gives` bytes at `send`, and they fit on the desk (`Direct::fits`).
        unsafe { std::ptr::copy_nonoverlapping(call.send, desk.small(turn, gives), gives) };
        desk.small_mark(turn).store(mark, Ordering::Release);
        desk.reclaim_small(next(turn));
        self.await_marks(mark, |it| it.small_mark(turn))?;

        let part = call.bytes();
        let theirs = |peer: usize| self.desks[peer].small(turn, call.gives(peer, size)).cast_const();
        let finish = (call.operation == Operation::Avg).then_some(size);
        // SAFETY: messages lie on the desks as long as `gives` says and stay until two calls later; the caller lends
        // `receive` for what the call writes, and nothing else reads or writes it.
        unsafe {
            match call.kind {
                Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter => {
                    if call.kind == Kind::Reduce && call.root != place {
                        return Ok(());
                    }
                    let skip = if call.kind == Kind::ReduceScatter { place * part } else { 0 };
                    self.from.clear();
                    for peer in 0..size {
                        let from = theirs(peer).add(skip);
                        self.from.push(from);
                    }
                    let what = (call.data, call.operation);
                    kernel::reduce_all(what, &[call.receive], &self.from, call.count, finish, Store::Plain);
                }
                Kind::AllGather => {
                    for peer in 0..size {
                        copy(theirs(peer), call.receive.add(peer * part), part);
                    }
                }
                Kind::Gather => {
                    for peer in 0..if call.root == place { size } else { 0 } {
                        copy(theirs(peer), call.receive.add(peer * part), part);
                    }
                }
                Kind::Broadcast => copy(theirs(call.root), call.receive, part),
                Kind::Scatter => copy(theirs(call.root).add(place * part), call.receive, part),
                Kind::AllToAll => {
                    for peer in 0..size {
                        copy(theirs(peer).add(place * part), call.receive.add(peer * part), part);
                    }
                }
                Kind::SendReceive { from, .. } => copy(theirs(from), call.receive, part),
                Kind::Barrier => {}
            }
        }
        Ok(())
    }
}

/// # Safety
/// Both ranges are good for `bytes` and do not overlap: one is on a desk, the other is not.
unsafe fn copy(from: *const u8, into: *mut u8, bytes: usize) {
    // SAFETY: the caller's word.
    unsafe { std::ptr::copy_nonoverlapping(from, into, bytes) };
}
