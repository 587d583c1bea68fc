//! Everyone who is connected to the coordinator, ranks and strangers.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Door;
use super::flow::{Inflow, Outflow, Socket, remaining};
use super::reception::Stage;

/// Strangers at a time; more wait outside.
const STRANGERS: usize = 256;
/// A stranger's time when the room is full: enough for a handshake, short for those who only stand there.
const HASTE: Duration = Duration::from_millis(500);
/// A rest where the system cannot give another connection.
const REST: Duration = Duration::from_millis(100);
/// Events taken at a time.
const EVENTS: usize = 64;
/// The listener's number among the slots.
const LISTENER: u64 = u64::MAX;

/// Who is at the other end.
#[derive(Debug)]
pub(super) enum Who {
    Stranger(Stage),
    /// Has its answer and shall hang up.
    Refused,
    Rank(usize),
}

#[derive(Debug)]
pub(super) struct Guest {
    pub(super) who: Who,
    pub(super) address: String,
    pub(super) inflow: Inflow,
    pub(super) outflow: Outflow,
    socket: Socket,
    since: Instant,
    /// Whether we wait for room to write.
    full: bool,
    /// Whether to end our side once all is written.
    last: bool,
}

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    /// Bytes came.
    Came(usize),
    /// The connection is over, with an error or without.
    Ended(usize, Option<io::Error>),
}

#[derive(Debug)]
pub(super) struct Crowd {
    epoll: OwnedFd,
    door: Option<Door>,
    /// Whether somebody waits at the door.
    knocked: bool,
    /// Until when nobody is let in.
    resting: Option<Instant>,
    timeout: Duration,
    slots: Vec<Option<Guest>>,
    free: Vec<usize>,
    /// Slots of strangers and refused ones, oldest first.
    strangers: Vec<usize>,
}

impl Crowd {
    pub(super) fn new(door: Door, timeout: Duration) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, door.listener(), EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Self {
            epoll,
            door: Some(door),
            knocked: false,
            resting: None,
            timeout,
            slots: Vec::new(),
            free: Vec::new(),
            strangers: Vec::new(),
        })
    }

    /// Waits until something happens, or the time comes.
    pub(super) fn wait(&mut self, until: Option<Instant>) -> io::Result<Vec<Event>> {
        // Only now, when no event is left that is about a slot: a slot may change hands here.
        if std::mem::take(&mut self.knocked) {
            self.let_in();
        }
        let until = [until, self.resting].into_iter().flatten().min();
        let mut ready = Vec::with_capacity(EVENTS);
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut ready),
            until.map(remaining).as_ref(),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut events = Vec::new();
        for event in ready {
            // The fields of a packed structure are copied before use.
            let data = event.data;
            match usize::try_from(data.u64()) {
                _ if data.u64() == LISTENER => self.knocked = true,
                Ok(slot) => events.extend(self.look(slot)),
                Err(_) => {}
            }
        }
        if self.resting.is_some_and(|it| it <= Instant::now()) {
            self.resting = None;
            self.listen(EventFlags::IN);
        }
        Ok(events)
    }

    pub(super) fn guest(&mut self, slot: usize) -> Option<&mut Guest> {
        self.slots.get_mut(slot).and_then(Option::as_mut)
    }

    /// Adds a rank that needs no handshake.
    pub(super) fn seat(&mut self, socket: Socket, rank: usize) -> io::Result<usize> {
        self.add(socket, Who::Rank(rank), String::new())
    }

    /// A stranger becomes a rank.
    pub(super) fn admit(&mut self, slot: usize, rank: usize) {
        self.strangers.retain(|it| *it != slot);
        if let Some(guest) = self.guest(slot) {
            guest.who = Who::Rank(rank);
        }
    }

    /// A stranger hears no more than what waits for it.
    pub(super) fn refuse(&mut self, slot: usize) {
        if let Some(guest) = self.guest(slot) {
            guest.who = Who::Refused;
            guest.inflow.clear();
        }
        self.finish(slot);
    }

    /// Ends our side after what waits.
    pub(super) fn finish(&mut self, slot: usize) {
        if let Some(guest) = self.guest(slot) {
            guest.last = true;
            self.flush(slot);
        }
    }

    pub(super) fn send(&mut self, slot: usize, bytes: Arc<[u8]>) {
        if let Some(guest) = self.guest(slot) {
            guest.outflow.push(bytes);
            self.flush(slot);
        }
    }

    /// Writes what can be written, and waits for room for the rest.
    pub(super) fn flush(&mut self, slot: usize) {
        let Some(guest) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        // A connection that broke shows it when it is read.
        let full = !guest.outflow.flush(&guest.socket).unwrap_or(true);
        if !full && guest.last {
            guest.socket.finish();
        }
        if full != guest.full {
            guest.full = full;
            let flags = if full { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            let _ = epoll::modify(&self.epoll, &guest.socket, EventData::new_u64(slot as u64), flags);
        }
    }

    /// Hangs up.
    pub(super) fn remove(&mut self, slot: usize) -> Option<Guest> {
        let guest = self.slots.get_mut(slot)?.take()?;
        let _ = epoll::delete(&self.epoll, &guest.socket);
        self.strangers.retain(|it| *it != slot);
        self.free.push(slot);
        Some(guest)
    }

    /// Nobody else is let in.
    pub(super) fn lock(&mut self) {
        if let Some(door) = self.door.take() {
            let _ = epoll::delete(&self.epoll, door.listener());
        }
        self.resting = None;
    }

    /// Since when the first of those is here who are no rank.
    pub(super) fn oldest_stranger(&self) -> Option<Instant> {
        let slot = *self.strangers.first()?;
        self.slots.get(slot)?.as_ref().map(|it| it.since)
    }

    /// Those who are no rank and came before then.
    pub(super) fn strangers_before(&self, then: Option<Instant>) -> Vec<usize> {
        let Some(then) = then else { return Vec::new() };
        let old =
            |slot: &usize| self.slots.get(*slot).and_then(Option::as_ref).is_some_and(|it| it.since <= then);
        self.strangers.iter().copied().take_while(old).collect()
    }

    fn look(&mut self, slot: usize) -> Option<Event> {
        if self.guest(slot)?.full {
            self.flush(slot);
        }
        let guest = self.guest(slot)?;
        match guest.inflow.fill(&guest.socket) {
            Ok(true) => Some(Event::Came(slot)),
            Ok(false) => Some(Event::Ended(slot, None)),
            Err(error) => Some(Event::Ended(slot, Some(error))),
        }
    }

    /// Takes those who wait at the door, as many as there is room for.
    fn let_in(&mut self) {
        for _ in 0..STRANGERS {
            if self.strangers.len() >= STRANGERS && !self.make_room() {
                return self.rest();
            }
            let Some(door) = &self.door else { return };
            match door.listener().accept() {
                Ok((stream, address)) => {
                    // Whoever cannot be set up is gone already.
                    let _ = self.meet(stream, address);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => return self.rest(),
                },
            }
        }
    }

    fn meet(&mut self, stream: TcpStream, address: SocketAddr) -> io::Result<()> {
        let socket = Socket::tcp(stream, self.timeout)?;
        let slot =
            self.add(socket, Who::Stranger(Stage::Greeting), address.ip().to_canonical().to_string())?;
        self.strangers.push(slot);
        Ok(())
    }

    fn add(&mut self, socket: Socket, who: Who, address: String) -> io::Result<usize> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        if let Err(error) = epoll::add(&self.epoll, &socket, EventData::new_u64(slot as u64), EventFlags::IN)
        {
            self.free.push(slot);
            return Err(error.into());
        }
        let guest = Guest {
            who,
            address,
            inflow: Inflow::default(),
            outflow: Outflow::default(),
            socket,
            since: Instant::now(),
            full: false,
            last: false,
        };
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(guest);
        }
        Ok(slot)
    }

    /// Sends the oldest stranger away, if it has had its time; false if none has.
    fn make_room(&mut self) -> bool {
        let old = self.strangers_before(Instant::now().checked_sub(HASTE));
        old.first().is_some_and(|it| self.remove(*it).is_some())
    }

    fn rest(&mut self) {
        self.resting = Some(Instant::now() + REST);
        self.listen(EventFlags::empty());
    }

    fn listen(&self, flags: EventFlags) {
        if let Some(door) = &self.door {
            let _ = epoll::modify(&self.epoll, door.listener(), EventData::new_u64(LISTENER), flags);
        }
    }
}

/// Lets this process have a connection for every rank, as far as the system allows.
pub(crate) fn allow_files(size: usize) {
    let wanted = (size + STRANGERS + 256) as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|it| it < wanted) {
        let current = limit.maximum.map_or(wanted, |it| it.min(wanted));
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum });
    }
}
