//! Private buffers through staging space: what others reduce goes over this rank's desk, block by block.
//!
//! Of every block a rank lays the shares of the others on its desk, combines its own share from all desks straight into
//! its receive buffer and onto its desk, and takes the shares that others combined from theirs. The desks stay in the
//! caches; memory sees each byte of a buffer once. Blocks alternate between two places, so that a rank can lay down the
//! next block while others still take the last.

use std::sync::atomic::Ordering;

use super::super::desk::{Desk, STAGE};
use super::{Direct, Trouble, share};
use crate::Operation;
use crate::call::Call;
use crate::kernel::{self, Store};

/// A block of the data: elements from `start`, so many.
#[derive(Clone, Copy)]
struct Block {
    start: usize,
    count: usize,
}

impl Direct {
    /// All-reduce over the desks.
    pub(crate) fn staged_all_reduce(&mut self, call: &Call) -> Result<(), Trouble> {
        let element = call.data.size();
        let most = STAGE / element;
        let blocks = call.count.div_ceil(most);
        let block = |index: usize| Block { start: index * most, count: most.min(call.count - index * most) };
        let store = if 2 * call.bytes() > self.streaming { Store::Streaming } else { Store::Plain };
        if blocks > 0 {
            self.lay(call, block(0));
        }
        for index in 0..blocks {
            let parity = (self.blocks & 1) as usize;
            self.await_count(self.blocks + 1, Desk::staged)?;
            self.combine_staged(call, block(index), parity, store);
            self.blocks += 1;
            self.desks[self.place].reduced().store(self.blocks, Ordering::Release);
            if index + 1 < blocks {
                self.lay(call, block(index + 1));
            }
            self.await_count(self.blocks, Desk::reduced)?;
            self.take(call, block(index), parity, store);
        }
        // The next call lays its first block where the last but one of this lay, and everybody has read that one.
        Ok(())
    }

    /// Lays the shares of the others on the desk.
    fn lay(&self, call: &Call, block: Block) {
        let parity = (self.blocks_laid() & 1) as usize;
        let element = call.data.size();
        let desk = &self.desks[self.place];
        for rank in (0..self.size()).filter(|it| *it != self.place) {
            let (start, end) = share(block.count, element, rank, self.size());
            // SAFETY: a block fits into the staging space, and shares lie inside the block, which lies inside what the
            // caller lends at `send`.
            unsafe {
                let from = call.send.add((block.start + start) * element);
                kernel::copy(
                    desk.stage_in(parity).add(start * element),
                    from,
                    (end - start) * element,
                    Store::Plain,
                );
            }
        }
        desk.staged().store(self.blocks_laid() + 1, Ordering::Release);
    }

    /// Blocks this rank has laid: as many as its desk says.
    fn blocks_laid(&self) -> u64 {
        self.desks[self.place].staged().load(Ordering::Relaxed)
    }

    /// Combines this rank's share of a block.
    fn combine_staged(&mut self, call: &Call, block: Block, parity: usize, store: Store) {
        let (place, size, element) = (self.place, self.size(), call.data.size());
        let (start, end) = share(block.count, element, place, size);
        let count = end - start;
        self.from.clear();
        for rank in 0..size {
            let from = if rank == place {
                call.send.wrapping_add((block.start + start) * element)
            } else {
                self.desks[rank].stage_in(parity).wrapping_add(start * element).cast_const()
            };
            self.from.push(from);
        }
        let out = self.desks[place].stage_out(parity).wrapping_add(start * element);
        let receive = call.receive.wrapping_add((block.start + start) * element);
        let finish = (call.operation == Operation::Avg).then_some(size);
        // SAFETY: sources are the caller's send buffer and shares that others have laid and marked; destinations are
        // this rank's desk, whose last readers are through, and the caller's receive buffer.
        unsafe {
            kernel::reduce_all((call.data, call.operation), &[out], &self.from, count, finish, Store::Plain);
            kernel::copy(receive, out, count * element, store);
        }
    }

    /// Takes the shares that others combined.
    fn take(&self, call: &Call, block: Block, parity: usize, store: Store) {
        let element = call.data.size();
        for rank in (0..self.size()).filter(|it| *it != self.place) {
            let (start, end) = share(block.count, element, rank, self.size());
            // SAFETY: the share was marked as combined, and stays until this rank has laid two more blocks.
            unsafe {
                let from = self.desks[rank].stage_out(parity).add(start * element);
                let into = call.receive.add((block.start + start) * element);
                kernel::copy(into, from, (end - start) * element, store);
            }
        }
    }
}
