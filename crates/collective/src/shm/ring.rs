//! Byte streams through the rings of the mailboxes.

use std::io;
use std::sync::atomic::Ordering;

use super::mailbox::Mailbox;

/// The rings of one channel between this rank and the others of its host.
#[derive(Debug)]
pub(crate) struct Rings {
    local_rank: usize,
    mailboxes: Vec<Mailbox>,
    /// The number of rings of the channels before this one.
    skip: usize,
}

impl Rings {
    /// A channel belongs to one thread.
    pub(crate) fn new(local_rank: usize, mailboxes: Vec<Mailbox>, channel: usize) -> Self {
        let skip = channel * mailboxes.len();
        Self { local_rank, mailboxes, skip }
    }

    /// Writes to the ring of this rank in the mailbox of `to`; returns how many bytes fitted.
    pub(crate) fn send(&mut self, to: usize, bytes: &[u8]) -> io::Result<usize> {
        let Some(mailbox) = self.mailboxes.get(to) else { return Err(io::ErrorKind::NotFound.into()) };
        let (len, ring) = (mailbox.ring_len(), self.skip + self.local_rank);
        let written = mailbox.ring_written(ring);
        let end = written.load(Ordering::Relaxed);
        // Acquire: the receiver has read these bytes before they are overwritten.
        let held = end.wrapping_sub(mailbox.ring_read(ring).load(Ordering::Acquire));
        let held = usize::try_from(held).unwrap_or(usize::MAX);
        let taken = len.saturating_sub(held).min(bytes.len());
        if taken == 0 {
            return Ok(0);
        }
        let at = position(end, len);
        let first = taken.min(len - at);
        let space = mailbox.ring_space(ring);
        // SAFETY: `at + first <= len` and `taken - first <= at`, both inside the ring; this range is not read by the
        // receiver until `written` says so, and this rank is the ring's only sender.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), space.add(at), first);
            std::ptr::copy_nonoverlapping(bytes.as_ptr().add(first), space, taken - first);
        }
        written.store(end.wrapping_add(taken as u64), Ordering::Release);
        Ok(taken)
    }

    /// Reads from the ring of `from` in the own mailbox; returns how many bytes were there.
    pub(crate) fn receive(&mut self, from: usize, into: &mut [u8]) -> io::Result<usize> {
        let Some(mailbox) = self.mailboxes.get(self.local_rank) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let (len, ring) = (mailbox.ring_len(), self.skip + from);
        let read = mailbox.ring_read(ring);
        let begin = read.load(Ordering::Relaxed);
        let held = mailbox.ring_written(ring).load(Ordering::Acquire).wrapping_sub(begin);
        let taken = usize::try_from(held).unwrap_or(usize::MAX).min(len).min(into.len());
        if taken == 0 {
            return Ok(0);
        }
        let at = position(begin, len);
        let first = taken.min(len - at);
        let space = mailbox.ring_space(ring);
        // SAFETY: in bounds as in `send`; the sender does not touch this range until `read` says so.
        unsafe {
            std::ptr::copy_nonoverlapping(space.add(at), into.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(space, into.as_mut_ptr().add(first), taken - first);
        }
        read.store(begin.wrapping_add(taken as u64), Ordering::Release);
        Ok(taken)
    }
}

/// The offset in the ring after this many bytes.
#[expect(clippy::cast_possible_truncation, reason = "masked to less than the ring's length")]
fn position(count: u64, len: usize) -> usize {
    (count & (len as u64 - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::super::Segment;
    use super::super::mailbox::Layout;
    use super::*;

    #[test]
    fn bytes_keep_their_order() {
        let layout = Layout::new(2, 1);
        let mailboxes: Vec<Mailbox> = (0..2)
            .map(|_| Mailbox::new(Segment::create(layout.bytes(), None).expect("memory").0, layout))
            .collect();
        let mut one = Rings::new(0, mailboxes.clone(), 0);
        let mut other = Rings::new(1, mailboxes, 0);
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|it| (it % 251) as u8).collect();
        let mut got = vec![0_u8; bytes.len()];
        let (mut sent, mut received) = (0, 0);
        let mut step = 1;
        while received < got.len() {
            step = step * 7 % 100_003 + 1;
            let end = (sent + step).min(bytes.len());
            sent += one.send(1, &bytes[sent..end]).expect("a ring");
            let end = (received + step / 2 + 1).min(got.len());
            received += other.receive(0, &mut got[received..end]).expect("a ring");
        }
        assert!(got == bytes);
        assert_eq!(other.receive(0, &mut [0; 4]).expect("a ring"), 0, "nothing is left");
    }

    #[test]
    fn a_full_ring_accepts_nothing() {
        let layout = Layout::new(2, 1);
        let mailboxes: Vec<Mailbox> = (0..2)
            .map(|_| Mailbox::new(Segment::create(layout.bytes(), None).expect("memory").0, layout))
            .collect();
        let mut sender = Rings::new(0, mailboxes, 0);
        let bytes = vec![1_u8; 2 << 20];
        assert_eq!(sender.send(1, &bytes).expect("a ring"), layout.ring());
        assert_eq!(sender.send(1, &bytes).expect("a ring"), 0);
        assert!(sender.send(5, &bytes).is_err(), "no such rank");
    }
}
