//! What a rank lays out for the others of its host: marks, small messages, rings and staging space.
//!
//! Every rank makes one desk and maps those of all others. Only its owner writes to a desk, except for the rings, which
//! are written by their sender and emptied by the owner. Words that are waited for lie two cache lines apart, because
//! processors fetch lines in pairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Segment;

/// Bytes between words that different ranks write.
const APART: usize = 128;
/// A cache line.
pub(crate) const LINE: usize = 64;
/// The largest message that goes through a desk at once.
pub(crate) const SMALL: usize = 32 << 10;
/// The largest message that shares a cache line with its mark.
pub(crate) const TINY: usize = LINE - 8;
/// One side of the staging space.
pub(crate) const STAGE: usize = 256 << 10;

/// Places for the marks of calls, used in turn.
///
/// Two would do for correctness. With four, a place is free long before it is written again, and its owner can take the
/// line back from those who read it while it waits for something else.
pub(crate) const TURNS: usize = 4;

const POSTS: usize = 0;
const DONE: usize = POSTS + TURNS * APART;
const STAGED: usize = DONE + TURNS * APART;
const REDUCED: usize = STAGED + APART;
const PROBE: usize = REDUCED + APART;
const SMALLS: usize = 4096;
const SMALL_SPACE: usize = LINE + SMALL;
const STAGES: usize = (SMALLS + TURNS * SMALL_SPACE).next_multiple_of(4096);
const RINGS: usize = STAGES + 4 * STAGE;

/// Where things lie on a desk, the same on all of a host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Rings to a desk: one for every rank of the host and every channel.
    rings: usize,
    /// Bytes a ring holds, a power of two.
    ring: usize,
}

impl Layout {
    pub(crate) fn new(ranks: usize, channels: usize) -> Self {
        let rings = ranks * channels;
        // 8 MiB of rings a desk, as long as that gives each a useful size.
        let ring = ((8 << 20) / rings.max(1)).clamp(32 << 10, 512 << 10);
        Self { rings, ring: if ring.is_power_of_two() { ring } else { ring.next_power_of_two() / 2 } }
    }

    pub(crate) fn bytes(self) -> usize {
        RINGS + self.rings * (2 * APART + self.ring)
    }

    pub(crate) fn ring(self) -> usize {
        self.ring
    }
}

/// What a rank tells before a direct collective: where its buffers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Post {
    /// Address of what it sends, in its own memory.
    pub(crate) send: u64,
    /// Address of where it receives.
    pub(crate) receive: u64,
    /// The registered segment that holds what it sends; 0 if none does.
    pub(crate) send_segment: u32,
    /// The registered segment it receives in; 0 if none.
    pub(crate) receive_segment: u32,
}

/// A desk, one's own or another's.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    segment: Arc<Segment>,
    layout: Layout,
}

impl Desk {
    pub(crate) fn new(segment: Segment, layout: Layout) -> Self {
        debug_assert!(segment.len() >= layout.bytes());
        Self { segment: Arc::new(segment), layout }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.segment.len());
        // SAFETY: offsets come from the layout, and the segment is as long as the layout asks for.
        unsafe { self.segment.start().add(offset) }
    }

    #[expect(clippy::cast_ptr_alignment, reason = "pages and offsets are multiples of 8")]
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: in bounds as above, aligned to 8 because segments are aligned to pages and offsets to 8, and every
        // process reaches these words as atomics only.
        unsafe { &*self.at(offset).cast::<AtomicU64>() }
    }

    /// The last collective that was finished in this turn.
    #[inline]
    pub(crate) fn done(&self, turn: usize) -> &AtomicU64 {
        self.word(DONE + turn * APART)
    }

    /// Counts blocks laid into the staging space.
    #[inline]
    pub(crate) fn staged(&self) -> &AtomicU64 {
        self.word(STAGED)
    }

    /// Counts blocks reduced from the staging space.
    #[inline]
    pub(crate) fn reduced(&self) -> &AtomicU64 {
        self.word(REDUCED)
    }

    /// What the owner found when it tried to reach the memory of the others: 0 not yet, 1 could not, 2 could.
    pub(crate) fn probe(&self) -> &AtomicU64 {
        self.word(PROBE)
    }

    /// The address of a word in the owner's memory that others may try to read, and what it holds.
    pub(crate) fn bait(&self) -> (&AtomicU64, &AtomicU64) {
        (self.word(PROBE + 8), self.word(PROBE + 16))
    }

    /// Says where the buffers of a call are. `mark` goes last and makes it valid.
    #[inline]
    pub(crate) fn write_post(&self, turn: usize, mark: u64, post: Post) {
        let base = POSTS + turn * APART;
        self.word(base + 8).store(post.send, Ordering::Relaxed);
        self.word(base + 16).store(post.receive, Ordering::Relaxed);
        let segments = u64::from(post.send_segment) << 32 | u64::from(post.receive_segment);
        self.word(base + 24).store(segments, Ordering::Relaxed);
        self.word(base).store(mark, Ordering::Release);
    }

    /// The mark of the owner's post.
    #[inline]
    pub(crate) fn post_mark(&self, turn: usize) -> &AtomicU64 {
        self.word(POSTS + turn * APART)
    }

    /// The post, once its mark was seen.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "two halves of a word")]
    pub(crate) fn read_post(&self, turn: usize) -> Post {
        let base = POSTS + turn * APART;
        let segments = self.word(base + 24).load(Ordering::Relaxed);
        Post {
            send: self.word(base + 8).load(Ordering::Relaxed),
            receive: self.word(base + 16).load(Ordering::Relaxed),
            send_segment: (segments >> 32) as u32,
            receive_segment: segments as u32,
        }
    }

    /// The mark of a small message.
    #[inline]
    pub(crate) fn small_mark(&self, turn: usize) -> &AtomicU64 {
        self.word(SMALLS + turn * SMALL_SPACE)
    }

    /// Where a small message of so many bytes lies.
    #[inline]
    pub(crate) fn small(&self, turn: usize, bytes: usize) -> *mut u8 {
        let base = SMALLS + turn * SMALL_SPACE;
        self.at(if bytes <= TINY { base + 8 } else { base + LINE })
    }

    /// Staging space for what goes in.
    pub(crate) fn stage_in(&self, parity: usize) -> *mut u8 {
        self.at(STAGES + parity * STAGE)
    }

    /// Staging space for results.
    pub(crate) fn stage_out(&self, parity: usize) -> *mut u8 {
        self.at(STAGES + (2 + parity) * STAGE)
    }

    /// Takes back the lines that the owner will write in a turn from those who have read them, without waiting.
    #[inline]
    pub(crate) fn reclaim_small(&self, turn: usize) {
        reclaim(self.small_mark(turn));
    }

    /// The same for posts.
    #[inline]
    pub(crate) fn reclaim_post(&self, turn: usize) {
        reclaim(self.post_mark(turn));
        reclaim(self.done(turn));
    }

    fn ring_start(&self, from: usize) -> usize {
        RINGS + from * (2 * APART + self.layout.ring)
    }

    /// Bytes that `from` has put into its ring to the owner.
    #[inline]
    pub(crate) fn ring_written(&self, from: usize) -> &AtomicU64 {
        self.word(self.ring_start(from))
    }

    /// Bytes that the owner has taken out of it.
    #[inline]
    pub(crate) fn ring_read(&self, from: usize) -> &AtomicU64 {
        self.word(self.ring_start(from) + APART)
    }

    /// The ring's space.
    #[inline]
    pub(crate) fn ring_space(&self, from: usize) -> *mut u8 {
        self.at(self.ring_start(from) + 2 * APART)
    }

    /// Bytes a ring holds.
    #[inline]
    pub(crate) fn ring_len(&self) -> usize {
        self.layout.ring()
    }
}

/// Asks for a line to be writable soon.
#[inline]
fn reclaim(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint about an address that is mapped; processors without it do nothing.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) word.as_ptr(), options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_all_fits() {
        for ranks in [1, 2, 3, 8, 9, 64, 200] {
            let layout = Layout::new(ranks, 1);
            assert!(layout.ring.is_power_of_two(), "{ranks} ranks: {layout:?}");
            let (segment, _fd) = Segment::create(layout.bytes(), None).expect("memory");
            let start = segment.start() as usize;
            let len = segment.len();
            let desk = Desk::new(segment, layout);
            let mut ends: Vec<(usize, usize)> = Vec::new();
            for turn in 0..TURNS {
                ends.push((desk.post_mark(turn).as_ptr() as usize, 32));
                ends.push((desk.small_mark(turn).as_ptr() as usize, 8));
                ends.push((desk.small(turn, SMALL) as usize, SMALL));
                ends.push((desk.done(turn).as_ptr() as usize, 8));
            }
            for parity in [0, 1] {
                ends.push((desk.stage_in(parity) as usize, STAGE));
                ends.push((desk.stage_out(parity) as usize, STAGE));
            }
            for word in [desk.staged(), desk.reduced(), desk.probe(), desk.bait().0, desk.bait().1] {
                ends.push((word.as_ptr() as usize, 8));
            }
            for from in 0..ranks {
                ends.push((desk.ring_written(from).as_ptr() as usize, 8));
                ends.push((desk.ring_read(from).as_ptr() as usize, 8));
                ends.push((desk.ring_space(from) as usize, layout.ring));
            }
            ends.sort_unstable();
            for pair in ends.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{ranks} ranks: {pair:?}");
            }
            let last = ends.last().expect("some");
            assert!(last.0 + last.1 <= start + len);
        }
    }

    #[test]
    fn a_post_is_read_as_written() {
        let layout = Layout::new(2, 1);
        let (segment, _fd) = Segment::create(layout.bytes(), None).expect("memory");
        let desk = Desk::new(segment, layout);
        let post = Post { send: 1, receive: u64::MAX, send_segment: 7, receive_segment: u32::MAX };
        desk.write_post(1, 42, post);
        assert_eq!(desk.post_mark(1).load(Ordering::Acquire), 42);
        assert_eq!(desk.read_post(1), post);
        assert_eq!(desk.read_post(0), Post::default());
    }
}
