//! Strangers at the door: who may come in.

use super::flow::{Inflow, Outflow};
use super::token::{Role, Token};
use super::wire::{Answer, Claim, GREETING, Garbage, Greeting, Request, STRANGERS_FRAME, VERSION};
use crate::Cause;

/// How far a stranger has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// It has not said who it is.
    Greeting,
    /// It has said what it speaks, and has our greeting: both, theirs first.
    Claim(Box<[[u8; GREETING]; 2]>),
}

/// What to do with a stranger now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// More must come.
    Wait,
    /// It is none of ours: no answer.
    Drop(String),
    /// It is one of ours that may not come in; it has its answer.
    Refuse(String),
    /// It knows the token and is this rank, if the seat is free. The proof is ours.
    Admit(Claim, Answer),
}

/// Listens to a stranger. Answers go to `out`.
pub(super) fn hear(
    stage: &mut Stage,
    inflow: &mut Inflow,
    out: &mut Outflow,
    token: &Token,
    nonce: &[u8; 32],
) -> Step {
    loop {
        match stage {
            Stage::Greeting => match Greeting::read(inflow.unread()) {
                Err(Garbage) => return Step::Drop("not a rank of plumb".into()),
                Ok(None) => return Step::Wait,
                Ok(Some(greeting)) => {
                    let ours = Greeting::ours(nonce);
                    out.push(ours.to_vec());
                    if !greeting.fits() {
                        return Step::Refuse(other_release(&greeting));
                    }
                    let Some(theirs) = inflow.greeting() else { return Step::Wait };
                    *stage = Stage::Claim(Box::new([theirs, ours]));
                }
            },
            Stage::Claim(greetings) => {
                let [theirs, ours] = &**greetings;
                let request = match inflow.frame(STRANGERS_FRAME) {
                    Ok(None) => return Step::Wait,
                    Ok(Some(frame)) => Request::read(frame),
                    Err(Garbage) => Err(Garbage),
                };
                let Ok(Request::Claim { proof, claim }) = request else {
                    return Step::Drop("broken handshake".into());
                };
                let conversation: [&[u8]; 3] = [theirs, ours, &claim.bytes()];
                if !token.accepts(Role::Guest, &conversation, &proof) {
                    return refuse(out, Cause::Token, "wrong token".into());
                }
                let welcome = Answer::Welcome { proof: token.proof(Role::Host, &conversation) };
                return Step::Admit(claim, welcome);
            }
        }
    }
}

/// Answers with a refusal that the other side can tell.
pub(super) fn refuse(out: &mut Outflow, cause: Cause, detail: String) -> Step {
    out.push(Answer::Refused { cause, detail: detail.clone() }.frame());
    Step::Refuse(detail)
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
    use super::super::flow::Socket;
    use super::*;
    use proptest::prelude::*;

    /// Feeds these bytes to a new handshake and tells what came of it.
    fn heard(bytes: &[u8]) -> Step {
        let (here, there) = Socket::pair().expect("a pair");
        let mut sent = Outflow::default();
        sent.push(bytes.to_vec());
        sent.flush(&there).expect("open");
        let (mut inflow, mut out) = (Inflow::default(), Outflow::default());
        let token = Token::new("secret").expect("valid");
        inflow.fill(&here).expect("open");
        hear(&mut Stage::Greeting, &mut inflow, &mut out, &token, &[2; 32])
    }

    fn claim() -> Claim {
        Claim { rank: 1, size: 2, pid: 3, host: "node7".into() }
    }

    fn handshake(token: &str) -> Vec<u8> {
        let theirs = Greeting::ours(&[1; 32]);
        let conversation: [&[u8]; 3] = [&theirs, &Greeting::ours(&[2; 32]), &claim().bytes()];
        let proof = Token::new(token).expect("valid").proof(Role::Guest, &conversation);
        [theirs.to_vec(), Request::Claim { proof, claim: claim() }.frame()].concat()
    }

    #[test]
    fn the_token_decides() {
        assert!(matches!(heard(&handshake("secret")), Step::Admit(it, _) if it == claim()));
        assert_eq!(heard(&handshake("guess")), Step::Refuse("wrong token".into()));
    }

    #[test]
    fn another_rank_or_nonce_needs_another_proof() {
        for at in [20, 80, 106 + 5 + 32, 106 + 5 + 36] {
            let mut bytes = handshake("secret");
            bytes[at] ^= 1;
            assert!(!matches!(heard(&bytes), Step::Admit(..)), "byte {at}");
        }
    }

    #[test]
    fn strangers_are_dropped_without_an_answer() {
        assert_eq!(heard(b"GET / HTTP/1.1\r\n\r\n"), Step::Drop("not a rank of plumb".into()));
        let oversize = [&Greeting::ours(&[1; 32])[..], &u32::MAX.to_le_bytes()].concat();
        assert_eq!(heard(&oversize), Step::Drop("broken handshake".into()));
        let wrong = [&Greeting::ours(&[1; 32])[..], &Request::Goodbye.frame()].concat();
        assert_eq!(heard(&wrong), Step::Drop("broken handshake".into()));
    }

    #[test]
    fn what_is_cut_short_waits() {
        let whole = handshake("secret");
        for length in 0..whole.len() {
            assert_eq!(heard(&whole[..length]), Step::Wait, "{length} bytes");
        }
    }

    #[test]
    fn another_release_is_named() {
        let bytes = Greeting::bytes(1, "9.9.9\u{7}", &[1; 32]);
        assert_eq!(heard(&bytes), Step::Refuse(format!("plumb 9.9.9 , not {VERSION}")));
        let bytes = Greeting::bytes(9, VERSION, &[1; 32]);
        assert_eq!(heard(&bytes), Step::Refuse(format!("plumb {VERSION} with protocol 9")));
    }

    proptest! {
        #[test]
        fn random_bytes_never_come_in(greeted in any::<bool>(), bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut all = if greeted { Greeting::ours(&[1; 32]).to_vec() } else { Vec::new() };
            all.extend(bytes);
            prop_assert!(!matches!(heard(&all), Step::Admit(..)));
        }
    }
}
