//! The job's secret, and the proof of knowing it.

use std::fmt;

use hmac::{Hmac, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;

use crate::{Cause, Error};

/// Bytes of a proof.
pub(super) const PROOF: usize = 32;

/// The longest token in bytes.
const LONGEST: usize = 4096;

/// The shared secret of a job.
///
/// It is never sent: both sides of a connection prove that they know it. It keeps out processes that can connect but do
/// not know it; it does not encrypt the traffic.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Fails if the text is empty or too long. White space around it is removed.
    pub fn new(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        match text.len() {
            0 => Err(Error::new(Cause::Usage, "", "the job's token is empty")),
            1..=LONGEST => Ok(Self(text.to_owned())),
            _ => Err(Error::new(Cause::Usage, "", format!("the job's token is longer than {LONGEST} bytes"))),
        }
    }

    /// Proves knowledge of the token to the other side of the connection with this transcript.
    pub(super) fn proof(&self, role: Role, transcript: &[&[u8]]) -> [u8; PROOF] {
        self.code(role, transcript).map_or([0; PROOF], |it| it.finalize().into_bytes().into())
    }

    /// Whether the proof of the other side is right, compared in constant time.
    pub(super) fn accepts(&self, role: Role, transcript: &[&[u8]], proof: &[u8]) -> bool {
        self.code(role, transcript).is_some_and(|it| it.verify_slice(proof).is_ok())
    }

    fn code(&self, role: Role, transcript: &[&[u8]]) -> Option<Hmac<Sha256>> {
        // HMAC accepts a key of any length; `None` never happens.
        let mut code = Hmac::<Sha256>::new_from_slice(self.0.as_bytes()).ok()?;
        code.update(&[role as u8]);
        for part in transcript {
            code.update(&(part.len() as u64).to_le_bytes());
            code.update(part);
        }
        Some(code)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// The side that proves: a proof of one side cannot be replayed as that of the other.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    Rank = 1,
    Coordinator = 2,
}

/// Random bytes from the kernel.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|it| !it.is_empty()) {
        match getrandom(rest, GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::system("", "cannot get random bytes", error)),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_token_role_and_transcript_only() {
        let token = Token::new(" secret \n").expect("valid");
        let proof = token.proof(Role::Rank, &[b"a", b"bc"]);
        assert!(token.accepts(Role::Rank, &[b"a", b"bc"], &proof));
        assert!(!token.accepts(Role::Coordinator, &[b"a", b"bc"], &proof));
        assert!(!token.accepts(Role::Rank, &[b"ab", b"c"], &proof));
        assert!(!token.accepts(Role::Rank, &[b"a", b"bc"], &proof[..31]));
        assert!(!Token::new("other").expect("valid").accepts(Role::Rank, &[b"a", b"bc"], &proof));
    }

    #[test]
    fn tokens_are_trimmed_hidden_and_never_empty() {
        let token = Token::new(" secret \n").expect("valid");
        assert_eq!(token.0, "secret");
        assert_eq!(format!("{token:?}"), "Token(hidden)");
        assert_eq!(Token::new("  ").expect_err("empty").cause, Cause::Usage);
        assert_eq!(Token::new(&"x".repeat(5000)).expect_err("long").cause, Cause::Usage);
    }
}
