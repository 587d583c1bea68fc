//! Forwards the standard error of the ranks and removes messages that several ranks repeat.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::signals::Signals;
use crate::Error;

/// The longest wait: another thread of this process may get the SIGCHLD of a rank.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Lines that begin so are shown once.
const ONCE: [&str; 3] = ["error:", "hint:", "warning:"];

/// A longer line is forwarded as it is received.
const MAX_LINE: usize = 16 << 10;

/// Lines that are remembered for comparison.
const MAX_REMEMBERED: usize = 4096;

pub(super) struct StderrForwarder {
    pipes: Vec<Pipe>,
    seen: Seen,
}

/// The standard error of one rank.
struct Pipe {
    fd: OwnedFd,
    lines: Lines,
}

/// The messages shown so far. Ranks that report one failure at different stages write the same line but for the stage,
/// which is in parentheses at the end.
#[derive(Default)]
struct Seen {
    lines: BTreeSet<Vec<u8>>,
    /// No message is shown any more.
    muted: bool,
}

/// The line that a rank is writing.
#[derive(Default)]
struct Lines {
    /// The beginning of a line that may have to be shown once.
    held: Vec<u8>,
    /// The rest of this line is forwarded unchanged.
    pass_through: bool,
}

impl StderrForwarder {
    pub(super) fn new(fds: Vec<OwnedFd>) -> Self {
        for fd in &fds {
            if let Ok(flags) = fcntl_getfl(fd) {
                let _ = fcntl_setfl(fd, flags | OFlags::NONBLOCK);
            }
        }
        let pipes = fds.into_iter().map(|fd| Pipe { fd, lines: Lines::default() }).collect();
        Self { pipes, seen: Seen::default() }
    }

    /// From now on drops lines that begin with `error:`, `hint:` or `warning:`.
    pub(super) fn mute(&mut self) {
        self.seen.muted = true;
    }

    /// Waits for signals or output, and forwards the output.
    pub(super) fn wait(&mut self, signals: &Signals, until: Option<Instant>) -> Result<(), Error> {
        let left =
            until.map_or(POLL_INTERVAL, |it| it.saturating_duration_since(Instant::now()).min(POLL_INTERVAL));
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let mut files = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        files.extend(self.pipes.iter().map(|it| PollFd::new(&it.fd, PollFlags::IN)));
        match poll(&mut files, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::start("cannot wait for the ranks", error)),
        }
        self.forward();
        Ok(())
    }

    /// Forwards the rest when all ranks have ended. Another process may still hold a pipe and write to it: no more is read
    /// than a pipe can hold.
    pub(super) fn finish(mut self) {
        for _ in 0..16 {
            if !self.forward() {
                break;
            }
        }
        let mut out = Vec::new();
        for pipe in &mut self.pipes {
            pipe.lines.end(&mut self.seen, &mut out);
        }
        show(&out);
    }

    /// Forwards what is available, a bounded amount per rank, so that signals are handled in time. Returns whether there
    /// was any.
    fn forward(&mut self) -> bool {
        let mut out = Vec::new();
        let mut any = false;
        let seen = &mut self.seen;
        let mut buffer = vec![0; 64 << 10];
        self.pipes.retain_mut(|Pipe { fd, lines }| match rustix::io::read(&*fd, buffer.as_mut_slice()) {
            Ok(0) => {
                lines.end(seen, &mut out);
                false
            }
            Ok(count) => {
                any = true;
                lines.take(buffer.get(..count).unwrap_or_default(), seen, &mut out);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        });
        show(&out);
        any
    }
}

/// Writes to standard error. Ranks are not ended because nobody reads it.
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
            if self.pass_through {
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

    /// Forwards a line that cannot be one of [`ONCE`].
    fn decide(&mut self, seen: &mut Seen, out: &mut Vec<u8>) {
        let may_be = ONCE.iter().any(|it| {
            let length = self.held.len().min(it.len());
            self.held.get(..length) == it.as_bytes().get(..length)
        });
        if !may_be || self.held.len() > MAX_LINE {
            self.pass_through = true;
            out.append(&mut self.held);
        } else if self.held.ends_with(b"\n") {
            self.end(seen, out);
        }
    }

    /// The line is complete, or the rank has ended.
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

    /// Checks what is shown when these ranks write these pieces.
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
    fn after_an_interruption_errors_are_dropped() {
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
    fn stages_are_not_compared() {
        check(&[(0, "error: a (barrier)\n"), (1, "error: a\n")], "error: a (barrier)\n");
        check(&[(0, "error: a (barrier)\n"), (1, "error: a (gather)\n")], "error: a (barrier)\n");
        check(&[(0, "error: (x)\n"), (1, "error: (y) z\n")], "error: (x)\nerror: (y) z\n");
    }

    #[test]
    fn other_lines_are_forwarded_at_once() {
        check(&[(0, "note\n"), (1, "note\n")], "note\nnote\n");
        let (mut lines, mut seen, mut out) = (Lines::default(), Seen::default(), Vec::new());
        lines.take(b"10 %\r", &mut seen, &mut out);
        lines.take(b"20", &mut seen, &mut out);
        assert_eq!(out, b"10 %\r20");
        lines.take(b" error: x\nerror", &mut seen, &mut out);
        assert_eq!(out, b"10 %\r20 error: x\n");
    }

    #[test]
    fn long_lines_are_not_held() {
        let long = "error: ".to_owned() + &"x".repeat(3 * MAX_LINE);
        let (mut lines, mut seen, mut out) = (Lines::default(), Seen::default(), Vec::new());
        lines.take(long.as_bytes(), &mut seen, &mut out);
        assert_eq!(out, long.as_bytes());
    }
}
