//! The job's secret, and the proof of knowing it.

use std::fmt;

use hmac::{Hmac, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;

use crate::{Cause, Error};

/// Bytes of a proof.
pub(super) const PROOF: usize = 32;

/// The longest token that is taken.
const LONGEST: usize = 4096;

/// What every rank of a job knows and nobody else does.
///
/// It is never sent: both sides of a connection prove that they know it. It keeps strangers out
/// who can connect; it does not hide the traffic from those who can read it.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A token that was agreed on elsewhere. White space around it does not count.
    pub fn new(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        match text.len() {
            0 => Err(Error::new(Cause::Usage, "", "the job's token is empty")),
            1..=LONGEST => Ok(Self(text.to_owned())),
            _ => Err(Error::new(Cause::Usage, "", format!("the job's token is longer than {LONGEST} bytes"))),
        }
    }

    /// A new one of 128 random bits.
    pub fn random() -> Result<Self, Error> {
        Ok(Self(format!("{:032x}", u128::from_ne_bytes(random()?))))
    }

    /// The secret itself, to give to the other ranks.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Proves knowledge of the token to the other side of this very conversation.
    pub(super) fn proof(&self, role: Role, conversation: &[&[u8]]) -> [u8; PROOF] {
        self.code(role, conversation).map_or([0; PROOF], |it| it.finalize().into_bytes().into())
    }

    /// Whether the other side's proof is right. Takes the same time either way.
    pub(super) fn accepts(&self, role: Role, conversation: &[&[u8]], proof: &[u8]) -> bool {
        self.code(role, conversation).is_some_and(|it| it.verify_slice(proof).is_ok())
    }

    fn code(&self, role: Role, conversation: &[&[u8]]) -> Option<Hmac<Sha256>> {
        // A key of any length is taken; `None` never happens.
        let mut code = Hmac::<Sha256>::new_from_slice(self.0.as_bytes()).ok()?;
        code.update(&[role as u8]);
        for part in conversation {
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

/// Who proves: one side's proof cannot be played back as the other's.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    Guest = 1,
    Host = 2,
}

/// Bytes that nobody can guess.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|it| !it.is_empty()) {
        match getrandom(rest, GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::system("", "no random numbers", error)),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_token_role_and_conversation_only() {
        let token = Token::new(" secret \n").expect("valid");
        assert_eq!(token.text(), "secret");
        let proof = token.proof(Role::Guest, &[b"a", b"bc"]);
        assert!(token.accepts(Role::Guest, &[b"a", b"bc"], &proof));
        assert!(!token.accepts(Role::Host, &[b"a", b"bc"], &proof));
        assert!(!token.accepts(Role::Guest, &[b"ab", b"c"], &proof));
        assert!(!token.accepts(Role::Guest, &[b"a", b"bc"], &proof[..31]));
        assert!(!Token::new("other").expect("valid").accepts(Role::Guest, &[b"a", b"bc"], &proof));
    }

    #[test]
    fn tokens_are_random_hidden_and_never_empty() {
        let (one, two) = (Token::random().expect("random"), Token::random().expect("random"));
        assert_eq!(one.text().len(), 32);
        assert_ne!(one.text(), two.text());
        assert_eq!(format!("{one:?}"), "Token(hidden)");
        assert_eq!(Token::new("  ").expect_err("empty").cause, Cause::Usage);
        assert_eq!(Token::new(&"x".repeat(5000)).expect_err("long").cause, Cause::Usage);
    }
}
