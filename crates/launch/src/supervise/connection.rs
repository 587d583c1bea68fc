#![allow(unsafe_code, reason = "what a child does between fork and exec")]
//! One process with a supervising shell at its other end, and the loop that serves many of them.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use super::frame::Frame;
use super::script::Shell;
use crate::Error;

/// Bytes that are kept of the standard output of a task.
const MOST_OUTPUT: usize = 8 << 20;

/// The same for its standard error.
const MOST_ERRORS: usize = 256 << 10;

/// A process here (`sh`, `ssh`, `srun`), or two sockets, that lead to a shell somewhere. Dropping it kills the process; what
/// runs elsewhere ends because the connection does.
pub(crate) struct Connection {
    /// `None`: sockets.
    child: Option<Child>,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    pending: VecDeque<Arc<[u8]>>,
    /// Bytes of the first pending piece that were sent.
    sent: usize,
    exit: Option<ExitStatus>,
    pub(crate) out: Frame,
    pub(crate) err: Frame,
    pub(crate) started: Instant,
    /// When the first mark came.
    pub(crate) begun: Option<Instant>,
}

impl Connection {
    /// Starts it, and sends the script.
    pub(crate) fn start(mut command: Command, shell: Shell<'_>) -> Result<Self, Error> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C in a terminal reaches this process alone, which then ends the others in order.
        command.process_group(0);
        unblock_signals(&mut command);
        let mut child = command.spawn().map_err(|error| {
            Error::start(&format!("cannot start {}", command.get_program().display()), error)
        })?;
        let stdin = child.stdin.take().map(OwnedFd::from);
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        Ok(Self::with(Some(child), [stdin, stdout, stderr], shell))
    }

    /// Sends the script over sockets: one for input and output, one for errors.
    pub(crate) fn over(both: OwnedFd, errors: OwnedFd, shell: Shell<'_>) -> std::io::Result<Self> {
        let input = both.try_clone()?;
        Ok(Self::with(None, [Some(input), Some(both), Some(errors)], shell))
    }

    fn with(child: Option<Child>, files: [Option<OwnedFd>; 3], shell: Shell<'_>) -> Self {
        for fd in files.iter().flatten() {
            if let Ok(flags) = fcntl_getfl(fd) {
                let _ = fcntl_setfl(fd, flags | OFlags::NONBLOCK);
            }
        }
        let [stdin, stdout, stderr] = files;
        Self {
            child,
            stdin,
            stdout,
            stderr,
            pending: VecDeque::from([Arc::from(shell.script)]),
            sent: 0,
            exit: None,
            out: Frame::new(shell.mark, MOST_OUTPUT),
            err: Frame::new(shell.mark, MOST_ERRORS),
            started: Instant::now(),
            begun: None,
        }
    }

    pub(crate) fn send(&mut self, bytes: Arc<[u8]>) {
        if !bytes.is_empty() {
            self.pending.push_back(bytes);
        }
    }

    /// Tells the other end that this is over. What was not sent yet is dropped.
    pub(crate) fn close_input(&mut self) {
        self.pending.clear();
        if let (Some(fd), None) = (self.stdin.take(), &self.child) {
            // The other direction has the same socket.
            let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
        }
    }

    /// How the process ended, once it has and all its output was read. Sockets end without a status.
    pub(crate) fn exit(&mut self) -> Option<Exited> {
        let ended = self.has_exited();
        let read = self.stdout.is_none() && self.stderr.is_none();
        (ended && read).then(|| Exited { code: self.exit.and_then(|it| it.code()) })
    }

    /// Whether the process has ended, whoever holds its output.
    pub(crate) fn has_exited(&mut self) -> bool {
        match &mut self.child {
            None => self.stdout.is_none(),
            Some(child) => {
                if self.exit.is_none() {
                    self.exit = child.try_wait().ok().flatten();
                }
                self.exit.is_some()
            }
        }
    }

    pub(crate) fn kill(&mut self) {
        if self.has_exited() {
            return;
        }
        let Some(child) = &mut self.child else {
            (self.stdin, self.stdout, self.stderr) = (None, None, None);
            return;
        };
        // Its number is not used again before it is waited for.
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = child.kill();
        self.exit = child.wait().ok();
    }

    fn write(&mut self) {
        while let (Some(stdin), Some(piece)) = (&self.stdin, self.pending.front()) {
            let rest = piece.get(self.sent..).unwrap_or_default();
            match rustix::io::write(stdin, rest) {
                Ok(count) => {
                    self.sent += count;
                    if self.sent >= piece.len() {
                        self.pending.pop_front();
                        self.sent = 0;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The process has closed its input or has ended; its output tells why.
                Err(_) => {
                    self.close_input();
                    return;
                }
            }
        }
    }

    fn read(&mut self, buffer: &mut [u8]) {
        for (pipe, frame) in [(&mut self.stdout, &mut self.out), (&mut self.stderr, &mut self.err)] {
            // A bounded amount, so that all others are served too.
            for _ in 0..16 {
                let Some(fd) = pipe else { break };
                match rustix::io::read(fd, &mut *buffer) {
                    Ok(0) => *pipe = None,
                    Ok(count) => frame.take(buffer.get(..count).unwrap_or_default()),
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(_) => *pipe = None,
                }
            }
        }
        if self.out.begun() && self.begun.is_none() {
            self.begun = Some(Instant::now());
        }
    }
}

/// The end of a connection.
pub(crate) struct Exited {
    /// The exit code of the process here.
    pub(crate) code: Option<i32>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close_input();
        self.kill();
    }
}

/// Waits for something to happen on any connection, at most this long, and moves all bytes that can be moved.
pub(crate) fn serve(connections: &mut [&mut Connection], wait: Duration) {
    let mut files = Vec::new();
    for it in &*connections {
        for fd in [&it.stdout, &it.stderr].into_iter().flatten() {
            files.push(PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
        }
        if let (Some(fd), false) = (&it.stdin, it.pending.is_empty()) {
            files.push(PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::OUT));
        }
    }
    // The end of a process is noticed by its output, or when the wait is over.
    let wait = wait.min(Duration::from_millis(50));
    let wait = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
    let _ = poll(&mut files, Some(&wait));
    drop(files);
    let mut buffer = vec![0; 64 << 10];
    for it in connections {
        it.write();
        it.read(&mut buffer);
    }
}

/// Signals that this process blocks ([`Stop`](crate::Stop)) are not blocked in what it starts.
fn unblock_signals(command: &mut Command) {
    let before = || {
        // SAFETY: system calls that are safe after fork, on memory of this frame; no allocation.
        unsafe {
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        }
        Ok(())
    };
    // SAFETY: the closure calls only what is allowed between fork and exec.
    unsafe { command.pre_exec(before) };
}

/// Every connection needs three descriptors: as many are allowed as the system lets this process have.
pub(crate) fn allow_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
