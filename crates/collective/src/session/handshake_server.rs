//! The coordinator's side of the handshake.

use super::protocol::{
    Answer, Claim, GREETING, Greeting, LARGEST_PENDING_FRAME, Malformed, Request, VERSION,
};
use super::socket::{ReceiveBuffer, SendQueue};
use super::token::{Role, Token};
use crate::Cause;

/// How far the handshake of a pending connection has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// Waits for the greeting of the peer.
    Greeting,
    /// Waits for its claim.
    Claim(Box<Greetings>),
}

#[derive(Debug)]
pub(super) struct Greetings {
    theirs: [u8; GREETING],
    ours: [u8; GREETING],
}

/// What to do with a pending connection now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HandshakeStep {
    /// More bytes are needed.
    Wait,
    /// Not a rank of plumb: close it without an answer.
    Drop(String),
    /// A rank of plumb that may not join; the answer is queued.
    Refuse(String),
    /// It has proved the token, and may join as the rank it claims if that is free. `welcome` has our proof.
    Admit { claim: Claim, welcome: Answer },
}

/// Reads what a pending connection has sent. Answers go to `out`.
pub(super) fn advance(
    stage: &mut Stage,
    received: &mut ReceiveBuffer,
    out: &mut SendQueue,
    token: &Token,
    nonce: &[u8; 32],
) -> HandshakeStep {
    loop {
        match stage {
            Stage::Greeting => match Greeting::read(received.unread()) {
                Err(Malformed) => return HandshakeStep::Drop("not a rank of plumb".into()),
                Ok(None) => return HandshakeStep::Wait,
                Ok(Some(greeting)) => {
                    let ours = Greeting::ours(nonce);
                    out.push(ours.to_vec());
                    if !greeting.is_compatible() {
                        return HandshakeStep::Refuse(other_release(&greeting));
                    }
                    let Some(theirs) = received.greeting() else { return HandshakeStep::Wait };
                    *stage = Stage::Claim(Box::new(Greetings { theirs, ours }));
                }
            },
            Stage::Claim(greetings) => {
                let Greetings { theirs, ours } = &**greetings;
                let request = match received.frame(LARGEST_PENDING_FRAME) {
                    Ok(None) => return HandshakeStep::Wait,
                    Ok(Some(frame)) => Request::read(frame),
                    Err(Malformed) => Err(Malformed),
                };
                let Ok(Request::Claim { proof, claim }) = request else {
                    return HandshakeStep::Drop("malformed handshake".into());
                };
                let transcript: [&[u8]; 3] = [theirs, ours, &claim.bytes()];
                if !token.accepts(Role::Rank, &transcript, &proof) {
                    return refuse(out, Cause::Token, "wrong token".into());
                }
                let welcome = Answer::Welcome { proof: token.proof(Role::Coordinator, &transcript) };
                return HandshakeStep::Admit { claim, welcome };
            }
        }
    }
}

/// Queues a refusal that the other side can report.
pub(super) fn refuse(out: &mut SendQueue, cause: Cause, detail: String) -> HandshakeStep {
    out.push(Answer::Refused { cause, detail: detail.clone() }.frame());
    HandshakeStep::Refuse(detail)
}

/// `plumb 0.0.9, not 0.1.0`
fn other_release(greeting: &Greeting) -> String {
    if greeting.version == VERSION {
        format!("plumb {VERSION} with protocol {}", greeting.protocol)
    } else {
        format!("plumb {}, not {VERSION}", greeting.version)
    }
}

#[cfg(test)]
mod tests {
    use super::super::socket::Socket;
    use super::*;
    use proptest::prelude::*;

    /// The result of a handshake in which the peer sends these bytes.
    fn handshake_result(bytes: &[u8]) -> HandshakeStep {
        let (here, there) = Socket::pair().expect("a pair");
        let mut sent = SendQueue::default();
        sent.push(bytes.to_vec());
        sent.flush(&there).expect("open");
        let (mut received, mut out) = (ReceiveBuffer::default(), SendQueue::default());
        let token = Token::new("secret").expect("valid");
        received.fill(&here).expect("open");
        advance(&mut Stage::Greeting, &mut received, &mut out, &token, &[2; 32])
    }

    fn claim() -> Claim {
        Claim { rank: 1, size: 2, pid: 3, host: "node7".into() }
    }

    fn handshake(token: &str) -> Vec<u8> {
        let theirs = Greeting::ours(&[1; 32]);
        let transcript: [&[u8]; 3] = [&theirs, &Greeting::ours(&[2; 32]), &claim().bytes()];
        let proof = Token::new(token).expect("valid").proof(Role::Rank, &transcript);
        [theirs.to_vec(), Request::Claim { proof, claim: claim() }.frame()].concat()
    }

    #[test]
    fn the_token_decides() {
        assert!(
            matches!(handshake_result(&handshake("secret")), HandshakeStep::Admit { claim: it, .. } if it == claim())
        );
        assert_eq!(handshake_result(&handshake("guess")), HandshakeStep::Refuse("wrong token".into()));
    }

    #[test]
    fn another_rank_or_nonce_needs_another_proof() {
        for at in [20, 80, 106 + 5 + 32, 106 + 5 + 36] {
            let mut bytes = handshake("secret");
            bytes[at] ^= 1;
            assert!(!matches!(handshake_result(&bytes), HandshakeStep::Admit { .. }), "byte {at}");
        }
    }

    #[test]
    fn other_programs_are_dropped_without_an_answer() {
        assert_eq!(
            handshake_result(b"GET / HTTP/1.1\r\n\r\n"),
            HandshakeStep::Drop("not a rank of plumb".into())
        );
        let oversize = [&Greeting::ours(&[1; 32])[..], &u32::MAX.to_le_bytes()].concat();
        assert_eq!(handshake_result(&oversize), HandshakeStep::Drop("malformed handshake".into()));
        let wrong = [&Greeting::ours(&[1; 32])[..], &Request::Leave.frame()].concat();
        assert_eq!(handshake_result(&wrong), HandshakeStep::Drop("malformed handshake".into()));
    }

    #[test]
    fn an_incomplete_handshake_waits() {
        let whole = handshake("secret");
        for length in 0..whole.len() {
            assert_eq!(handshake_result(&whole[..length]), HandshakeStep::Wait, "{length} bytes");
        }
    }

    #[test]
    fn another_release_is_named() {
        let bytes = Greeting::bytes(1, "9.9.9\u{7}", &[1; 32]);
        assert_eq!(handshake_result(&bytes), HandshakeStep::Refuse(format!("plumb 9.9.9 , not {VERSION}")));
        let bytes = Greeting::bytes(9, VERSION, &[1; 32]);
        assert_eq!(
            handshake_result(&bytes),
            HandshakeStep::Refuse(format!("plumb {VERSION} with protocol 9"))
        );
    }

    proptest! {
        #[test]
        fn random_bytes_are_never_admitted(greeted in any::<bool>(), bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut all = if greeted { Greeting::ours(&[1; 32]).to_vec() } else { Vec::new() };
            all.extend(bytes);
            let admitted = matches!(handshake_result(&all), HandshakeStep::Admit { .. });
            prop_assert!(!admitted);
        }
    }
}
