//! How many segments TCP connections sent, and how many of them again.
#![allow(unsafe_code, reason = "TCP_INFO has no safe wrapper")]

use std::fs;
use std::io;
use std::os::fd::RawFd;

/// Segments with data that were sent, and those that were lost on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Segments {
    /// Sent, each time one was sent.
    pub sent: u64,
    /// Sent again because they did not arrive. What the receiver had twice was not lost and does not count.
    pub resent: u64,
}

/// Where `struct tcp_info` (include/uapi/linux/tcp.h) has these 32-bit numbers: it only grows at its end.
const TOTAL_RETRANS: usize = 100;
/// Since Linux 4.6.
const DATA_SEGS_OUT: usize = 156;
/// Since Linux 4.19.
const DSACK_DUPS: usize = 216;
/// Larger than the structure of any kernel so far; a kernel writes what it has.
const ROOM: usize = 512;

impl Segments {
    /// Over all connections that this process has open, those of libraries that it uses among them. None where the kernel does not
    /// count.
    pub fn of_this_process() -> io::Result<Option<Self>> {
        let mut all: Option<Self> = None;
        for entry in fs::read_dir("/proc/self/fd")? {
            let name = entry?.file_name();
            let Some(fd) = name.to_str().and_then(|it| it.parse().ok()) else { continue };
            if let Some(Self { sent, resent }) = Self::of(fd) {
                let sum = all.get_or_insert_default();
                *sum = Self { sent: sum.sent + sent, resent: sum.resent + resent };
            }
        }
        Ok(all)
    }

    /// None for a descriptor that is not a TCP connection.
    fn of(fd: RawFd) -> Option<Self> {
        let mut info = [0_u8; ROOM];
        let mut length = libc::socklen_t::try_from(ROOM).ok()?;
        // SAFETY: the kernel writes at most `length` bytes to `info` and their number to `length`; it refuses a descriptor that is
        // not a TCP socket, or not open any more.
        let failed = unsafe {
            libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut length)
        };
        if failed != 0 {
            return None;
        }
        Self::read(info.get(..usize::try_from(length).ok()?)?)
    }

    /// Of what the kernel wrote.
    fn read(info: &[u8]) -> Option<Self> {
        let number = |at: usize| info.get(at..)?.first_chunk().map(|it| u64::from(u32::from_ne_bytes(*it)));
        let twice = number(DSACK_DUPS).unwrap_or(0);
        Some(Self { sent: number(DATA_SEGS_OUT)?, resent: number(TOTAL_RETRANS)?.saturating_sub(twice) })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;

    use super::{DATA_SEGS_OUT, DSACK_DUPS, Segments, TOTAL_RETRANS};

    #[test]
    fn counts_what_a_connection_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut here = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
        let (mut there, _) = listener.accept().expect("a connection");
        here.set_nodelay(true).expect("an option");
        for _ in 0..10 {
            here.write_all(b"x").expect("sent");
            there.read_exact(&mut [0]).expect("received");
        }
        assert_eq!(Segments::of(here.as_raw_fd()), Some(Segments { sent: 10, resent: 0 }));
        let all = Segments::of_this_process().expect("/proc").expect("a connection");
        assert!(all.sent >= 10, "{all:?}");
        assert_eq!(Segments::of(std::fs::File::open("/dev/null").expect("a file").as_raw_fd()), None);
    }

    #[test]
    fn what_arrived_twice_was_not_lost() {
        let mut info = [0_u8; 224];
        for (at, number) in [(DATA_SEGS_OUT, 1000_u32), (TOTAL_RETRANS, 30), (DSACK_DUPS, 8)] {
            info[at..at + 4].copy_from_slice(&number.to_ne_bytes());
        }
        assert_eq!(Segments::read(&info), Some(Segments { sent: 1000, resent: 22 }));
        // Of older kernels.
        assert_eq!(Segments::read(&info[..DSACK_DUPS]), Some(Segments { sent: 1000, resent: 30 }));
        assert_eq!(Segments::read(&info[..DATA_SEGS_OUT]), None);
    }
}
