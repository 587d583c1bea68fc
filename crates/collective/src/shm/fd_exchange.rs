//! Exchanges file descriptors of shared memory between the ranks of a host.
//!
//! The first rank of a host listens on an abstract Unix socket; each of the others has one connection to it. When every
//! rank has created a segment, the first one gathers the descriptors and sends all of them to every rank.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use sha2::{Digest as _, Sha256};

use crate::wait::{Outcome, Waiter};
use crate::{Cause, Error};

const STAGE: &str = "shared memory";
/// Descriptors per message; the limit of the kernel is 253.
const BATCH: usize = 128;
/// Bytes of a hello: the key and the local rank.
const HELLO: usize = 36;

/// The connections of one rank.
#[derive(Debug)]
pub(crate) struct FdExchange {
    local_rank: usize,
    /// The number of ranks of this host.
    size: usize,
    /// On the first rank: to local ranks 1, 2 and so on. On the others: to the first.
    peers: Vec<OwnedFd>,
}

impl FdExchange {
    /// Connects the ranks of a host. `key` is the secret of the members, `first` the first rank of the host.
    pub(crate) fn open(
        key: &[u8; 32],
        first: usize,
        local_rank: usize,
        size: usize,
        waiter: &Waiter,
    ) -> Result<Self, Error> {
        if size == 1 {
            return Ok(Self { local_rank, size, peers: Vec::new() });
        }
        // The name is public and must not reveal the key.
        let digest = Sha256::new().chain_update(b"plumb relay").chain_update(key).finalize();
        let name = digest.iter().take(16).fold(0_u128, |all, it| all << 8 | u128::from(*it));
        let address = SocketAddrUnix::new_abstract_name(format!("plumb-{name:032x}-{first}").as_bytes())
            .map_err(|it| failed("address", it))?;
        let peers = if local_rank == 0 {
            accept(&address, key, size, waiter)?
        } else {
            connect(&address, key, local_rank, waiter)?
        };
        Ok(Self { local_rank, size, peers })
    }

    /// Returns the descriptors of all ranks of the host, in order. All of them call it.
    pub(crate) fn exchange(&self, mine: OwnedFd, waiter: &Waiter) -> Result<Vec<OwnedFd>, Error> {
        if self.local_rank != 0 {
            let Some(first) = self.peers.first() else { return Ok(vec![mine]) };
            send(first, &[mine.as_fd()], waiter)?;
            drop(mine);
            return receive(first, self.size, waiter);
        }
        let mut all = vec![mine];
        for peer in &self.peers {
            all.extend(receive(peer, 1, waiter)?);
        }
        let borrowed: Vec<BorrowedFd<'_>> = all.iter().map(AsFd::as_fd).collect();
        for peer in &self.peers {
            send(peer, &borrowed, waiter)?;
        }
        Ok(all)
    }
}

fn socket() -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|it| failed("socket", it))
}

/// The first rank: waits for all others. Accepts only processes of the same user that send the key.
fn accept(
    address: &SocketAddrUnix,
    key: &[u8; 32],
    size: usize,
    waiter: &Waiter,
) -> Result<Vec<OwnedFd>, Error> {
    let listener = socket()?;
    net::bind(&listener, address).map_err(|it| failed("bind", it))?;
    net::listen(&listener, 1024).map_err(|it| failed("listen", it))?;
    let mut found: Vec<Option<OwnedFd>> = (1..size).map(|_| None).collect();
    let mut pending: Vec<OwnedFd> = Vec::new();
    let mut missing = size - 1;
    let outcome = waiter.until(|| {
        if let Ok(fd) = net::accept_with(&listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
            && net::sockopt::socket_peercred(&fd).is_ok_and(|it| it.uid == rustix::process::geteuid())
        {
            pending.push(fd);
        }
        let mut index = 0;
        while let Some(fd) = pending.get(index) {
            let mut hello = [0_u8; HELLO];
            match net::recv(fd, &mut hello[..], RecvFlags::empty()) {
                Err(Errno::AGAIN | Errno::INTR) => index += 1,
                Ok((HELLO, _)) if hello[..32] == key[..] => {
                    let local_rank =
                        u32::from_le_bytes([hello[32], hello[33], hello[34], hello[35]]) as usize;
                    let fd = pending.swap_remove(index);
                    if let Some(slot) = local_rank.checked_sub(1).and_then(|it| found.get_mut(it))
                        && slot.is_none()
                    {
                        *slot = Some(fd);
                        missing -= 1;
                    }
                }
                _ => drop(pending.swap_remove(index)),
            }
        }
        missing == 0
    });
    check(outcome, waiter, "not all ranks of this host have connected")?;
    Ok(found.into_iter().flatten().collect())
}

/// The other ranks. The first rank may not listen yet.
fn connect(
    address: &SocketAddrUnix,
    key: &[u8; 32],
    local_rank: usize,
    waiter: &Waiter,
) -> Result<Vec<OwnedFd>, Error> {
    let fd = socket()?;
    let mut failure = None;
    let outcome = waiter.until(|| match net::connect(&fd, address) {
        Ok(()) => true,
        Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR | Errno::NOENT) => false,
        Err(error) => {
            failure = Some(error);
            true
        }
    });
    check(outcome, waiter, "the first rank of this host does not listen")?;
    if let Some(error) = failure {
        return Err(failed("connect", error));
    }
    // Any user can listen on this name; only the user of this process may get the key.
    if !net::sockopt::socket_peercred(&fd).is_ok_and(|it| it.uid == rustix::process::geteuid()) {
        return Err(Error::new(
            Cause::Token,
            STAGE,
            "a process of another user listens on the socket of the first rank of this host",
        ));
    }
    let mut hello = [0_u8; HELLO];
    hello[..32].copy_from_slice(key);
    hello[32..].copy_from_slice(&u32::try_from(local_rank).unwrap_or(u32::MAX).to_le_bytes());
    net::send(&fd, &hello, SendFlags::NOSIGNAL).map_err(|it| failed("hello", it))?;
    Ok(vec![fd])
}

fn send(to: &OwnedFd, fds: &[BorrowedFd<'_>], waiter: &Waiter) -> Result<(), Error> {
    for batch in fds.chunks(BATCH) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut failure = None;
        let outcome = waiter.until(|| {
            let mut message = SendAncillaryBuffer::new(&mut space);
            message.push(SendAncillaryMessage::ScmRights(batch));
            match net::sendmsg(to, &[IoSlice::new(b"+")], &mut message, SendFlags::NOSIGNAL) {
                Ok(_) => true,
                Err(Errno::AGAIN | Errno::INTR) => false,
                Err(error) => {
                    failure = Some(error);
                    true
                }
            }
        });
        check(outcome, waiter, "a rank of this host does not read descriptors")?;
        if let Some(error) = failure {
            return Err(failed("sendmsg", error));
        }
    }
    Ok(())
}

fn receive(from: &OwnedFd, count: usize, waiter: &Waiter) -> Result<Vec<OwnedFd>, Error> {
    let mut fds = Vec::with_capacity(count);
    while fds.len() < count {
        let mut failure = None;
        let outcome = waiter.until(|| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
            let mut message = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0_u8; 1];
            match net::recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut message, RecvFlags::CMSG_CLOEXEC)
            {
                Ok(it) if it.bytes == 0 => {
                    failure = Some(Errno::CONNRESET);
                    true
                }
                Ok(_) => {
                    for part in message.drain() {
                        if let RecvAncillaryMessage::ScmRights(rights) = part {
                            fds.extend(rights);
                        }
                    }
                    true
                }
                Err(Errno::AGAIN | Errno::INTR) => false,
                Err(error) => {
                    failure = Some(error);
                    true
                }
            }
        });
        check(outcome, waiter, "a rank of this host sends no descriptors")?;
        if let Some(error) = failure {
            return Err(failed("recvmsg", error));
        }
    }
    fds.truncate(count);
    Ok(fds)
}

fn check(outcome: Outcome, waiter: &Waiter, timed_out: &str) -> Result<(), Error> {
    match outcome {
        Outcome::Ready => Ok(()),
        Outcome::Aborted => Err(waiter
            .abort_flag
            .verdict()
            .unwrap_or_else(|| Error::new(Cause::Interrupted, STAGE, "the job has ended"))),
        Outcome::TimedOut => Err(Error::new(Cause::Silent, STAGE, timed_out)),
    }
}

fn failed(what: &str, error: Errno) -> Error {
    if matches!(error, Errno::CONNRESET | Errno::PIPE) {
        return Error::new(Cause::Reset, STAGE, "a rank of this host closed its connection");
    }
    Error::system(STAGE, what, error)
}
