//! The ranks' stderr, passed on to ours without repeating what all say.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::signals::Signals;
use crate::Error;

/// How long the ends of ranks may go unnoticed: another thread of this process may get the signal that tells of one.
const LOOK: Duration = Duration::from_millis(250);

/// Lines that are shown once.
const ONCE: [&str; 3] = ["error:", "hint:", "warning:"];

/// A longer line is passed on as it comes.
const MAX_LINE: usize = 16 << 10;

/// How many lines are remembered.
const MAX_REMEMBERED: usize = 4096;

/// The ranks' stderr.
pub(super) struct Relay {
    ends: Vec<(OwnedFd, Lines)>,
    seen: Seen,
}

/// What was said. Ranks that learn of one failure at different stages say the same but for the stage, which stands in
/// brackets at the end.
#[derive(Default)]
struct Seen {
    lines: BTreeSet<Vec<u8>>,
    /// Nothing is new any more.
    muted: bool,
}

/// One rank's lines.
#[derive(Default)]
struct Lines {
    /// The beginning of a line that may be one to show once.
    held: Vec<u8>,
    /// The rest of this line is passed on.
    through: bool,
}

impl Relay {
    pub(super) fn new(ends: Vec<OwnedFd>) -> Self {
        for end in &ends {
            if let Ok(flags) = fcntl_getfl(end) {
                let _ = fcntl_setfl(end, flags | OFlags::NONBLOCK);
            }
        }
        Self { ends: ends.into_iter().map(|it| (it, Lines::default())).collect(), seen: Seen::default() }
    }

    /// From now on passes on no `error:`, `hint:` or `warning:`.
    pub(super) fn mute(&mut self) {
        self.seen.muted = true;
    }

    /// Waits for signals or lines, and passes the lines on.
    pub(super) fn wait(&mut self, signals: &Signals, until: Option<Instant>) -> Result<(), Error> {
        let left = until.map_or(LOOK, |it| it.saturating_duration_since(Instant::now()).min(LOOK));
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let mut files = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        files.extend(self.ends.iter().map(|(it, _)| PollFd::new(it, PollFlags::IN)));
        match poll(&mut files, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::start("cannot wait for the ranks", error)),
        }
        self.pass();
        Ok(())
    }

    /// Passes on what is left when all ranks have ended. Whoever else has the pipes may write on: what a pipe holds
    /// at most is enough.
    pub(super) fn finish(mut self) {
        for _ in 0..16 {
            if !self.pass() {
                break;
            }
        }
        let mut out = Vec::new();
        for (_, lines) in &mut self.ends {
            lines.end(&mut self.seen, &mut out);
        }
        show(&out);
    }

    /// Passes on what is there now: a bounded amount of each rank, so that signals are seen in time. Returns whether
    /// there was something.
    fn pass(&mut self) -> bool {
        let mut out = Vec::new();
        let mut some = false;
        let seen = &mut self.seen;
        let mut buffer = vec![0; 64 << 10];
        self.ends.retain_mut(|(end, lines)| match rustix::io::read(&*end, buffer.as_mut_slice()) {
            Ok(0) => {
                lines.end(seen, &mut out);
                false
            }
            Ok(count) => {
                some = true;
                lines.take(buffer.get(..count).unwrap_or_default(), seen, &mut out);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        });
        show(&out);
        some
    }
}

/// Writes to our stderr. If nobody reads it, the ranks go on.
fn show(out: &[u8]) {
    let _ = std::io::stderr().lock().write_all(out);
}

impl Seen {
    fn is_new(&mut self, line: &[u8]) -> bool {
        let line = without_stage(line);
        if self.muted || self.lines.contains(line) {
            return false;
        }
        if self.lines.len() < MAX_REMEMBERED {
            self.lines.insert(line.to_vec());
        }
        true
    }
}

/// `error: rank 1 on node7: its process ended (barrier)` without what follows `ended`.
fn without_stage(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii_end();
    let stage = line.windows(2).rposition(|it| it == b" (").filter(|_| line.ends_with(b")"));
    stage.and_then(|it| line.get(..it)).unwrap_or(line)
}

impl Lines {
    fn take(&mut self, bytes: &[u8], seen: &mut Seen, out: &mut Vec<u8>) {
        for part in bytes.split_inclusive(|it| matches!(it, b'\n' | b'\r')) {
            if self.through {
                out.extend_from_slice(part);
            } else {
                self.held.extend_from_slice(part);
                self.decide(seen, out);
            }
            if part.ends_with(b"\n") || part.ends_with(b"\r") {
                self.end(seen, out);
            }
        }
    }

    /// Passes on what cannot be a line to show once.
    fn decide(&mut self, seen: &mut Seen, out: &mut Vec<u8>) {
        let may_be = ONCE.iter().any(|it| {
            let length = self.held.len().min(it.len());
            self.held.get(..length) == it.as_bytes().get(..length)
        });
        if !may_be || self.held.len() > MAX_LINE {
            self.through = true;
            out.append(&mut self.held);
        } else if self.held.ends_with(b"\n") {
            self.end(seen, out);
        }
    }

    /// The line is complete, or will never be.
    fn end(&mut self, seen: &mut Seen, out: &mut Vec<u8>) {
        if !self.held.is_empty() && seen.is_new(&self.held) {
            out.append(&mut self.held);
        }
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown when these ranks say these pieces.
    #[track_caller]
    fn check(said: &[(usize, &str)], shown: &str) {
        let (mut ranks, mut seen, mut out) =
            ([(); 3].map(|()| Lines::default()), Seen::default(), Vec::new());
        for (rank, piece) in said {
            ranks[*rank].take(piece.as_bytes(), &mut seen, &mut out);
        }
        for rank in &mut ranks {
            rank.end(&mut seen, &mut out);
        }
        assert_eq!(String::from_utf8(out).expect("text"), shown);
    }

    #[test]
    fn after_an_interruption_nobody_complains() {
        let (mut rank, mut seen, mut out) = (Lines::default(), Seen::default(), Vec::new());
        rank.take(b"error: a\n", &mut seen, &mut out);
        seen.muted = true;
        rank.take(b"error: rank 0 on n: its process ended (barrier)\nNCCL INFO b\n", &mut seen, &mut out);
        rank.end(&mut seen, &mut out);
        assert_eq!(String::from_utf8(out).expect("text"), "error: a\nNCCL INFO b\n");
    }

    #[test]
    fn errors_are_shown_once() {
        check(&[(0, "error: a\n"), (1, "error: a\n"), (2, "error: b\n")], "error: a\nerror: b\n");
        check(&[(0, "err"), (1, "error: a\n"), (0, "or: a\n")], "error: a\n");
        check(&[(0, "half\x1b[2K\rerror: a\n"), (1, "error: a\n")], "half\x1b[2K\rerror: a\n");
        check(&[(1, "error: a\n"), (0, "half\x1b[2K\rerror: a\n")], "error: a\nhalf\x1b[2K\r");
        check(&[(0, "error: a"), (1, "error: a")], "error: a");
        check(&[(0, "error: a\nhint: b\n"), (1, "error: a\nhint: b\n")], "error: a\nhint: b\n");
    }

    #[test]
    fn the_same_at_another_stage_is_the_same() {
        check(&[(0, "error: a (barrier)\n"), (1, "error: a\n")], "error: a (barrier)\n");
        check(&[(0, "error: a (barrier)\n"), (1, "error: a (gather)\n")], "error: a (barrier)\n");
        check(&[(0, "error: (x)\n"), (1, "error: (y) z\n")], "error: (x)\nerror: (y) z\n");
    }

    #[test]
    fn the_rest_passes_through_at_once() {
        check(&[(0, "note\n"), (1, "note\n")], "note\nnote\n");
        let (mut lines, mut seen, mut out) = (Lines::default(), Seen::default(), Vec::new());
        lines.take(b"10 %\r", &mut seen, &mut out);
        lines.take(b"20", &mut seen, &mut out);
        assert_eq!(out, b"10 %\r20");
        lines.take(b" error: x\nerror", &mut seen, &mut out);
        assert_eq!(out, b"10 %\r20 error: x\n");
    }

    #[test]
    fn nothing_is_held_without_end() {
        let long = "error: ".to_owned() + &"x".repeat(3 * MAX_LINE);
        let (mut lines, mut seen, mut out) = (Lines::default(), Seen::default(), Vec::new());
        lines.take(long.as_bytes(), &mut seen, &mut out);
        assert_eq!(out, long.as_bytes());
    }
}
