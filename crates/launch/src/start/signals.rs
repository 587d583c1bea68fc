#![allow(unsafe_code, reason = "signal masks and signalfd, which have no safe interface")]
//! Signals through a signalfd, for the thread that supervises the ranks.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::process::Signal;

use crate::Error;

/// Blocks signals and reads them from a descriptor. Dropping it restores the signal mask.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks SIGCHLD and the signals that end or stop a program. One that is ignored, as SIGHUP under nohup, stays
    /// ignored.
    pub(super) fn block() -> Result<Self, Error> {
        Self::block_these(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGTSTP], &[libc::SIGCHLD])
    }

    /// The same for the signals that end a program, alone.
    pub(crate) fn block_ends() -> Result<Self, Error> {
        Self::block_these(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP], &[])
    }

    fn block_these(unless_ignored: &[libc::c_int], always: &[libc::c_int]) -> Result<Self, Error> {
        // SAFETY: the sets are written before they are read, and all pointers are to this frame.
        unsafe {
            let mut wanted = std::mem::zeroed();
            libc::sigemptyset(&raw mut wanted);
            for signal in always {
                libc::sigaddset(&raw mut wanted, *signal);
            }
            for &signal in unless_ignored {
                let mut action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &raw mut action);
                if action.sa_sigaction != libc::SIG_IGN {
                    libc::sigaddset(&raw mut wanted, signal);
                }
            }
            let mut before = std::mem::zeroed();
            let result = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const wanted, &raw mut before);
            if result != 0 {
                return Err(Error::start("cannot block signals", std::io::Error::from_raw_os_error(result)));
            }
            let fd = libc::signalfd(-1, &raw const wanted, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                let error = std::io::Error::last_os_error();
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                return Err(Error::start("cannot read signals", error));
            }
            Ok(Self { fd: OwnedFd::from_raw_fd(fd), before })
        }
    }

    /// The next pending signal.
    pub(crate) fn next(&self) -> Option<Signal> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        let count = rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut record)).ok()?;
        // `ssi_signo` is the first field.
        let number = record.first_chunk().map(|it| i32::from_ne_bytes(*it))?;
        (count == record.len()).then(|| Signal::from_named_raw(number))?
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: a mask that the system returned.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// Stops this process, as Ctrl-Z does; returns when it continues.
pub(super) fn stop() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}
