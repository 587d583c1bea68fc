#![allow(unsafe_code, reason = "what a child does between fork and exec")]
//! The processes of the ranks.

use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, child_subreaper, kill_process_group, set_child_subreaper, waitid,
};

use super::{Ending, Start, on_terminal};
use crate::Error;
use crate::board::pipe;

/// The ranks that have not ended. Dropped, it ends them.
///
/// While it lives, processes whose parent has ended become our children: so we can wait for what a rank leaves behind.
pub(super) struct Family {
    members: Vec<(usize, Child)>,
    adopted_before: bool,
}

impl Family {
    /// Starts all ranks, or none.
    pub(super) fn start(plan: &Start, first: usize, size: usize, token: &str) -> Result<Self, Error> {
        let (program, arguments) = command(plan)?;
        let board = if plan.part.is_none() { Some(pipe()?) } else { None };
        let adopted_before = child_subreaper().is_ok_and(|it| it.is_some());
        let mut family = Self { members: Vec::new(), adopted_before };
        set_child_subreaper(Pid::from_raw(1))
            .map_err(|error| Error::start("cannot adopt processes", error))?;
        for index in 0..plan.ranks {
            let mut command = Command::new(&program);
            command.args(&arguments);
            command.env("PLUMB_RANK", (first + index).to_string()).env("PLUMB_SIZE", size.to_string());
            command
                .env("PLUMB_LOCAL_RANK", index.to_string())
                .env("PLUMB_LOCAL_SIZE", plan.ranks.to_string());
            command.env("PLUMB_TOKEN", token).env_remove("PLUMB_TERMINAL");
            if on_terminal() {
                command.env("PLUMB_TERMINAL", "1");
            }
            let end = match (&plan.part, &board) {
                (None, Some((read, write))) => Some(if index == 0 { write } else { read }.as_raw_fd()),
                _ => None,
            };
            match (end, &plan.part) {
                (Some(end), _) => command.env("PLUMB_MEETING", format!("fd:{end}")),
                (None, Some(part)) => command.env("PLUMB_MEETING", part.point.address()),
                (None, None) => &mut command,
            };
            let stdout = if first + index == 0 { Stdio::inherit() } else { Stdio::null() };
            command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).process_group(0);
            prepare(&mut command, end);
            let child = command
                .spawn()
                .map_err(|error| Error::start(&format!("cannot start {}", program.display()), error))?;
            family.members.push((index, child));
        }
        Ok(family)
    }

    /// The ranks' stderr.
    pub(super) fn take_errors(&mut self) -> Vec<OwnedFd> {
        self.members.iter_mut().filter_map(|(_, it)| it.stderr.take()).map(OwnedFd::from).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Takes leave of those who have ended, with what they left in their process groups. Returns the first failure
    /// among them; a signal counts before a code, as a rank that ends by itself does so because another has died.
    pub(super) fn reap(&mut self) -> Option<(usize, Ending)> {
        let mut failures = Vec::new();
        self.members.retain_mut(|(index, child)| {
            if !has_ended(child) {
                return true;
            }
            match finish(child) {
                Ok(status) => failures.extend(ending(status).map(|it| (*index, it))),
                Err(_) => failures.push((*index, Ending::Code(1))),
            }
            false
        });
        let signalled = failures.iter().find(|(_, it)| matches!(it, Ending::Signal(_)));
        signalled.or(failures.first()).copied()
    }

    /// Sends a signal to all that are left.
    pub(super) fn signal(&self, which: Signal) {
        self.members.iter().for_each(|(_, it)| signal(it, which));
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        for (_, child) in &mut self.members {
            let _ = finish(child);
        }
        if !self.adopted_before {
            let _ = set_child_subreaper(None);
        }
    }
}

/// Ends a child's process group and takes leave of all that was in it.
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

/// Whether a child has ended, without taking leave of it: its number stays its own.
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

/// Sends a signal to the process group of a child that has not been taken leave of.
fn signal(child: &Child, which: Signal) {
    if let Some(pid) = pid(child) {
        // It may have ended just now.
        let _ = kill_process_group(pid, which);
    }
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

fn ending(status: ExitStatus) -> Option<Ending> {
    match (status.signal(), status.code()) {
        (Some(signal), _) => Some(Ending::Signal(signal)),
        (None, Some(0)) => None,
        (None, code) => Some(Ending::Code(code.unwrap_or(1))),
    }
}

fn command(plan: &Start) -> Result<(OsString, Vec<OsString>), Error> {
    match &plan.command {
        Some(command) => match command.split_first() {
            Some((program, arguments)) => Ok((program.clone(), arguments.to_vec())),
            None => Err(Error::Start { detail: "no command to start".to_owned() }),
        },
        None => {
            let program =
                std::env::current_exe().map_err(|error| Error::start("cannot find this program", error))?;
            Ok((program.into_os_string(), std::env::args_os().skip(1).collect()))
        }
    }
}

/// What a child does before it becomes the program: it asks to die with its parent, takes signals again, and keeps
/// its end of the board.
fn prepare(command: &mut Command, end: Option<RawFd>) {
    // SAFETY: no arguments, no failure.
    let parent = unsafe { libc::getpid() };
    let before = move || {
        // SAFETY: system calls that are safe after fork, on memory of this frame; no allocation.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            if libc::getppid() != parent {
                // The parent died before the line above.
                libc::_exit(1);
            }
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            if let Some(end) = end
                && libc::fcntl(end, libc::F_SETFD, 0) != 0
            {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure calls only what is allowed between fork and exec.
    unsafe { command.pre_exec(before) };
}
