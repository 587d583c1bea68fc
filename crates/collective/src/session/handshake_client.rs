//! The rank's side of the handshake: connects to rank 0 and proves the token.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::wait::AbortFlag;
use crate::{Cause, Error};

use super::protocol::{Answer, Claim, Greeting, Malformed, PROTOCOL, Request, VERSION};
use super::socket::{ReceiveBuffer, SendQueue, Socket};
use super::token::{self, Role, Token};
use super::verdict::seconds;

const STAGE: &str = "rendezvous";
/// The first and the longest delay between two attempts.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(10);
const MAX_RETRY_DELAY: Duration = Duration::from_millis(500);
/// For connecting to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a wait checks the abort flag.
const ABORT_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A control connection to the coordinator, while the rank joins.
#[derive(Debug)]
pub(super) struct ControlConnection {
    pub(super) socket: Socket,
    pub(super) received: ReceiveBuffer,
    pub(super) queued: SendQueue,
}

/// Why a control connection cannot be read any more.
#[derive(Debug)]
pub(super) enum ConnectionLost {
    /// The other side closed it, or it broke.
    Closed(io::Error),
    /// The other side does not speak this protocol.
    Malformed,
    /// Nothing was received in time.
    TimedOut,
    /// The job is over for this rank.
    Aborted(Error),
}

impl From<Malformed> for ConnectionLost {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl From<io::Error> for ConnectionLost {
    fn from(error: io::Error) -> Self {
        Self::Closed(error)
    }
}

impl ConnectionLost {
    /// A description of the other side.
    fn text(&self) -> String {
        match self {
            Self::Closed(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                "it closed the connection during the handshake".to_owned()
            }
            Self::Closed(error) => error.to_string(),
            Self::Malformed => "the program that listens there is not plumb".to_owned(),
            Self::TimedOut => "it accepted the connection and sends nothing".to_owned(),
            Self::Aborted(error) => error.to_string(),
        }
    }
}

impl ControlConnection {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, received: ReceiveBuffer::default(), queued: SendQueue::default() }
    }

    /// Waits for the next message.
    pub(super) fn answer(
        &mut self,
        largest: usize,
        until: Instant,
        abort_flag: &AbortFlag,
    ) -> Result<Answer, ConnectionLost> {
        loop {
            if let Some(frame) = self.received.frame(largest)? {
                return Ok(Answer::read(frame)?);
            }
            self.progress(until, abort_flag)?;
        }
    }

    /// Sends queued bytes and waits for received ones.
    fn progress(&mut self, until: Instant, abort_flag: &AbortFlag) -> Result<(), ConnectionLost> {
        let full = !self.queued.flush(&self.socket)?;
        if let Some(error) = abort_flag.verdict() {
            return Err(ConnectionLost::Aborted(error));
        }
        let now = Instant::now();
        if now >= until {
            return Err(ConnectionLost::TimedOut);
        }
        self.socket.wait(full, until.min(now + ABORT_CHECK_INTERVAL))?;
        if self.received.fill(&self.socket)? {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
        }
    }
}

/// Connects to rank 0, which may not listen yet, and proves the token.
pub(super) fn connect(
    host: &str,
    port: u16,
    claim: &Claim,
    token: &Token,
    timeout: Duration,
    abort_flag: &AbortFlag,
) -> Result<ControlConnection, Error> {
    if host.is_empty() || port == 0 {
        let detail = format!("`{host}` and port {port} are not an address to connect to");
        return Err(Error::new(Cause::Usage, STAGE, detail));
    }
    let until = Instant::now() + timeout;
    let mut delay = MIN_RETRY_DELAY;
    let mut failure = None;
    loop {
        match attempt(host, port, claim, token, timeout, until, abort_flag) {
            Ok(connection) => return Ok(connection),
            Err(ConnectError::Fatal(error)) => return Err(error),
            // An attempt that the timeout cut short says less than the failure before it.
            Err(ConnectError::Retry(it)) if failure.is_none() || Instant::now() < until => failure = Some(it),
            Err(ConnectError::Retry(_)) => {}
        }
        if let Some(error) = abort_flag.verdict() {
            return Err(error);
        }
        if Instant::now() + delay >= until {
            let detail = format!(
                "cannot be reached at {} within {} s: {}",
                display(host, port),
                seconds(timeout),
                failure.unwrap_or_default()
            );
            return Err(Error { rank: Some(0), ..Error::new(Cause::DidNotJoin, STAGE, detail) });
        }
        std::thread::sleep(delay);
        delay = (delay * 2).min(MAX_RETRY_DELAY);
    }
}

enum ConnectError {
    Retry(String),
    Fatal(Error),
}

fn attempt(
    host: &str,
    port: u16,
    claim: &Claim,
    token: &Token,
    timeout: Duration,
    until: Instant,
    abort_flag: &AbortFlag,
) -> Result<ControlConnection, ConnectError> {
    let mut last = format!("`{host}` has no address");
    for address in resolve(host, port, until, abort_flag).map_err(ConnectError::Retry)? {
        let left = until.saturating_duration_since(Instant::now()).min(CONNECT_TIMEOUT);
        if left.is_zero() {
            break;
        }
        let socket =
            TcpStream::connect_timeout(&address, left).and_then(|stream| Socket::tcp(stream, timeout));
        match socket {
            Ok(socket) => {
                match handshake(ControlConnection::new(socket), address, claim, token, until, abort_flag) {
                    Err(ConnectError::Retry(failure)) => last = failure,
                    end => return end,
                }
            }
            Err(error) => last = error.to_string(),
        }
    }
    Err(ConnectError::Retry(last))
}

/// Both sides prove that they know the token.
fn handshake(
    mut connection: ControlConnection,
    address: SocketAddr,
    claim: &Claim,
    token: &Token,
    until: Instant,
    abort_flag: &AbortFlag,
) -> Result<ControlConnection, ConnectError> {
    let refused = |cause: Cause, detail: String| {
        ConnectError::Fatal(Error {
            rank: Some(0),
            host: Some(address.to_string()),
            ..Error::new(cause, STAGE, detail)
        })
    };
    let retry = |lost: ConnectionLost| match lost {
        ConnectionLost::Aborted(error) => ConnectError::Fatal(error),
        lost => ConnectError::Retry(lost.text()),
    };
    let ours = Greeting::ours(&token::random().map_err(ConnectError::Fatal)?);
    connection.queued.push(ours.to_vec());
    let greeting = loop {
        match Greeting::read(connection.received.unread()).map_err(|it| retry(it.into()))? {
            Some(greeting) => break greeting,
            None => connection.progress(until, abort_flag).map_err(retry)?,
        }
    };
    if !greeting.is_compatible() {
        let theirs = format!("plumb {} (protocol {})", greeting.version, greeting.protocol);
        let detail = format!("is {theirs}, this rank is plumb {VERSION} (protocol {PROTOCOL})");
        return Err(refused(Cause::Version, detail));
    }
    let theirs = connection.received.greeting().unwrap_or([0; super::protocol::GREETING]);
    let transcript: [&[u8]; 3] = [&ours, &theirs, &claim.bytes()];
    let proof = token.proof(Role::Rank, &transcript);
    connection.queued.push(Request::Claim { proof, claim: claim.clone() }.frame());
    match connection.answer(super::protocol::LARGEST_REFUSAL, until, abort_flag).map_err(retry)? {
        Answer::Welcome { proof } if token.accepts(Role::Coordinator, &transcript, &proof) => Ok(connection),
        Answer::Welcome { .. } => Err(refused(Cause::Token, "does not know the job's token".to_owned())),
        Answer::Refused { cause, detail } => Err(refused(cause, format!("refused this rank: {detail}"))),
        _ => Err(retry(ConnectionLost::Malformed)),
    }
}

/// `host:port`, with brackets around an IPv6 address.
fn display(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The addresses of a host. Another thread calls the resolver of the system, which may take longer than `until`.
fn resolve(host: &str, port: u16, until: Instant, abort_flag: &AbortFlag) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (sender, answer) = mpsc::channel();
    let name = host.to_owned();
    std::thread::Builder::new()
        .name("plumb-resolve".to_owned())
        .spawn(move || {
            let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            // After the timeout there is no receiver.
            let _ = sender.send(found);
        })
        .map_err(|error| error.to_string())?;
    loop {
        match answer.recv_timeout(ABORT_CHECK_INTERVAL) {
            Ok(Ok(addresses)) => return Ok(addresses),
            Ok(Err(error)) => return Err(format!("`{host}` does not resolve: {error}")),
            Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < until && !abort_flag.is_raised() => {}
            Err(_) => return Err(format!("`{host}` does not resolve: no answer from the resolver")),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketType};

    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn claim() -> Claim {
        Claim { rank: 1, size: 2, pid: 3, host: "node7".into() }
    }

    fn connect_to(host: &str, port: u16, milliseconds: u64) -> Error {
        let token = Token::new("secret").expect("valid");
        connect(host, port, &claim(), &token, Duration::from_millis(milliseconds), &AbortFlag::default())
            .expect_err("no coordinator")
    }

    /// Answers every connection with these bytes until the test ends.
    fn impostor(bytes: Vec<u8>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let _ = stream.read(&mut [0; 200]);
                let _ = stream.write_all(&bytes);
            }
        });
        port
    }

    #[test]
    fn an_address_without_host_or_port_is_refused() {
        assert_eq!(connect_to("", 29500, 300).cause, Cause::Usage);
        assert_eq!(connect_to("node7", 0, 300).cause, Cause::Usage);
    }

    #[test]
    fn the_last_failure_is_named() {
        // Bound, so that nothing else gets the port, but not listening.
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("loopback");
        let address =
            SocketAddr::try_from(rustix::net::getsockname(&socket).expect("bound")).expect("an address");
        let error = connect_to("127.0.0.1", address.port(), 300);
        assert_eq!((error.cause, error.rank), (Cause::DidNotJoin, Some(0)));
        assert!(error.detail.contains("refused"), "{error}");
        let error = connect_to("no-such-host.invalid", 29500, 300);
        assert!(error.detail.contains("`no-such-host.invalid` does not resolve"), "{error}");
    }

    #[test]
    fn other_servers_are_not_a_rendezvous() {
        let error = connect_to("127.0.0.1", impostor(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), 300);
        assert!(error.detail.contains("is not plumb"), "{error}");
        let error = connect_to("127.0.0.1", impostor(Vec::new()), 300);
        assert!(error.detail.contains("closed the connection") || error.detail.contains("reset"), "{error}");
    }

    #[test]
    fn another_release_is_reported_at_once() {
        let error = connect_to("127.0.0.1", impostor(Greeting::bytes(3, "9.9.9", &[0; 32]).to_vec()), 60_000);
        assert_eq!(error.cause, Cause::Version);
        let wanted =
            format!("is plumb 9.9.9 (protocol 3), this rank is plumb {VERSION} (protocol {PROTOCOL})");
        assert_eq!(error.detail, wanted);
    }

    #[test]
    fn a_coordinator_without_the_token_is_reported() {
        let welcome = Answer::Welcome { proof: [0; 32] }.frame();
        let error =
            connect_to("127.0.0.1", impostor([Greeting::ours(&[0; 32]).to_vec(), welcome].concat()), 60_000);
        assert_eq!((error.cause, error.detail.as_str()), (Cause::Token, "does not know the job's token"));
    }

    #[test]
    fn oversize_and_malformed_answers_are_not_accepted() {
        let greeting = Greeting::ours(&[0; 32]).to_vec();
        for frame in [u32::MAX.to_le_bytes().to_vec(), vec![1, 0, 0, 0, 99], Answer::AllLeft.frame()] {
            let error = connect_to("127.0.0.1", impostor([greeting.clone(), frame].concat()), 300);
            assert_eq!(error.cause, Cause::DidNotJoin);
        }
    }
}
