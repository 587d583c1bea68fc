#![allow(unsafe_code, reason = "what a child does between fork and exec")]
//! The processes of the ranks, each in a process group of its own.

use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, child_subreaper, kill_process_group, set_child_subreaper, waitid,
};

use super::{Exit, Failure, Start, stderr_is_terminal};
use crate::Error;
use crate::kvs::pipe;

/// The ranks that have not ended. Dropping it kills them.
///
/// While it exists this process is a child subreaper, so that it can wait for processes that a rank leaves behind.
pub(super) struct Children {
    running: Vec<RankProcess>,
    was_subreaper: bool,
}

struct RankProcess {
    rank: usize,
    child: Child,
}

impl Children {
    /// Starts all ranks, or none.
    pub(super) fn start(plan: &Start, first_rank: usize, size: usize, token: &str) -> Result<Self, Error> {
        let (program, arguments) = command(plan)?;
        let store = if plan.part.is_none() { Some(pipe()?) } else { None };
        let was_subreaper = child_subreaper().is_ok_and(|it| it.is_some());
        let mut children = Self { running: Vec::new(), was_subreaper };
        set_child_subreaper(Pid::from_raw(1))
            .map_err(|error| Error::start("cannot become a child subreaper", error))?;
        for index in 0..plan.ranks {
            let rank = first_rank + index;
            let mut command = Command::new(&program);
            command.args(&arguments);
            command.env("PLUMB_RANK", rank.to_string()).env("PLUMB_SIZE", size.to_string());
            command
                .env("PLUMB_LOCAL_RANK", index.to_string())
                .env("PLUMB_LOCAL_SIZE", plan.ranks.to_string());
            command.env("PLUMB_TOKEN", token).env_remove("PLUMB_TERMINAL").env_remove("PLUMB_RANKS_HERE");
            if stderr_is_terminal() {
                command.env("PLUMB_TERMINAL", "1");
            }
            let store_fd = match (&plan.part, &store) {
                (None, Some(ends)) => Some(if index == 0 { &ends.write } else { &ends.read }.as_raw_fd()),
                _ => None,
            };
            match (store_fd, &plan.part) {
                (Some(fd), _) => command.env("PLUMB_RENDEZVOUS", format!("fd:{fd}")),
                (None, Some(part)) => command.env("PLUMB_RENDEZVOUS", part.endpoint.address()),
                (None, None) => &mut command,
            };
            let stdout = if rank == 0 { Stdio::inherit() } else { Stdio::null() };
            command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).process_group(0);
            prepare(&mut command, store_fd);
            let child = command
                .spawn()
                .map_err(|error| Error::start(&format!("cannot start {}", program.display()), error))?;
            children.running.push(RankProcess { rank, child });
        }
        Ok(children)
    }

    /// The read ends of the standard error of all ranks.
    pub(super) fn take_stderr(&mut self) -> Vec<OwnedFd> {
        self.running.iter_mut().filter_map(|it| it.child.stderr.take()).map(OwnedFd::from).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Reaps the ranks that have ended, and what they left in their process groups. Returns the first failure among them.
    /// A signal takes precedence over an exit code: a rank exits with an error because another one was killed.
    pub(super) fn reap(&mut self) -> Option<Failure> {
        let mut failures = Vec::new();
        self.running.retain_mut(|RankProcess { rank, child }| {
            if !has_ended(child) {
                return true;
            }
            let exit = match finish(child) {
                Ok(status) => failed_exit(status),
                Err(_) => Some(Exit::Code(1)),
            };
            failures.extend(exit.map(|exit| Failure { rank: *rank, exit }));
            false
        });
        let signalled = failures.iter().find(|it| matches!(it.exit, Exit::Signal(_)));
        signalled.or(failures.first()).copied()
    }

    /// Sends a signal to the process groups of all running ranks.
    pub(super) fn signal(&self, which: Signal) {
        self.running.iter().for_each(|it| signal(&it.child, which));
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        for it in &mut self.running {
            let _ = finish(&mut it.child);
        }
        if !self.was_subreaper {
            let _ = set_child_subreaper(None);
        }
    }
}

/// Kills the process group of a child and reaps all its processes.
fn finish(child: &mut Child) -> std::io::Result<ExitStatus> {
    signal(child, Signal::KILL);
    let status = child.wait();
    if let Some(group) = pid(child) {
        while matches!(
            waitid(WaitId::Pgid(Some(group)), WaitIdOptions::EXITED),
            Ok(Some(_)) | Err(Errno::INTR)
        ) {}
    }
    status
}

/// Whether a child has ended, without reaping it: its pid is not reused yet.
fn has_ended(child: &Child) -> bool {
    let Some(pid) = pid(child) else { return true };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::Pid(pid), options) {
            Ok(status) => return status.is_some(),
            Err(Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

/// Sends a signal to the process group of a child that has not been reaped.
fn signal(child: &Child, which: Signal) {
    if let Some(pid) = pid(child) {
        // It fails if the group has just ended.
        let _ = kill_process_group(pid, which);
    }
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

fn failed_exit(status: ExitStatus) -> Option<Exit> {
    match (status.signal(), status.code()) {
        (Some(signal), _) => Some(Exit::Signal(signal)),
        (None, Some(0)) => None,
        (None, code) => Some(Exit::Code(code.unwrap_or(1))),
    }
}

fn command(plan: &Start) -> Result<(OsString, Vec<OsString>), Error> {
    match &plan.command {
        Some(command) => match command.split_first() {
            Some((program, arguments)) => Ok((program.clone(), arguments.to_vec())),
            None => Err(Error::Start { detail: "no command to start".to_owned() }),
        },
        None => {
            let program = std::env::current_exe()
                .map_err(|error| Error::start("cannot find the path of this program", error))?;
            Ok((program.into_os_string(), std::env::args_os().skip(1).collect()))
        }
    }
}

/// What a child does between fork and exec: it is killed when its parent ends, unblocks signals, and keeps its end of the
/// pipe open.
fn prepare(command: &mut Command, store_fd: Option<RawFd>) {
    // SAFETY: no arguments, no failure.
    let parent = unsafe { libc::getpid() };
    let before = move || {
        // SAFETY: system calls that are safe after fork, on memory of this frame; no allocation.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            if libc::getppid() != parent {
                // The parent ended before the call of prctl.
                libc::_exit(1);
            }
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            if let Some(fd) = store_fd
                && libc::fcntl(fd, libc::F_SETFD, 0) != 0
            {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure calls only what is allowed between fork and exec.
    unsafe { command.pre_exec(before) };
}
