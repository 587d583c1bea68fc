//! The thread of every rank that listens to the coordinator.
//!
//! It sleeps until something comes: an idle job costs nothing.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

use crate::watch::Alarm;
use crate::{Cause, Error};

use super::arrival::Line;
use super::flow::{Inflow, Outflow, Socket, readiness, wait};
use super::progress::Progress;
use super::wire::{Answer, Garbage, LARGEST_FRAME, Request};

/// How often a wait looks at the alarm, which others may raise as well.
const GLANCE: Duration = Duration::from_millis(50);

/// What the user's thread and the monitor have in common.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) alarm: Arc<Alarm>,
    pub(super) progress: Arc<Progress>,
    socket: Socket,
    outflow: Mutex<Outflow>,
    wake: OwnedFd,
    quit: AtomicBool,
    inbox: Mutex<Inbox>,
    bell: Condvar,
    /// The host of rank 0.
    host: String,
}

/// What has come.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// The `share` that is waited for, with one piece a rank.
    serial: u64,
    pieces: Vec<Option<Vec<u8>>>,
    missing: usize,
    /// What the user's thread does here, if anything.
    stage: String,
    /// All have said goodbye.
    pub(super) farewell: bool,
    /// Nothing more will come.
    pub(super) ended: bool,
}

impl Post {
    pub(super) fn new(
        line: Line,
        alarm: Arc<Alarm>,
        progress: Arc<Progress>,
        host: String,
    ) -> rustix::io::Result<(Self, Inflow)> {
        let Line { socket, inflow, outflow } = line;
        let post = Self {
            alarm,
            progress,
            socket,
            outflow: Mutex::new(outflow),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            quit: AtomicBool::new(false),
            inbox: Mutex::default(),
            bell: Condvar::new(),
            host,
        };
        Ok((post, inflow))
    }

    /// Sends without waiting; what the socket does not take now the monitor sends later.
    pub(super) fn send(&self, request: &Request) {
        let mut outflow = self.outflow();
        outflow.push(request.frame());
        // A broken connection is the monitor's business.
        if !outflow.flush(&self.socket).unwrap_or(true) {
            self.wake();
        }
    }

    /// Waits until `ready`, the end, or the time. The answer has the state then.
    pub(super) fn wait(
        &self,
        until: Instant,
        mut ready: impl FnMut(&Inbox) -> bool,
    ) -> MutexGuard<'_, Inbox> {
        let mut inbox = self.inbox();
        loop {
            let now = Instant::now();
            if ready(&inbox) || inbox.ended || self.alarm.is_raised() || now >= until {
                return inbox;
            }
            let time = GLANCE.min(until - now);
            inbox = self.bell.wait_timeout(inbox, time).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until nothing more will come; false if the time was over first.
    pub(super) fn wait_for_end(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let inbox = self.bell.wait_timeout_while(self.inbox(), left, |it| !it.ended);
        inbox.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    /// Expects the pieces of a `share`.
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

    /// What the user's thread does now, in words.
    pub(super) fn stage(&self) -> String {
        let stage = self.inbox().stage.clone();
        let place = self.progress.now();
        match (stage.is_empty(), place.inside()) {
            (true, true) => place.call(),
            (true, false) if place.serial() > 0 => format!("after {}", place.call()),
            (true, false) => "before the first call".to_owned(),
            _ => stage,
        }
    }

    /// Ends the monitor.
    pub(super) fn quit(&self) {
        self.quit.store(true, Ordering::Release);
        self.wake();
    }

    /// Listens until the job ends.
    pub(super) fn run(&self, mut inflow: Inflow) {
        let end = self.listen(&mut inflow);
        if let Err(error) = end {
            self.alarm.raise(error);
        }
        self.socket.close();
        self.inbox().ended = true;
        self.bell.notify_all();
    }

    fn listen(&self, inflow: &mut Inflow) -> Result<(), Error> {
        loop {
            loop {
                let answer = match inflow.frame(LARGEST_FRAME) {
                    Ok(None) => break,
                    Ok(Some(frame)) => Answer::read(frame),
                    Err(Garbage) => Err(Garbage),
                };
                match answer.and_then(|it| self.take(it)) {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(end)) => return end,
                    Err(Garbage) => {
                        return Err(Error::new(Cause::System, self.stage(), "sent what cannot be read")
                            .of(0, self.host.as_str()));
                    }
                }
            }
            let full = !self.outflow().is_empty();
            let mut fds =
                [PollFd::new(&self.socket, readiness(full)), PollFd::new(&self.wake, PollFlags::IN)];
            wait(&mut fds, None).map_err(|error| Error::system(self.stage(), "cannot wait", error))?;
            if self.quit.load(Ordering::Acquire) {
                return Ok(());
            }
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            // A broken connection shows when it is read.
            let _ = self.outflow().flush(&self.socket);
            match inflow.fill(&self.socket) {
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

    /// A message of the coordinator. Breaks when it was the last.
    fn take(&self, answer: Answer) -> Result<ControlFlow<Result<(), Error>>, Garbage> {
        match answer {
            Answer::Ping { number } => self.send(&Request::Pong { number, place: self.progress.now() }),
            Answer::Part { serial, rank, bytes } => self.piece(serial, rank as usize, bytes)?,
            Answer::Abort(error) => {
                let stage = if error.stage.is_empty() { self.stage() } else { error.stage };
                return Ok(ControlFlow::Break(Err(Error { stage, ..error })));
            }
            Answer::Farewell => {
                self.inbox().farewell = true;
                return Ok(ControlFlow::Break(Ok(())));
            }
            _ => return Err(Garbage),
        }
        Ok(ControlFlow::Continue(()))
    }

    fn piece(&self, serial: u64, rank: usize, bytes: Vec<u8>) -> Result<(), Garbage> {
        let mut inbox = self.inbox();
        let expected = serial == inbox.serial;
        let place = inbox.pieces.get_mut(rank).filter(|it| expected && it.is_none()).ok_or(Garbage)?;
        *place = Some(bytes);
        inbox.missing -= 1;
        if inbox.missing == 0 {
            self.bell.notify_all();
        }
        Ok(())
    }

    fn lost(&self, detail: &str) -> Error {
        Error::new(Cause::Died, self.stage(), detail).of(0, self.host.as_str())
    }

    fn outflow(&self) -> MutexGuard<'_, Outflow> {
        self.outflow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // It only fails when it is already set.
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

    /// What the user's thread waits for here.
    pub(super) fn set_stage(&mut self, stage: &str) {
        stage.clone_into(&mut self.stage);
    }
}
