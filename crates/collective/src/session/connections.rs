//! The connections of the coordinator: ranks, and pending connections whose handshake is not finished.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::RendezvousListener;
use super::handshake_server::Stage;
use super::socket::{ReceiveBuffer, SendQueue, Socket, remaining};

/// Pending connections; more wait in the backlog of the kernel.
const MAX_PENDING: usize = 256;
/// The age from which a pending connection is closed to make room for a new one: enough for a handshake.
const HANDSHAKE_WHEN_FULL: Duration = Duration::from_millis(500);
/// How long nothing is accepted after accept has failed or no pending connection could be closed.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Events per call of `epoll_wait`.
const EVENTS: usize = 64;
/// The epoll data of the listener; connections have the number of their slot.
const LISTENER: u64 = u64::MAX;

/// Who is at the other end.
#[derive(Debug)]
pub(super) enum PeerState {
    Pending(Stage),
    /// Has been sent a refusal, and is expected to close.
    Refused,
    Rank(usize),
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: PeerState,
    pub(super) address: String,
    pub(super) received: ReceiveBuffer,
    pub(super) queued: SendQueue,
    socket: Socket,
    since: Instant,
    /// Whether epoll also waits for it to become writable.
    full: bool,
    /// Whether to shut down our side once the queue is empty.
    shutdown_when_sent: bool,
}

#[derive(Debug)]
pub(super) enum Event {
    Received {
        slot: usize,
    },
    /// With an error, or by the other side.
    Closed {
        slot: usize,
        error: Option<io::Error>,
    },
}

#[derive(Debug)]
pub(super) struct Connections {
    epoll: OwnedFd,
    /// `None` once nothing is accepted any more.
    listener: Option<RendezvousListener>,
    /// Whether a connection waits to be accepted.
    accept_ready: bool,
    /// Until when nothing is accepted.
    backoff_until: Option<Instant>,
    timeout: Duration,
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Slots of pending and refused connections, oldest first.
    pending: Vec<usize>,
}

impl Connections {
    pub(super) fn new(listener: RendezvousListener, timeout: Duration) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, listener.listener(), EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Self {
            epoll,
            listener: Some(listener),
            accept_ready: false,
            backoff_until: None,
            timeout,
            slots: Vec::new(),
            free: Vec::new(),
            pending: Vec::new(),
        })
    }

    /// Waits for events, up to `until`.
    pub(super) fn wait(&mut self, until: Option<Instant>) -> io::Result<Vec<Event>> {
        // Only here, when no event refers to a slot any more: accepting may reuse a slot.
        if std::mem::take(&mut self.accept_ready) {
            self.accept();
        }
        let until = [until, self.backoff_until].into_iter().flatten().min();
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
                _ if data.u64() == LISTENER => self.accept_ready = true,
                Ok(slot) => events.extend(self.read(slot)),
                Err(_) => {}
            }
        }
        if self.backoff_until.is_some_and(|it| it <= Instant::now()) {
            self.backoff_until = None;
            self.set_listener_events(EventFlags::IN);
        }
        Ok(events)
    }

    pub(super) fn get(&mut self, slot: usize) -> Option<&mut Connection> {
        self.slots.get_mut(slot).and_then(Option::as_mut)
    }

    /// Adds a rank without a handshake.
    pub(super) fn add_rank(&mut self, socket: Socket, rank: usize) -> io::Result<usize> {
        self.add(socket, PeerState::Rank(rank), String::new())
    }

    /// A pending connection becomes that of a rank.
    pub(super) fn admit(&mut self, slot: usize, rank: usize) {
        self.pending.retain(|it| *it != slot);
        if let Some(connection) = self.get(slot) {
            connection.state = PeerState::Rank(rank);
        }
    }

    /// Closes a pending connection once its refusal is sent.
    pub(super) fn refuse(&mut self, slot: usize) {
        if let Some(connection) = self.get(slot) {
            connection.state = PeerState::Refused;
            connection.received.clear();
        }
        self.finish(slot);
    }

    /// Shuts down our side once the queue is empty.
    pub(super) fn finish(&mut self, slot: usize) {
        if let Some(connection) = self.get(slot) {
            connection.shutdown_when_sent = true;
            self.flush(slot);
        }
    }

    pub(super) fn send(&mut self, slot: usize, bytes: Arc<[u8]>) {
        if let Some(connection) = self.get(slot) {
            connection.queued.push(bytes);
            self.flush(slot);
        }
    }

    /// Sends what the socket takes; epoll waits for it to become writable for the rest.
    pub(super) fn flush(&mut self, slot: usize) {
        let Some(connection) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        // A broken connection is reported when it is read.
        let full = !connection.queued.flush(&connection.socket).unwrap_or(true);
        if !full && connection.shutdown_when_sent {
            connection.socket.finish();
        }
        if full != connection.full {
            connection.full = full;
            let flags = if full { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            let _ = epoll::modify(&self.epoll, &connection.socket, EventData::new_u64(slot as u64), flags);
        }
    }

    /// Closes it.
    pub(super) fn remove(&mut self, slot: usize) -> Option<Connection> {
        let connection = self.slots.get_mut(slot)?.take()?;
        let _ = epoll::delete(&self.epoll, &connection.socket);
        self.pending.retain(|it| *it != slot);
        self.free.push(slot);
        Some(connection)
    }

    /// Accepts nothing any more.
    pub(super) fn stop_accepting(&mut self) {
        if let Some(listener) = self.listener.take() {
            let _ = epoll::delete(&self.epoll, listener.listener());
        }
        self.backoff_until = None;
    }

    /// When the oldest pending connection was accepted.
    pub(super) fn oldest_pending(&self) -> Option<Instant> {
        let slot = *self.pending.first()?;
        self.slots.get(slot)?.as_ref().map(|it| it.since)
    }

    /// The slots of pending connections accepted before `then`.
    pub(super) fn pending_before(&self, then: Option<Instant>) -> Vec<usize> {
        let Some(then) = then else { return Vec::new() };
        let old =
            |slot: &usize| self.slots.get(*slot).and_then(Option::as_ref).is_some_and(|it| it.since <= then);
        self.pending.iter().copied().take_while(old).collect()
    }

    fn read(&mut self, slot: usize) -> Option<Event> {
        if self.get(slot)?.full {
            self.flush(slot);
        }
        let connection = self.get(slot)?;
        match connection.received.fill(&connection.socket) {
            Ok(true) => Some(Event::Received { slot }),
            Ok(false) => Some(Event::Closed { slot, error: None }),
            Err(error) => Some(Event::Closed { slot, error: Some(error) }),
        }
    }

    /// Accepts as many connections as there is room for.
    fn accept(&mut self) {
        for _ in 0..MAX_PENDING {
            if self.pending.len() >= MAX_PENDING && !self.evict_oldest() {
                return self.back_off();
            }
            let Some(listener) = &self.listener else { return };
            match listener.listener().accept() {
                Ok((stream, address)) => {
                    // It fails if the connection is closed already.
                    let _ = self.add_pending(stream, address);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => return self.back_off(),
                },
            }
        }
    }

    fn add_pending(&mut self, stream: TcpStream, address: SocketAddr) -> io::Result<()> {
        let socket = Socket::tcp(stream, self.timeout)?;
        let slot =
            self.add(socket, PeerState::Pending(Stage::Greeting), address.ip().to_canonical().to_string())?;
        self.pending.push(slot);
        Ok(())
    }

    fn add(&mut self, socket: Socket, state: PeerState, address: String) -> io::Result<usize> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        if let Err(error) = epoll::add(&self.epoll, &socket, EventData::new_u64(slot as u64), EventFlags::IN)
        {
            self.free.push(slot);
            return Err(error.into());
        }
        let connection = Connection {
            state,
            address,
            received: ReceiveBuffer::default(),
            queued: SendQueue::default(),
            socket,
            since: Instant::now(),
            full: false,
            shutdown_when_sent: false,
        };
        if let Some(free) = self.slots.get_mut(slot) {
            *free = Some(connection);
        }
        Ok(slot)
    }

    /// Closes the oldest pending connection; false if all are too new.
    fn evict_oldest(&mut self) -> bool {
        let old = self.pending_before(Instant::now().checked_sub(HANDSHAKE_WHEN_FULL));
        old.first().is_some_and(|it| self.remove(*it).is_some())
    }

    fn back_off(&mut self) {
        self.backoff_until = Some(Instant::now() + ACCEPT_BACKOFF);
        self.set_listener_events(EventFlags::empty());
    }

    fn set_listener_events(&self, flags: EventFlags) {
        if let Some(listener) = &self.listener {
            let _ = epoll::modify(&self.epoll, listener.listener(), EventData::new_u64(LISTENER), flags);
        }
    }
}

/// Raises the limit of open files so that a connection per rank is possible, as far as the system allows.
pub(crate) fn raise_file_limit(size: usize) {
    let wanted = (size + MAX_PENDING + 256) as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|it| it < wanted) {
        let current = limit.maximum.map_or(wanted, |it| it.min(wanted));
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum });
    }
}
