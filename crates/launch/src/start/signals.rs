#![allow(unsafe_code, reason = "signal masks and signalfd, which have no safe interface")]
//! Signals as a file to read, for the thread that looks after the ranks.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::process::Signal;

use crate::Error;

/// The signals that are read here while this lives. Dropped, they act as before.
pub(super) struct Signals {
    file: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    /// Takes the signals that end or stop a program, and those of children. One that is ignored, as SIGHUP under
    /// nohup, stays so.
    pub(super) fn block() -> Result<Self, Error> {
        // SAFETY: the sets are written before they are read, and all pointers are to this frame.
        unsafe {
            let mut wanted = std::mem::zeroed();
            libc::sigemptyset(&raw mut wanted);
            libc::sigaddset(&raw mut wanted, libc::SIGCHLD);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGTSTP] {
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
            let file = libc::signalfd(-1, &raw const wanted, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if file < 0 {
                let error = std::io::Error::last_os_error();
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                return Err(Error::start("cannot read signals", error));
            }
            Ok(Self { file: OwnedFd::from_raw_fd(file), before })
        }
    }

    /// The next signal that came.
    pub(super) fn next(&self) -> Option<Signal> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        let count = rustix::io::retry_on_intr(|| rustix::io::read(&self.file, &mut record)).ok()?;
        // The number is the first field.
        let number = record.first_chunk().map(|it| i32::from_ne_bytes(*it))?;
        (count == record.len()).then(|| Signal::from_named_raw(number))?
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: a mask that the system gave us.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// Stops this process, as Ctrl-Z would have; returns when it goes on.
pub(super) fn stop() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}
