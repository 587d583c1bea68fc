//! What a task printed, between its marks.

use std::collections::VecDeque;

/// At most this much is kept of what comes before the first mark.
const BEFORE: usize = 64 << 10;

/// A stream of bytes with two marks: a line `MARK begin`, and a line `MARK end CODE`.
pub(crate) struct Frame {
    begin: Vec<u8>,
    end: Vec<u8>,
    state: State,
    /// What came before the first mark: banners, garbage, and the words of ssh where there was no login.
    before: Vec<u8>,
    kept: Kept,
}

enum State {
    Before,
    Inside,
    /// With what follows `end`.
    Ended(String),
}

/// The beginning and the end of what came.
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Half of what is kept.
    half: usize,
    cut: bool,
}

impl Frame {
    /// Keeps at most this many bytes.
    pub(crate) fn new(mark: &str, most: usize) -> Self {
        let kept = Kept { head: Vec::new(), tail: VecDeque::new(), half: most / 2, cut: false };
        let line = |word: &str| format!("\n{mark} {word}").into_bytes();
        Self { begin: line("begin\n"), end: line("end "), state: State::Before, before: Vec::new(), kept }
    }

    pub(crate) fn take(&mut self, mut bytes: &[u8]) {
        if matches!(self.state, State::Before) {
            let known = self.before.len();
            self.before.extend_from_slice(bytes);
            let from = known.saturating_sub(self.begin.len());
            match find(self.before.get(from..).unwrap_or_default(), &self.begin) {
                None => {
                    // The last bytes may be the beginning of the mark.
                    let excess = self.before.len().saturating_sub(BEFORE);
                    self.before.drain(..excess);
                    return;
                }
                Some(at) => {
                    let after = from + at + self.begin.len();
                    bytes = bytes.get(after - known..).unwrap_or_default();
                    self.before.truncate(from + at);
                    self.state = State::Inside;
                }
            }
        }
        if matches!(self.state, State::Inside) {
            self.kept.push(bytes);
            self.look_for_end(bytes.len());
        }
    }

    /// The mark of the end may have begun in an earlier piece, and its line must be complete.
    fn look_for_end(&mut self, new: usize) {
        const LONGEST_CODE: usize = 16;
        let window = self.kept.last(new + self.end.len() + LONGEST_CODE);
        let Some(at) = find(&window, &self.end) else { return };
        let code = window.get(at + self.end.len()..).unwrap_or_default();
        let Some(length) = code.iter().position(|it| *it == b'\n') else { return };
        let code = String::from_utf8_lossy(code.get(..length).unwrap_or_default()).into_owned();
        self.kept.drop_last(window.len() - at);
        self.state = State::Ended(code);
    }

    pub(crate) const fn begun(&self) -> bool {
        !matches!(self.state, State::Before)
    }

    /// What follows the word `end`, once it is there.
    pub(crate) fn ended(&self) -> Option<&str> {
        match &self.state {
            State::Ended(code) => Some(code),
            State::Before | State::Inside => None,
        }
    }

    pub(crate) fn before(&self) -> &[u8] {
        &self.before
    }

    /// The first bytes of the answer, as far as they are here.
    pub(crate) fn head(&self) -> &[u8] {
        &self.kept.head
    }

    pub(crate) const fn is_cut(&self) -> bool {
        self.kept.cut
    }

    /// The answer, without its middle if it is cut.
    pub(crate) fn into_answer(self) -> Vec<u8> {
        let Kept { mut head, tail, .. } = self.kept;
        head.extend(tail);
        head
    }

    /// A copy of the end of it, at most this long.
    pub(crate) fn last(&self, count: usize) -> Vec<u8> {
        self.kept.last(count)
    }
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        let room = self.half.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(self.half);
        if excess > 0 {
            self.cut = true;
            self.tail.drain(..excess);
        }
    }

    fn last(&self, count: usize) -> Vec<u8> {
        let from_tail = count.min(self.tail.len());
        // Bytes of the head are no neighbours of the tail where the middle is missing.
        let from_head = if self.cut { 0 } else { (count - from_tail).min(self.head.len()) };
        let mut last = self.head.get(self.head.len() - from_head..).unwrap_or_default().to_vec();
        last.extend(self.tail.iter().skip(self.tail.len() - from_tail));
        last
    }

    fn drop_last(&mut self, count: usize) {
        let from_tail = count.min(self.tail.len());
        self.tail.truncate(self.tail.len() - from_tail);
        self.head.truncate(self.head.len() - (count - from_tail).min(self.head.len()));
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|it| it == what)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]], most: usize) -> Frame {
        let mut frame = Frame::new("M1", most);
        for piece in pieces {
            frame.take(piece);
        }
        frame
    }

    #[test]
    fn an_answer_between_banners() {
        let frame = read(&[b"Welcome!\r\nno newline\nM1 begin\nhello\nwor", b"ld\nM1 end 3\nlogout"], 1000);
        assert_eq!((frame.before(), frame.ended()), (&b"Welcome!\r\nno newline"[..], Some("3")));
        assert_eq!(frame.into_answer(), b"hello\nworld");
    }

    #[test]
    fn what_is_too_long_loses_its_middle() {
        let long: Vec<u8> = (0..10_000_u32).flat_map(|it| format!("{it}\n").into_bytes()).collect();
        let mut frame = read(&[b"\nM1 begin\n"], 1000);
        for piece in long.chunks(777) {
            frame.take(piece);
        }
        frame.take(b"\nM1 end 0\n");
        assert!(frame.is_cut() && frame.ended() == Some("0"));
        let answer = frame.into_answer();
        assert!(answer.len() <= 1000 && answer.starts_with(b"0\n1\n"), "{}", answer.len());
        assert!(answer.ends_with(b"9998\n9999\n"));
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            before in proptest::collection::vec(any::<u8>(), 0..200), answer in proptest::collection::vec(any::<u8>(), 0..300),
            piece in 1_usize..50,
        ) {
            let whole = [&before[..], b"\nM1 begin\n", &answer, b"\nM1 end 137\n"].concat();
            let mut frame = Frame::new("M1", 1000);
            whole.chunks(piece).for_each(|it| frame.take(it));
            prop_assert_eq!(frame.ended(), Some("137"));
            prop_assert_eq!(frame.into_answer(), answer);
        }

        #[test]
        fn any_bytes_are_accepted(bytes in proptest::collection::vec(any::<u8>(), 0..3000), most in 0_usize..100) {
            let mut frame = Frame::new("M1", most);
            frame.take(b"\nM1 begin\n");
            bytes.chunks(7).for_each(|it| frame.take(it));
            prop_assert!(frame.into_answer().len() <= most);
        }
    }
}
