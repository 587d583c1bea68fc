//! Cross-memory attach: the kernel copies between the memories of two processes.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::desk::Desk;
use super::{Trouble, ended};
use crate::watch::Watch;

/// The way into the private memory of all ranks.
#[derive(Debug)]
pub(super) struct Cross {
    pids: Vec<libc::pid_t>,
    /// Room to bring pieces of the others to, one piece a rank.
    scratch: Vec<u64>,
}

/// Bytes brought over at once: a piece of each rank stays in the cache until it is combined.
pub(super) const PIECE: usize = 256 << 10;

impl Cross {
    /// Tries it with every rank, and uses it only if it works for all.
    pub(super) fn probe(
        place: usize,
        pids: &[u32],
        desks: &[Desk],
        watch: &Watch,
        allowed: bool,
    ) -> Result<Option<Self>, Trouble> {
        let pids: Vec<libc::pid_t> = pids.iter().map(|it| libc::pid_t::try_from(*it).unwrap_or(-1)).collect();
        // What the others try to read here. It is random: a process of the same number in another container, or this
        // one itself, does not have it there.
        let mut secret = [0_u8; 8];
        let random = rustix::rand::getrandom(&mut secret[..], rustix::rand::GetRandomFlags::empty());
        let bait = Box::new(AtomicU64::new(u64::from_ne_bytes(secret)));
        let (address, content) = desks[place].bait();
        content.store(bait.load(Ordering::Relaxed), Ordering::Relaxed);
        address.store(bait.as_ptr() as u64, Ordering::Release);
        let mut reachable = allowed && random == Ok(8);
        for (peer, desk) in desks.iter().enumerate() {
            let (address, content) = desk.bait();
            ended(watch.until(|| address.load(Ordering::Acquire) != 0), peer)?;
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
        desks[place].probe().store(1 + u64::from(reachable), Ordering::Release);
        for (peer, desk) in desks.iter().enumerate() {
            ended(watch.until(|| desk.probe().load(Ordering::Acquire) != 0), peer)?;
            reachable &= desk.probe().load(Ordering::Acquire) == 2;
        }
        let scratch = if reachable { vec![0; PIECE / 8 * pids.len()] } else { Vec::new() };
        Ok(reachable.then_some(Self { pids, scratch }))
    }

    /// Room for a piece of `rank`.
    pub(super) fn room(&mut self, rank: usize) -> *mut u8 {
        self.scratch[rank * PIECE / 8..(rank + 1) * PIECE / 8].as_mut_ptr().cast()
    }

    /// Brings bytes of `rank` here.
    pub(super) fn read(&self, rank: usize, there: u64, here: *mut u8, bytes: usize) -> Result<(), Trouble> {
        transfer(libc::process_vm_readv, self.pids[rank], there, here, bytes)
            .map_err(|it| Trouble::Unreachable(rank, it))
    }

    /// Takes bytes to `rank`.
    pub(super) fn write(
        &self,
        rank: usize,
        there: u64,
        here: *const u8,
        bytes: usize,
    ) -> Result<(), Trouble> {
        transfer(libc::process_vm_writev, self.pids[rank], there, here.cast_mut(), bytes)
            .map_err(|it| Trouble::Unreachable(rank, it))
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

/// All of it, however many calls the kernel needs.
fn transfer(way: Vm, pid: libc::pid_t, there: u64, here: *mut u8, bytes: usize) -> Result<(), i32> {
    let mut moved = 0;
    while moved < bytes {
        let left = bytes - moved;
        let local = libc::iovec { iov_base: here.wrapping_add(moved).cast(), iov_len: left };
        let Ok(address) = usize::try_from(there) else { return Err(libc::EFAULT) };
        let remote =
            libc::iovec { iov_base: std::ptr::without_provenance_mut(address + moved), iov_len: left };
        // SAFETY: `here` is good for `bytes` bytes by the caller's word; the other side is checked by the kernel.
        let count = unsafe { way(pid, &raw const local, 1, &raw const remote, 1, 0) };
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
