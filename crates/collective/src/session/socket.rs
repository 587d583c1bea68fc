//! Non-blocking sockets of control connections, with buffers for both directions.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};

use super::protocol::{GREETING, Malformed};

/// The most bytes per call of `recv`.
const READ_SIZE: usize = 64 << 10;

/// One end of a control connection.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// A TCP connection. Keep-alives find a peer whose host is down within the timeout.
    pub(super) fn tcp(stream: TcpStream, timeout: Duration) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let part = |share: u32| (timeout / share).clamp(Duration::from_secs(1), Duration::from_secs(3600));
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, part(4))?;
        sockopt::set_tcp_keepintvl(&stream, part(12))?;
        sockopt::set_tcp_keepcnt(&stream, 3)?;
        sockopt::set_tcp_user_timeout(&stream, u32::try_from(part(2).as_millis()).unwrap_or(u32::MAX))?;
        Ok(Self(stream.into()))
    }

    /// Both ends of a connection within this process.
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let (one, two) = UnixStream::pair()?;
        one.set_nonblocking(true)?;
        two.set_nonblocking(true)?;
        Ok((Self(one.into()), Self(two.into())))
    }

    /// Shuts down our side; the other side sees the end of the stream.
    pub(super) fn finish(&self) {
        // It fails if the connection is already closed.
        let _ = shutdown(&self.0, Shutdown::Write);
    }

    /// Shuts down both sides.
    pub(super) fn close(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// Waits until it is readable, or writable if `full`, up to `until`.
    pub(super) fn wait(&self, full: bool, until: Instant) -> io::Result<()> {
        wait(&mut [PollFd::new(&self.0, readiness(full))], Some(until)).map(drop)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The events to wait for: writable only if bytes are queued.
pub(super) fn readiness(full: bool) -> PollFlags {
    if full { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
}

/// Waits for one of these, a signal, or `until`; true if a descriptor is ready.
pub(super) fn wait(fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<bool> {
    match poll(fds, until.map(remaining).as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The time left, for a system call.
pub(super) fn remaining(until: Instant) -> Timespec {
    let left = until.saturating_duration_since(Instant::now());
    Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    }
}

/// Received bytes that have not been parsed yet.
#[derive(Debug, Default)]
pub(super) struct ReceiveBuffer {
    bytes: Vec<u8>,
    /// The offset of the first unread byte.
    start: usize,
}

impl ReceiveBuffer {
    /// Receives what is available, at most [`READ_SIZE`]; false at the end of the stream.
    pub(super) fn fill(&mut self, socket: &Socket) -> io::Result<bool> {
        if self.start > 0 && self.start * 2 >= self.bytes.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        if self.bytes.is_empty() && self.bytes.capacity() > 4 * READ_SIZE {
            self.bytes = Vec::new();
        }
        let had = self.bytes.len();
        // Most frames are small: only a peer that already sends much gets a large buffer.
        self.bytes.resize(had + if had < 4096 { 4096 } else { READ_SIZE }, 0);
        let room = self.bytes.get_mut(had..).unwrap_or_default();
        let taken = loop {
            match recv(socket, &mut *room, RecvFlags::empty()) {
                Ok((taken, _)) => break Ok(Some(taken)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        self.bytes.truncate(had + taken.unwrap_or_default().unwrap_or_default());
        Ok(taken? != Some(0))
    }

    pub(super) fn unread(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The greeting, once it is complete.
    pub(super) fn greeting(&mut self) -> Option<[u8; GREETING]> {
        let greeting = self.unread().first_chunk().copied()?;
        self.start += GREETING;
        Some(greeting)
    }

    /// The next frame without its length, once it is complete.
    pub(super) fn frame(&mut self, largest: usize) -> Result<Option<&[u8]>, Malformed> {
        let unread = self.bytes.get(self.start..).unwrap_or_default();
        let Some((length, rest)) = unread.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 || length > largest {
            return Err(Malformed);
        }
        let frame = rest.get(..length);
        if frame.is_some() {
            self.start += 4 + length;
        }
        Ok(frame)
    }
}

/// Bytes to send. A message to all ranks is shared between their queues.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    queue: VecDeque<Arc<[u8]>>,
    /// Bytes of the first message that have been sent.
    sent: usize,
}

impl SendQueue {
    pub(super) fn push(&mut self, bytes: impl Into<Arc<[u8]>>) {
        self.queue.push_back(bytes.into());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends what the socket takes; true when the queue is empty.
    pub(super) fn flush(&mut self, socket: &Socket) -> io::Result<bool> {
        while let Some(first) = self.queue.front() {
            match send(socket, first.get(self.sent..).unwrap_or_default(), SendFlags::NOSIGNAL) {
                Ok(more) => self.sent += more,
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
            if self.sent >= first.len() {
                self.queue.pop_front();
                self.sent = 0;
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_are_received_whole() {
        let (one, two) = Socket::pair().expect("a pair");
        let (mut out, mut received) = (SendQueue::default(), ReceiveBuffer::default());
        let large = [&300_000_u32.to_le_bytes()[..], &vec![7; 300_000]].concat();
        for _ in 0..3 {
            out.push(large.clone());
        }
        out.push(vec![1, 0, 0, 0, 9]);
        let mut frames = Vec::new();
        while frames.len() < 4 {
            out.flush(&one).expect("open");
            received.fill(&two).expect("open");
            while let Some(frame) = received.frame(1 << 20).expect("good") {
                frames.push(frame.to_vec());
            }
        }
        assert!(out.is_empty());
        assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [300_000, 300_000, 300_000, 1]);
        one.finish();
        assert!(!received.fill(&two).expect("an orderly end"));
    }

    #[test]
    fn keepalives_end_before_the_timeout() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
        let socket = Socket::tcp(stream, Duration::from_secs(60)).expect("options");
        assert!(sockopt::socket_keepalive(&socket).expect("option"));
        let idle = sockopt::tcp_keepidle(&socket).expect("option");
        let between = sockopt::tcp_keepintvl(&socket).expect("option");
        let times = sockopt::tcp_keepcnt(&socket).expect("option");
        assert!(idle + between * times < Duration::from_secs(60));
        assert_eq!(sockopt::tcp_user_timeout(&socket).expect("option"), 30_000);
    }

    proptest! {
        #[test]
        fn any_stream_is_parsed(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut received = ReceiveBuffer { bytes: bytes.clone(), start: 0 };
            let mut seen = 0;
            while let Ok(Some(frame)) = received.frame(64) {
                prop_assert!(!frame.is_empty() && frame.len() <= 64);
                seen += frame.len() + 4;
            }
            prop_assert!(seen <= bytes.len());
        }
    }
}
