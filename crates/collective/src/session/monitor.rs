//! A thread of every rank that reads the control connection.
//!
//! It blocks until a message is received: an idle job uses no CPU time.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

use crate::wait::AbortFlag;
use crate::{Cause, Error};

use super::handshake_client::ControlConnection;
use super::progress::Progress;
use super::protocol::{Answer, LARGEST_FRAME, Malformed, Request};
use super::socket::{ReceiveBuffer, SendQueue, Socket, readiness, wait};

/// How often a wait checks the abort flag, which other threads may set too.
const ABORT_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The control connection, shared by the user's thread and the monitor.
#[derive(Debug)]
pub(super) struct ControlChannel {
    pub(super) abort_flag: Arc<AbortFlag>,
    pub(super) progress: Arc<Progress>,
    socket: Socket,
    queued: Mutex<SendQueue>,
    wake: OwnedFd,
    quit: AtomicBool,
    inbox: Mutex<Inbox>,
    inbox_changed: Condvar,
    /// The host of rank 0.
    host: String,
}

/// Received messages that the user's thread waits for.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// The number of the `share` that is waited for, and the piece of every rank.
    serial: u64,
    pieces: Vec<Option<Vec<u8>>>,
    missing: usize,
    /// What the user's thread waits for; empty if it does not.
    stage: String,
    /// All ranks have left.
    pub(super) all_left: bool,
    /// No more messages will be received.
    pub(super) ended: bool,
}

impl ControlChannel {
    pub(super) fn new(
        connection: ControlConnection,
        abort_flag: Arc<AbortFlag>,
        progress: Arc<Progress>,
        host: String,
    ) -> rustix::io::Result<(Self, ReceiveBuffer)> {
        let ControlConnection { socket, received, queued } = connection;
        let channel = Self {
            abort_flag,
            progress,
            socket,
            queued: Mutex::new(queued),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            quit: AtomicBool::new(false),
            inbox: Mutex::default(),
            inbox_changed: Condvar::new(),
            host,
        };
        Ok((channel, received))
    }

    /// Sends without blocking; the monitor sends what the socket does not take now.
    pub(super) fn send(&self, request: &Request) {
        let mut queued = self.queued();
        queued.push(request.frame());
        // The monitor reports a broken connection.
        if !queued.flush(&self.socket).unwrap_or(true) {
            self.wake();
        }
    }

    /// Waits until `ready`, the end of the connection, an abort, or `until`.
    pub(super) fn wait(
        &self,
        until: Instant,
        mut ready: impl FnMut(&Inbox) -> bool,
    ) -> MutexGuard<'_, Inbox> {
        let mut inbox = self.inbox();
        loop {
            let now = Instant::now();
            if ready(&inbox) || inbox.ended || self.abort_flag.is_raised() || now >= until {
                return inbox;
            }
            let time = ABORT_CHECK_INTERVAL.min(until - now);
            inbox = self.inbox_changed.wait_timeout(inbox, time).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the end of the connection; false if `until` is reached first.
    pub(super) fn wait_for_end(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let inbox = self.inbox_changed.wait_timeout_while(self.inbox(), left, |it| !it.ended);
        inbox.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    /// Prepares the inbox for the pieces of a `share`.
    pub(super) fn expect(&self, serial: u64, size: usize, stage: &str) {
        let mut inbox = self.inbox();
        inbox.serial = serial;
        inbox.pieces = vec![None; size];
        inbox.missing = size;
        stage.clone_into(&mut inbox.stage);
    }

    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A description of what the user's thread does now.
    pub(super) fn stage(&self) -> String {
        let stage = self.inbox().stage.clone();
        let progress = self.progress.now();
        match (stage.is_empty(), progress.inside()) {
            (true, true) => progress.call(),
            (true, false) if progress.serial() > 0 => format!("after {}", progress.call()),
            (true, false) => "before the first call".to_owned(),
            _ => stage,
        }
    }

    /// Ends the monitor.
    pub(super) fn quit(&self) {
        self.quit.store(true, Ordering::Release);
        self.wake();
    }

    /// Reads messages until the job ends.
    pub(super) fn run(&self, mut received: ReceiveBuffer) {
        let end = self.read(&mut received);
        if let Err(error) = end {
            self.abort_flag.raise(error);
        }
        self.socket.close();
        self.inbox().ended = true;
        self.inbox_changed.notify_all();
    }

    fn read(&self, received: &mut ReceiveBuffer) -> Result<(), Error> {
        loop {
            loop {
                let answer = match received.frame(LARGEST_FRAME) {
                    Ok(None) => break,
                    Ok(Some(frame)) => Answer::read(frame),
                    Err(Malformed) => Err(Malformed),
                };
                match answer.and_then(|it| self.handle(it)) {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(end)) => return end,
                    Err(Malformed) => {
                        return Err(Error::new(Cause::System, self.stage(), "sent a malformed message")
                            .of(0, self.host.as_str()));
                    }
                }
            }
            let full = !self.queued().is_empty();
            let mut fds =
                [PollFd::new(&self.socket, readiness(full)), PollFd::new(&self.wake, PollFlags::IN)];
            wait(&mut fds, None).map_err(|error| Error::system(self.stage(), "cannot wait", error))?;
            if self.quit.load(Ordering::Acquire) {
                return Ok(());
            }
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            // A broken connection is reported when it is read.
            let _ = self.queued().flush(&self.socket);
            match received.fill(&self.socket) {
                Ok(true) => {}
                Ok(false) => return Err(self.lost("its process ended")),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(self.lost("its process ended"));
                }
                Err(error) => {
                    let lost = self.lost(&format!("the connection to it broke: {error}"));
                    return Err(Error { cause: Cause::Silent, ..lost });
                }
            }
        }
    }

    /// Handles a message. Breaks after the last one.
    fn handle(&self, answer: Answer) -> Result<ControlFlow<Result<(), Error>>, Malformed> {
        match answer {
            Answer::Ping { number } => self.send(&Request::Pong { number, progress: self.progress.now() }),
            Answer::Part { serial, rank, bytes } => self.piece(serial, rank as usize, bytes)?,
            Answer::Abort(error) => {
                let stage = if error.stage.is_empty() { self.stage() } else { error.stage };
                return Ok(ControlFlow::Break(Err(Error { stage, ..error })));
            }
            Answer::AllLeft => {
                self.inbox().all_left = true;
                return Ok(ControlFlow::Break(Ok(())));
            }
            _ => return Err(Malformed),
        }
        Ok(ControlFlow::Continue(()))
    }

    fn piece(&self, serial: u64, rank: usize, bytes: Vec<u8>) -> Result<(), Malformed> {
        let mut inbox = self.inbox();
        let expected = serial == inbox.serial;
        let piece = inbox.pieces.get_mut(rank).filter(|it| expected && it.is_none()).ok_or(Malformed)?;
        *piece = Some(bytes);
        inbox.missing -= 1;
        if inbox.missing == 0 {
            self.inbox_changed.notify_all();
        }
        Ok(())
    }

    fn lost(&self, detail: &str) -> Error {
        Error::new(Cause::Died, self.stage(), detail).of(0, self.host.as_str())
    }

    fn queued(&self) -> MutexGuard<'_, SendQueue> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // It fails only if the eventfd is already set.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl Inbox {
    /// Whether the `share` is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Takes the pieces of a complete `share`.
    pub(super) fn pieces(&mut self) -> Vec<Vec<u8>> {
        self.stage.clear();
        std::mem::take(&mut self.pieces).into_iter().flatten().collect()
    }

    pub(super) fn set_stage(&mut self, stage: &str) {
        stage.clone_into(&mut self.stage);
    }
}
