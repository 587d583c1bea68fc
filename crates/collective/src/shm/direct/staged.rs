//! Private buffers through the staging space of the mailboxes, block by block.
//!
//! Of every block a rank copies the shares of the others into its mailbox, reduces its own share from all mailboxes into
//! its receive buffer and its mailbox, and copies the shares that others have reduced from theirs. The mailboxes stay in
//! the caches; memory is accessed once per byte of a buffer. Blocks alternate between two staging buffers, so that a rank
//! can write the next block while others still read the last.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::super::mailbox::{Mailbox, STAGE};
use super::{Direct, DirectError, Manner, share};
use crate::Operation;
use crate::call::Call;
use crate::kernel::{self, Store};

/// Bytes of a block where blocks are small.
pub(crate) const FINE_STAGE: usize = 32 << 10;

/// `count` elements from `start`.
#[derive(Clone, Copy)]
struct Block {
    start: usize,
    count: usize,
}

impl Direct {
    pub(crate) fn staged_all_reduce(&mut self, call: &Call, manner: Manner) -> Result<(), DirectError> {
        let element = call.data.size();
        let Manner { store, fine } = manner;
        let most = if fine { FINE_STAGE } else { STAGE } / element;
        let blocks = call.count.div_ceil(most);
        let block = |index: usize| Block { start: index * most, count: most.min(call.count - index * most) };
        if blocks > 0 {
            self.stage(call, block(0));
        }
        for index in 0..blocks {
            let parity = (self.blocks & 1) as usize;
            self.await_count(self.blocks + 1, Mailbox::staged)?;
            self.reduce_staged(call, block(index), parity, store);
            self.blocks += 1;
            self.mailboxes[self.local_rank].reduced().store(self.blocks, Ordering::Release);
            if index + 1 < blocks {
                self.stage(call, block(index + 1));
            }
            self.await_count(self.blocks, Mailbox::reduced)?;
            self.collect(call, block(index), parity, store);
        }
        // The next call writes its first block over the last but one of this call, which all ranks have read.
        Ok(())
    }

    /// Copies the shares of the others into the mailbox.
    fn stage(&self, call: &Call, block: Block) {
        let parity = (self.blocks_staged() & 1) as usize;
        let element = call.data.size();
        let mailbox = &self.mailboxes[self.local_rank];
        for rank in (0..self.size()).filter(|it| *it != self.local_rank) {
            let Range { start, end } = share(block.count, element, rank, self.size());
            // SAFETY: a block fits into the staging space, and shares lie inside the block, which lies inside what the
            // caller lends at `send`.
            unsafe {
                let from = call.send.add((block.start + start) * element);
                kernel::copy(
                    mailbox.stage_in(parity).add(start * element),
                    from,
                    (end - start) * element,
                    Store::Plain,
                );
            }
        }
        mailbox.staged().store(self.blocks_staged() + 1, Ordering::Release);
    }

    /// The number of blocks that this rank has staged.
    fn blocks_staged(&self) -> u64 {
        self.mailboxes[self.local_rank].staged().load(Ordering::Relaxed)
    }

    /// Reduces the share of this rank of a block.
    fn reduce_staged(&mut self, call: &Call, block: Block, parity: usize, store: Store) {
        let (local_rank, size, element) = (self.local_rank, self.size(), call.data.size());
        let Range { start, end } = share(block.count, element, local_rank, size);
        let count = end - start;
        self.from.clear();
        for rank in 0..size {
            let from = if rank == local_rank {
                call.send.wrapping_add((block.start + start) * element)
            } else {
                self.mailboxes[rank].stage_in(parity).wrapping_add(start * element).cast_const()
            };
            self.from.push(from);
        }
        let out = self.mailboxes[local_rank].stage_out(parity).wrapping_add(start * element);
        let receive = call.receive.wrapping_add((block.start + start) * element);
        let finish = (call.operation == Operation::Avg).then_some(size);
        // SAFETY: sources are the caller's send buffer and shares that others have staged; destinations are
        // the mailbox of this rank, whose last readers have finished, and the caller's receive buffer.
        unsafe {
            kernel::reduce_all(call.reduce_op(), &[out], &self.from, count, finish, Store::Plain);
            kernel::copy(receive, out, count * element, store);
        }
    }

    /// Copies the shares that others have reduced.
    fn collect(&self, call: &Call, block: Block, parity: usize, store: Store) {
        let element = call.data.size();
        for rank in (0..self.size()).filter(|it| *it != self.local_rank) {
            let Range { start, end } = share(block.count, element, rank, self.size());
            // SAFETY: the share has been reduced, and stays until this rank has staged two more blocks.
            unsafe {
                let from = self.mailboxes[rank].stage_out(parity).add(start * element);
                let into = call.receive.add((block.start + start) * element);
                kernel::copy(into, from, (end - start) * element, store);
            }
        }
    }
}
