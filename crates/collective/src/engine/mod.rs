//! The implementation of a communicator: session, paths, and the choice of a method for each call.

#![allow(unsafe_code, reason = "calls carry the addresses of the slices that the caller lends")]

mod join;
mod links;
mod log;
mod messages;
mod tuning;

use std::io;
use std::sync::Arc;

use crate::call::Call;
use crate::executor::Stopped;
use crate::host::{Host, Oversubscription};
use crate::kernel;
use crate::model::Method;
use crate::schedule::{Kind, Layout, Schedule, Shape};
use crate::session::{CallKind, Member, Session};
use crate::shm::{Direct, DirectError, FdExchange, Manner, Reach, RegisteredSegment, SMALL, Segment};
use crate::tcp::Network;
use crate::wait::Waiter;
use crate::{Algorithm, Cause, Error, Operation, Transport};
use log::Log;
use messages::Channel;
use tuning::{Buffers, Choices};

/// A registered buffer of this rank.
#[derive(Debug)]
struct Own {
    number: u32,
    segment: Arc<Segment>,
}

/// Why a call could not be finished.
#[derive(Debug)]
enum Halt {
    Direct(DirectError),
    Messages(Stopped),
    /// With rank, host and stage.
    Error(Error),
    /// The call is invalid; no rank has begun it.
    Refused(Error),
}

impl From<DirectError> for Halt {
    fn from(trouble: DirectError) -> Self {
        Self::Direct(trouble)
    }
}

impl From<Stopped> for Halt {
    fn from(stopped: Stopped) -> Self {
        Self::Messages(stopped)
    }
}

pub(crate) struct Engine {
    session: Session,
    waiter: Waiter,
    hosts: Vec<Host>,
    layout: Layout,
    oversubscription: Option<Oversubscription>,
    /// Set if ranks of this host share memory.
    fd_exchange: Option<FdExchange>,
    /// Set if all ranks share memory.
    direct: Option<Direct>,
    /// Set if some ranks need data connections.
    network: Option<Network>,
    /// The interface of `network`.
    interface: String,
    channels: Vec<Channel>,
    schedules: Vec<(Shape, Arc<Schedule>)>,
    own: Vec<Own>,
    registered: u32,
    choices: Choices,
    /// Calls of each collective that may go in one shot without asking where the buffers lie.
    unasked: [u32; CallKind::ALL.len()],
    transport: Option<Transport>,
    algorithm: Option<Algorithm>,
    folder: Option<std::path::PathBuf>,
    failure: Option<Error>,
    log: Log,
}

/// After private buffers, so many small calls of a collective are taken to have such, too: asking takes as long as 2 KiB in one shot.
/// One shot is right for buffers of any kind.
const UNASKED: u32 = 31;

impl Engine {
    pub(crate) fn rank(&self) -> usize {
        self.session.rank()
    }

    pub(crate) fn size(&self) -> usize {
        self.session.size()
    }

    pub(crate) fn members(&self) -> &[Member] {
        self.session.members()
    }

    pub(crate) fn oversubscription(&self) -> Option<&Oversubscription> {
        self.oversubscription.as_ref()
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.clone().or_else(|| self.waiter.abort_flag.verdict())
    }

    pub(crate) fn paths(&self) -> String {
        let mut parts = Vec::new();
        if self.fd_exchange.is_some() {
            parts.push("shared memory".to_owned());
        }
        if self.network.is_some() {
            parts.push(format!("TCP over {}", self.interface));
        }
        if parts.is_empty() { "none: one rank".to_owned() } else { parts.join(", ") }
    }

    /// Creates memory that the ranks of this host share, and reports buffers that have been dropped.
    pub(crate) fn register(&mut self, bytes: usize) -> Result<Arc<Segment>, Error> {
        self.intact()?;
        let result = self.register_new(bytes);
        result.map_err(|error| self.broken(error))
    }

    fn register_new(&mut self, bytes: usize) -> Result<Arc<Segment>, Error> {
        let retired: Vec<u32> =
            self.own.iter().filter(|it| Arc::strong_count(&it.segment) == 1).map(|it| it.number).collect();
        self.own.retain(|it| Arc::strong_count(&it.segment) > 1);
        let (segment, fd) = Segment::create(bytes, self.folder.as_deref())?;
        let segment = Arc::new(segment);
        self.registered += 1;
        let number = self.registered;
        self.own.push(Own { number, segment: Arc::clone(&segment) });
        // Length, address, and the numbers of dropped buffers.
        let mut info = Vec::new();
        info.extend((bytes as u64).to_le_bytes());
        info.extend((segment.start() as u64).to_le_bytes());
        info.extend(retired.iter().flat_map(|it| it.to_le_bytes()));
        let all = self.session.share(&info, "buffer")?;
        let (Some(fd_exchange), Some(direct)) = (&self.fd_exchange, &mut self.direct) else {
            return Ok(segment);
        };
        let fds = fd_exchange.exchange(fd, &self.waiter)?;
        let mut segments = Vec::with_capacity(fds.len());
        for (rank, (fd, info)) in fds.into_iter().zip(&all).enumerate() {
            let (Some(len), Some(there)) = (number_at(info, 0), number_at(info, 8)) else {
                return Err(Error::new(Cause::System, "buffer", "a malformed description of a buffer"));
            };
            for retired in info.get(16..).unwrap_or_default().chunks_exact(4) {
                direct.retire(rank, u32::from_le_bytes([retired[0], retired[1], retired[2], retired[3]]));
            }
            let here = Segment::open(&fd, usize::try_from(len).unwrap_or(usize::MAX))?;
            segments.push(RegisteredSegment { there, here });
        }
        direct.register(number, segments);
        Ok(segment)
    }

    pub(crate) fn share(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.intact()?;
        let result = self.session.share(bytes, "share");
        result.map_err(|error| self.broken(error))
    }

    pub(crate) fn abort(&mut self, reason: &str) -> Error {
        let rank = self.rank();
        let host = self.hosts.get(rank).map_or_else(String::new, |it| it.name.clone());
        self.broken(Error::new(Cause::Interrupted, "", reason).of(rank, host))
    }

    pub(crate) fn late(&mut self, stage: &str) -> Error {
        let seconds = self.waiter.timeout.as_secs_f64();
        self.broken(Error::new(
            Cause::Silent,
            stage,
            format!("received nothing from the other ranks for {seconds} s"),
        ))
    }

    pub(crate) fn leave(self) -> Result<(), Error> {
        match self.failure {
            Some(error) => Err(error),
            None => self.session.leave(),
        }
    }

    #[inline]
    fn intact(&self) -> Result<(), Error> {
        match &self.failure {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Ends the job, and returns the verdict of the coordinator.
    #[cold]
    fn broken(&mut self, error: Error) -> Error {
        let verdict = match self.waiter.abort_flag.verdict() {
            Some(verdict) => verdict,
            None => self.session.fail(error),
        };
        self.failure = Some(verdict.clone());
        verdict
    }

    #[inline]
    pub(crate) fn run(&mut self, call: &Call) -> Result<(), Error> {
        self.intact()?;
        if let Some(algorithm) = self.algorithm {
            check_supported(algorithm, call, self.size())?;
        }
        if call.count == 0 && call.kind != Kind::Barrier {
            return Ok(());
        }
        self.session.progress().begin(call.kind.into(), call.bytes());
        let result = self.attempt(call);
        self.session.progress().end();
        match result {
            Ok(()) => Ok(()),
            Err(Halt::Refused(error)) => Err(error),
            Err(halt) => {
                let error = self.explain(call, halt);
                Err(self.broken(error))
            }
        }
    }

    #[inline]
    fn attempt(&mut self, call: &Call) -> Result<(), Halt> {
        if self.size() == 1 {
            alone(call);
            return Ok(());
        }
        if call.largest(self.size()) <= self.choices.one_shot(call.kind)
            && let Some(direct) = &mut self.direct
        {
            return Ok(direct.one_shot(call)?);
        }
        self.decide(call)
    }

    /// Every method but the fast path of `attempt`.
    fn decide(&mut self, call: &Call) -> Result<(), Halt> {
        if let Some(algorithm) = self.algorithm.filter(|_| call.kind != Kind::Barrier) {
            return self.forced(call, algorithm);
        }
        let bytes = call.largest(self.size());
        let first = if self.direct.is_some() { 0 } else { bytes };
        if let Some(extent) = self.choices.unknown(call.kind, first, Buffers::Private) {
            self.calibrate(call.kind, extent, Buffers::Private)?;
        }
        if self.direct.is_none() {
            let method = self.choices.messages(call.kind, bytes);
            return self.run_with(call, method);
        }
        if bytes <= self.choices.one_shot(call.kind) {
            return self.run_with(call, Method::OneShot);
        }
        let kind = CallKind::from(call.kind) as usize;
        if self.unasked[kind] > 0 && bytes <= self.choices.one_shot_private(call.kind) {
            self.unasked[kind] -= 1;
            return self.run_with(call, Method::OneShot);
        }
        let reach = self.exchange_buffers(call)?;
        let buffers = if reach == Reach::Registered { Buffers::Registered } else { Buffers::Private };
        // All ranks see the same, so that all ask again in the same call.
        self.unasked[kind] = if buffers == Buffers::Private { UNASKED } else { 0 };
        if let Some(extent) = self.choices.unknown(call.kind, bytes, buffers) {
            self.calibrate(call.kind, extent, buffers)?;
            return self.decide(call);
        }
        match reach {
            Reach::Registered => {
                let manner = self.choices.registered(call.kind, bytes);
                self.two_shot(call, Reach::Registered, manner)
            }
            Reach::Cross => match self.choices.crossing(call.kind, bytes) {
                Method::Cross(manner) => self.two_shot(call, Reach::Cross, manner),
                other => self.run_with(call, other),
            },
            Reach::No => {
                let method = self.choices.private(call.kind, bytes);
                self.run_with(call, method)
            }
        }
    }

    /// Runs the algorithm that the user chose.
    fn forced(&mut self, call: &Call, algorithm: Algorithm) -> Result<(), Halt> {
        let bytes = call.largest(self.size());
        let manner = self.direct.as_ref().map_or(Manner::PLAIN, |it| it.unmeasured(bytes));
        match algorithm {
            Algorithm::OneShot => self.run_with(call, Method::OneShot),
            Algorithm::TwoShot => match self.exchange_buffers(call)? {
                Reach::No if call.kind == Kind::AllReduce => self.run_with(call, Method::Staged(manner)),
                Reach::No => {
                    let what = format!("{} on private buffers without cross-memory attach", call.kind.name());
                    Err(Halt::Refused(cannot(algorithm, &what)))
                }
                Reach::Cross => self.two_shot(call, Reach::Cross, Manner::PLAIN),
                Reach::Registered => self.two_shot(call, Reach::Registered, manner),
            },
            _ => self.run_with(call, Method::Messages(algorithm)),
        }
    }

    fn run_with(&mut self, call: &Call, method: Method) -> Result<(), Halt> {
        match method {
            Method::Messages(algorithm) => self.messages(call, algorithm),
            Method::OneShot => self.one_shots(call),
            Method::Staged(manner) => {
                let direct = self.direct.as_mut().ok_or_else(no_direct)?;
                Ok(direct.staged_all_reduce(call, manner)?)
            }
            Method::Registered(manner) => {
                let reach = self.exchange_buffers(call)?;
                self.two_shot(call, reach, manner)
            }
            Method::Cross(manner) => {
                let reach = self.exchange_buffers(call)?;
                self.two_shot(call, if reach == Reach::Registered { Reach::Cross } else { reach }, manner)
            }
        }
    }

    fn exchange_buffers(&mut self, call: &Call) -> Result<Reach, Halt> {
        let (send, receive) = (self.number(call.send), self.number(call.receive.cast_const()));
        let direct = self.direct.as_mut().ok_or_else(no_direct)?;
        Ok(direct.exchange_buffers(call, send, receive)?)
    }

    fn two_shot(&mut self, call: &Call, reach: Reach, manner: Manner) -> Result<(), Halt> {
        let direct = self.direct.as_mut().ok_or_else(no_direct)?;
        Ok(direct.two_shot(call, reach, manner)?)
    }

    /// One shot, in several parts if the call is too large.
    fn one_shots(&mut self, call: &Call) -> Result<(), Halt> {
        let size = self.size();
        let direct = self.direct.as_mut().ok_or_else(no_direct)?;
        if Direct::fits(call, size) {
            return Ok(direct.one_shot(call)?);
        }
        let most = SMALL / call.data.size();
        let mut done = 0;
        while done < call.count {
            let count = most.min(call.count - done);
            direct.one_shot(&piece(call, done, count))?;
            done += count;
        }
        Ok(())
    }

    /// The number of the registered buffer that contains an address; 0 if none does.
    fn number(&self, address: *const u8) -> u32 {
        let address = address as usize;
        self.own
            .iter()
            .rev()
            .find(|it| {
                let start = it.segment.start() as usize;
                (start..start + it.segment.len()).contains(&address)
            })
            .map_or(0, |it| it.number)
    }

    /// The error of a halted call, with rank, host and stage.
    #[cold]
    fn explain(&self, call: &Call, halt: Halt) -> Error {
        let stage = match call.kind {
            Kind::Barrier => "barrier".to_owned(),
            kind => format!("{} of {} bytes", kind.name(), call.bytes()),
        };
        let seconds = self.waiter.timeout.as_secs_f64();
        let late = |peer: usize| {
            let detail = format!("made no progress for {seconds} s");
            Error::new(Cause::Silent, &stage, detail).of(peer, self.host(peer))
        };
        let ended = || {
            self.waiter
                .abort_flag
                .verdict()
                .unwrap_or_else(|| Error::new(Cause::Interrupted, &stage, "the job has ended"))
        };
        match halt {
            Halt::Error(error) | Halt::Refused(error) => error,
            Halt::Direct(DirectError::Aborted) | Halt::Messages(Stopped::Aborted) => ended(),
            Halt::Direct(DirectError::TimedOut(peer)) | Halt::Messages(Stopped::TimedOut { peer }) => {
                late(peer)
            }
            Halt::Direct(DirectError::Mismatch(peer)) => {
                let detail = format!("made another call than rank {}", self.rank());
                Error::new(Cause::Mismatch, stage, detail).of(peer, self.host(peer))
            }
            // The memory of a process that dies is gone before its connections close.
            Halt::Direct(DirectError::Unreachable { rank: peer, errno: libc::ESRCH }) => {
                Error::new(Cause::Reset, stage, "its memory is gone").of(peer, self.host(peer))
            }
            Halt::Direct(DirectError::Unreachable { rank: peer, errno }) => {
                let error = io::Error::from_raw_os_error(errno);
                Error::new(Cause::System, stage, format!("its memory cannot be reached: {error}"))
                    .of(peer, self.host(peer))
            }
            Halt::Messages(Stopped::Link { peer, error }) => {
                Error::new(Cause::Reset, stage, format!("the connection to it broke: {error}"))
                    .of(peer, self.host(peer))
            }
        }
    }

    fn host(&self, rank: usize) -> String {
        self.hosts.get(rank).map_or_else(|| "an unknown host".to_owned(), |it| it.name.clone())
    }
}

/// `count` elements from `start` of a call that can be divided.
fn piece(call: &Call, start: usize, count: usize) -> Call {
    let skip = start * call.data.size();
    let at = |pointer: *const u8| if pointer.is_null() { pointer } else { pointer.wrapping_add(skip) };
    Call { count, send: at(call.send), receive: at(call.receive).cast_mut(), ..*call }
}

/// A job of one rank: the data is copied, unless the call is in place.
fn alone(call: &Call) {
    let bytes = call.bytes();
    if call.send.is_null() || call.receive.is_null() {
        return;
    }
    if call.send != call.receive.cast_const() {
        // SAFETY: the caller lends both for so many bytes, and they do not overlap unless they are the same.
        unsafe { std::ptr::copy_nonoverlapping(call.send, call.receive, bytes) };
    }
    if call.kind.reduces() && call.operation == Operation::Avg {
        // SAFETY: as above.
        unsafe { kernel::finish(call.data, call.receive, call.count, 1) };
    }
}

/// The algorithm by messages that is used where nothing was measured.
fn usual(kind: Kind) -> Algorithm {
    match kind {
        Kind::AllReduce | Kind::AllGather | Kind::ReduceScatter => Algorithm::Ring,
        Kind::Broadcast | Kind::Reduce => Algorithm::Tree,
        Kind::Barrier => Algorithm::Doubling,
        Kind::AllToAll | Kind::Gather | Kind::Scatter | Kind::SendReceive { .. } => Algorithm::Linear,
    }
}

/// A chosen algorithm is used or refused, not replaced. A refusal does not end the job: every rank refuses.
#[inline]
fn check_supported(algorithm: Algorithm, call: &Call, size: usize) -> Result<(), Error> {
    if call.kind == Kind::Barrier {
        return Ok(());
    }
    if !algorithm.supports(call.kind) {
        return Err(cannot(algorithm, call.kind.name()));
    }
    if algorithm == Algorithm::OneShot && !divisible(call.kind) && !Direct::fits(call, size) {
        return Err(cannot(algorithm, &format!("{} of more than {SMALL} bytes in all", call.kind.name())));
    }
    Ok(())
}

#[cold]
fn cannot(algorithm: Algorithm, what: &str) -> Error {
    Error::new(Cause::Usage, "", format!("{algorithm} cannot do {what}"))
}

/// Whether a call can be divided at any element.
fn divisible(kind: Kind) -> bool {
    matches!(kind, Kind::AllReduce | Kind::Reduce | Kind::Broadcast | Kind::SendReceive { .. })
}

fn no_direct() -> Halt {
    Halt::Error(Error::new(
        Cause::Usage,
        "",
        "oneshot and twoshot need all ranks on one host and shared memory",
    ))
}

fn number_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}
