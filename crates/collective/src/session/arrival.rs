//! How a rank finds rank 0 and comes in.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::watch::Alarm;
use crate::{Cause, Error};

use super::flow::{Inflow, Outflow, Socket};
use super::token::{self, Role, Token};
use super::verdict::seconds;
use super::wire::{Answer, Claim, Garbage, Greeting, PROTOCOL, Request, VERSION};

const STAGE: &str = "rendezvous";
/// The first and the longest rest between two attempts.
const RESTS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
/// Time for one address to answer.
const CONNECT: Duration = Duration::from_secs(3);
/// How often a wait looks at the alarm.
const GLANCE: Duration = Duration::from_millis(50);

/// A control connection in the hands of the thread that joins.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) socket: Socket,
    pub(super) inflow: Inflow,
    pub(super) outflow: Outflow,
}

/// Why nothing more comes over a line.
#[derive(Debug)]
pub(super) enum Lost {
    /// The other side hung up, or the connection broke.
    Ended(io::Error),
    /// The other side speaks something else.
    Garbage,
    /// It said nothing in time.
    Late,
    /// The job is over for this rank.
    Alarm(Error),
}

impl From<Garbage> for Lost {
    fn from(_: Garbage) -> Self {
        Self::Garbage
    }
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Ended(error)
    }
}

impl Lost {
    /// In words, of the one at the other end.
    fn text(&self) -> String {
        match self {
            Self::Ended(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                "it hung up during the handshake".to_owned()
            }
            Self::Ended(error) => error.to_string(),
            Self::Garbage => "something else than plumb answers there".to_owned(),
            Self::Late => "it accepted the connection and says nothing".to_owned(),
            Self::Alarm(error) => error.to_string(),
        }
    }
}

impl Line {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, inflow: Inflow::default(), outflow: Outflow::default() }
    }

    /// The next message.
    pub(super) fn answer(&mut self, largest: usize, until: Instant, alarm: &Alarm) -> Result<Answer, Lost> {
        loop {
            if let Some(frame) = self.inflow.frame(largest)? {
                return Ok(Answer::read(frame)?);
            }
            self.more(until, alarm)?;
        }
    }

    /// Sends what waits and takes what comes.
    fn more(&mut self, until: Instant, alarm: &Alarm) -> Result<(), Lost> {
        let full = !self.outflow.flush(&self.socket)?;
        if let Some(error) = alarm.verdict() {
            return Err(Lost::Alarm(error));
        }
        let now = Instant::now();
        if now >= until {
            return Err(Lost::Late);
        }
        self.socket.wait(full, until.min(now + GLANCE))?;
        if self.inflow.fill(&self.socket)? {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
        }
    }
}

/// Connects to rank 0, which may not be there yet, and proves the token.
pub(super) fn arrive(
    place: &str,
    claim: &Claim,
    token: &Token,
    timeout: Duration,
    alarm: &Alarm,
) -> Result<Line, Error> {
    let (host, port) = split(place)?;
    let until = Instant::now() + timeout;
    let mut rest = RESTS[0];
    let mut failure = None;
    loop {
        match attempt(host, port, claim, token, timeout, until, alarm) {
            Ok(line) => return Ok(line),
            Err(Setback::Final(error)) => return Err(error),
            // What the end of the time cut short says less than what went wrong before.
            Err(Setback::Again(it)) if failure.is_none() || Instant::now() < until => failure = Some(it),
            Err(Setback::Again(_)) => {}
        }
        if let Some(error) = alarm.verdict() {
            return Err(error);
        }
        if Instant::now() + rest >= until {
            let detail = format!(
                "cannot be reached at {place} within {} s: {}",
                seconds(timeout),
                failure.unwrap_or_default()
            );
            return Err(Error { rank: Some(0), ..Error::new(Cause::NeverArrived, STAGE, detail) });
        }
        std::thread::sleep(rest);
        rest = (rest * 2).min(RESTS[1]);
    }
}

enum Setback {
    /// Another attempt may do better.
    Again(String),
    /// None will.
    Final(Error),
}

fn attempt(
    host: &str,
    port: u16,
    claim: &Claim,
    token: &Token,
    timeout: Duration,
    until: Instant,
    alarm: &Alarm,
) -> Result<Line, Setback> {
    let mut last = format!("`{host}` has no address");
    for address in resolve(host, port, until, alarm).map_err(Setback::Again)? {
        let left = until.saturating_duration_since(Instant::now()).min(CONNECT);
        if left.is_zero() {
            break;
        }
        let socket =
            TcpStream::connect_timeout(&address, left).and_then(|stream| Socket::tcp(stream, timeout));
        match socket {
            Ok(socket) => match shake(Line::new(socket), address, claim, token, until, alarm) {
                Err(Setback::Again(failure)) => last = failure,
                end => return end,
            },
            Err(error) => last = error.to_string(),
        }
    }
    Err(Setback::Again(last))
}

/// The handshake. Both sides prove that they know the token.
fn shake(
    mut line: Line,
    address: SocketAddr,
    claim: &Claim,
    token: &Token,
    until: Instant,
    alarm: &Alarm,
) -> Result<Line, Setback> {
    let refused = |cause: Cause, detail: String| {
        Setback::Final(Error {
            rank: Some(0),
            host: Some(address.to_string()),
            ..Error::new(cause, STAGE, detail)
        })
    };
    let again = |lost: Lost| match lost {
        Lost::Alarm(error) => Setback::Final(error),
        lost => Setback::Again(lost.text()),
    };
    let ours = Greeting::ours(&token::random().map_err(Setback::Final)?);
    line.outflow.push(ours.to_vec());
    let greeting = loop {
        match Greeting::read(line.inflow.unread()).map_err(|it| again(it.into()))? {
            Some(greeting) => break greeting,
            None => line.more(until, alarm).map_err(again)?,
        }
    };
    if !greeting.fits() {
        let theirs = format!("plumb {} (protocol {})", greeting.version, greeting.protocol);
        let detail = format!("is {theirs}, this rank is plumb {VERSION} (protocol {PROTOCOL})");
        return Err(refused(Cause::Version, detail));
    }
    let theirs = line.inflow.greeting().unwrap_or([0; super::wire::GREETING]);
    let conversation: [&[u8]; 3] = [&ours, &theirs, &claim.bytes()];
    let proof = token.proof(Role::Guest, &conversation);
    line.outflow.push(Request::Claim { proof, claim: claim.clone() }.frame());
    match line.answer(super::wire::LARGEST_REFUSAL, until, alarm).map_err(again)? {
        Answer::Welcome { proof } if token.accepts(Role::Host, &conversation, &proof) => Ok(line),
        Answer::Welcome { .. } => Err(refused(Cause::Token, "does not know the job's token".to_owned())),
        Answer::Refused { cause, detail } => Err(refused(cause, format!("refused this rank: {detail}"))),
        _ => Err(again(Lost::Garbage)),
    }
}

/// `host:port`, `[address]:port`.
fn split(place: &str) -> Result<(&str, u16), Error> {
    let parts = place.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let host = |host: &'_ str| host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).map(str::len);
    match parts {
        Some((name, port)) if port > 0 && !name.is_empty() => match host(name) {
            Some(length) => Ok((name.get(1..=length).unwrap_or(name), port)),
            None if name.contains(':') => Err(no_place(place)),
            None => Ok((name, port)),
        },
        _ => Err(no_place(place)),
    }
}

fn no_place(place: &str) -> Error {
    Error::new(
        Cause::Usage,
        STAGE,
        format!("`{place}` is no place to meet; it is host:port or [address]:port"),
    )
}

/// The addresses of a host. The system's resolver may take longer than we want to wait.
fn resolve(host: &str, port: u16, until: Instant, alarm: &Alarm) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (sender, answer) = mpsc::channel();
    let name = host.to_owned();
    std::thread::Builder::new()
        .name("plumb-resolve".to_owned())
        .spawn(move || {
            let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            // Nobody listens any more once the time is over.
            let _ = sender.send(found);
        })
        .map_err(|error| error.to_string())?;
    loop {
        match answer.recv_timeout(GLANCE) {
            Ok(Ok(addresses)) => return Ok(addresses),
            Ok(Err(error)) => return Err(format!("`{host}` does not resolve: {error}")),
            Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < until && !alarm.is_raised() => {}
            Err(_) => return Err(format!("`{host}` does not resolve: no answer")),
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

    fn arrive_at(place: &str, milliseconds: u64) -> Error {
        let token = Token::new("secret").expect("valid");
        arrive(place, &claim(), &token, Duration::from_millis(milliseconds), &Alarm::default())
            .expect_err("nobody")
    }

    /// Answers every connection with these bytes until the test ends.
    fn impostor(bytes: Vec<u8>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let place = listener.local_addr().expect("bound").to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let _ = stream.read(&mut [0; 200]);
                let _ = stream.write_all(&bytes);
            }
        });
        place
    }

    #[test]
    fn places_are_read() {
        assert_eq!(split("node7:29500").expect("good"), ("node7", 29500));
        assert_eq!(split("[::1]:29500").expect("good"), ("::1", 29500));
        assert_eq!(split("[fe80::1%eth0]:1").expect("good"), ("fe80::1%eth0", 1));
        for bad in ["", "node7", "node7:", ":1", "node7:0", "node7:70000", "::1:29500", "[]", "[]:x"] {
            assert_eq!(split(bad).expect_err(bad).cause, Cause::Usage);
        }
    }

    #[test]
    fn says_what_failed_last() {
        // Bound, so that nobody else gets the port, and deaf.
        let deaf = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        rustix::net::bind(&deaf, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("loopback");
        let place =
            SocketAddr::try_from(rustix::net::getsockname(&deaf).expect("bound")).expect("an address");
        let error = arrive_at(&place.to_string(), 300);
        assert_eq!((error.cause, error.rank), (Cause::NeverArrived, Some(0)));
        assert!(error.detail.contains("refused"), "{error}");
        let error = arrive_at("no-such-host.invalid:29500", 300);
        assert!(error.detail.contains("`no-such-host.invalid` does not resolve"), "{error}");
    }

    #[test]
    fn others_who_answer_are_no_rendezvous() {
        let error = arrive_at(&impostor(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), 300);
        assert!(error.detail.contains("something else than plumb"), "{error}");
        let error = arrive_at(&impostor(Vec::new()), 300);
        assert!(error.detail.contains("hung up") || error.detail.contains("reset"), "{error}");
    }

    #[test]
    fn another_release_is_told_at_once() {
        let error = arrive_at(&impostor(Greeting::bytes(3, "9.9.9", &[0; 32]).to_vec()), 60_000);
        assert_eq!(error.cause, Cause::Version);
        let wanted =
            format!("is plumb 9.9.9 (protocol 3), this rank is plumb {VERSION} (protocol {PROTOCOL})");
        assert_eq!(error.detail, wanted);
    }

    #[test]
    fn a_rendezvous_that_knows_no_token_is_told() {
        let welcome = Answer::Welcome { proof: [0; 32] }.frame();
        let error = arrive_at(&impostor([Greeting::ours(&[0; 32]).to_vec(), welcome].concat()), 60_000);
        assert_eq!((error.cause, error.detail.as_str()), (Cause::Token, "does not know the job's token"));
    }

    #[test]
    fn oversize_and_broken_answers_do_no_harm() {
        let greeting = Greeting::ours(&[0; 32]).to_vec();
        for frame in [u32::MAX.to_le_bytes().to_vec(), vec![1, 0, 0, 0, 99], Answer::Farewell.frame()] {
            let error = arrive_at(&impostor([greeting.clone(), frame].concat()), 300);
            assert_eq!(error.cause, Cause::NeverArrived);
        }
    }
}
