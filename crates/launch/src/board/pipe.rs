#![allow(unsafe_code, reason = "a file descriptor inherited from our own starter")]
//! The board of our own starter: a pipe from rank 0 to all others.
//!
//! Rank 0 writes the text once for every other rank, as records of one size. A record is smaller than what a pipe
//! writes at once, so every reader takes exactly one. When rank 0 dies, the others see the end of the pipe.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};

use super::Board;
use crate::Error;
use crate::meeting::MAX_TEXT;

const RECORD: usize = 512;

/// One end of the pipe, and how many other ranks there are to tell.
pub(crate) struct Pipe {
    end: OwnedFd,
    readers: usize,
}

/// A pipe for a starter: the end that reads and the end that writes, neither for children yet.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    pipe_with(PipeFlags::CLOEXEC).map_err(|error| Error::start("cannot make a pipe", error))
}

impl Pipe {
    /// The end that our starter passed on. It is duplicated; the original is kept from our own children.
    pub(crate) fn inherited(fd: RawFd, readers: usize) -> Result<Self, Error> {
        let end = inherited(fd, FileType::Fifo).map_err(|error| failed("PLUMB_MEETING is no pipe", error))?;
        let flags = fcntl_getfl(&end).map_err(|error| failed("cannot ask", error))?;
        fcntl_setfl(&end, flags | OFlags::NONBLOCK).map_err(|error| failed("cannot set", error))?;
        Ok(Self { end, readers })
    }

    /// Waits until the pipe is ready.
    fn wait(&self, flags: PollFlags, until: Instant) -> Result<(), Error> {
        wait(&self.end, flags, until).map_err(|error| match error {
            Errno::TIMEDOUT => Error::board("pipe", "the other ranks did not come in time"),
            error => failed("cannot wait", error),
        })
    }
}

impl Board for Pipe {
    fn name(&self) -> &'static str {
        "pipe"
    }

    fn publish(self: Box<Self>, text: &str, timeout: Duration) -> Result<(), Error> {
        let until = Instant::now() + timeout;
        let mut record = [0; RECORD];
        match record.get_mut(..text.len()) {
            Some(place) if text.len() <= MAX_TEXT => place.copy_from_slice(text.as_bytes()),
            _ => return Err(Error::board("pipe", "the text is too long")),
        }
        for _ in 0..self.readers {
            loop {
                match rustix::io::write(&self.end, &record) {
                    Ok(RECORD) => break,
                    Ok(_) => return Err(Error::board("pipe", "a part of a record was written")),
                    Err(Errno::AGAIN) => self.wait(PollFlags::OUT, until)?,
                    Err(Errno::INTR) => {}
                    Err(Errno::PIPE) => return Err(Error::board("pipe", "all other ranks are gone")),
                    Err(error) => return Err(failed("cannot write", error)),
                }
            }
        }
        Ok(())
    }

    fn fetch(self: Box<Self>, timeout: Duration) -> Result<String, Error> {
        let until = Instant::now() + timeout;
        let mut record = [0; RECORD];
        loop {
            match rustix::io::read(&self.end, &mut record) {
                Ok(RECORD) => break,
                Ok(0) => return Err(Error::board("pipe", "rank 0 ended before it told where to meet")),
                Ok(_) => return Err(Error::board("pipe", "a part of a record came")),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, until)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed("cannot read", error)),
            }
        }
        let text = record.split(|it| *it == 0).next().unwrap_or_default();
        String::from_utf8(text.to_vec()).map_err(|_| Error::board("pipe", "what came is no text"))
    }
}

fn failed(what: &str, error: Errno) -> Error {
    Error::board("pipe", format!("{what}: {error}"))
}

/// A descriptor that the parent left open for us, if it is of this type. It is duplicated, so that nothing is closed
/// that somebody else in this process may use; the original is closed when we execute something else.
pub(super) fn inherited(fd: RawFd, expected: FileType) -> Result<OwnedFd, Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: borrowed for these calls only, each of which reports a descriptor that is not open as an error.
    let original = unsafe { BorrowedFd::borrow_raw(fd) };
    if FileType::from_raw_mode(fstat(original)?.st_mode) != expected {
        return Err(Errno::NOTSUP);
    }
    fcntl_setfd(original, FdFlags::CLOEXEC)?;
    fcntl_dupfd_cloexec(original, 3)
}

/// Waits until a descriptor is ready: `TIMEDOUT` if that does not happen.
pub(super) fn wait(end: &OwnedFd, flags: PollFlags, until: Instant) -> Result<(), Errno> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::TIMEDOUT);
        }
        let left = Timespec {
            tv_sec: left.as_secs().min(86_400).cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(end, flags)], Some(&left)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    fn ends(readers: usize) -> (Box<Pipe>, Vec<Pipe>) {
        let (read, write) = pipe().expect("a pipe");
        let writer = Pipe::inherited(write.as_raw_fd(), readers).expect("an end");
        let readers = (0..readers).map(|_| Pipe::inherited(read.as_raw_fd(), 0).expect("an end"));
        (Box::new(writer), readers.collect())
    }

    #[test]
    fn everyone_learns_the_text() {
        let (writer, readers) = ends(300);
        let threads: Vec<_> = readers
            .into_iter()
            .map(|it| std::thread::spawn(move || Box::new(it).fetch(Duration::from_secs(60))))
            .collect();
        writer.publish("127.0.0.1:4/abc", Duration::from_secs(60)).expect("published");
        for thread in threads {
            assert_eq!(thread.join().expect("a thread"), Ok("127.0.0.1:4/abc".to_owned()));
        }
    }

    #[test]
    fn a_dead_rank_zero_is_seen() {
        let (writer, mut readers) = ends(1);
        drop(writer);
        let error = Box::new(readers.remove(0)).fetch(Duration::from_secs(60)).expect_err("no text");
        assert!(error.to_string().contains("rank 0 ended"), "{error}");
    }

    #[test]
    fn nobody_waits_longer_than_asked() {
        let (_writer, mut readers) = ends(1);
        let error = Box::new(readers.remove(0)).fetch(Duration::from_millis(5)).expect_err("no text");
        assert!(error.to_string().contains("in time"), "{error}");
    }

    #[test]
    fn only_pipes_are_taken() {
        let file = std::fs::File::open("/dev/null").expect("a file");
        assert!(Pipe::inherited(file.as_raw_fd(), 1).is_err());
        assert!(Pipe::inherited(-1, 1).is_err());
        assert!(Pipe::inherited(1_000_000, 1).is_err());
        let (writer, _readers) = ends(1);
        assert!(writer.publish(&"x".repeat(MAX_TEXT + 1), Duration::from_secs(1)).is_err());
    }
}
