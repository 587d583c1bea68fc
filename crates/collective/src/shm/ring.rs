//! Streams of bytes through rings on the desks.

use std::io;
use std::sync::atomic::Ordering;

use super::desk::Desk;

/// The streams between this rank and the others of its host.
#[derive(Debug)]
pub(crate) struct Rings {
    place: usize,
    desks: Vec<Desk>,
    /// Rings of channels before this one.
    skip: usize,
}

impl Rings {
    /// The rings of one channel. A channel belongs to one thread.
    pub(crate) fn new(place: usize, desks: Vec<Desk>, channel: usize) -> Self {
        let skip = channel * desks.len();
        Self { place, desks, skip }
    }

    /// Gives bytes to the ring on the desk of `to`; returns how many fitted.
    pub(crate) fn send(&mut self, to: usize, bytes: &[u8]) -> io::Result<usize> {
        let Some(desk) = self.desks.get(to) else { return Err(io::ErrorKind::NotFound.into()) };
        let (len, ring) = (desk.ring_len(), self.skip + self.place);
        let written = desk.ring_written(ring);
        let end = written.load(Ordering::Relaxed);
        // What the receiver has read is ours again only after its reads: acquire.
        let held = end.wrapping_sub(desk.ring_read(ring).load(Ordering::Acquire));
        let held = usize::try_from(held).unwrap_or(usize::MAX);
        let taken = len.saturating_sub(held).min(bytes.len());
        if taken == 0 {
            return Ok(0);
        }
        let at = position(end, len);
        let first = taken.min(len - at);
        let space = desk.ring_space(ring);
        // SAFETY: `at + first <= len` and `taken - first <= at`, both inside the ring; this range is not read by the
        // receiver until `written` says so, and this rank is the ring's only sender.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), space.add(at), first);
            std::ptr::copy_nonoverlapping(bytes.as_ptr().add(first), space, taken - first);
        }
        written.store(end.wrapping_add(taken as u64), Ordering::Release);
        Ok(taken)
    }

    /// Takes bytes out of the ring of `from` on the own desk; returns how many came.
    pub(crate) fn receive(&mut self, from: usize, into: &mut [u8]) -> io::Result<usize> {
        let Some(desk) = self.desks.get(self.place) else { return Err(io::ErrorKind::NotFound.into()) };
        let (len, ring) = (desk.ring_len(), self.skip + from);
        let read = desk.ring_read(ring);
        let begin = read.load(Ordering::Relaxed);
        let held = desk.ring_written(ring).load(Ordering::Acquire).wrapping_sub(begin);
        let taken = usize::try_from(held).unwrap_or(usize::MAX).min(len).min(into.len());
        if taken == 0 {
            return Ok(0);
        }
        let at = position(begin, len);
        let first = taken.min(len - at);
        let space = desk.ring_space(ring);
        // SAFETY: in bounds as in `send`; the sender does not touch this range until `read` says so.
        unsafe {
            std::ptr::copy_nonoverlapping(space.add(at), into.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(space, into.as_mut_ptr().add(first), taken - first);
        }
        read.store(begin.wrapping_add(taken as u64), Ordering::Release);
        Ok(taken)
    }
}

/// Where in the ring a count of bytes is.
#[expect(clippy::cast_possible_truncation, reason = "masked to less than the ring's length")]
fn position(count: u64, len: usize) -> usize {
    (count & (len as u64 - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::super::Segment;
    use super::super::desk::Layout;
    use super::*;

    #[test]
    fn bytes_come_in_order_through_many_turns() {
        let layout = Layout::new(2, 1);
        let desks: Vec<Desk> = (0..2)
            .map(|_| Desk::new(Segment::create(layout.bytes(), None).expect("memory").0, layout))
            .collect();
        let mut one = Rings::new(0, desks.clone(), 0);
        let mut other = Rings::new(1, desks, 0);
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
    fn a_full_ring_takes_nothing() {
        let layout = Layout::new(2, 1);
        let desks: Vec<Desk> = (0..2)
            .map(|_| Desk::new(Segment::create(layout.bytes(), None).expect("memory").0, layout))
            .collect();
        let mut sender = Rings::new(0, desks, 0);
        let bytes = vec![1_u8; 2 << 20];
        assert_eq!(sender.send(1, &bytes).expect("a ring"), layout.ring());
        assert_eq!(sender.send(1, &bytes).expect("a ring"), 0);
        assert!(sender.send(5, &bytes).is_err(), "no such rank");
    }
}
