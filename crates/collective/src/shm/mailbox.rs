//! The mailbox of a rank: flags, small messages, rings and staging space in shared memory.
//!
//! Every rank creates one mailbox and maps those of all other ranks of its host. Only its owner writes to a mailbox, except
//! for the rings, which are written by the sender and read by the owner. Words that ranks wait for are two cache lines
//! apart, because processors fetch lines in pairs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::Segment;

/// Bytes between words that different ranks write.
const APART: usize = 128;
/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;
/// The largest message that fits into a slot.
pub(crate) const SMALL: usize = 32 << 10;
/// The largest message that shares a cache line with its flag.
pub(crate) const TINY: usize = LINE - 8;
/// Bytes of one of the four staging buffers.
pub(crate) const STAGE: usize = 256 << 10;

/// Slots for calls, used in turn.
///
/// Two are enough for correctness. With four, a slot is free long before it is written again, and its owner can take the
/// cache line back from its readers while it waits for something else.
pub(crate) const SLOTS: usize = 4;

const POSTED: usize = 0;
const DONE: usize = POSTED + SLOTS * APART;
const STAGED: usize = DONE + SLOTS * APART;
const REDUCED: usize = STAGED + APART;
const PROBE: usize = REDUCED + APART;
const SMALLS: usize = 4096;
const SMALL_SPACE: usize = LINE + SMALL;
const STAGES: usize = (SMALLS + SLOTS * SMALL_SPACE).next_multiple_of(4096);
const RINGS: usize = STAGES + 4 * STAGE;

/// The layout of a mailbox, equal for all ranks of a host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// The number of rings: one per rank of the host and channel.
    rings: usize,
    /// Bytes of a ring, a power of two.
    ring: usize,
}

impl Layout {
    pub(crate) fn new(ranks: usize, channels: usize) -> Self {
        let rings = ranks * channels;
        // 8 MiB for all rings, within useful sizes of one ring.
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

/// The buffers of a call, which ranks post before they access each other's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PostedBuffers {
    /// The address of the send buffer in the memory of the owner.
    pub(crate) send: u64,
    /// The address of the receive buffer.
    pub(crate) receive: u64,
    /// The registered segment that contains the send buffer; 0 if none does.
    pub(crate) send_segment: u32,
    /// The registered segment that contains the receive buffer; 0 if none does.
    pub(crate) receive_segment: u32,
}

/// A word in private memory: cross-memory attach works if reading `address` gives `content`.
pub(crate) struct ProbeTarget<'a> {
    pub(crate) address: &'a AtomicU64,
    pub(crate) content: &'a AtomicU64,
}

/// The mapping of the mailbox of this or another rank.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox {
    segment: Arc<Segment>,
    layout: Layout,
}

impl Mailbox {
    pub(crate) fn new(segment: Segment, layout: Layout) -> Self {
        debug_assert!(segment.len() >= layout.bytes());
        Self { segment: Arc::new(segment), layout }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.segment.len());
        // SAFETY: offsets come from the layout, and the segment is as long as the layout requires.
        unsafe { self.segment.start().add(offset) }
    }

    #[expect(clippy::cast_ptr_alignment, reason = "pages and offsets are multiples of 8")]
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: in bounds as above, aligned to 8 because segments are aligned to pages and offsets to 8, and every
        // process reaches these words as atomics only.
        unsafe { &*self.at(offset).cast::<AtomicU64>() }
    }

    /// The number of the last call that the owner has finished in this slot.
    #[inline]
    pub(crate) fn done(&self, slot: usize) -> &AtomicU64 {
        self.word(DONE + slot * APART)
    }

    /// The number of blocks copied into the staging space.
    #[inline]
    pub(crate) fn staged(&self) -> &AtomicU64 {
        self.word(STAGED)
    }

    /// The number of blocks reduced from the staging space.
    #[inline]
    pub(crate) fn reduced(&self) -> &AtomicU64 {
        self.word(REDUCED)
    }

    /// Whether the owner can access the memory of all others: 0 not known yet, 1 no, 2 yes.
    pub(crate) fn probe(&self) -> &AtomicU64 {
        self.word(PROBE)
    }

    /// What other ranks try to read in the memory of the owner.
    pub(crate) fn probe_target(&self) -> ProbeTarget<'_> {
        ProbeTarget { address: self.word(PROBE + 8), content: self.word(PROBE + 16) }
    }

    /// Posts the buffers of a call. `flag` is written last and makes them valid.
    #[inline]
    pub(crate) fn post_buffers(&self, slot: usize, flag: u64, buffers: PostedBuffers) {
        let base = POSTED + slot * APART;
        self.word(base + 8).store(buffers.send, Ordering::Relaxed);
        self.word(base + 16).store(buffers.receive, Ordering::Relaxed);
        let segments = u64::from(buffers.send_segment) << 32 | u64::from(buffers.receive_segment);
        self.word(base + 24).store(segments, Ordering::Relaxed);
        self.word(base).store(flag, Ordering::Release);
    }

    /// The flag of the posted buffers.
    #[inline]
    pub(crate) fn buffers_flag(&self, slot: usize) -> &AtomicU64 {
        self.word(POSTED + slot * APART)
    }

    /// The posted buffers, once their flag was read.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "two halves of a word")]
    pub(crate) fn posted_buffers(&self, slot: usize) -> PostedBuffers {
        let base = POSTED + slot * APART;
        let segments = self.word(base + 24).load(Ordering::Relaxed);
        PostedBuffers {
            send: self.word(base + 8).load(Ordering::Relaxed),
            receive: self.word(base + 16).load(Ordering::Relaxed),
            send_segment: (segments >> 32) as u32,
            receive_segment: segments as u32,
        }
    }

    /// The flag of a small message.
    #[inline]
    pub(crate) fn small_flag(&self, slot: usize) -> &AtomicU64 {
        self.word(SMALLS + slot * SMALL_SPACE)
    }

    /// The address of a small message of this length.
    #[inline]
    pub(crate) fn small(&self, slot: usize, bytes: usize) -> *mut u8 {
        let base = SMALLS + slot * SMALL_SPACE;
        self.at(if bytes <= TINY { base + 8 } else { base + LINE })
    }

    /// The staging buffer for inputs.
    pub(crate) fn stage_in(&self, parity: usize) -> *mut u8 {
        self.at(STAGES + parity * STAGE)
    }

    /// The staging buffer for results.
    pub(crate) fn stage_out(&self, parity: usize) -> *mut u8 {
        self.at(STAGES + (2 + parity) * STAGE)
    }

    /// Starts to fetch the cache lines that the owner will write next, which its readers have, without waiting: those of a message of
    /// this length.
    #[inline]
    pub(crate) fn reclaim_small(&self, slot: usize, bytes: usize) {
        reclaim(self.small_flag(slot));
        if bytes > TINY {
            let payload = self.small(slot, bytes);
            for line in (0..bytes.min(reclaimed())).step_by(LINE) {
                reclaim_line(payload.wrapping_add(line));
            }
        }
    }

    /// The same for posted buffers.
    #[inline]
    pub(crate) fn reclaim_posted(&self, slot: usize) {
        reclaim(self.buffers_flag(slot));
        reclaim(self.done(slot));
    }

    fn ring_start(&self, from: usize) -> usize {
        RINGS + from * (2 * APART + self.layout.ring)
    }

    /// The number of bytes that `from` has written to its ring.
    #[inline]
    pub(crate) fn ring_written(&self, from: usize) -> &AtomicU64 {
        self.word(self.ring_start(from))
    }

    /// The number of bytes that the owner has read from it.
    #[inline]
    pub(crate) fn ring_read(&self, from: usize) -> &AtomicU64 {
        self.word(self.ring_start(from) + APART)
    }

    #[inline]
    pub(crate) fn ring_space(&self, from: usize) -> *mut u8 {
        self.at(self.ring_start(from) + 2 * APART)
    }

    #[inline]
    pub(crate) fn ring_len(&self) -> usize {
        self.layout.ring()
    }
}

/// How much of a message is fetched for writing one call ahead. On a Xeon (Emerald Rapids) this made private 1 KiB of two ranks 23 % faster,
/// 2 KiB 25 %, 4 KiB 13 %; on an EPYC (Zen 5), which takes lines back faster, 1 KiB 25 % and 4 KiB 5 to 10 % slower.
fn reclaimed() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| if is_intel() { 4096 } else { 0 })
}

fn is_intel() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let vendor = std::arch::x86_64::__cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Fetches the cache line of a word for writing.
#[inline]
fn reclaim(word: &AtomicU64) {
    reclaim_line(word.as_ptr().cast());
}

/// Fetches a cache line for writing.
#[inline]
fn reclaim_line(address: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; processors without it do nothing, and an address that is not mapped is ignored.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
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
            let mailbox = Mailbox::new(segment, layout);
            let mut ends: Vec<(usize, usize)> = Vec::new();
            for slot in 0..SLOTS {
                ends.push((mailbox.buffers_flag(slot).as_ptr() as usize, 32));
                ends.push((mailbox.small_flag(slot).as_ptr() as usize, 8));
                ends.push((mailbox.small(slot, SMALL) as usize, SMALL));
                ends.push((mailbox.done(slot).as_ptr() as usize, 8));
            }
            for parity in [0, 1] {
                ends.push((mailbox.stage_in(parity) as usize, STAGE));
                ends.push((mailbox.stage_out(parity) as usize, STAGE));
            }
            for word in [
                mailbox.staged(),
                mailbox.reduced(),
                mailbox.probe(),
                mailbox.probe_target().address,
                mailbox.probe_target().content,
            ] {
                ends.push((word.as_ptr() as usize, 8));
            }
            for from in 0..ranks {
                ends.push((mailbox.ring_written(from).as_ptr() as usize, 8));
                ends.push((mailbox.ring_read(from).as_ptr() as usize, 8));
                ends.push((mailbox.ring_space(from) as usize, layout.ring));
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
    fn posted_buffers_are_read_as_written() {
        let layout = Layout::new(2, 1);
        let (segment, _fd) = Segment::create(layout.bytes(), None).expect("memory");
        let mailbox = Mailbox::new(segment, layout);
        let buffers =
            PostedBuffers { send: 1, receive: u64::MAX, send_segment: 7, receive_segment: u32::MAX };
        mailbox.post_buffers(1, 42, buffers);
        assert_eq!(mailbox.buffers_flag(1).load(Ordering::Acquire), 42);
        assert_eq!(mailbox.posted_buffers(1), buffers);
        assert_eq!(mailbox.posted_buffers(0), PostedBuffers::default());
    }
}
