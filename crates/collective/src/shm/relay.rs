//! Descriptors on their way between the ranks of a host.
//!
//! The first rank of a host listens on an abstract Unix socket; each of the others has one connection to it. Whenever all
//! of them have made a segment, the first gathers the descriptors and gives everybody all of them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use sha2::{Digest as _, Sha256};

use crate::watch::{Outcome, Watch};
use crate::{Cause, Error};

const STAGE: &str = "shared memory";
/// Descriptors in one message; the kernel takes 253 at most.
const BATCH: usize = 128;
/// Key and place.
const HELLO: usize = 36;

/// The connections of one rank.
#[derive(Debug)]
pub(crate) struct Relay {
    /// This rank's place among those of its host.
    place: usize,
    /// How many they are.
    size: usize,
    /// On the first: to place 1, 2 and so on. On the others: to the first.
    peers: Vec<OwnedFd>,
}

impl Relay {
    /// Connects the ranks of a host. `key` is the job's secret, `first` the number of the host's first rank.
    pub(crate) fn open(
        key: &[u8; 32],
        first: usize,
        place: usize,
        size: usize,
        watch: &Watch,
    ) -> Result<Self, Error> {
        if size == 1 {
            return Ok(Self { place, size, peers: Vec::new() });
        }
        // The name does not tell the key.
        let digest = Sha256::new().chain_update(b"plumb relay").chain_update(key).finalize();
        let name = digest.iter().take(16).fold(0_u128, |all, it| all << 8 | u128::from(*it));
        let address = SocketAddrUnix::new_abstract_name(format!("plumb-{name:032x}-{first}").as_bytes())
            .map_err(|it| refused("address", it))?;
        let peers = if place == 0 {
            accept(&address, key, size, watch)?
        } else {
            connect(&address, key, place, watch)?
        };
        Ok(Self { place, size, peers })
    }

    /// Gives everybody a descriptor of each rank, in their order.
    pub(crate) fn exchange(&self, mine: OwnedFd, watch: &Watch) -> Result<Vec<OwnedFd>, Error> {
        if self.place != 0 {
            let Some(first) = self.peers.first() else { return Ok(vec![mine]) };
            send(first, &[mine.as_fd()], watch)?;
            drop(mine);
            return receive(first, self.size, watch);
        }
        let mut all = vec![mine];
        for peer in &self.peers {
            all.extend(receive(peer, 1, watch)?);
        }
        let borrowed: Vec<BorrowedFd<'_>> = all.iter().map(AsFd::as_fd).collect();
        for peer in &self.peers {
            send(peer, &borrowed, watch)?;
        }
        Ok(all)
    }
}

fn socket() -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|it| refused("socket", it))
}

/// The first rank: waits for all others, and lets in only processes of this user that know the key.
fn accept(
    address: &SocketAddrUnix,
    key: &[u8; 32],
    size: usize,
    watch: &Watch,
) -> Result<Vec<OwnedFd>, Error> {
    let listener = socket()?;
    net::bind(&listener, address).map_err(|it| refused("bind", it))?;
    net::listen(&listener, 1024).map_err(|it| refused("listen", it))?;
    let mut found: Vec<Option<OwnedFd>> = (1..size).map(|_| None).collect();
    let mut unknown: Vec<OwnedFd> = Vec::new();
    let mut missing = size - 1;
    let outcome = watch.until(|| {
        if let Ok(fd) = net::accept_with(&listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
            && net::sockopt::socket_peercred(&fd).is_ok_and(|it| it.uid == rustix::process::geteuid())
        {
            unknown.push(fd);
        }
        let mut index = 0;
        while let Some(fd) = unknown.get(index) {
            let mut hello = [0_u8; HELLO];
            match net::recv(fd, &mut hello[..], RecvFlags::empty()) {
                Err(Errno::AGAIN | Errno::INTR) => index += 1,
                Ok((HELLO, _)) if hello[..32] == key[..] => {
                    let place = u32::from_le_bytes([hello[32], hello[33], hello[34], hello[35]]) as usize;
                    let fd = unknown.swap_remove(index);
                    if let Some(slot) = place.checked_sub(1).and_then(|it| found.get_mut(it))
                        && slot.is_none()
                    {
                        *slot = Some(fd);
                        missing -= 1;
                    }
                }
                _ => drop(unknown.swap_remove(index)),
            }
        }
        missing == 0
    });
    ended(outcome, watch, "the ranks of this host did not all connect")?;
    Ok(found.into_iter().flatten().collect())
}

/// The others: the first may be late.
fn connect(
    address: &SocketAddrUnix,
    key: &[u8; 32],
    place: usize,
    watch: &Watch,
) -> Result<Vec<OwnedFd>, Error> {
    let fd = socket()?;
    let mut failure = None;
    let outcome = watch.until(|| match net::connect(&fd, address) {
        Ok(()) => true,
        Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR | Errno::NOENT) => false,
        Err(error) => {
            failure = Some(error);
            true
        }
    });
    ended(outcome, watch, "the first rank of this host did not listen")?;
    if let Some(error) = failure {
        return Err(refused("connect", error));
    }
    // The name is for everybody to see; the key is not.
    if !net::sockopt::socket_peercred(&fd).is_ok_and(|it| it.uid == rustix::process::geteuid()) {
        return Err(Error::new(
            Cause::Token,
            STAGE,
            "another user listens where the first rank of this host should",
        ));
    }
    let mut hello = [0_u8; HELLO];
    hello[..32].copy_from_slice(key);
    hello[32..].copy_from_slice(&u32::try_from(place).unwrap_or(u32::MAX).to_le_bytes());
    net::send(&fd, &hello, SendFlags::NOSIGNAL).map_err(|it| refused("hello", it))?;
    Ok(vec![fd])
}

fn send(to: &OwnedFd, fds: &[BorrowedFd<'_>], watch: &Watch) -> Result<(), Error> {
    for batch in fds.chunks(BATCH) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut failure = None;
        let outcome = watch.until(|| {
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
        ended(outcome, watch, "a rank of this host does not take descriptors")?;
        if let Some(error) = failure {
            return Err(refused("sendmsg", error));
        }
    }
    Ok(())
}

fn receive(from: &OwnedFd, count: usize, watch: &Watch) -> Result<Vec<OwnedFd>, Error> {
    let mut fds = Vec::with_capacity(count);
    while fds.len() < count {
        let mut failure = None;
        let outcome = watch.until(|| {
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
        ended(outcome, watch, "a rank of this host sends no descriptors")?;
        if let Some(error) = failure {
            return Err(refused("recvmsg", error));
        }
    }
    fds.truncate(count);
    Ok(fds)
}

fn ended(outcome: Outcome, watch: &Watch, late: &str) -> Result<(), Error> {
    match outcome {
        Outcome::Ready => Ok(()),
        Outcome::Alarm => Err(watch
            .alarm
            .verdict()
            .unwrap_or_else(|| Error::new(Cause::Interrupted, STAGE, "the job was ended"))),
        Outcome::Late => Err(Error::new(Cause::Silent, STAGE, late)),
    }
}

fn refused(what: &str, error: Errno) -> Error {
    if matches!(error, Errno::CONNRESET | Errno::PIPE) {
        return Error::new(Cause::Reset, STAGE, "a rank of this host hung up");
    }
    Error::system(STAGE, what, error)
}
