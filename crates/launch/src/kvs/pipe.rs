#![allow(unsafe_code, reason = "a file descriptor inherited from the process that started this rank")]
//! The key-value store of ranks that [`start`](crate::start()) runs: a pipe from rank 0 to all others.
//!
//! Rank 0 writes one record of fixed size for every other rank. A record is smaller than `PIPE_BUF`, so it is written at
//! once and every reader gets exactly one. When rank 0 dies, the others see the end of the pipe.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};

use super::KeyValueStore;
use crate::Error;
use crate::rendezvous::MAX_TEXT;

const RECORD: usize = 512;

/// One end of the pipe.
pub(crate) struct Pipe {
    end: OwnedFd,
    /// The number of records to write.
    readers: usize,
}

/// Both ends of a pipe, before ranks are started. Neither is inherited by children yet.
pub(crate) struct PipeEnds {
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
}

pub(crate) fn pipe() -> Result<PipeEnds, Error> {
    let (read, write) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| Error::start("cannot create a pipe", error))?;
    Ok(PipeEnds { read, write })
}

impl Pipe {
    /// The end that this process has inherited. It is duplicated; the original is closed on exec.
    pub(crate) fn inherited(fd: RawFd, readers: usize) -> Result<Self, Error> {
        let end =
            inherited(fd, FileType::Fifo).map_err(|error| failed("PLUMB_RENDEZVOUS is not a pipe", error))?;
        let flags = fcntl_getfl(&end).map_err(|error| failed("cannot read the flags", error))?;
        fcntl_setfl(&end, flags | OFlags::NONBLOCK).map_err(|error| failed("cannot set the flags", error))?;
        Ok(Self { end, readers })
    }

    fn wait(&self, flags: PollFlags, until: Instant) -> Result<(), Error> {
        wait(&self.end, flags, until).map_err(|error| match error {
            Errno::TIMEDOUT => Error::kvs("pipe", "the other ranks did not connect in time"),
            error => failed("cannot wait", error),
        })
    }
}

impl KeyValueStore for Pipe {
    fn name(&self) -> &'static str {
        "pipe"
    }

    fn publish(self: Box<Self>, value: &str, timeout: Duration) -> Result<(), Error> {
        let until = Instant::now() + timeout;
        let mut record = [0; RECORD];
        match record.get_mut(..value.len()) {
            Some(start) if value.len() <= MAX_TEXT => start.copy_from_slice(value.as_bytes()),
            _ => {
                let detail = format!("the value has {} bytes; the limit is {MAX_TEXT}", value.len());
                return Err(Error::kvs("pipe", detail));
            }
        }
        for _ in 0..self.readers {
            loop {
                match rustix::io::write(&self.end, &record) {
                    Ok(RECORD) => break,
                    Ok(_) => return Err(Error::kvs("pipe", "a record was written in part")),
                    Err(Errno::AGAIN) => self.wait(PollFlags::OUT, until)?,
                    Err(Errno::INTR) => {}
                    Err(Errno::PIPE) => return Err(Error::kvs("pipe", "all other ranks have ended")),
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
                Ok(0) => return Err(Error::kvs("pipe", "rank 0 ended before it published its address")),
                Ok(_) => return Err(Error::kvs("pipe", "a record was received in part")),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, until)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed("cannot read", error)),
            }
        }
        let value = record.split(|it| *it == 0).next().unwrap_or_default();
        String::from_utf8(value.to_vec()).map_err(|_| Error::kvs("pipe", "the value is not UTF-8"))
    }
}

fn failed(what: &str, error: Errno) -> Error {
    Error::kvs("pipe", format!("{what}: {error}"))
}

/// A duplicate of an inherited descriptor, if it is of this type. The original stays open, as other code of this process
/// may use it, but is closed on exec.
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

/// Waits until a descriptor is ready, or returns `TIMEDOUT`.
pub(super) fn wait(fd: &OwnedFd, flags: PollFlags, until: Instant) -> Result<(), Errno> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::TIMEDOUT);
        }
        let left = Timespec {
            tv_sec: left.as_secs().min(86_400).cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(fd, flags)], Some(&left)) {
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
        let PipeEnds { read, write } = pipe().expect("a pipe");
        let writer = Pipe::inherited(write.as_raw_fd(), readers).expect("an end");
        let readers = (0..readers).map(|_| Pipe::inherited(read.as_raw_fd(), 0).expect("an end"));
        (Box::new(writer), readers.collect())
    }

    #[test]
    fn every_rank_fetches_the_value() {
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
    fn the_end_of_rank_0_is_reported() {
        let (writer, mut readers) = ends(1);
        drop(writer);
        let error = Box::new(readers.remove(0)).fetch(Duration::from_secs(60)).expect_err("no text");
        assert!(error.to_string().contains("rank 0 ended"), "{error}");
    }

    #[test]
    fn the_timeout_is_kept() {
        let (_writer, mut readers) = ends(1);
        let error = Box::new(readers.remove(0)).fetch(Duration::from_millis(5)).expect_err("no text");
        assert!(error.to_string().contains("in time"), "{error}");
    }

    #[test]
    fn only_pipes_are_accepted() {
        let file = std::fs::File::open("/dev/null").expect("a file");
        assert!(Pipe::inherited(file.as_raw_fd(), 1).is_err());
        assert!(Pipe::inherited(-1, 1).is_err());
        assert!(Pipe::inherited(1_000_000, 1).is_err());
        let (writer, _readers) = ends(1);
        assert!(writer.publish(&"x".repeat(MAX_TEXT + 1), Duration::from_secs(1)).is_err());
    }
}
