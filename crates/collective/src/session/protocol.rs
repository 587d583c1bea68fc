//! The protocol of control connections: a greeting in each direction, then frames.
//!
//! A greeting has the same form in all releases, so that two releases can detect that they differ: `PLUMBJOB`, protocol
//! (2 bytes), version (64 bytes, padded with zeros), nonce (32 bytes). A frame is its length (4 bytes), its kind (1 byte)
//! and its fields. Numbers are little-endian; texts and bytes are preceded by their length (4 bytes).

use crate::{Cause, Error};

use super::progress::ProgressSnapshot;
use super::token::PROOF;

const MAGIC: &[u8; 8] = b"PLUMBJOB";
/// Incremented when a frame changes.
pub(super) const PROTOCOL: u16 = 1;
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Bytes of a greeting.
pub(super) const GREETING: usize = 106;

pub(super) const LARGEST_PEER_INFO: usize = 64 << 10;
/// The largest piece that [`share`](super::Session::share) takes.
pub(super) const LARGEST_SHARE: usize = 1 << 20;
/// The largest frame from a pending connection.
pub(super) const LARGEST_PENDING_FRAME: usize = 1024;
/// The largest frame from a coordinator that has not proved the token.
pub(super) const LARGEST_REFUSAL: usize = LONGEST_DETAIL + 64;
/// The largest frame between a rank and the coordinator.
pub(super) const LARGEST_FRAME: usize = LARGEST_SHARE + 4096;

const LONGEST_HOST: usize = 255;
const LONGEST_STAGE: usize = 255;
const LONGEST_DETAIL: usize = 2048;

/// Bytes that are not a message of this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// The first message of each side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) protocol: u16,
    pub(super) version: String,
}

impl Greeting {
    pub(super) fn ours(nonce: &[u8; 32]) -> [u8; GREETING] {
        Self::bytes(PROTOCOL, VERSION, nonce)
    }

    pub(super) fn bytes(protocol: u16, version: &str, nonce: &[u8; 32]) -> [u8; GREETING] {
        let mut bytes = [0; GREETING];
        let version = version.bytes().chain(std::iter::repeat(0)).take(64);
        let fields = MAGIC.iter().copied().chain(protocol.to_le_bytes()).chain(version);
        for (to, from) in bytes.iter_mut().zip(fields.chain(nonce.iter().copied())) {
            *to = from;
        }
        bytes
    }

    /// Reads a greeting. Fails as soon as the bytes cannot become one.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        if bytes.iter().zip(MAGIC).any(|(it, magic)| it != magic) {
            return Err(Malformed);
        }
        let Some(bytes) = bytes.get(..GREETING) else { return Ok(None) };
        let mut fields = Reader(bytes.get(MAGIC.len()..).unwrap_or_default());
        let protocol = u16::from_le_bytes(fields.array()?);
        let version: [u8; 64] = fields.array()?;
        let version = version.split(|it| *it == 0).next().unwrap_or_default();
        Ok(Some(Self { protocol, version: printable(&String::from_utf8_lossy(version)) }))
    }

    pub(super) fn is_compatible(&self) -> bool {
        self.protocol == PROTOCOL && self.version == VERSION
    }
}

/// From a rank to the coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// The rank it wants to join as, with proof of the token.
    Claim { proof: [u8; PROOF], claim: Claim },
    /// What the other ranks need to know about it.
    PeerInfo(Vec<u8>),
    /// Its piece of a `share`.
    Share { serial: u64, stage: String, bytes: Vec<u8> },
    /// An error that ends the job.
    Fail(Error),
    /// The answer to a ping.
    Pong { number: u32, progress: ProgressSnapshot },
    /// The rank has finished.
    Leave,
}

/// Which rank a connection claims to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) pid: u32,
    pub(super) host: String,
}

/// From the coordinator to a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The rank may not join.
    Refused {
        cause: Cause,
        detail: String,
    },
    /// The rank has joined; the coordinator proves that it knows the token too.
    Welcome {
        proof: [u8; PROOF],
    },
    /// A rank of the job.
    Member {
        rank: u32,
        pid: u32,
        host: String,
        peer_info: Vec<u8>,
    },
    /// All ranks have joined.
    Begin {
        key: [u8; 32],
    },
    /// One rank's piece of a `share`.
    Part {
        serial: u64,
        rank: u32,
        bytes: Vec<u8>,
    },
    Ping {
        number: u32,
    },
    /// The job has ended with an error.
    Abort(Error),
    /// All ranks have finished.
    AllLeft,
}

impl Claim {
    /// The bytes that the proofs of both sides cover.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut frame = Writer(Vec::new());
        self.write(&mut frame);
        frame.0
    }

    fn write(&self, frame: &mut Writer) {
        frame.number(self.rank).number(self.size).number(self.pid).text(&self.host, LONGEST_HOST);
    }
}

impl Request {
    /// The frame with its length.
    pub(super) fn frame(&self) -> Vec<u8> {
        match self {
            Self::Claim { proof, claim } => {
                let mut frame = Writer::frame(1);
                frame.raw(proof);
                claim.write(&mut frame);
                frame.end()
            }
            Self::PeerInfo(peer_info) => Writer::frame(2).bytes(peer_info).end(),
            Self::Share { serial, stage, bytes } => {
                Writer::frame(3).long(*serial).text(stage, LONGEST_STAGE).bytes(bytes).end()
            }
            Self::Fail(error) => Writer::frame(4).error(error).end(),
            Self::Pong { number, progress } => Writer::frame(5)
                .number(*number)
                .long(progress.step)
                .raw(&[progress.kind.map_or(u8::MAX, |it| it as u8)])
                .long(progress.bytes)
                .end(),
            Self::Leave => Writer::frame(6).end(),
        }
    }

    /// Reads a frame without its length.
    pub(super) fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut body = Reader(body);
        let request = match body.byte()? {
            1 => Self::Claim {
                proof: body.array()?,
                claim: Claim {
                    rank: body.number()?,
                    size: body.number()?,
                    pid: body.number()?,
                    host: body.text(LONGEST_HOST)?,
                },
            },
            2 => Self::PeerInfo(body.bytes(LARGEST_PEER_INFO)?),
            3 => Self::Share {
                serial: body.long()?,
                stage: printable(&body.text(LONGEST_STAGE)?),
                bytes: body.bytes(LARGEST_SHARE)?,
            },
            4 => Self::Fail(body.error()?),
            5 => Self::Pong {
                number: body.number()?,
                progress: ProgressSnapshot::of(body.long()?, body.byte()?, body.long()?),
            },
            6 => Self::Leave,
            _ => return Err(Malformed),
        };
        body.end().map(|()| request)
    }
}

impl Answer {
    /// The frame with its length.
    pub(super) fn frame(&self) -> Vec<u8> {
        match self {
            Self::Refused { cause, detail } => {
                Writer::frame(1).raw(&[*cause as u8]).text(detail, LONGEST_DETAIL).end()
            }
            Self::Welcome { proof } => Writer::frame(2).raw(proof).end(),
            Self::Member { rank, pid, host, peer_info } => {
                Writer::frame(3).number(*rank).number(*pid).text(host, LONGEST_HOST).bytes(peer_info).end()
            }
            Self::Begin { key } => Writer::frame(4).raw(key).end(),
            Self::Part { serial, rank, bytes } => {
                Writer::frame(5).long(*serial).number(*rank).bytes(bytes).end()
            }
            Self::Ping { number } => Writer::frame(6).number(*number).end(),
            Self::Abort(error) => Writer::frame(7).error(error).end(),
            Self::AllLeft => Writer::frame(8).end(),
        }
    }

    /// Reads a frame without its length.
    pub(super) fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut body = Reader(body);
        let answer = match body.byte()? {
            1 => Self::Refused { cause: cause(body.byte()?), detail: printable(&body.text(LONGEST_DETAIL)?) },
            2 => Self::Welcome { proof: body.array()? },
            3 => Self::Member {
                rank: body.number()?,
                pid: body.number()?,
                host: printable(&body.text(LONGEST_HOST)?),
                peer_info: body.bytes(LARGEST_PEER_INFO)?,
            },
            4 => Self::Begin { key: body.array()? },
            5 => Self::Part { serial: body.long()?, rank: body.number()?, bytes: body.bytes(LARGEST_SHARE)? },
            6 => Self::Ping { number: body.number()? },
            7 => Self::Abort(body.error()?),
            8 => Self::AllLeft,
            _ => return Err(Malformed),
        };
        body.end().map(|()| answer)
    }
}

/// Ordered by their number in a frame.
const CAUSES: [Cause; 12] = [
    Cause::Died,
    Cause::Silent,
    Cause::DidNotJoin,
    Cause::Reset,
    Cause::Mismatch,
    Cause::Token,
    Cause::Version,
    Cause::PortInUse,
    Cause::NoMemory,
    Cause::Interrupted,
    Cause::Usage,
    Cause::System,
];

fn cause(number: u8) -> Cause {
    CAUSES.get(usize::from(number)).copied().unwrap_or(Cause::System)
}

/// Replaces control characters, so that a text from another process can be shown on a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

/// The longest beginning of a text with at most `longest` bytes.
pub(super) fn truncated(text: &str, longest: usize) -> &str {
    let mut end = text.len().min(longest);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

struct Writer(Vec<u8>);

impl Writer {
    fn frame(kind: u8) -> Self {
        Self(vec![0, 0, 0, 0, kind])
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn number(&mut self, number: u32) -> &mut Self {
        self.raw(&number.to_le_bytes())
    }

    fn long(&mut self, number: u64) -> &mut Self {
        self.raw(&number.to_le_bytes())
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(u32::try_from(bytes.len()).unwrap_or(u32::MAX)).raw(bytes)
    }

    fn text(&mut self, text: &str, longest: usize) -> &mut Self {
        self.bytes(truncated(text, longest).as_bytes())
    }

    fn error(&mut self, error: &Error) -> &mut Self {
        let rank = error.rank.and_then(|it| u32::try_from(it).ok()).unwrap_or(u32::MAX);
        self.raw(&[error.cause as u8, u8::from(error.host.is_some())])
            .number(rank)
            .text(error.host.as_deref().unwrap_or_default(), LONGEST_HOST)
            .text(&error.stage, LONGEST_STAGE)
            .text(&error.detail, LONGEST_DETAIL)
    }

    fn end(&mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len() - 4).unwrap_or(u32::MAX);
        for (to, from) in self.0.iter_mut().zip(length.to_le_bytes()) {
            *to = from;
        }
        std::mem::take(&mut self.0)
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[it]| it)
    }

    fn number(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self, most: usize) -> Result<Vec<u8>, Malformed> {
        let length = self.number()? as usize;
        if length > most { Err(Malformed) } else { self.take(length).map(<[u8]>::to_vec) }
    }

    fn text(&mut self, longest: usize) -> Result<String, Malformed> {
        String::from_utf8(self.bytes(longest)?).map_err(|_| Malformed)
    }

    fn error(&mut self) -> Result<Error, Malformed> {
        let cause = cause(self.byte()?);
        let has_host = self.byte()? != 0;
        let rank = self.number()?;
        let host = printable(&self.text(LONGEST_HOST)?);
        Ok(Error {
            cause,
            rank: (rank != u32::MAX).then_some(rank as usize),
            host: has_host.then_some(host),
            stage: printable(&self.text(LONGEST_STAGE)?),
            detail: printable(&self.text(LONGEST_DETAIL)?),
        })
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::progress::CallKind;
    use super::*;
    use proptest::prelude::*;

    fn error() -> Error {
        Error::new(Cause::Died, "all_reduce of 8 bytes", "its process ended").of(3, "node7")
    }

    #[test]
    fn requests_are_read_as_written() {
        let claim = Claim { rank: 1, size: 4, pid: 77, host: "node7".into() };
        for request in [
            Request::Claim { proof: [7; 32], claim },
            Request::PeerInfo(vec![1, 2, 3]),
            Request::Share { serial: 9, stage: "setup".into(), bytes: vec![0; 1000] },
            Request::Fail(error()),
            Request::Fail(Error::new(Cause::System, "", "")),
            Request::Pong { number: 3, progress: ProgressSnapshot::of(5, CallKind::Barrier as u8, 0) },
            Request::Leave,
        ] {
            let frame = request.frame();
            assert_eq!(
                u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize,
                frame.len() - 4
            );
            assert_eq!(Request::read(&frame[4..]), Ok(request));
        }
    }

    #[test]
    fn answers_are_read_as_written() {
        for answer in [
            Answer::Refused { cause: Cause::Token, detail: "wrong token".into() },
            Answer::Welcome { proof: [1; 32] },
            Answer::Member { rank: 2, pid: 3, host: "a".into(), peer_info: vec![4] },
            Answer::Begin { key: [5; 32] },
            Answer::Part { serial: 1, rank: 2, bytes: vec![] },
            Answer::Ping { number: 8 },
            Answer::Abort(error()),
            Answer::AllLeft,
        ] {
            assert_eq!(Answer::read(&answer.frame()[4..]), Ok(answer));
        }
    }

    #[test]
    fn every_cause_has_its_number() {
        for (number, it) in CAUSES.into_iter().enumerate() {
            assert_eq!(it as usize, number);
        }
        assert_eq!(cause(250), Cause::System);
    }

    #[test]
    fn a_greeting_has_the_version_and_fails_early() {
        let bytes = Greeting::bytes(7, "9.8.7", &[1; 32]);
        let greeting = Greeting::read(&bytes).expect("ours").expect("whole");
        assert_eq!((greeting.protocol, greeting.version.as_str()), (7, "9.8.7"));
        assert!(!greeting.is_compatible());
        let ours = Greeting::read(&Greeting::ours(&[1; 32])).expect("ours").expect("whole");
        assert!(ours.is_compatible());
        assert_eq!(Greeting::read(b"PLUM"), Ok(None));
        assert_eq!(Greeting::read(b"PUT / HTTP/1.1"), Err(Malformed));
    }

    #[test]
    fn lengths_are_checked_before_reading() {
        let mut peer_info = Request::PeerInfo(vec![1]).frame();
        peer_info[5..9].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Request::read(&peer_info[4..]), Err(Malformed));
        assert_eq!(
            Request::read(&Request::PeerInfo(vec![0; LARGEST_PEER_INFO + 1]).frame()[4..]),
            Err(Malformed)
        );
    }

    #[test]
    fn long_texts_and_control_characters_are_removed() {
        let long = Error::new(Cause::System, "é".repeat(500), "\u{1b}[2Jx".repeat(2000));
        let Ok(Request::Fail(read)) = Request::read(&Request::Fail(long).frame()[4..]) else {
            panic!("a long text is cut, not refused")
        };
        assert!(read.stage.len() <= LONGEST_STAGE && read.detail.len() <= LONGEST_DETAIL);
        assert!(!read.detail.contains('\u{1b}'));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Greeting::read(&bytes);
            if let Ok(request) = Request::read(&bytes) {
                let _ = Request::read(&request.frame()[4..]).expect("what was read can be written");
            }
            if let Ok(answer) = Answer::read(&bytes) {
                let _ = Answer::read(&answer.frame()[4..]).expect("what was read can be written");
            }
        }

        #[test]
        fn a_damaged_frame_is_parsed(at in 0_usize..80, to in any::<u8>(), cut in 0_usize..80) {
            let mut frames = [Request::Fail(error()).frame(), Answer::Abort(error()).frame()];
            for frame in &mut frames {
                let index = at % frame.len();
                frame[index] = to;
                frame.truncate(frame.len().saturating_sub(cut).max(4));
                let _ = (Request::read(&frame[4..]), Answer::read(&frame[4..]));
            }
        }
    }
}
