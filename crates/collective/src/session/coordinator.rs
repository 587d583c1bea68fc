//! A thread of rank 0 that every rank has a control connection to.
//!
//! It admits ranks, sends each the peer info of all, gathers what they share, and decides which rank is to blame when one
//! fails. It never blocks on a connection: a stopped rank delays no other.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Cause, Error};

use super::connections::{Connection, Connections, Event, PeerState};
use super::handshake_server::{self, HandshakeStep};
use super::progress::ProgressSnapshot;
use super::protocol::{Answer, Claim, LARGEST_FRAME, Malformed, Request, printable};
use super::socket::Socket;
use super::token::{self, Token};
use super::verdict::{self, RankReport, Refusals};
use super::{Member, RendezvousListener};

/// For a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// For all ranks to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for the control connection of a rank to close, after its data connections have broken.
const DEATH_GRACE: Duration = Duration::from_millis(300);
/// How long connections stay open for the last message to be read.
const LINGER: Duration = Duration::from_millis(500);

/// A rank that has been admitted.
#[derive(Debug)]
struct RankState {
    /// Its connection; `None` once that is closed.
    slot: Option<usize>,
    host: String,
    pid: u32,
    peer_info: Option<Vec<u8>>,
    piece: Option<Piece>,
    left: bool,
}

/// What a rank contributes to a `share`.
#[derive(Debug)]
struct Piece {
    serial: u64,
    stage: String,
    bytes: Vec<u8>,
}

/// A request to all ranks for their progress, because one has timed out.
#[derive(Debug)]
struct PingRound {
    reporter: usize,
    error: Error,
    number: u32,
    answers: Vec<Option<ProgressSnapshot>>,
    started: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Joining,
    Running,
    /// The last message is being sent, up to this time.
    Closing(Instant),
}

pub(super) struct Coordinator {
    connections: Connections,
    token: Token,
    timeout: Duration,
    join_deadline: Instant,
    ranks: Vec<Option<RankState>>,
    phase: Phase,
    refusals: Refusals,
    ping_round: Option<PingRound>,
    ping_rounds: u32,
}

impl Coordinator {
    /// Rank 0 has joined from the start, over `own`.
    pub(super) fn new(
        listener: RendezvousListener,
        token: Token,
        timeout: Duration,
        size: usize,
        first: Member,
        own: Socket,
    ) -> io::Result<Self> {
        let mut connections = Connections::new(listener, timeout)?;
        let slot = Some(connections.add_rank(own, 0)?);
        let mut ranks: Vec<Option<RankState>> = (0..size).map(|_| None).collect();
        let rank_0 = RankState {
            slot,
            host: first.host,
            pid: first.pid,
            peer_info: Some(first.peer_info),
            piece: None,
            left: false,
        };
        ranks.first_mut().map(|it| it.insert(rank_0));
        Ok(Self {
            connections,
            token,
            timeout,
            join_deadline: Instant::now() + timeout,
            ranks,
            phase: Phase::Joining,
            refusals: Refusals::default(),
            ping_round: None,
            ping_rounds: 0,
        })
    }

    /// Runs until the job has ended and all ranks know it.
    pub(super) fn run(mut self) {
        loop {
            let events = match self.connections.wait(self.deadline()) {
                Ok(events) => events,
                Err(error) => return self.abort(Error::system("", "cannot wait for the ranks", error)),
            };
            for event in events {
                match event {
                    Event::Received { slot } => self.on_received(slot),
                    Event::Closed { slot, error } => self.on_closed(slot, error.as_ref()),
                }
            }
            self.check_deadlines(Instant::now());
            if let Phase::Closing(until) = self.phase
                && (self.ranks.iter().flatten().all(|it| it.slot.is_none()) || Instant::now() >= until)
            {
                return;
            }
        }
    }

    /// The next deadline.
    fn deadline(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Joining => Some(self.join_deadline),
            Phase::Running => None,
            Phase::Closing(until) => Some(until),
        };
        let ping_round = self.ping_round.as_ref().map(|it| {
            let early = it.started + DEATH_GRACE;
            if it.answers.iter().all(Option::is_some) { early } else { it.started + PING_TIMEOUT }
        });
        let pending = self.connections.oldest_pending().map(|it| it + HANDSHAKE_TIMEOUT);
        [phase, ping_round, pending].into_iter().flatten().min()
    }

    fn check_deadlines(&mut self, now: Instant) {
        for slot in self.connections.pending_before(now.checked_sub(HANDSHAKE_TIMEOUT)) {
            self.reject(slot, "no handshake within 5 s");
        }
        if self.phase == Phase::Joining && now >= self.join_deadline {
            let joined = |rank: &Option<RankState>| rank.as_ref().is_some_and(|it| it.peer_info.is_some());
            let missing: Vec<usize> =
                self.ranks.iter().enumerate().filter(|(_, it)| !joined(it)).map(|(rank, _)| rank).collect();
            self.abort(verdict::did_not_join(&missing, self.ranks.len(), self.timeout, &self.refusals));
        }
        self.finish_ping_round(now);
    }

    fn on_received(&mut self, slot: usize) {
        while let Some(connection) = self.connections.get(slot) {
            match &mut connection.state {
                PeerState::Refused => return connection.received.clear(),
                PeerState::Pending(_) => {
                    if !self.continue_handshake(slot) {
                        return;
                    }
                }
                PeerState::Rank(rank) => {
                    let rank = *rank;
                    let request = match connection.received.frame(LARGEST_FRAME) {
                        Ok(None) => return,
                        Ok(Some(frame)) => Request::read(frame),
                        Err(Malformed) => Err(Malformed),
                    };
                    if request.and_then(|it| self.request(rank, it)).is_err() {
                        let error = Error::new(Cause::System, "", "sent a malformed message");
                        self.disconnect(slot);
                        return self.abort(self.about(rank, error));
                    }
                }
            }
        }
    }

    /// True if the rank has been admitted.
    fn continue_handshake(&mut self, slot: usize) -> bool {
        let Ok(nonce) = token::random() else { return false };
        let Some(Connection { state: PeerState::Pending(stage), received, queued, .. }) =
            self.connections.get(slot)
        else {
            return false;
        };
        let step = match handshake_server::advance(stage, received, queued, &self.token, &nonce) {
            HandshakeStep::Admit { claim, welcome } => match self.claimed_rank(&claim) {
                Ok(rank) => {
                    self.admit(slot, rank, &claim, &welcome);
                    return true;
                }
                Err(detail) => match self.connections.get(slot) {
                    Some(connection) => {
                        handshake_server::refuse(&mut connection.queued, Cause::Usage, detail)
                    }
                    None => return false,
                },
            },
            step => step,
        };
        match step {
            HandshakeStep::Drop(reason) => self.reject(slot, &reason),
            HandshakeStep::Refuse(reason) => {
                self.note(slot, &reason);
                self.connections.refuse(slot);
            }
            HandshakeStep::Wait | HandshakeStep::Admit { .. } => self.connections.flush(slot),
        }
        false
    }

    /// The rank of a claim, if it is free.
    fn claimed_rank(&self, claim: &Claim) -> Result<usize, String> {
        let (rank, size) = (claim.rank as usize, self.ranks.len());
        if claim.size as usize != size {
            return Err(format!("rank {rank} expects {} ranks, the job has {size}", claim.size));
        }
        match self.ranks.get(rank) {
            None => Err(format!("there is no rank {rank}: the job has {size} ranks")),
            Some(Some(other)) => {
                Err(format!("rank {rank} is taken by process {} on {}", other.pid, other.host))
            }
            Some(None) if self.phase != Phase::Joining => Err("the job is over".to_owned()),
            Some(None) => Ok(rank),
        }
    }

    fn admit(&mut self, slot: usize, rank: usize, claim: &Claim, welcome: &Answer) {
        let state = RankState {
            slot: Some(slot),
            host: printable(&claim.host),
            pid: claim.pid,
            peer_info: None,
            piece: None,
            left: false,
        };
        if let Some(free) = self.ranks.get_mut(rank) {
            *free = Some(state);
            self.connections.admit(slot, rank);
            self.connections.send(slot, welcome.frame().into());
        }
    }

    fn request(&mut self, rank: usize, request: Request) -> Result<(), Malformed> {
        let state = self.ranks.get_mut(rank).and_then(Option::as_mut).ok_or(Malformed)?;
        match (self.phase, request) {
            (Phase::Closing(_), _) => Ok(()),
            (_, Request::Claim { .. }) => Err(Malformed),
            (Phase::Joining, Request::PeerInfo(peer_info)) if state.peer_info.is_none() => {
                state.peer_info = Some(peer_info);
                self.start_if_complete();
                Ok(())
            }
            (_, Request::PeerInfo(_)) => Err(Malformed),
            (Phase::Running, Request::Share { serial, stage, bytes })
                if state.piece.is_none() && !state.left =>
            {
                state.piece = Some(Piece { serial, stage, bytes });
                self.share(rank);
                Ok(())
            }
            (_, Request::Share { .. }) => Err(Malformed),
            (_, Request::Fail(error)) => {
                self.failed(rank, error);
                Ok(())
            }
            (_, Request::Pong { number, progress }) => {
                if let Some(ping_round) = self.ping_round.as_mut().filter(|it| it.number == number)
                    && let Some(answer) = ping_round.answers.get_mut(rank)
                {
                    *answer = Some(progress);
                }
                Ok(())
            }
            (Phase::Running, Request::Leave) => {
                state.left = true;
                self.rank_left(rank);
                Ok(())
            }
            (Phase::Joining, Request::Leave) => Err(Malformed),
        }
    }

    fn start_if_complete(&mut self) {
        let mut members = Vec::new();
        for (rank, state) in (0_u32..).zip(&self.ranks) {
            let Some(RankState { host, pid, peer_info: Some(peer_info), .. }) = state else { return };
            let member = Answer::Member { rank, pid: *pid, host: host.clone(), peer_info: peer_info.clone() };
            members.extend(member.frame());
        }
        match token::random() {
            Ok(key) => {
                members.extend(Answer::Begin { key }.frame());
                self.phase = Phase::Running;
                self.send_to_all(&members.into());
            }
            Err(error) => self.abort(self.about(0, error)),
        }
    }

    /// A rank's piece has been received: sends all pieces if it was the last one.
    fn share(&mut self, rank: usize) {
        let joined = || self.ranks.iter().enumerate().filter_map(|(rank, it)| Some((rank, it.as_ref()?)));
        let Some(mine) = joined().find(|(it, _)| *it == rank).and_then(|(_, it)| it.piece.as_ref()) else {
            return;
        };
        if let Some((gone, _)) = joined().find(|(_, it)| it.left) {
            let error = Error::new(
                Cause::Mismatch,
                mine.stage.clone(),
                format!("has left the job, rank {rank} has not"),
            );
            return self.abort(self.about(gone, error));
        }
        let other = |it: &Piece| (it.serial, &it.stage) != (mine.serial, &mine.stage);
        if let Some((first, theirs)) =
            joined().find_map(|(rank, it)| it.piece.as_ref().filter(|it| other(it)).map(|it| (rank, it)))
        {
            let detail = format!(
                "is in `{}` (number {}) while rank {first} is in `{}` (number {})",
                mine.stage, mine.serial, theirs.stage, theirs.serial
            );
            return self.abort(self.about(rank, Error::new(Cause::Mismatch, mine.stage.clone(), detail)));
        }
        if joined().any(|(_, it)| it.piece.is_none()) {
            return;
        }
        let mut parts = Vec::new();
        for (rank, state) in (0_u32..).zip(self.ranks.iter_mut().flatten()) {
            if let Some(Piece { serial, bytes, .. }) = state.piece.take() {
                parts.extend(Answer::Part { serial, rank, bytes }.frame());
            }
        }
        self.send_to_all(&parts.into());
    }

    fn rank_left(&mut self, rank: usize) {
        let waiting = self.ranks.iter().flatten().find_map(|it| it.piece.as_ref());
        if let Some(piece) = waiting {
            let detail = format!("has left the job while other ranks are in `{}`", piece.stage);
            let error = Error::new(Cause::Mismatch, piece.stage.clone(), detail);
            return self.abort(self.about(rank, error));
        }
        if self.ranks.iter().flatten().all(|it| it.left) {
            self.finish(&Answer::AllLeft.frame().into());
        }
    }

    /// A rank reports an error.
    fn failed(&mut self, rank: usize, error: Error) {
        // A rank that timed out only knows which peer it waited for: that peer may wait for another rank.
        let suspicion = matches!(error.cause, Cause::Silent | Cause::Reset | Cause::Died);
        if !suspicion || error.rank == Some(rank) || self.phase == Phase::Joining {
            let about = error.rank.unwrap_or(rank);
            return self.abort(self.about(about, error));
        }
        if self.ping_round.is_none() {
            self.ping_rounds += 1;
            let number = self.ping_rounds;
            // A rank that has left and disconnected was ahead of all others.
            let ahead =
                |it: &RankState| it.slot.is_none().then(|| ProgressSnapshot::of(u64::MAX, u8::MAX, 0));
            let answers = self.ranks.iter().map(|it| it.as_ref().and_then(ahead)).collect();
            self.ping_round =
                Some(PingRound { reporter: rank, error, number, answers, started: Instant::now() });
            self.send_to_all(&Answer::Ping { number }.frame().into());
        }
    }

    /// Ends a ping round once all ranks have answered or the timeout is over.
    fn finish_ping_round(&mut self, now: Instant) {
        let Some(ping_round) = &self.ping_round else { return };
        let since = now.saturating_duration_since(ping_round.started);
        let complete = ping_round.answers.iter().all(Option::is_some);
        if since < DEATH_GRACE || (since < PING_TIMEOUT && !complete) {
            return;
        }
        let reporter = self.ranks.get(ping_round.reporter).and_then(Option::as_ref);
        let piece = reporter.and_then(|it| it.piece.as_ref());
        let leaving = reporter.is_some_and(|it| it.left);
        let waiting_in = piece.map(|it| it.stage.as_str()).or(leaving.then_some("leave"));
        let reports: Vec<RankReport> = (self.ranks.iter().flatten())
            .zip(&ping_round.answers)
            .map(|(rank, answer)| RankReport {
                host: rank.host.clone(),
                answer: *answer,
                present: if leaving { rank.left } else { rank.piece.is_some() },
            })
            .collect();
        self.abort(verdict::decide(ping_round.reporter, &ping_round.error, &reports, waiting_in));
    }

    fn on_closed(&mut self, slot: usize, error: Option<&io::Error>) {
        let Some(connection) = self.disconnect(slot) else { return };
        match connection.state {
            PeerState::Pending(_) => {
                self.refusals.note(&connection.address, "it closed the connection during the handshake");
            }
            PeerState::Refused => {}
            PeerState::Rank(rank) => {
                let left = self.ranks.get(rank).and_then(Option::as_ref).is_some_and(|it| it.left);
                if !left {
                    let unreachable = matches!(
                        error.map(io::Error::kind),
                        Some(
                            io::ErrorKind::TimedOut
                                | io::ErrorKind::HostUnreachable
                                | io::ErrorKind::NetworkUnreachable
                        )
                    );
                    let error = if unreachable {
                        Error::new(Cause::Silent, "", "its host does not answer any more")
                    } else {
                        Error::new(Cause::Died, "", "its process ended")
                    };
                    self.abort(self.about(rank, error));
                }
            }
        }
    }

    /// Ends the job with this error on all ranks. The first error is kept.
    fn abort(&mut self, mut error: Error) {
        if self.phase == Phase::Joining && error.stage.is_empty() {
            "rendezvous".clone_into(&mut error.stage);
        }
        self.finish(&Answer::Abort(error).frame().into());
    }

    fn finish(&mut self, last: &Arc<[u8]>) {
        if matches!(self.phase, Phase::Closing(_)) {
            return;
        }
        self.phase = Phase::Closing(Instant::now() + LINGER);
        self.ping_round = None;
        self.connections.stop_accepting();
        self.send_to_all(last);
        for slot in self.ranks.iter().flatten().filter_map(|it| it.slot) {
            self.connections.finish(slot);
        }
    }

    fn send_to_all(&mut self, bytes: &Arc<[u8]>) {
        for slot in self.ranks.iter().flatten().filter_map(|it| it.slot) {
            self.connections.send(slot, Arc::clone(bytes));
        }
    }

    /// The error with the rank and its host.
    fn about(&self, rank: usize, error: Error) -> Error {
        let host = self.ranks.get(rank).and_then(Option::as_ref).map(|it| it.host.clone());
        Error { rank: Some(rank), host: error.host.or(host), ..error }
    }

    fn disconnect(&mut self, slot: usize) -> Option<Connection> {
        let connection = self.connections.remove(slot)?;
        if let PeerState::Rank(rank) = connection.state
            && let Some(state) = self.ranks.get_mut(rank).and_then(Option::as_mut)
        {
            state.slot = None;
        }
        Some(connection)
    }

    fn reject(&mut self, slot: usize, reason: &str) {
        self.note(slot, reason);
        self.disconnect(slot);
    }

    fn note(&mut self, slot: usize, reason: &str) {
        if let Some(connection) = self.connections.get(slot)
            && !matches!(connection.state, PeerState::Refused)
        {
            self.refusals.note(&connection.address, reason);
        }
    }
}
