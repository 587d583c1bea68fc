//! What goes over a control connection: a greeting each way, then frames.
//!
//! A greeting has one form for all releases, so that two of them can tell that they differ:
//! `PLUMBJOB`, protocol (2 bytes), version (64 bytes, padded with zeros), nonce (32 bytes).
//! A frame is its length (4 bytes), its kind (1 byte) and its fields; numbers are little-endian,
//! texts and bytes have their length before them.

use crate::{Cause, Error};

use super::progress::Place;
use super::token::PROOF;

/// The first bytes of everyone who belongs here.
const MAGIC: &[u8; 8] = b"PLUMBJOB";
/// Counts changes of the frames.
pub(super) const PROTOCOL: u16 = 1;
/// The release.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Bytes of a greeting.
pub(super) const GREETING: usize = 106;

/// The largest card of a rank.
pub(super) const LARGEST_CARD: usize = 64 << 10;
/// The largest piece that [`share`](super::Session::share) takes.
pub(super) const LARGEST_SHARE: usize = 1 << 20;
/// The largest frame of a stranger.
pub(super) const STRANGERS_FRAME: usize = 1024;
/// The largest frame of a coordinator that has proved nothing yet.
pub(super) const LARGEST_REFUSAL: usize = LONGEST_DETAIL + 64;
/// The largest frame of a rank.
pub(super) const LARGEST_FRAME: usize = LARGEST_SHARE + 4096;

const LONGEST_HOST: usize = 255;
const LONGEST_STAGE: usize = 255;
const LONGEST_DETAIL: usize = 2048;

/// Bytes that are no message of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Garbage;

/// The other side's first words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) protocol: u16,
    pub(super) version: String,
}

impl Greeting {
    /// Our own.
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

    /// Reads a greeting, or says as early as possible that these bytes will never be one.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Self>, Garbage> {
        if bytes.iter().zip(MAGIC).any(|(it, magic)| it != magic) {
            return Err(Garbage);
        }
        let Some(bytes) = bytes.get(..GREETING) else { return Ok(None) };
        let mut fields = Reader(bytes.get(MAGIC.len()..).unwrap_or_default());
        let protocol = u16::from_le_bytes(fields.array()?);
        let version: [u8; 64] = fields.array()?;
        let version = version.split(|it| *it == 0).next().unwrap_or_default();
        Ok(Some(Self { protocol, version: clean(&String::from_utf8_lossy(version)) }))
    }

    /// Whether we can talk.
    pub(super) fn fits(&self) -> bool {
        self.protocol == PROTOCOL && self.version == VERSION
    }
}

/// From a rank to the coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// Who it is, with proof.
    Claim { proof: [u8; PROOF], claim: Claim },
    /// What the others shall know of it.
    Card(Vec<u8>),
    /// Its piece of a `share`.
    Share { serial: u64, stage: String, bytes: Vec<u8> },
    /// It cannot go on.
    Fail(Error),
    /// It is alive and this far.
    Pong { number: u32, place: Place },
    /// It has finished.
    Goodbye,
}

/// Who a rank says it is.
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
    /// It does not get in.
    Refused { cause: Cause, detail: String },
    /// It is in; the coordinator knows the token as well.
    Welcome { proof: [u8; PROOF] },
    /// One of the ranks that came.
    Member { rank: u32, pid: u32, host: String, card: Vec<u8> },
    /// All came.
    Begin { key: [u8; 32] },
    /// One rank's piece of a `share`.
    Part { serial: u64, rank: u32, bytes: Vec<u8> },
    /// Is it alive?
    Ping { number: u32 },
    /// The job is over.
    Abort(Error),
    /// All have finished.
    Farewell,
}

impl Claim {
    /// What the proofs of both sides cover.
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
    /// The whole frame.
    pub(super) fn frame(&self) -> Vec<u8> {
        match self {
            Self::Claim { proof, claim } => {
                let mut frame = Writer::frame(1);
                frame.raw(proof);
                claim.write(&mut frame);
                frame.end()
            }
            Self::Card(card) => Writer::frame(2).bytes(card).end(),
            Self::Share { serial, stage, bytes } => {
                Writer::frame(3).long(*serial).text(stage, LONGEST_STAGE).bytes(bytes).end()
            }
            Self::Fail(error) => Writer::frame(4).error(error).end(),
            Self::Pong { number, place } => Writer::frame(5)
                .number(*number)
                .long(place.step)
                .raw(&[place.kind.map_or(u8::MAX, |it| it as u8)])
                .long(place.bytes)
                .end(),
            Self::Goodbye => Writer::frame(6).end(),
        }
    }

    /// From the part after the length.
    pub(super) fn read(body: &[u8]) -> Result<Self, Garbage> {
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
            2 => Self::Card(body.bytes(LARGEST_CARD)?),
            3 => Self::Share {
                serial: body.long()?,
                stage: clean(&body.text(LONGEST_STAGE)?),
                bytes: body.bytes(LARGEST_SHARE)?,
            },
            4 => Self::Fail(body.error()?),
            5 => Self::Pong {
                number: body.number()?,
                place: Place::of(body.long()?, body.byte()?, body.long()?),
            },
            6 => Self::Goodbye,
            _ => return Err(Garbage),
        };
        body.end().map(|()| request)
    }
}

impl Answer {
    /// The whole frame.
    pub(super) fn frame(&self) -> Vec<u8> {
        match self {
            Self::Refused { cause, detail } => {
                Writer::frame(1).raw(&[*cause as u8]).text(detail, LONGEST_DETAIL).end()
            }
            Self::Welcome { proof } => Writer::frame(2).raw(proof).end(),
            Self::Member { rank, pid, host, card } => {
                Writer::frame(3).number(*rank).number(*pid).text(host, LONGEST_HOST).bytes(card).end()
            }
            Self::Begin { key } => Writer::frame(4).raw(key).end(),
            Self::Part { serial, rank, bytes } => {
                Writer::frame(5).long(*serial).number(*rank).bytes(bytes).end()
            }
            Self::Ping { number } => Writer::frame(6).number(*number).end(),
            Self::Abort(error) => Writer::frame(7).error(error).end(),
            Self::Farewell => Writer::frame(8).end(),
        }
    }

    /// From the part after the length.
    pub(super) fn read(body: &[u8]) -> Result<Self, Garbage> {
        let mut body = Reader(body);
        let answer = match body.byte()? {
            1 => Self::Refused { cause: cause(body.byte()?), detail: clean(&body.text(LONGEST_DETAIL)?) },
            2 => Self::Welcome { proof: body.array()? },
            3 => Self::Member {
                rank: body.number()?,
                pid: body.number()?,
                host: clean(&body.text(LONGEST_HOST)?),
                card: body.bytes(LARGEST_CARD)?,
            },
            4 => Self::Begin { key: body.array()? },
            5 => Self::Part { serial: body.long()?, rank: body.number()?, bytes: body.bytes(LARGEST_SHARE)? },
            6 => Self::Ping { number: body.number()? },
            7 => Self::Abort(body.error()?),
            8 => Self::Farewell,
            _ => return Err(Garbage),
        };
        body.end().map(|()| answer)
    }
}

/// In the order of their numbers.
const CAUSES: [Cause; 12] = [
    Cause::Died,
    Cause::Silent,
    Cause::NeverArrived,
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

/// A text of another process that can be shown to people: nothing that steers a terminal.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

/// The beginning of a text, at most so many bytes.
pub(super) fn beginning(text: &str, longest: usize) -> &str {
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
        self.bytes(beginning(text, longest).as_bytes())
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
    fn take(&mut self, length: usize) -> Result<&'a [u8], Garbage> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Garbage)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbage> {
        self.take(N)?.try_into().map_err(|_| Garbage)
    }

    fn byte(&mut self) -> Result<u8, Garbage> {
        self.array().map(|[it]| it)
    }

    fn number(&mut self) -> Result<u32, Garbage> {
        self.array().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Result<u64, Garbage> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self, most: usize) -> Result<Vec<u8>, Garbage> {
        let length = self.number()? as usize;
        if length > most { Err(Garbage) } else { self.take(length).map(<[u8]>::to_vec) }
    }

    fn text(&mut self, longest: usize) -> Result<String, Garbage> {
        String::from_utf8(self.bytes(longest)?).map_err(|_| Garbage)
    }

    fn error(&mut self) -> Result<Error, Garbage> {
        let cause = cause(self.byte()?);
        let has_host = self.byte()? != 0;
        let rank = self.number()?;
        let host = clean(&self.text(LONGEST_HOST)?);
        Ok(Error {
            cause,
            rank: (rank != u32::MAX).then_some(rank as usize),
            host: has_host.then_some(host),
            stage: clean(&self.text(LONGEST_STAGE)?),
            detail: clean(&self.text(LONGEST_DETAIL)?),
        })
    }

    fn end(&self) -> Result<(), Garbage> {
        if self.0.is_empty() { Ok(()) } else { Err(Garbage) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::progress::Kind;
    use super::*;
    use proptest::prelude::*;

    fn error() -> Error {
        Error::new(Cause::Died, "all_reduce of 8 bytes", "its process ended").of(3, "node7")
    }

    #[test]
    fn requests_come_back_as_they_went() {
        let claim = Claim { rank: 1, size: 4, pid: 77, host: "node7".into() };
        for request in [
            Request::Claim { proof: [7; 32], claim },
            Request::Card(vec![1, 2, 3]),
            Request::Share { serial: 9, stage: "setup".into(), bytes: vec![0; 1000] },
            Request::Fail(error()),
            Request::Fail(Error::new(Cause::System, "", "")),
            Request::Pong { number: 3, place: Place::of(5, Kind::Barrier as u8, 0) },
            Request::Goodbye,
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
    fn answers_come_back_as_they_went() {
        for answer in [
            Answer::Refused { cause: Cause::Token, detail: "wrong token".into() },
            Answer::Welcome { proof: [1; 32] },
            Answer::Member { rank: 2, pid: 3, host: "a".into(), card: vec![4] },
            Answer::Begin { key: [5; 32] },
            Answer::Part { serial: 1, rank: 2, bytes: vec![] },
            Answer::Ping { number: 8 },
            Answer::Abort(error()),
            Answer::Farewell,
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
    fn greetings_tell_the_version_and_strangers_early() {
        let bytes = Greeting::bytes(7, "9.8.7", &[1; 32]);
        let greeting = Greeting::read(&bytes).expect("ours").expect("whole");
        assert_eq!((greeting.protocol, greeting.version.as_str()), (7, "9.8.7"));
        assert!(!greeting.fits());
        let ours = Greeting::read(&Greeting::ours(&[1; 32])).expect("ours").expect("whole");
        assert!(ours.fits());
        assert_eq!(Greeting::read(b"PLUM"), Ok(None));
        assert_eq!(Greeting::read(b"PUT / HTTP/1.1"), Err(Garbage));
    }

    #[test]
    fn lengths_are_checked_before_anything_is_taken() {
        let mut card = Request::Card(vec![1]).frame();
        card[5..9].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Request::read(&card[4..]), Err(Garbage));
        assert_eq!(Request::read(&Request::Card(vec![0; LARGEST_CARD + 1]).frame()[4..]), Err(Garbage));
    }

    #[test]
    fn long_and_steering_texts_are_tamed() {
        let long = Error::new(Cause::System, "é".repeat(500), "\u{1b}[2Jx".repeat(2000));
        let Ok(Request::Fail(read)) = Request::read(&Request::Fail(long).frame()[4..]) else {
            panic!("a long text is cut, not refused")
        };
        assert!(read.stage.len() <= LONGEST_STAGE && read.detail.len() <= LONGEST_DETAIL);
        assert!(!read.detail.contains('\u{1b}'));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Greeting::read(&bytes);
            if let Ok(request) = Request::read(&bytes) {
                let _ = Request::read(&request.frame()[4..]).expect("what was read can be written");
            }
            if let Ok(answer) = Answer::read(&bytes) {
                let _ = Answer::read(&answer.frame()[4..]).expect("what was read can be written");
            }
        }

        #[test]
        fn a_damaged_frame_is_read_without_harm(at in 0_usize..80, to in any::<u8>(), cut in 0_usize..80) {
            let mut frames = [Request::Fail(error()).frame(), Answer::Abort(error()).frame()];
            for frame in &mut frames {
                let place = at % frame.len();
                frame[place] = to;
                frame.truncate(frame.len().saturating_sub(cut).max(4));
                let _ = (Request::read(&frame[4..]), Answer::read(&frame[4..]));
            }
        }
    }
}
