//! One shot: all data goes through the mailboxes in one step.

use std::sync::atomic::Ordering;

use super::{Begun, Direct, DirectError, next};
use crate::Operation;
use crate::call::Call;
use crate::kernel::{self, Store};
use crate::schedule::Kind;

impl Direct {
    /// Runs a call whose data fits into a slot.
    ///
    /// The slots of a mailbox are used in turn. A rank writes to a slot again at least two calls later. By then every other
    /// rank has set the flag of a call between, which it does only after it has read this one.
    #[inline]
    pub(crate) fn one_shot(&mut self, call: &Call) -> Result<(), DirectError> {
        let Begun { flag, slot } = self.begin(call);
        let (local_rank, size) = (self.local_rank, self.size());
        let send_bytes = call.send_bytes(local_rank, size);
        let mailbox = &self.mailboxes[local_rank];
        // SAFETY: the caller lends `send_bytes` bytes at `send`, and they fit into the slot (`Direct::fits`).
        unsafe { std::ptr::copy_nonoverlapping(call.send, mailbox.small(slot, send_bytes), send_bytes) };
        mailbox.small_flag(slot).store(flag, Ordering::Release);
        mailbox.reclaim_small(next(slot), send_bytes);
        self.await_flags(flag, |it| it.small_flag(slot))?;

        let part = call.bytes();
        let theirs = |peer: usize| self.mailboxes[peer].small(slot, call.send_bytes(peer, size)).cast_const();
        let finish = (call.operation == Operation::Avg).then_some(size);
        // SAFETY: messages in the mailboxes have `send_bytes` bytes and stay until two calls later; the caller lends
        // `receive` for what the call writes, and nothing else reads or writes it.
        unsafe {
            match call.kind {
                Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter => {
                    if call.kind == Kind::Reduce && call.root != local_rank {
                        return Ok(());
                    }
                    let skip = if call.kind == Kind::ReduceScatter { local_rank * part } else { 0 };
                    self.from.clear();
                    for peer in 0..size {
                        let from = theirs(peer).add(skip);
                        self.from.push(from);
                    }
                    let what = call.reduce_op();
                    kernel::reduce_all(what, &[call.receive], &self.from, call.count, finish, Store::Plain);
                }
                Kind::AllGather => {
                    for peer in 0..size {
                        copy(theirs(peer), call.receive.add(peer * part), part);
                    }
                }
                Kind::Gather => {
                    for peer in 0..if call.root == local_rank { size } else { 0 } {
                        copy(theirs(peer), call.receive.add(peer * part), part);
                    }
                }
                Kind::Broadcast => copy(theirs(call.root), call.receive, part),
                Kind::Scatter => copy(theirs(call.root).add(local_rank * part), call.receive, part),
                Kind::AllToAll => {
                    for peer in 0..size {
                        copy(theirs(peer).add(local_rank * part), call.receive.add(peer * part), part);
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
/// Both ranges are valid for `bytes` and do not overlap: one is in a mailbox, the other is not.
unsafe fn copy(from: *const u8, into: *mut u8, bytes: usize) {
    // SAFETY: the contract of the caller.
    unsafe { std::ptr::copy_nonoverlapping(from, into, bytes) };
}
