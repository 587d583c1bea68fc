//! Reductions and copies of memory, by type and operation, at the speed of memory.
//!
//! Type and operation select a pointer to a loop that was compiled for the vector units of this processor (`machine`),
//! once per call. The functions here cut the data into blocks that stay in the L1 cache: all sources of a block are
//! reduced, then the result is stored to every destination. So each source is read from memory once and each destination
//! is written once.
//!
//! Sources are reduced in order, so that every rank with the same sources in the same order computes the same bits. Half
//! precision and bfloat16 are reduced in single precision and rounded once at the end. The minimum of two floats is the
//! second if it is smaller, otherwise the first, and likewise the maximum: a NaN is kept if it is in the first source, and
//! lost otherwise.

mod loops;
mod machine;
mod number;
#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

use self::machine::{Division, LINE, Machine, Narrow, Pair, Stream, Widen};
use crate::data::{DataType, Operation, ReduceOp};

/// Bytes of a source that are reduced before they are stored.
const BLOCK: usize = 4096;

/// How destinations are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// Into the cache, for data that is small or read again soon.
    Plain,
    /// Non-temporal stores, for data larger than the cache: lines are not read before they are written.
    Streaming,
}

/// Reduces `count` elements of all sources, in order, into every destination; `finish` divides the result by that number
/// of ranks.
///
/// A destination may be a source (in place). It is then written with plain stores, as it was just read into the cache.
///
/// # Safety
/// Every pointer is valid for `count` aligned elements of the type. During the call nothing else writes a source or
/// accesses a destination. Destinations do not overlap; each is one source or overlaps none, and a source that is a
/// destination does not overlap the other sources.
pub(crate) unsafe fn reduce_all(
    what: ReduceOp,
    into: &[*mut u8],
    from: &[*const u8],
    count: usize,
    finish: Option<usize>,
    store: Store,
) {
    let ([_, ..], [first, rest @ ..]) = (into, from) else { return };
    // SAFETY: the caller's promise.
    unsafe {
        if rest.is_empty() && finish.is_none() {
            copy_all(into, *first, count * what.data.size(), store);
        } else {
            Reduction::new(Machine::here(), what, finish).all(into, from, count, store);
        }
    }
}

/// Copies bytes that do not overlap.
///
/// # Safety
/// Both are valid for `bytes` and do not overlap; during the call nothing else writes the source or accesses the
/// destination.
pub(crate) unsafe fn copy(into: *mut u8, from: *const u8, bytes: usize, store: Store) {
    match store {
        // SAFETY: the caller's promise.
        Store::Plain => unsafe { into.copy_from_nonoverlapping(from, bytes) },
        Store::Streaming => {
            // SAFETY: the caller's promise.
            unsafe { put(Machine::here().stream, into, from, bytes, from.wrapping_add(BLOCK)) };
            fence();
        }
    }
}

/// Copies bytes to every destination, reading them from memory once. A destination that is the source is skipped.
///
/// # Safety
/// As for [`copy`], for every destination that is not the source; destinations do not overlap.
pub(crate) unsafe fn copy_all(into: &[*mut u8], from: *const u8, bytes: usize, store: Store) {
    let stream = Machine::here().stream;
    // One destination needs no blocks.
    let step = if into.len() == 1 { bytes.max(1) } else { BLOCK };
    for (at, part) in blocks(bytes, step) {
        for it in into.iter().filter(|it| it.cast_const() != from) {
            // SAFETY: the caller's promise; `at` and `part` stay within `bytes`.
            unsafe {
                let (into, from) = (it.add(at), from.add(at));
                match store {
                    Store::Plain => into.copy_from_nonoverlapping(from, part),
                    Store::Streaming => put(stream, into, from, part, from.wrapping_add(BLOCK)),
                }
            }
        }
    }
    if store == Store::Streaming {
        fence();
    }
}

/// Divides every element by the number of ranks, to complete an average. Integers are rounded towards zero.
///
/// # Safety
/// `data` is valid for `count` aligned elements that nothing else accesses during the call.
pub(crate) unsafe fn finish(kind: DataType, data: *mut u8, count: usize, ranks: usize) {
    let reduction =
        Reduction::new(Machine::here(), ReduceOp { data: kind, operation: Operation::Avg }, Some(ranks));
    for (at, part) in blocks(count, reduction.step) {
        // SAFETY: the caller's promise; `at` and `part` stay within `count`.
        unsafe { reduction.block(data.add(at * kind.size()), data, &[], at, part) };
    }
}

/// Space for a block on the stack.
#[repr(C, align(64))]
struct Scratch(MaybeUninit<[u8; 2 * BLOCK]>);

impl Scratch {
    #[inline]
    fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// Space for a block at a page offset half a page from that of `source`: a load waits for an earlier store with the same
    /// page offset (4K aliasing).
    #[inline]
    fn start(&mut self, source: *const u8) -> *mut u8 {
        let start = self.0.as_mut_ptr().cast::<u8>();
        let wanted = (source.addr() / LINE * LINE).wrapping_add(BLOCK / 2);
        // Less than a block is skipped, so that a block is left.
        start.wrapping_add(wanted.wrapping_sub(start.addr()) % BLOCK)
    }
}

/// The loops for one type and operation.
struct Reduction {
    /// Bytes of an element.
    size: usize,
    /// The number of elements of a block, in the type in which they are reduced.
    step: usize,
    stream: Stream,
    pair: Pair,
    division: Option<(Division, usize)>,
    conversions: Option<(Widen, Narrow)>,
}

impl Reduction {
    #[inline]
    fn new(machine: &Machine, what: ReduceOp, finish: Option<usize>) -> Self {
        let (size, conversions) = (what.data.size(), machine.conversions(what.data));
        Self {
            size,
            step: if conversions.is_some() { BLOCK / size_of::<f32>() } else { BLOCK >> size.ilog2() },
            stream: machine.stream,
            pair: machine.pair(what),
            division: finish.map(|ranks| (machine.division(what.data), ranks)),
            conversions,
        }
    }

    /// Reduces all sources into all destinations.
    ///
    /// # Safety
    /// As for [`reduce_all`]; there is a source, and more than one if there is nothing to divide by.
    unsafe fn all(&self, into: &[*mut u8], from: &[*const u8], count: usize, store: Store) {
        let ([target, others @ ..], [first, rest @ ..]) = (into, from) else { return };
        let (size, step) = (self.size, self.step);
        // Memory that was just read is in the cache: a non-temporal store would only evict it.
        let in_place = |it: &*mut u8| from.contains(&it.cast_const());
        if store == Store::Streaming && !into.iter().all(in_place) {
            // SAFETY: the caller's promise.
            return unsafe { self.all_streaming(into, from, count) };
        }
        for (at, part) in blocks(count, step) {
            // SAFETY: `at` and `part` stay within `count`; the block of every source was read when the copies to the
            // other destinations begin.
            unsafe {
                let target = target.add(at * size);
                self.block(target, *first, rest, at, part);
                for other in others {
                    other.add(at * size).copy_from_nonoverlapping(target, part * size);
                }
            }
        }
    }

    /// [`Self::all`] with non-temporal stores, except to destinations that are sources.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn all_streaming(&self, into: &[*mut u8], from: &[*const u8], count: usize) {
        let ([target, ..], [first, rest @ ..]) = (into, from) else { return };
        let (size, step) = (self.size, self.step);
        let mut result = Scratch::new();
        let result = result.start(*first);
        let mut at = 0;
        // A shorter first block aligns the others to cache lines of the first destination.
        let mut part = step - target.addr() % LINE / size;
        while at < count {
            part = part.min(count - at);
            let next = at + part;
            // SAFETY: `at` and `part` stay within `count`, and a block within the scratch.
            unsafe {
                self.block(result, *first, rest, at, part);
                for (order, it) in into.iter().enumerate() {
                    let place = it.add(at * size);
                    if from.contains(&it.cast_const()) {
                        place.copy_from_nonoverlapping(result, part * size);
                    } else {
                        // While one destination is written, the next block of one source is prefetched. After the last
                        // block the prefetch goes to memory that is already in the cache.
                        let ahead = from.get(order).filter(|_| next < count);
                        let ahead = ahead.map_or(result.cast_const(), |it| it.wrapping_add(next * size));
                        put(self.stream, place, result, part * size, ahead);
                    }
                }
            }
            at = next;
            part = step;
        }
        fence();
    }

    /// Reduces `count` elements of all sources from element `at` into `target`, which has space for these only.
    ///
    /// # Safety
    /// `count` is at most the step; the sources are valid for `at + count` elements; `target` is the address
    /// of these elements in a source, or overlaps none.
    #[inline]
    unsafe fn block(&self, target: *mut u8, first: *const u8, rest: &[*const u8], at: usize, count: usize) {
        let start = at * self.size;
        // SAFETY: the caller's promise; a scratch has room for a step.
        unsafe {
            match (self.conversions, rest) {
                (Some(conversions), _) => self.wide_block(conversions, target, first, rest, start, count),
                (None, []) => {}
                (None, [second]) => (self.pair)(target, first.add(start), second.add(start), count),
                (None, [second, middle @ .., last]) => {
                    self.many_block(target, (first, *second, *last), middle, start, count);
                }
            }
            if let (None, Some((division, ranks))) = (self.conversions, self.division) {
                let from = if rest.is_empty() { first.add(start) } else { target };
                division(target, from, count, ranks);
            }
        }
    }

    /// [`Self::block`] for more than two sources: the one before the last is the end of `middle`.
    ///
    /// # Safety
    /// As there; `start` is the block's first byte.
    #[inline(never)]
    unsafe fn many_block(
        &self,
        target: *mut u8,
        (first, second, last): (*const u8, *const u8, *const u8),
        middle: &[*const u8],
        start: usize,
        count: usize,
    ) {
        let mut sum = Scratch::new();
        let sum = sum.start(first);
        // SAFETY: the caller's promise; a scratch has room for a step.
        unsafe {
            (self.pair)(sum, first.add(start), second.add(start), count);
            for it in middle {
                (self.pair)(sum, sum, it.add(start), count);
            }
            (self.pair)(target, sum, last.add(start), count);
        }
    }

    /// [`Self::block`] for 16-bit types.
    ///
    /// # Safety
    /// As there; `start` is the block's first byte.
    #[inline(never)]
    unsafe fn wide_block(
        &self,
        (widen, narrow): (Widen, Narrow),
        target: *mut u8,
        first: *const u8,
        rest: &[*const u8],
        start: usize,
        count: usize,
    ) {
        let (mut sum, mut next) = (Scratch::new(), Scratch::new());
        let (sum, next) = (sum.start(first), next.start(first));
        // SAFETY: the caller's promise; a scratch has room for a step of singles.
        unsafe {
            widen(sum.cast(), first.add(start), count);
            for it in rest {
                widen(next.cast(), it.add(start), count);
                (self.pair)(sum, sum, next, count);
            }
            if let Some((division, ranks)) = self.division {
                division(sum, sum, count, ranks);
            }
            narrow(target, sum.cast(), count);
        }
    }
}

/// Offset and length of each block. Unlike `step_by` it does not divide, which would take a good part of a small call.
#[inline]
fn blocks(count: usize, step: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let part = step.min(count - at);
        at += part;
        (part > 0).then(|| (at - part, part))
    })
}

/// Copies with non-temporal stores: whole lines by `stream`, the rest with plain stores. Prefetches as many bytes from
/// `ahead`, which may be any pointer.
///
/// # Safety
/// As for [`copy`]. Call [`fence`] before the result is published.
unsafe fn put(stream: Stream, into: *mut u8, from: *const u8, bytes: usize, ahead: *const u8) {
    let head = into.align_offset(LINE).min(bytes);
    let whole = (bytes - head) / LINE * LINE;
    let end = head + whole;
    // SAFETY: the caller's promise; the three parts are within `bytes`, the second begins a line.
    unsafe {
        into.copy_from_nonoverlapping(from, head);
        stream(into.add(head), from.add(head), whole, ahead);
        into.add(end).copy_from_nonoverlapping(from.add(end), bytes - end);
    }
}

/// Orders non-temporal stores before later stores: a flag stored after this is visible after them.
#[inline]
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has it.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
