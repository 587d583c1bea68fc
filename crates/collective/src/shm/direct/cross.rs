//! Cross-memory attach: the kernel copies between the memories of two processes.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::mailbox::{Mailbox, ProbeTarget};
use super::{DirectError, check};
use crate::wait::Waiter;

#[derive(Debug)]
pub(super) struct Cross {
    pids: Vec<libc::pid_t>,
    /// A buffer of [`PIECE`] bytes per rank.
    scratch: Vec<u64>,
}

/// Bytes that are copied at a time: a piece of each rank stays in the cache until it is reduced.
pub(super) const PIECE: usize = 256 << 10;
/// The same where the core's own cache is small.
pub(crate) const FINE_PIECE: usize = 64 << 10;

impl Cross {
    /// Tries it with every rank. `None` unless it works between all of them.
    pub(super) fn probe(
        local_rank: usize,
        pids: &[u32],
        mailboxes: &[Mailbox],
        waiter: &Waiter,
        allowed: bool,
    ) -> Result<Option<Self>, DirectError> {
        let pids: Vec<libc::pid_t> = pids.iter().map(|it| libc::pid_t::try_from(*it).unwrap_or(-1)).collect();
        // What the others try to read. It is random: a process with the same pid in another container does not have it.
        let mut secret = [0_u8; 8];
        let random = rustix::rand::getrandom(&mut secret[..], rustix::rand::GetRandomFlags::empty());
        let word = Box::new(AtomicU64::new(u64::from_ne_bytes(secret)));
        let ProbeTarget { address, content } = mailboxes[local_rank].probe_target();
        content.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        address.store(word.as_ptr() as u64, Ordering::Release);
        let mut reachable = allowed && random == Ok(8);
        for (peer, mailbox) in mailboxes.iter().enumerate() {
            let ProbeTarget { address, content } = mailbox.probe_target();
            check(waiter.until(|| address.load(Ordering::Acquire) != 0), peer)?;
            let mut got = 0_u64;
            let read = transfer(
                libc::process_vm_readv,
                pids[peer],
                address.load(Ordering::Acquire),
                (&raw mut got).cast(),
                8,
            );
            reachable &= read.is_ok() && got == content.load(Ordering::Relaxed);
        }
        mailboxes[local_rank].probe().store(1 + u64::from(reachable), Ordering::Release);
        for (peer, mailbox) in mailboxes.iter().enumerate() {
            check(waiter.until(|| mailbox.probe().load(Ordering::Acquire) != 0), peer)?;
            reachable &= mailbox.probe().load(Ordering::Acquire) == 2;
        }
        let scratch = if reachable { vec![0; PIECE / 8 * pids.len()] } else { Vec::new() };
        Ok(reachable.then_some(Self { pids, scratch }))
    }

    /// The buffer for a piece of `rank`.
    pub(super) fn buffer(&mut self, rank: usize) -> *mut u8 {
        self.scratch[rank * PIECE / 8..(rank + 1) * PIECE / 8].as_mut_ptr().cast()
    }

    /// Copies from the memory of `rank`.
    pub(super) fn read(
        &self,
        rank: usize,
        there: u64,
        here: *mut u8,
        bytes: usize,
    ) -> Result<(), DirectError> {
        transfer(libc::process_vm_readv, self.pids[rank], there, here, bytes)
            .map_err(|errno| DirectError::Unreachable { rank, errno })
    }

    /// Copies to the memory of `rank`.
    pub(super) fn write(
        &self,
        rank: usize,
        there: u64,
        here: *const u8,
        bytes: usize,
    ) -> Result<(), DirectError> {
        transfer(libc::process_vm_writev, self.pids[rank], there, here.cast_mut(), bytes)
            .map_err(|errno| DirectError::Unreachable { rank, errno })
    }
}

type Vm = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// Copies all bytes, in as many system calls as needed.
fn transfer(copy: Vm, pid: libc::pid_t, there: u64, here: *mut u8, bytes: usize) -> Result<(), i32> {
    let mut moved = 0;
    while moved < bytes {
        let left = bytes - moved;
        let local = libc::iovec { iov_base: here.wrapping_add(moved).cast(), iov_len: left };
        let Ok(address) = usize::try_from(there) else { return Err(libc::EFAULT) };
        let remote =
            libc::iovec { iov_base: std::ptr::without_provenance_mut(address + moved), iov_len: left };
        // SAFETY: `here` is valid for `bytes` bytes by the contract of the caller; the kernel checks the other side.
        let count = unsafe { copy(pid, &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(count) {
            Ok(0) => return Err(libc::EFAULT),
            Ok(count) => moved += count,
            Err(_) => {
                let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EFAULT);
                if error != libc::EINTR {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}
