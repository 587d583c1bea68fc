//! The thread of rank 0 that everyone has a connection to.
//!
//! It lets ranks in, tells them of each other, carries what they share, and decides who is to
//! blame when one fails. It never blocks on a connection: one stopped rank delays nobody.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Cause, Error};

use super::crowd::{Crowd, Event, Guest, Who};
use super::flow::Socket;
use super::progress::Place;
use super::reception::{self, Step};
use super::token::{self, Token};
use super::verdict::{self, Refusals, Witness};
use super::wire::{Answer, Claim, Garbage, LARGEST_FRAME, Request, clean};
use super::{Door, Member};

/// Time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time for everyone to answer a ping.
const ANSWER: Duration = Duration::from_secs(1);
/// Time in which a process that broke its data connections shows that it died.
const LAST_BREATH: Duration = Duration::from_millis(300);
/// Time for the last words to be read.
const LINGER: Duration = Duration::from_millis(500);

/// One rank that came.
#[derive(Debug)]
struct Seat {
    /// Its connection, while there is one.
    slot: Option<usize>,
    host: String,
    pid: u32,
    card: Option<Vec<u8>>,
    piece: Option<Piece>,
    left: bool,
}

/// A rank's part of a `share`.
#[derive(Debug)]
struct Piece {
    serial: u64,
    stage: String,
    bytes: Vec<u8>,
}

/// Everyone is asked, because one waited in vain.
#[derive(Debug)]
struct Inquiry {
    reporter: usize,
    error: Error,
    number: u32,
    answers: Vec<Option<Place>>,
    began: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Gathering,
    Running,
    /// Nothing more is decided; the last words are on their way until then.
    Over(Instant),
}

pub(super) struct Coordinator {
    crowd: Crowd,
    token: Token,
    timeout: Duration,
    gathered_until: Instant,
    seats: Vec<Option<Seat>>,
    phase: Phase,
    refusals: Refusals,
    inquiry: Option<Inquiry>,
    inquiries: u32,
}

impl Coordinator {
    /// Rank 0 is in from the start, over `own`.
    pub(super) fn new(
        door: Door,
        token: Token,
        timeout: Duration,
        size: usize,
        first: Member,
        own: Socket,
    ) -> io::Result<Self> {
        let mut crowd = Crowd::new(door, timeout)?;
        let slot = Some(crowd.seat(own, 0)?);
        let mut seats: Vec<Option<Seat>> = (0..size).map(|_| None).collect();
        let seat =
            Seat { slot, host: first.host, pid: first.pid, card: Some(first.card), piece: None, left: false };
        seats.first_mut().map(|it| it.insert(seat));
        Ok(Self {
            crowd,
            token,
            timeout,
            gathered_until: Instant::now() + timeout,
            seats,
            phase: Phase::Gathering,
            refusals: Refusals::default(),
            inquiry: None,
            inquiries: 0,
        })
    }

    /// Serves until the job is over and everyone knows.
    pub(super) fn run(mut self) {
        loop {
            let events = match self.crowd.wait(self.deadline()) {
                Ok(events) => events,
                Err(error) => return self.abort(Error::system("", "cannot wait for the ranks", error)),
            };
            for event in events {
                match event {
                    Event::Came(slot) => self.came(slot),
                    Event::Ended(slot, how) => self.ended(slot, how.as_ref()),
                }
            }
            self.clock(Instant::now());
            if let Phase::Over(until) = self.phase
                && (self.seats.iter().flatten().all(|it| it.slot.is_none()) || Instant::now() >= until)
            {
                return;
            }
        }
    }

    /// When to look at the clock next.
    fn deadline(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Gathering => Some(self.gathered_until),
            Phase::Running => None,
            Phase::Over(until) => Some(until),
        };
        let inquiry = self.inquiry.as_ref().map(|it| {
            let early = it.began + LAST_BREATH;
            if it.answers.iter().all(Option::is_some) { early } else { it.began + ANSWER }
        });
        let stranger = self.crowd.oldest_stranger().map(|it| it + HANDSHAKE);
        [phase, inquiry, stranger].into_iter().flatten().min()
    }

    fn clock(&mut self, now: Instant) {
        for slot in self.crowd.strangers_before(now.checked_sub(HANDSHAKE)) {
            self.turn_away(slot, "no handshake within 5 s");
        }
        if self.phase == Phase::Gathering && now >= self.gathered_until {
            let arrived = |seat: &Option<Seat>| seat.as_ref().is_some_and(|it| it.card.is_some());
            let missing: Vec<usize> =
                self.seats.iter().enumerate().filter(|(_, it)| !arrived(it)).map(|(rank, _)| rank).collect();
            self.abort(verdict::never_arrived(&missing, self.seats.len(), self.timeout, &self.refusals));
        }
        self.conclude(now);
    }

    /// Bytes came from a guest.
    fn came(&mut self, slot: usize) {
        while let Some(guest) = self.crowd.guest(slot) {
            match &mut guest.who {
                Who::Refused => return guest.inflow.clear(),
                Who::Stranger(_) => {
                    if !self.stranger(slot) {
                        return;
                    }
                }
                Who::Rank(rank) => {
                    let rank = *rank;
                    let request = match guest.inflow.frame(LARGEST_FRAME) {
                        Ok(None) => return,
                        Ok(Some(frame)) => Request::read(frame),
                        Err(Garbage) => Err(Garbage),
                    };
                    if request.and_then(|it| self.request(rank, it)).is_err() {
                        let error = Error::new(Cause::System, "", "sent what cannot be read");
                        self.hang_up(slot);
                        return self.abort(self.about(rank, error));
                    }
                }
            }
        }
    }

    /// A stranger goes on with its handshake; true if it came in.
    fn stranger(&mut self, slot: usize) -> bool {
        let Ok(nonce) = token::random() else { return false };
        let Some(Guest { who: Who::Stranger(stage), inflow, outflow, .. }) = self.crowd.guest(slot) else {
            return false;
        };
        let step = match reception::hear(stage, inflow, outflow, &self.token, &nonce) {
            Step::Admit(claim, welcome) => match self.seat_of(&claim) {
                Ok(rank) => {
                    self.admit(slot, rank, &claim, &welcome);
                    return true;
                }
                Err(detail) => match self.crowd.guest(slot) {
                    Some(guest) => reception::refuse(&mut guest.outflow, Cause::Usage, detail),
                    None => return false,
                },
            },
            step => step,
        };
        match step {
            Step::Drop(reason) => self.turn_away(slot, &reason),
            Step::Refuse(reason) => {
                self.note(slot, &reason);
                self.crowd.refuse(slot);
            }
            Step::Wait | Step::Admit(..) => self.crowd.flush(slot),
        }
        false
    }

    /// The rank that is claimed, if it can be had.
    fn seat_of(&self, claim: &Claim) -> Result<usize, String> {
        let (rank, size) = (claim.rank as usize, self.seats.len());
        if claim.size as usize != size {
            return Err(format!("rank {rank} believes in {} ranks, the job has {size}", claim.size));
        }
        match self.seats.get(rank) {
            None => Err(format!("there is no rank {rank}: the job has {size} ranks")),
            Some(Some(seat)) => Err(format!("rank {rank} is taken by process {} on {}", seat.pid, seat.host)),
            Some(None) if self.phase != Phase::Gathering => Err("the job is over".to_owned()),
            Some(None) => Ok(rank),
        }
    }

    fn admit(&mut self, slot: usize, rank: usize, claim: &Claim, welcome: &Answer) {
        let seat = Seat {
            slot: Some(slot),
            host: clean(&claim.host),
            pid: claim.pid,
            card: None,
            piece: None,
            left: false,
        };
        if let Some(free) = self.seats.get_mut(rank) {
            *free = Some(seat);
            self.crowd.admit(slot, rank);
            self.crowd.send(slot, welcome.frame().into());
        }
    }

    /// A rank asks for something.
    fn request(&mut self, rank: usize, request: Request) -> Result<(), Garbage> {
        let seat = self.seats.get_mut(rank).and_then(Option::as_mut).ok_or(Garbage)?;
        match (self.phase, request) {
            (Phase::Over(_), _) => Ok(()),
            (_, Request::Claim { .. }) => Err(Garbage),
            (Phase::Gathering, Request::Card(card)) if seat.card.is_none() => {
                seat.card = Some(card);
                self.begin_if_complete();
                Ok(())
            }
            (_, Request::Card(_)) => Err(Garbage),
            (Phase::Running, Request::Share { serial, stage, bytes })
                if seat.piece.is_none() && !seat.left =>
            {
                seat.piece = Some(Piece { serial, stage, bytes });
                self.share(rank);
                Ok(())
            }
            (_, Request::Share { .. }) => Err(Garbage),
            (_, Request::Fail(error)) => {
                self.failed(rank, error);
                Ok(())
            }
            (_, Request::Pong { number, place }) => {
                if let Some(inquiry) = self.inquiry.as_mut().filter(|it| it.number == number)
                    && let Some(answer) = inquiry.answers.get_mut(rank)
                {
                    *answer = Some(place);
                }
                Ok(())
            }
            (Phase::Running, Request::Goodbye) => {
                seat.left = true;
                self.goodbye(rank);
                Ok(())
            }
            (Phase::Gathering, Request::Goodbye) => Err(Garbage),
        }
    }

    fn begin_if_complete(&mut self) {
        let mut members = Vec::new();
        for (rank, seat) in (0_u32..).zip(&self.seats) {
            let Some(Seat { host, pid, card: Some(card), .. }) = seat else { return };
            let member = Answer::Member { rank, pid: *pid, host: host.clone(), card: card.clone() };
            members.extend(member.frame());
        }
        match token::random() {
            Ok(key) => {
                members.extend(Answer::Begin { key }.frame());
                self.phase = Phase::Running;
                self.tell(&members.into());
            }
            Err(error) => self.abort(self.about(0, error)),
        }
    }

    /// A rank's piece has come: passes all on if it was the last one.
    fn share(&mut self, rank: usize) {
        let seats = || self.seats.iter().enumerate().filter_map(|(rank, it)| Some((rank, it.as_ref()?)));
        let Some(mine) = seats().find(|(it, _)| *it == rank).and_then(|(_, it)| it.piece.as_ref()) else {
            return;
        };
        if let Some((gone, _)) = seats().find(|(_, it)| it.left) {
            let error =
                Error::new(Cause::Mismatch, mine.stage.clone(), format!("has left, rank {rank} has not"));
            return self.abort(self.about(gone, error));
        }
        let other = |it: &Piece| (it.serial, &it.stage) != (mine.serial, &mine.stage);
        if let Some((first, theirs)) =
            seats().find_map(|(rank, it)| it.piece.as_ref().filter(|it| other(it)).map(|it| (rank, it)))
        {
            let detail = format!(
                "is in `{}` (number {}) while rank {first} is in `{}` (number {})",
                mine.stage, mine.serial, theirs.stage, theirs.serial
            );
            return self.abort(self.about(rank, Error::new(Cause::Mismatch, mine.stage.clone(), detail)));
        }
        if seats().any(|(_, it)| it.piece.is_none()) {
            return;
        }
        let mut parts = Vec::new();
        for (rank, seat) in (0_u32..).zip(self.seats.iter_mut().flatten()) {
            if let Some(Piece { serial, bytes, .. }) = seat.piece.take() {
                parts.extend(Answer::Part { serial, rank, bytes }.frame());
            }
        }
        self.tell(&parts.into());
    }

    fn goodbye(&mut self, rank: usize) {
        let waiting = self.seats.iter().flatten().find_map(|it| it.piece.as_ref());
        if let Some(piece) = waiting {
            let detail = format!("has left while others are in `{}`", piece.stage);
            let error = Error::new(Cause::Mismatch, piece.stage.clone(), detail);
            return self.abort(self.about(rank, error));
        }
        if self.seats.iter().flatten().all(|it| it.left) {
            self.finish(&Answer::Farewell.frame().into());
        }
    }

    /// A rank cannot go on.
    fn failed(&mut self, rank: usize, error: Error) {
        // Whoever waited in vain knows only whom it waited for: the others may know better.
        let hearsay = matches!(error.cause, Cause::Silent | Cause::Reset | Cause::Died);
        if !hearsay || error.rank == Some(rank) || self.phase == Phase::Gathering {
            let about = error.rank.unwrap_or(rank);
            return self.abort(self.about(about, error));
        }
        if self.inquiry.is_none() {
            self.inquiries += 1;
            let number = self.inquiries;
            // Who left and is gone is no longer asked: it was ahead of all.
            let ahead = |it: &Seat| it.slot.is_none().then(|| Place::of(u64::MAX, u8::MAX, 0));
            let answers = self.seats.iter().map(|it| it.as_ref().and_then(ahead)).collect();
            self.inquiry = Some(Inquiry { reporter: rank, error, number, answers, began: Instant::now() });
            self.tell(&Answer::Ping { number }.frame().into());
        }
    }

    /// Ends an inquiry once all have answered, or had the time to.
    fn conclude(&mut self, now: Instant) {
        let Some(inquiry) = &self.inquiry else { return };
        let since = now.saturating_duration_since(inquiry.began);
        let complete = inquiry.answers.iter().all(Option::is_some);
        if since < LAST_BREATH || (since < ANSWER && !complete) {
            return;
        }
        let reporters = self.seats.get(inquiry.reporter).and_then(Option::as_ref);
        let piece = reporters.and_then(|it| it.piece.as_ref());
        let leaving = reporters.is_some_and(|it| it.left);
        let meeting = piece.map(|it| it.stage.as_str()).or(leaving.then_some("leave"));
        let witnesses: Vec<Witness> = (self.seats.iter().flatten())
            .zip(&inquiry.answers)
            .map(|(seat, answer)| Witness {
                host: seat.host.clone(),
                answer: *answer,
                present: if leaving { seat.left } else { seat.piece.is_some() },
            })
            .collect();
        self.abort(verdict::decide(inquiry.reporter, &inquiry.error, &witnesses, meeting));
    }

    /// A connection ended.
    fn ended(&mut self, slot: usize, how: Option<&io::Error>) {
        let Some(guest) = self.hang_up(slot) else { return };
        match guest.who {
            Who::Stranger(_) => self.refusals.note(&guest.address, "it left during the handshake"),
            Who::Refused => {}
            Who::Rank(rank) => {
                let left = self.seats.get(rank).and_then(Option::as_ref).is_some_and(|it| it.left);
                if !left {
                    let vanished = matches!(
                        how.map(io::Error::kind),
                        Some(
                            io::ErrorKind::TimedOut
                                | io::ErrorKind::HostUnreachable
                                | io::ErrorKind::NetworkUnreachable
                        )
                    );
                    let error = if vanished {
                        Error::new(Cause::Silent, "", "its machine does not answer any more")
                    } else {
                        Error::new(Cause::Died, "", "its process ended")
                    };
                    self.abort(self.about(rank, error));
                }
            }
        }
    }

    /// The job ends with this verdict, for everyone. The first one stays.
    fn abort(&mut self, mut error: Error) {
        if self.phase == Phase::Gathering && error.stage.is_empty() {
            "rendezvous".clone_into(&mut error.stage);
        }
        self.finish(&Answer::Abort(error).frame().into());
    }

    fn finish(&mut self, last: &Arc<[u8]>) {
        if matches!(self.phase, Phase::Over(_)) {
            return;
        }
        self.phase = Phase::Over(Instant::now() + LINGER);
        self.inquiry = None;
        self.crowd.lock();
        self.tell(last);
        for slot in self.seats.iter().flatten().filter_map(|it| it.slot) {
            self.crowd.finish(slot);
        }
    }

    fn tell(&mut self, bytes: &Arc<[u8]>) {
        for slot in self.seats.iter().flatten().filter_map(|it| it.slot) {
            self.crowd.send(slot, Arc::clone(bytes));
        }
    }

    /// The error with the rank's name and host.
    fn about(&self, rank: usize, error: Error) -> Error {
        let host = self.seats.get(rank).and_then(Option::as_ref).map(|it| it.host.clone());
        Error { rank: Some(rank), host: error.host.or(host), ..error }
    }

    fn hang_up(&mut self, slot: usize) -> Option<Guest> {
        let guest = self.crowd.remove(slot)?;
        if let Who::Rank(rank) = guest.who
            && let Some(seat) = self.seats.get_mut(rank).and_then(Option::as_mut)
        {
            seat.slot = None;
        }
        Some(guest)
    }

    fn turn_away(&mut self, slot: usize, reason: &str) {
        self.note(slot, reason);
        self.hang_up(slot);
    }

    fn note(&mut self, slot: usize, reason: &str) {
        if let Some(guest) = self.crowd.guest(slot)
            && !matches!(guest.who, Who::Refused)
        {
            self.refusals.note(&guest.address, reason);
        }
    }
}
