//! Shared memory that is freed with the last process that has mapped it.
//!
//! It is a memfd, or an unlinked file in a folder, and is passed to other processes as a descriptor. It has no name, so a
//! rank that is killed leaves nothing behind.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::ptr::{self, NonNull};

use rustix::fs::{self, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::{Cause, Error};

/// The stage named in errors.
const STAGE: &str = "shared memory";
const PAGE: usize = 4096;

/// A mapping of shared memory.
#[derive(Debug)]
pub(crate) struct Segment {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a segment is a range of addresses that stays mapped until it is dropped; what is in it is only reached through
// atomics and raw pointers whose users keep their own order.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Creates a segment of zeros, and the descriptor with which other processes open it.
    ///
    /// With a folder, it is an unlinked file there instead of a memfd, for systems that forbid memfds.
    pub(crate) fn create(len: usize, folder: Option<&Path>) -> Result<(Self, OwnedFd), Error> {
        let len = pages(len)?;
        let fd = match folder {
            Some(folder) => {
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
                fs::open(folder, flags, Mode::RUSR | Mode::WUSR)
                    .map_err(|it| failed(it, &format!("cannot create a file in {}", folder.display())))?
            }
            None => fs::memfd_create(c"plumb", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(|it| failed(it, "cannot create a memfd"))?,
        };
        let wanted = u64::try_from(len).unwrap_or(u64::MAX);
        fs::ftruncate(&fd, wanted).map_err(|it| out_of_memory(it, len, folder))?;
        if folder.is_none() {
            // No process can shrink it while it is mapped. A kernel without seals is accepted.
            let _ = fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
        }
        let segment = Self::map(&fd, len)?;
        segment.populate(&fd, folder)?;
        Ok((segment, fd))
    }

    /// Maps the segment of another rank.
    pub(crate) fn open(fd: &OwnedFd, len: usize) -> Result<Self, Error> {
        let len = pages(len)?;
        let there = fs::fstat(fd).map_err(|it| failed(it, "fstat"))?.st_size;
        if usize::try_from(there).unwrap_or(0) < len {
            return Err(Error::new(
                Cause::System,
                STAGE,
                format!("a segment has {there} bytes instead of {len}"),
            ));
        }
        let segment = Self::map(fd, len)?;
        segment.populate(fd, None)?;
        Ok(segment)
    }

    fn map(fd: &OwnedFd, len: usize) -> Result<Self, Error> {
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe {
            mm::mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd.as_fd(),
                0,
            )
        }
        .map_err(|it| out_of_memory(it, len, None))?;
        let Some(start) = NonNull::new(start.cast()) else {
            return Err(failed(Errno::NOMEM, "mmap"));
        };
        let segment = Self { start, len };
        // Huge pages, if the system has them.
        // SAFETY: the range was mapped just now, and the advice changes no content.
        let _ = unsafe { mm::madvise(segment.start.as_ptr().cast(), len, Advice::LinuxHugepage) };
        Ok(segment)
    }

    /// Allocates the pages now: if there are none later, the kernel sends SIGBUS.
    fn populate(&self, fd: &OwnedFd, folder: Option<&Path>) -> Result<(), Error> {
        // SAFETY: the range is this segment's own; populating writes nothing.
        match unsafe { mm::madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxPopulateWrite) } {
            Ok(()) => Ok(()),
            // Before Linux 5.14.
            Err(Errno::INVAL) => {
                let len = u64::try_from(self.len).unwrap_or(u64::MAX);
                fs::fallocate(fd, fs::FallocateFlags::empty(), 0, len)
                    .map_err(|it| out_of_memory(it, self.len, folder))
            }
            // Instead of SIGBUS: the file system is full.
            Err(Errno::FAULT) => Err(out_of_memory(Errno::NOSPC, self.len, folder)),
            Err(error) => Err(out_of_memory(error, self.len, folder)),
        }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping is this segment's own, and nobody can have a pointer into it that outlives it: pointers are
        // made from a segment that is borrowed or counted.
        let _ = unsafe { mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Rounds up to whole pages.
fn pages(len: usize) -> Result<usize, Error> {
    len.max(1).checked_next_multiple_of(PAGE).ok_or_else(|| out_of_memory(Errno::NOMEM, len, None))
}

fn failed(error: Errno, what: &str) -> Error {
    Error::system(STAGE, what, error)
}

fn out_of_memory(error: Errno, len: usize, folder: Option<&Path>) -> Error {
    let location = folder.map_or_else(String::new, |it| format!(" in {}", it.display()));
    Error::new(
        Cause::NoMemory,
        STAGE,
        format!("no space for {len} bytes of shared memory{location}: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_show_the_same_bytes() {
        let (mine, fd) = Segment::create(10_000, None).expect("memory");
        assert_eq!(mine.len(), 12_288, "whole pages");
        let theirs = Segment::open(&fd, 10_000).expect("a mapping");
        // SAFETY: both mappings are at least 10,000 bytes long and no one else knows them.
        unsafe {
            mine.start().add(9_999).write(7);
            assert_eq!(theirs.start().add(9_999).read(), 7);
        }
    }

    #[test]
    fn a_segment_that_is_too_short_is_refused() {
        let (_mine, fd) = Segment::create(PAGE, None).expect("memory");
        let error = Segment::open(&fd, 3 * PAGE).expect_err("too short");
        assert!(error.to_string().contains("4096"), "{error}");
    }

    #[test]
    fn a_folder_keeps_no_file() {
        let folder = std::env::temp_dir().join(format!("plumb-segment-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (segment, _fd) = Segment::create(PAGE, Some(&folder)).expect("memory");
        assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 0);
        drop(segment);
        std::fs::remove_dir(&folder).expect("empty");
    }

    #[test]
    fn too_much_memory_is_an_error() {
        let error = Segment::create(1 << 60, None).expect_err("an exbibyte");
        assert_eq!(error.cause, Cause::NoMemory, "{error}");
    }
}
